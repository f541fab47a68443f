import assert from "node:assert/strict";
import { readFile } from "node:fs/promises";
import { test } from "node:test";
import { exactParts, HIDDEN, oneLine, stripped } from "../../src/text/hidden.ts";

const HOSTILE = "\u001b]0;owned\u0007\u001b[2J\u202e\u200bharm";

test("table is that of the terminal", async () => {
  const source = await readFile(
    new URL("../../../crates/contracts/src/outside_text.rs", import.meta.url),
    "utf8",
  );
  const body = /fn is_hidden\(.*?\n\}/s.exec(source)?.[0] ?? "";
  const patterns = [...body.matchAll(/'\\u\{([0-9a-f]+)\}'(?:\.\.='\\u\{([0-9a-f]+)\}')?/g)];
  const ranges = patterns.map(([, first = "", last = first]) => [parseInt(first, 16), parseInt(last, 16)]);
  assert.ok(ranges.length > 20);
  assert.deepEqual(HIDDEN, ranges);
});

test("running text loses sequences and hidden characters", () => {
  assert.equal(stripped(HOSTILE), "harm");
  assert.equal(stripped("a\r\nb\tc\rd"), "a\nb\tcd");
  assert.equal(stripped("👩‍💻 é ü 日本"), "👩‍💻 é ü 日本");
});

test("exact text shows hidden characters as escapes", () => {
  assert.deepEqual(exactParts("rm\u202e -rf").parts, [
    { text: "rm", isHidden: false },
    { text: "\\u{202e}", isHidden: true },
    { text: " -rf", isHidden: false },
  ]);
  assert.deepEqual(exactParts("\u{e0041}\u200d").parts, [{ text: "\\u{e0041}\\u{200d}", isHidden: true }]);
});

test("exact text keeps every visible character", () => {
  const shown = exactParts(HOSTILE)
    .parts.map((part) => part.text)
    .join("");
  assert.equal(shown, "\\u{1b}]0;owned\\u{7}\\u{1b}[2J\\u{202e}\\u{200b}harm");
});

test("exact text is bounded in length and in groups of hidden characters", () => {
  assert.deepEqual(exactParts("abcdef", 4), { parts: [{ text: "abcd", isHidden: false }], end: 4 });
  const { parts, end } = exactParts("a\u200db".repeat(100), 300, 3);
  assert.equal(parts.filter((part) => part.isHidden).length, 3);
  assert.equal(end, 10);
});

test("line is bounded without reading a large text", () => {
  assert.equal(oneLine("a\nb   c", 10), "a b c");
  assert.equal(oneLine("x".repeat(1 << 24), 5), "xxxxx…");
  assert.equal(oneLine("👍".repeat(10), 3), "👍👍👍…");
});
