import assert from "node:assert/strict";
import { test } from "node:test";
import { changedArguments, changes, folded } from "../../src/text/changes.ts";

test("changed lines are added and removed", () => {
  assert.deepEqual(changes("a\nb\nc\n", "a\nB\nc\n"), [
    { kind: "same", text: "a" },
    { kind: "removed", text: "b" },
    { kind: "added", text: "B" },
    { kind: "same", text: "c" },
  ]);
  assert.deepEqual(changes("", "new\n"), [{ kind: "added", text: "new" }]);
  assert.deepEqual(changes("same", "same"), [{ kind: "same", text: "same" }]);
});

test("unchanged lines are folded around changes", () => {
  const lines = Array.from({ length: 40 }, (_, index) => `line ${index}`);
  const after = lines.with(20, "changed");
  const rows = folded(changes(lines.join("\n"), after.join("\n")));
  const folds = rows.filter((row) => row.kind === "fold");
  assert.equal(folds.length, 2);
  assert.equal(
    folds.reduce((sum, fold) => sum + fold.lines.length, 0),
    33,
  );
  assert.equal(rows.length, 2 + 6 + 2);
});

test("texts without common lines take bounded time", () => {
  const text = (word: string) => Array.from({ length: 20_000 }, (_, index) => `${word} ${index}`).join("\n");
  const start = performance.now();
  const rows = changes(text("before"), text("after"));
  assert.ok(performance.now() - start < 3_000);
  assert.equal(rows.length, 40_000);
});

test("changed arguments are named", () => {
  assert.deepEqual(changedArguments({ path: "a", count: 1 }, { path: "b", count: 1, force: true }), [
    "path",
    "force",
  ]);
  assert.deepEqual(changedArguments({ a: [1, 2] }, { a: [1, 2] }), []);
  assert.equal(changedArguments("x", { a: 1 }), undefined);
});
