// Extracts the main content of pages with Readability.js, for `cargo xtask bench extraction`.
//
//     node readability.mjs readability.js < PAGES
//
// Reads and prints the lines of extractors.py: path and URL of a page; its text, and the seconds of CPU time that it took.

import { readFileSync } from "node:fs";
import { createInterface } from "node:readline";
import { gunzipSync } from "node:zlib";
import { Readability } from "@mozilla/readability";
import { JSDOM, VirtualConsole } from "jsdom";

const BLOCK = /<\/?(?:p|div|h[1-6]|li|ul|ol|tr|td|th|table|pre|blockquote|section|article|dt|dd|dl|br|figcaption)\b/giu;
// Without the errors of style sheets.
const options = { virtualConsole: new VirtualConsole() };

function extract(html, url) {
  const page = new JSDOM(html, { ...options, url });
  const article = new Readability(page.window.document).parse();
  page.window.close();
  if (!article?.content) return "";
  // The words of adjacent blocks are not one word.
  const content = new JSDOM(article.content.replaceAll(BLOCK, "\n$&"), options);
  const text = content.window.document.body.textContent;
  content.window.close();
  return text;
}

for await (const line of createInterface({ input: process.stdin })) {
  const { html, url } = JSON.parse(line);
  const bytes = readFileSync(html);
  const page = (html.endsWith(".gz") ? gunzipSync(bytes) : bytes).toString();
  const before = process.cpuUsage();
  let text = "";
  try {
    text = extract(page, url);
  } catch {
    // A page that cannot be read has no text.
  }
  const { user, system } = process.cpuUsage(before);
  console.log(JSON.stringify({ text, seconds: (user + system) / 1e6 }));
}
