/** A recorded turn: text, calls, a failure, an approval request, and the answer. */
import type { TurnUsage } from "../../src/api.ts";
import type { MockGateway, NewEvent } from "./gateway.ts";

export const APPROVAL = "0199d000-0000-7000-8000-000000000001";
export const CALL_HASH = "9c1e0f77aa44bb55cc66dd77ee88ff0044";

const SPENDING = {
  modelCalls: 3,
  promptTokens: 11_200,
  completionTokens: 830,
  unmeteredCalls: 0,
  toolCalls: 3,
  toolBytesIn: 410,
  toolBytesOut: 2600,
  costMicros: 12_300,
  unpricedCalls: 0,
};
export const USAGE: TurnUsage = {
  turn: SPENDING,
  children: { ...SPENDING, modelCalls: 0, promptTokens: 0, completionTokens: 0, costMicros: 0, toolCalls: 0 },
  session: SPENDING,
};

export const ANSWER = [
  "Three files mention **RabbitMQ**, and I changed the first line of `notes.md`:",
  "",
  "| file | lines |",
  "|---|---:|",
  "| docs/messaging.md | 41 |",
  "| docs/watch.md | 6 |",
  "| notes.md | 1 |",
  "",
  "The tests still pass. See the [guide](https://www.rabbitmq.com/docs) for quorum queues.",
].join("\n");

const EDIT = JSON.stringify({
  path: "notes.md",
  old_text: "# Notes\n\nTool calls cross the bus.\nEvery call has a deadline.\n",
  new_text: "# Notes\n\nTool calls cross RabbitMQ.\nEvery call has a deadline.\n",
});

/** Events up to the approval request. */
export function untilApproval(messageId: string, expiresInMs = 60_000): NewEvent[] {
  return [
    { kind: "text_delta", messageId, text: "I look " },
    { kind: "text_delta", messageId, text: "for it." },
    {
      kind: "tool_started",
      messageId,
      toolCallId: "call-search",
      toolName: "search",
      arguments: '{"pattern":"RabbitMQ"}',
      argumentsLeftOut: 0,
    },
    {
      kind: "tool_finished",
      messageId,
      toolCallId: "call-search",
      toolName: "search",
      ranOn: "tool-handler/0199b1c2d3e4465dafe0",
      elapsedUs: 3200,
      bytes: 2150,
      executed: "yes",
      stages: { queueMs: 1, startMs: 0, runMs: 2 },
      result: "docs/messaging.md:41\ndocs/watch.md:6\nnotes.md:1\n",
      resultLeftOut: 0,
    },
    {
      kind: "tool_started",
      messageId,
      toolCallId: "call-bash",
      toolName: "bash",
      arguments: '{"command":"cargo test -p notes"}',
      argumentsLeftOut: 0,
    },
    { kind: "tool_progressed", messageId, toolCallId: "call-bash", text: "running 12 tests" },
    {
      kind: "tool_finished",
      messageId,
      toolCallId: "call-bash",
      toolName: "bash",
      ranOn: "tool-handler/0199b1c2d3e4465dafe0",
      elapsedUs: 60_000_000,
      bytes: 38,
      error: "timeout",
      executed: "yes",
      result: "(tool failed: timeout)",
      resultLeftOut: 0,
    },
    {
      kind: "tool_started",
      messageId,
      toolCallId: "call-edit",
      toolName: "edit_file",
      arguments: EDIT,
      argumentsLeftOut: 0,
    },
    {
      kind: "approval_asked",
      messageId,
      approvalId: APPROVAL,
      askingAgent: "assistant",
      toolCallId: "call-edit",
      toolName: "edit_file",
      toolSource: "files",
      arguments: EDIT,
      argumentsLeftOut: 0,
      callHash: CALL_HASH,
      expiresAtMs: Date.now() + expiresInMs,
      hints: { destructive: true, readOnly: false },
      rule: 'rule 2: tool = "edit_file"',
    },
  ];
}

/** Events after an allowed request. */
export function afterApproval(messageId: string): NewEvent[] {
  return [
    {
      kind: "tool_finished",
      messageId,
      toolCallId: "call-edit",
      toolName: "edit_file",
      ranOn: "tool-handler/0199b1c2d3e4465dafe0",
      elapsedUs: 5100,
      bytes: 24,
      executed: "yes",
      result: "1 replacement",
      resultLeftOut: 0,
    },
    { kind: "text_delta", messageId, text: ANSWER.slice(0, 40) },
    { kind: "answer", messageId, text: ANSWER, outcome: "completed", usage: USAGE },
  ];
}

/** Plays the turn for each message: up to the approval request, and on after it was allowed or denied. */
export function playTurns(gateway: MockGateway): void {
  const asking = new Map<string, string>();
  gateway.onMessage = (conversation, messageId) => {
    asking.set(conversation, messageId);
    for (const event of untilApproval(messageId)) {
      gateway.emit(conversation, event);
    }
  };
  gateway.onDecision = (conversation, approvalId, { decision }) => {
    const messageId = asking.get(conversation) ?? "";
    gateway.emit(conversation, { kind: "approval_closed", messageId, approvalId, decision, by: "ada" });
    if (decision === "deny") {
      gateway.emit(conversation, {
        kind: "answer",
        messageId,
        text: "I left the file as it is.",
        outcome: "completed",
        usage: USAGE,
      });
      return;
    }
    for (const event of afterApproval(messageId)) {
      gateway.emit(conversation, event);
    }
  };
}
