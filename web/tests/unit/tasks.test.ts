import assert from "node:assert/strict";
import { test } from "node:test";
import type { DelegatedTask, TaskTree } from "../../src/api.ts";
import { openTasks, shownTrees, stateWords, taskSpending, taskTime } from "../../src/state/tasks.ts";

function task(changes: Partial<DelegatedTask> = {}): DelegatedTask {
  return {
    id: "t",
    description: "",
    state: "running",
    ended: false,
    createdMs: 1000,
    deadlineMs: 9000,
    lastReport: "",
    passedOn: false,
    ...changes,
  };
}

function tree(tasks: DelegatedTask[]): TaskTree {
  const conversation = { id: "c", agent: "a", title: "", createdMs: 0, lastActiveMs: 0, state: "idle" };
  return { conversation, tasks };
}

test("spending is that of ended tasks", () => {
  const usage = { promptTokens: 10, completionTokens: 5, costMicros: 7, toolCalls: 2 };
  const ended = task({ state: "completed", ended: true, endedMs: 4000, usage });
  assert.deepEqual(taskSpending(tree([ended, task(), { ...ended, usage: { promptTokens: 1 } }])), {
    promptTokens: 11,
    completionTokens: 5,
    costMicros: 7,
    toolCalls: 2,
  });
  assert.deepEqual([taskTime(ended, 8000), taskTime(task(), 8000), taskTime(task(), 0)], [3000, 7000, 0]);
});

test("only trees with open tasks remain", () => {
  const [open, ended] = [tree([task(), task({ ended: true })]), tree([task({ ended: true })])];
  assert.deepEqual([openTasks(open), openTasks(ended)], [1, 0]);
  assert.deepEqual(shownTrees({ conversations: [open, ended] }, true), [open]);
  assert.deepEqual(shownTrees({ conversations: [open, ended] }, false), [open, ended]);
});

test("unknown state is not shown as text of an agent", () => {
  assert.equal(stateWords({ state: "input_required" }), "waits for an answer");
  assert.equal(stateWords({ state: "<b>" }), "unknown");
});
