import assert from "node:assert/strict";
import { test } from "node:test";
import type { Call, CallsFrame } from "../../src/api.ts";
import { CallList, MAX_CALLS } from "../../src/state/calls.ts";
import { href, loginCode, parseRoute } from "../../src/state/route.ts";
import { stages } from "../../src/state/stages.ts";

function call(id: string, firstMs: number, changes: Partial<Call> = {}): Call {
  return {
    id,
    firstMs,
    state: "ok",
    live: false,
    failed: false,
    progress: 0,
    tool: "bash",
    latencyMs: firstMs,
    ...changes,
  };
}

function frame(calls: Call[], snapshot = false): CallsFrame {
  const tally = { calls: 0, replied: 0, failed: 0 };
  return { snapshot, calls, skipped: 0, tally, sinceMs: 0, rates: { perSecond: 0 } };
}

test("calls are newest first, whatever the order in frames", () => {
  const list = new CallList();
  list.merge(frame([call("b", 2), call("a", 1)], true));
  list.merge(frame([call("c", 3), call("z", 0), call("e", 5), call("d", 4)]));
  assert.deepEqual(list.order, ["e", "d", "c", "b", "a", "z"]);
});

test("changed call keeps its place", () => {
  const list = new CallList();
  list.merge(frame([call("a", 1, { state: "running", live: true }), call("b", 2)], true));
  list.merge(frame([call("a", 1)]));
  assert.deepEqual(list.order, ["b", "a"]);
  assert.equal(list.get("a")?.state, "ok");
});

test("call that no longer matches the states is removed", () => {
  const list = new CallList();
  const live = call("a", 1, { state: "running", live: true });
  list.merge(frame([live, call("b", 2, { state: "running", live: true })], true), "state:live");
  list.merge(frame([call("a", 1)]), "state:live");
  assert.deepEqual(list.order, ["b"]);
});

test("number of calls is bounded", () => {
  const list = new CallList();
  for (let start = 0; start < MAX_CALLS + 2000; start += 500) {
    list.merge(frame(Array.from({ length: 500 }, (_, index) => call(`c${start + index}`, start + index))));
  }
  assert.equal(list.order.length, MAX_CALLS);
  assert.equal(list.order[0], `c${MAX_CALLS + 1999}`);
  assert.equal(list.get("c0"), undefined);
});

test("copy does not change", () => {
  const list = new CallList();
  list.merge(frame([call("a", 1)], true));
  const copy = list.copy();
  list.merge(frame([call("a", 1, { state: "timeout" }), call("b", 2)]));
  assert.deepEqual(copy.order, ["a"]);
  assert.equal(copy.get("a")?.state, "ok");
});

test("figures are grouped by tool", () => {
  const list = new CallList();
  list.merge(
    frame(
      [call("a", 1), call("b", 3, { failed: true }), call("c", 5, { tool: "search", server: "github" })],
      true,
    ),
  );
  assert.deepEqual(list.byTool(), [
    { tool: "bash", calls: 2, live: 0, failed: 1, p50Ms: 3, p95Ms: 3 },
    { tool: "github/search", calls: 1, live: 0, failed: 0, p50Ms: 5, p95Ms: 5 },
  ]);
});

test("stages share the latency", () => {
  const shown = stages(call("a", 1, { latencyMs: 10, runMs: 8, waitedMs: 2 }));
  assert.deepEqual(
    shown.map(({ kind, ms, start, share }) => [kind, ms, start, share]),
    [
      ["waited", 2, 0, 0.2],
      ["ran", 8, 0.2, 0.8],
    ],
  );
  const reported = { queueMs: 3, startMs: 1, runMs: 4 };
  assert.deepEqual(
    stages(call("a", 1, { latencyMs: 10, runMs: 4, waitedMs: 6, stages: reported })).map(
      ({ kind, ms, start }) => [kind, ms, start],
    ),
    [
      ["queued", 3, 0],
      ["started", 1, 0.3],
      ["ran", 4, 0.4],
      ["replied", 2, 0.8],
    ],
  );
  // Whole milliseconds may exceed the latency.
  const rounded = stages(call("a", 1, { latencyMs: 7.5, stages: reported }));
  assert.deepEqual(rounded.map(({ kind, ms }) => [kind, ms]).at(-1), ["replied", 0]);
  assert.deepEqual(stages(call("a", 1, { latencyMs: undefined })), []);
});

test("addresses are parsed and made", () => {
  assert.deepEqual(parseRoute("#/calls/a%2Fb"), { screen: "calls", id: "a/b" });
  assert.equal(href("calls", "a/b"), "#/calls/a%2Fb");
  assert.equal(parseRoute("#/unknown"), null);
  assert.equal(parseRoute("#/calls/%"), null);
  assert.equal(parseRoute(`#/calls/${"x".repeat(300)}`), null);
  assert.equal(loginCode("#login=abc-1"), "abc-1");
  assert.equal(loginCode("#/talk"), null);
});
