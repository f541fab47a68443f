/** Pictures of the documentation, and the sources that they were made from. */
import { createHash } from "node:crypto";
import { readdir, readFile, writeFile } from "node:fs/promises";
import { join, relative } from "node:path";
import { fileURLToPath } from "node:url";

const WEB = fileURLToPath(new URL("..", import.meta.url));
/** Folder of the pictures. */
export const IMAGES = fileURLToPath(new URL("../../docs/images/", import.meta.url));
/** File with the hash of the sources. */
const RECORD = join(IMAGES, "console-pictures.txt");
/** Screens that no picture shows. */
const NOT_SHOWN = ["Fleet", "Letters", "Schedules", "SignIn", "Tasks", "Tools"].map(
  (name) => `src/screens/${name}${name === "SignIn" ? "" : "Screen"}.svelte`,
);

/** Returns the hash of the sources that decide what the pictures show. */
export async function sourcesHash(): Promise<string> {
  const found = await readdir(join(WEB, "src"), { recursive: true, withFileTypes: true });
  const sources = found
    .filter((entry) => entry.isFile())
    .map((entry) => relative(WEB, join(entry.parentPath, entry.name)));
  const names = [...sources, "tests/program/pictures.spec.ts", "tests/program/pictures.toml"];
  const hash = createHash("sha256");
  for (const name of names.filter((name) => !NOT_SHOWN.includes(name)).sort()) {
    hash.update(`${name}\n${await readFile(join(WEB, name), "utf8")}\n`);
  }
  return hash.digest("hex");
}

/** Returns the recorded hash; empty if there is none. */
export async function recordedHash(): Promise<string> {
  return (await readFile(RECORD, "utf8").catch(() => "")).trim();
}

/** Records that the pictures show the current sources. */
export async function record(): Promise<void> {
  await writeFile(RECORD, `${await sourcesHash()}\n`);
}
