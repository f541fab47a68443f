import assert from "node:assert/strict";
import { readFile } from "node:fs/promises";
import { test } from "node:test";
import { fileURLToPath } from "node:url";

const read = (path: string) => readFile(fileURLToPath(new URL(`../../../${path}`, import.meta.url)), "utf8");

interface Component {
  name: string;
  version: string;
  purl: string;
  licenses: { expression: string }[];
}

const components = async () =>
  (JSON.parse(await read("crates/gateway/assets/sbom.cdx.json")) as { components: Component[] }).components;

test("licenses of shipped packages are permitted by deny.toml", async () => {
  const allowed = /^allow = \[\n([^\]]*)^\]/m.exec(await read("deny.toml"))?.[1];
  const permitted = [...(allowed ?? "").matchAll(/^ {2}"([^"]+)"/gm)].map(([, id]) => id);
  assert.ok(permitted.includes("MIT"), "the list of deny.toml was not found");
  for (const { name, licenses } of await components()) {
    for (const { expression } of licenses) {
      assert.ok(permitted.includes(expression), `${name}: ${expression} is not in deny.toml's list`);
    }
  }
});

test("bill of materials and licenses name the same pinned packages", async () => {
  const listed = await components();
  const texts = await read("crates/gateway/assets/licenses.txt");
  const named = [...texts.matchAll(/^## (\S+ - \d\S*) \(/gm)].map(([, name]) => name);
  assert.ok(
    named.some((name) => name?.startsWith("svelte - ")),
    "the list of licenses was not found",
  );
  assert.deepEqual(
    listed.map(({ name, version }) => `${name} - ${version}`),
    named,
  );
  const lock = JSON.parse(await read("web/package-lock.json")) as {
    packages: Record<string, { version: string }>;
  };
  for (const { name, version, purl } of listed) {
    assert.equal(lock.packages[`node_modules/${name}`]?.version, version, name);
    assert.equal(purl, `pkg:npm/${name}@${version}`);
  }
});
