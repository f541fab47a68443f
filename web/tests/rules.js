/** Rules for the sources that keep untrusted text from becoming markup. */
import { readdir, readFile } from "node:fs/promises";

const FORBIDDEN = [
  [/\{@html\b/, "{@html} makes markup from text"],
  [/\b(?:inner|outer)HTML\b/, "innerHTML makes markup from text"],
  [/\binsertAdjacentHTML\b|\bdocument\.write/, "it makes markup from text"],
  [/\beval\s*\(|\bnew Function\b/, "it makes code from text"],
  [/\sstyle="/, "the content security policy blocks static styles; use a class or style:property"],
  [/<img\b|<iframe\b|<object\b|<embed\b/, "no content is loaded"],
  [/https?:\/\/(?!www\.w3\.org\/)/, "the page names no other host"],
];
const MAX_LINES = 600;

const root = new URL("../src/", import.meta.url);
const failures = [];
for (const entry of await readdir(root, { recursive: true, withFileTypes: true })) {
  if (!entry.isFile()) {
    continue;
  }
  const path = `${entry.parentPath}/${entry.name}`;
  const lines = (await readFile(path, "utf8")).split("\n");
  if (lines.length > MAX_LINES) {
    failures.push(`${path}: ${lines.length} lines; split the file`);
  }
  for (const [index, line] of lines.entries()) {
    for (const [pattern, reason] of FORBIDDEN) {
      if (pattern.test(line)) {
        failures.push(`${path}:${index + 1}: ${reason}`);
      }
    }
  }
}
if (failures.length > 0) {
  process.stderr.write(`${failures.join("\n")}\n`);
  process.exit(1);
}
