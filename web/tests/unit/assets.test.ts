import assert from "node:assert/strict";
import { mkdtemp, readdir, readFile, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { test } from "node:test";
import { fileURLToPath } from "node:url";
import { build } from "vite";

const ROOT = fileURLToPath(new URL("../..", import.meta.url));
const ASSETS = fileURLToPath(new URL("../../../crates/gateway/assets", import.meta.url));

async function files(folder: string): Promise<Map<string, string>> {
  const names = (await readdir(folder)).sort();
  const contents = await Promise.all(names.map((name) => readFile(join(folder, name), "base64")));
  return new Map(names.map((name, index) => [name, contents[index] ?? ""]));
}

async function built(): Promise<Map<string, string>> {
  const folder = await mkdtemp(join(tmpdir(), "console-"));
  try {
    await build({ root: ROOT, logLevel: "error", build: { outDir: folder, emptyOutDir: true } });
    return await files(folder);
  } finally {
    await rm(folder, { recursive: true });
  }
}

test("two builds are the committed files", async () => {
  const [first, second, committed] = [await built(), await built(), await files(ASSETS)];
  assert.deepEqual(
    [...first.keys()],
    [...committed.keys()],
    "run `npm run build` and commit crates/gateway/assets",
  );
  for (const [name, content] of first) {
    assert.equal(second.get(name) === content, true, `${name} differs between two builds`);
    assert.equal(committed.get(name) === content, true, `${name} is stale: run npm run build`);
  }
});
