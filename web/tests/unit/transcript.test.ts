import assert from "node:assert/strict";
import { test } from "node:test";
import type { ConversationEvent, HistoryItem } from "../../src/api.ts";
import { type CallEntry, type Entry, Transcript } from "../../src/state/transcript.ts";
import { afterApproval, untilApproval } from "../mock/turn.ts";

const MESSAGE = "m1";

function events(): ConversationEvent[] {
  const all = [
    { kind: "message" as const, messageId: MESSAGE, text: "Which files?" },
    ...untilApproval(MESSAGE),
    {
      kind: "approval_closed" as const,
      messageId: MESSAGE,
      approvalId: "0199d000-0000-7000-8000-000000000001",
      decision: "allow",
    },
    ...afterApproval(MESSAGE),
  ];
  return all.map(
    (event, index) => ({ ...event, id: `e-${index + 1}`, conversation: "c", atMs: 1 }) as ConversationEvent,
  );
}

function folded(all: ConversationEvent[], from = new Transcript()): Transcript {
  for (const event of all) {
    from.add(event);
  }
  return from;
}

const withoutKeys = (entries: readonly Entry[]) => entries.map(({ key, ...entry }) => entry);

test("turn becomes entries in order", () => {
  const transcript = folded(events());
  assert.deepEqual(
    transcript.entries.map(({ kind }) => kind),
    ["user", "text", "call", "call", "call", "approval", "text", "end"],
  );
  assert.equal(transcript.isRunning, false);
  assert.equal(transcript.approvals.length, 0);
  const text = transcript.entries[1];
  assert.equal(text?.kind === "text" && text.text, "I look for it.");
});

test("running turn has a beginning and a last event", () => {
  const all = events().map((event, index) => ({ ...event, atMs: 1000 + index }));
  const transcript = folded(all.slice(0, 4));
  assert.deepEqual([transcript.runningSinceMs, transcript.lastEventMs], [1000, 1003]);
  folded(all.slice(4), transcript);
  assert.equal(transcript.runningSinceMs, undefined);
});

test("call has the stages that its handler reported", () => {
  const call = folded(events()).entries.find((entry) => entry.kind === "call");
  assert.deepEqual(call?.kind === "call" && call.stages, { queueMs: 1, startMs: 0, runMs: 2 });
});

test("work that the agent delegated is shown until its results are read", () => {
  const bodies = [
    { kind: "delegation_progressed" as const, taskId: "t1", text: "2 of 3 read" },
    { kind: "delegation_ended" as const, taskId: "t1", state: "completed", preview: "Take the third." },
    { kind: "follow_up" as const, taskIds: ["t1"], text: "The third is cheaper.", outcome: "completed" },
  ];
  const all = bodies.map(
    (body, index) =>
      ({
        ...body,
        messageId: "task-t1",
        id: `e-${index + 1}`,
        conversation: "c",
        atMs: 1,
      }) as ConversationEvent,
  );
  const transcript = folded(all);
  assert.deepEqual(
    transcript.entries.map(({ kind }) => kind),
    ["note", "text", "end"],
  );
  const note = transcript.entries[0];
  assert.equal(note?.kind === "note" && note.text, "Sub-agent t1 completed: Take the third.");
  assert.equal(transcript.isRunning, false);
});

test("call awaits its approval until the decision", () => {
  const all = events();
  const asked = all.findIndex(({ kind }) => kind === "approval_asked");
  const edit = (transcript: Transcript) =>
    transcript.entries.find((entry): entry is CallEntry => entry.key === "call:call-edit");
  assert.equal(edit(folded(all.slice(0, asked + 1)))?.awaitsApproval, true);
  assert.equal(edit(folded(all.slice(0, asked + 2)))?.awaitsApproval, false);
});

test("events that are received twice count once", () => {
  const all = events();
  const transcript = new Transcript();
  for (let index = 0; index < all.length; index += 1) {
    // A cut after each event repeats up to three of them.
    for (const event of all.slice(Math.max(0, index - 3), index + 1)) {
      transcript.add(event);
    }
  }
  assert.deepEqual(withoutKeys(transcript.entries), withoutKeys(folded(all).entries));
});

test("snapshot and stream give the same as the stream alone", () => {
  const all = events();
  const expected = withoutKeys(folded(all).entries);
  for (let cut = 0; cut <= all.length; cut += 1) {
    const transcript = new Transcript();
    for (const event of all.slice(0, cut)) {
      transcript.addRunning(event);
    }
    transcript.setPosition(`e-${cut}`);
    folded(all.slice(Math.max(0, cut - 2)), transcript);
    assert.deepEqual(withoutKeys(transcript.entries), expected, `cut after ${cut}`);
  }
});

test("another process replaces the text since the last call", () => {
  const event = (id: number, rest: object) =>
    ({ id: `e-${id}`, conversation: "c", messageId: MESSAGE, atMs: 1, ...rest }) as ConversationEvent;
  const transcript = folded([
    event(1, { kind: "text_delta", text: "half of" }),
    event(2, { kind: "resumed", on: "agent/b", attempt: 2 }),
    event(3, { kind: "text_delta", text: "the whole" }),
    event(4, { kind: "answer", text: "the whole answer", outcome: "completed" }),
  ]);
  const texts = transcript.entries.filter((entry) => entry.kind === "text").map((entry) => entry.text);
  assert.deepEqual(texts, ["the whole answer"]);
});

test("message is shown once, sent by this page or another", () => {
  const transcript = new Transcript();
  transcript.setSending("k1", "hello", "sending");
  transcript.add({
    id: "e-1",
    conversation: "c",
    messageId: "m1",
    atMs: 1,
    kind: "message",
    text: "hello",
    key: "k1",
  });
  transcript.setSent("k1", "m1");
  assert.equal(transcript.entries.length, 1);
  transcript.add({ id: "e-2", conversation: "c", messageId: "m1", atMs: 1, kind: "steered" });
  const [user] = transcript.entries;
  assert.equal(user?.kind === "user" && user.state, "steered");
});

test("message that was answered before a reload is shown once", () => {
  const transcript = new Transcript();
  transcript.addHistory([{ number: 1, kind: "message", messageId: "m1", text: "hello" }]);
  transcript.setSending("k1", "hello", "sending");
  transcript.setSent("k1", "m1");
  assert.deepEqual(
    transcript.entries.map((entry) => entry.kind === "user" && entry.state),
    ["sent"],
  );
});

test("cancellation of a turn with two messages is shown once", () => {
  const answer = { kind: "answer", text: "Cancelled.", outcome: "cancelled" };
  const transcript = new Transcript();
  for (const [index, messageId] of ["m1", "m2"].entries()) {
    transcript.add({
      id: `e-${index}`,
      conversation: "c",
      messageId,
      atMs: 1,
      ...answer,
    } as ConversationEvent);
  }
  assert.deepEqual(
    transcript.entries.map(({ kind }) => kind),
    ["text", "end"],
  );
  assert.equal(transcript.isRunning, false);
});

test("call without outcome is unknown after its turn failed", () => {
  const transcript = folded(events().slice(0, 5));
  assert.equal(transcript.isRunning, true);
  transcript.add({
    id: "e-99",
    conversation: "c",
    messageId: MESSAGE,
    atMs: 1,
    kind: "tool_started",
    toolCallId: "x",
    toolName: "bash",
    arguments: "{}",
  });
  transcript.add({
    id: "e-100",
    conversation: "c",
    messageId: MESSAGE,
    atMs: 1,
    kind: "failed",
    code: "silent",
    text: "no reply",
  });
  const call = transcript.entries.find(
    (entry): entry is CallEntry => entry.kind === "call" && entry.toolCallId === "x",
  );
  assert.equal(call?.executed, "unknown");
  assert.equal(transcript.isRunning, false);
});

test("history has calls with results and no answer twice", () => {
  const items: HistoryItem[] = [
    { number: 1, kind: "message", messageId: "m0", text: "hi" },
    {
      number: 2,
      kind: "model",
      text: "I look.",
      calls: [{ toolCallId: "t", toolName: "bash", arguments: "{}" }],
    },
    { number: 3, kind: "approval_asked", toolCallId: "t", toolName: "bash" },
    { number: 4, kind: "decided", decision: "allow" },
    { number: 5, kind: "result", toolCallId: "t", text: "done", executed: "yes" },
    { number: 6, kind: "model", text: "Done.", calls: [] },
    { number: 7, kind: "answer", text: "Done.", outcome: "completed" },
  ];
  const transcript = new Transcript();
  transcript.addHistory(items);
  assert.deepEqual(
    transcript.entries.map(({ kind }) => kind),
    ["user", "text", "call", "note", "note", "text", "end"],
  );
});

test("unknown kinds are ignored", () => {
  const transcript = new Transcript();
  transcript.add({ id: "e-1", conversation: "c", messageId: "m", atMs: 1, kind: "from_the_future" } as never);
  transcript.addHistory([{ number: 1, kind: "from_the_future" } as never]);
  assert.deepEqual(transcript.entries, []);
});
