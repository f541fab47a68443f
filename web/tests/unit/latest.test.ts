import assert from "node:assert/strict";
import { test } from "node:test";
import { Latest } from "../../src/state/latest.ts";

test("outcome of an overtaken request is not shown", () => {
  const requests = new Latest();
  const [first, second, third] = [requests.start(), requests.start(), requests.start()];
  assert.equal(second(), true);
  assert.equal(first(), false, "a later request was shown");
  assert.equal(third(), true);
  assert.equal(second(), false);
});
