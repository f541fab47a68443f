/** File with the cookie of the session, which the tests of a run share: a login link is valid once. */
import { tmpdir } from "node:os";
import { join } from "node:path";

export const STATE = join(process.env.ROCKBOT_CONSOLE_FOLDER ?? tmpdir(), "console-session.json");
