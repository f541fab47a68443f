/** Lets `node --test` import TypeScript. */
import { register } from "node:module";

register("./transpile.js", import.meta.url);
