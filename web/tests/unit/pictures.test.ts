import assert from "node:assert/strict";
import { readdir, stat } from "node:fs/promises";
import { join } from "node:path";
import { test } from "node:test";
import { IMAGES, recordedHash, sourcesHash } from "../pictures.ts";

const MAX_BYTES = 150_000;

test("pictures of the documentation show the current sources", async () => {
  assert.equal(
    await recordedHash(),
    await sourcesHash(),
    "docs/images/console-*.png are stale: run `cargo xtask web --screenshots` and commit them",
  );
});

test("pictures are small", async () => {
  const names = (await readdir(IMAGES)).filter((name) => /^console-.*\.png$/.test(name));
  assert.equal(names.length, 6);
  for (const name of names) {
    const { size } = await stat(join(IMAGES, name));
    assert.ok(size < MAX_BYTES, `${name} has ${size} bytes`);
  }
});
