import assert from "node:assert/strict";
import { test } from "node:test";
import {
  bytes,
  cost,
  countdown,
  duration,
  percentile,
  runTime,
  shortInstance,
} from "../../src/text/amounts.ts";
import { safeLink } from "../../src/text/links.ts";
import { children, parseJson, size, summary } from "../../src/text/values.ts";

test("JSON is parsed up to its bound", () => {
  assert.deepEqual(parseJson('{"a":[1]}'), { a: [1] });
  assert.equal(parseJson("{"), undefined);
  assert.equal(parseJson(`"${"x".repeat(2 << 20)}"`), undefined);
});

test("tree shows a page of children", () => {
  const value = parseJson(JSON.stringify(Array.from({ length: 5000 }, (_, index) => index))) ?? null;
  assert.equal(children(value, 100).length, 100);
  assert.equal(size(value), 5000);
  assert.equal(summary(value), "[5000]");
  assert.deepEqual(children({ __proto__: null, a: 1 } as never, 10), [{ name: "a", value: 1 }]);
});

test("names of prototypes are ordinary children", () => {
  const value = parseJson('{"__proto__":{"x":1},"constructor":2}') ?? null;
  assert.deepEqual(
    children(value, 10).map((child) => child.name),
    ["__proto__", "constructor"],
  );
});

test("amounts are readable", () => {
  assert.deepEqual([0.64, 57.1, 12_400, 180_000, 7_500_000].map(duration), [
    "0.6 ms",
    "57 ms",
    "12.4 s",
    "3 min",
    "2 h 5 min",
  ]);
  assert.deepEqual([412, 2150, 4 << 20].map(bytes), ["412 B", "2.1 KiB", "4.0 MiB"]);
  assert.deepEqual([0, 1].map(runTime), ["< 1 ms", "1.0 ms"]);
  assert.equal(countdown(54_000), "0:54");
  assert.equal(cost(12_300), "$0.0123");
  assert.equal(duration(Number.NaN), "?");
  assert.equal(shortInstance("tool-handler/0199b1c2d3e4465dafe0"), "tool-handler/…5dafe0");
  assert.equal(percentile([5, 1, 3], 0.5), 3);
});

test("links have a scheme that may be followed", () => {
  assert.deepEqual(safeLink("https://example.org/a b"), {
    href: "https://example.org/a%20b",
    host: "example.org",
  });
  for (const target of [
    "javascript:1",
    "\u0001javascript:1",
    " java\nscript:1",
    "data:,",
    "blob:https://a/1",
    "relative",
    `https://a/${"x".repeat(3000)}`,
  ]) {
    assert.equal(safeLink(target), null, target);
  }
});
