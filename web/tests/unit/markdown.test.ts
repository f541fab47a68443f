import assert from "node:assert/strict";
import { test } from "node:test";
import { type Block, MAX_LENGTH, parseMarkdown } from "../../src/text/markdown.ts";

/** Returns all text of the nodes, in order. */
function textOf(value: unknown): string {
  if (Array.isArray(value)) {
    return value.map(textOf).join("");
  }
  if (typeof value !== "object" || value === null) {
    return "";
  }
  const { text, ...rest } = value as Record<string, unknown>;
  return (typeof text === "string" ? text : "") + Object.values(rest).map(textOf).join("");
}

function links(value: unknown): string[] {
  if (typeof value !== "object" || value === null) {
    return [];
  }
  const { link } = value as { link?: { href: string } };
  return [...(link ? [link.href] : []), ...Object.values(value).flatMap(links)];
}

test("blocks and inlines become nodes", () => {
  const blocks = parseMarkdown(
    "# Title\n\nSome **bold** `code`.\n\n- [x] done\n- open\n\n```rust x\nfn main() {}\n```",
  );
  assert.deepEqual(blocks[0], { type: "heading", level: 1, children: [{ type: "text", text: "Title" }] });
  assert.deepEqual(blocks[1], {
    type: "paragraph",
    children: [
      { type: "text", text: "Some " },
      { type: "strong", children: [{ type: "text", text: "bold" }] },
      { type: "text", text: " " },
      { type: "code", text: "code" },
      { type: "text", text: "." },
    ],
  });
  const list = blocks[2] as Block & { type: "list" };
  assert.equal(list.items[0]?.isDone, true);
  assert.equal(list.items[1]?.isDone, undefined);
  assert.deepEqual(blocks[3], { type: "code", language: "rust", text: "fn main() {}" });
});

test("HTML stays text", () => {
  for (const html of ["<script>alert(1)</script>", "a <b onclick=x>b</b>", "<img src=x onerror=alert(1)>"]) {
    assert.equal(textOf(parseMarkdown(html)).trim(), html);
  }
});

test("image becomes a link with its host", () => {
  const [block] = parseMarkdown("![secret](https://evil.example/?q=1)") as [Block & { type: "paragraph" }];
  assert.deepEqual(block.children[0], {
    type: "link",
    link: { href: "https://evil.example/?q=1", host: "evil.example" },
    children: [{ type: "text", text: "secret" }],
    isImage: true,
  });
});

test("other targets stay text", () => {
  const targets = [
    "javascript:alert(1)",
    "JaVaScRiPt:x",
    "data:text/html,x",
    "vbscript:x",
    "file:///etc/passwd",
    "//evil",
    "/api/v1/me",
    "https://a:b@evil.example/",
  ];
  for (const target of targets) {
    const source = `[click](${target})`;
    assert.deepEqual(links(parseMarkdown(source)), [], target);
  }
  assert.deepEqual(links(parseMarkdown("[a](https://b.example) <mailto:c@d.example>")), [
    "https://b.example/",
    "mailto:c@d.example",
  ]);
});

test("hidden characters are removed", () => {
  assert.equal(textOf(parseMarkdown("a\u202eb\u200bc \u001b[31mred")), "abc red");
});

test("long text is kept whole", () => {
  const source = "line of text\n".repeat(20_000);
  const blocks = parseMarkdown(source);
  assert.equal(blocks.at(-1)?.type, "plain");
  assert.equal(textOf(blocks).replaceAll("\n", "").length, source.replaceAll("\n", "").length);
  assert.ok(source.length > MAX_LENGTH);
});

test("hostile nesting and delimiters take bounded time", () => {
  const hostile = [
    "> ".repeat(30_000),
    "- ".repeat(30_000),
    `${"1. ".repeat(20_000)}a`,
    "[".repeat(60_000),
    "![".repeat(30_000),
    "*a ".repeat(20_000),
    "**a _b ".repeat(9_000),
    "`".repeat(60_000),
    "<".repeat(60_000),
    "<!--".repeat(15_000),
    "a ".repeat(30_000),
    "|a".repeat(30_000),
    "[a](b".repeat(12_000),
    "~".repeat(60_000),
    "&#x".repeat(20_000),
    `${"    ".repeat(15_000)}x`,
    `${"a@".repeat(4_000)}b`,
    `${"_a__b".repeat(790)}`,
    `${"[a]: <".repeat(660)}`,
    `| a |\n|---|\n${"| b |\n".repeat(9_000)}`,
    `${"> ".repeat(12)}deep\n`.repeat(800),
    "\n".repeat(60_000),
    `${"*".repeat(3_900)}a`,
    `${"[a](<b".repeat(1_000)}`,
    `${"http://".repeat(1_100)}`,
    `${"\\".repeat(3_999)}`,
  ];
  for (const [index, source] of hostile.entries()) {
    const start = performance.now();
    const blocks = parseMarkdown(source);
    const elapsed = performance.now() - start;
    assert.ok(blocks.length >= 0);
    assert.ok(elapsed < 1_000, `payload ${index} took ${elapsed} ms`);
  }
});
