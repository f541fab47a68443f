/** A small fleet with a few calls, tools, letters and tasks. */
import type { Call, CallDetails } from "../../src/api.ts";
import type { MockGateway } from "./gateway.ts";

export const TALK = "0199b1c2-0000-7000-8000-0000000000a1";
const HANDLER = "tool-handler/0199b1c2d3e4465dafe0";
const BRIDGE = "mcp-bridge/0199b1c2d3e47c8d9e0f";

export function call(number: number, changes: Partial<Call> = {}): Call {
  const firstMs = Date.now() - number * 900;
  return {
    id: `0199c0de-0000-7000-8000-${String(number).padStart(12, "0")}`,
    tool: "read_file",
    agent: "assistant",
    trace: "4bf92f3577b34da6a3ce929d0e0e4736",
    session: TALK,
    user: "rockbot.agent.assistant",
    state: "ok",
    live: false,
    failed: false,
    executed: "yes",
    firstMs,
    requestedMs: firstMs,
    repliedMs: firstMs + 64,
    latencyMs: 4.2,
    runMs: 2.9,
    waitedMs: 1.3,
    handler: HANDLER,
    attempt: 1,
    progress: 0,
    bytesIn: 165,
    bytesOut: 412,
    ...changes,
  };
}

function sampleCalls(): Call[] {
  const special: Partial<Call>[] = [
    {
      tool: "search",
      server: "github",
      state: "running",
      live: true,
      executed: undefined,
      latencyMs: undefined,
      runMs: undefined,
      waitedMs: undefined,
      handler: BRIDGE,
      progress: 2,
    },
    {
      tool: "bash",
      latencyMs: 64.2,
      runMs: 57,
      waitedMs: 7.2,
      stages: { queueMs: 3, startMs: 1, runMs: 57 },
    },
    {
      tool: "bash",
      state: "timeout",
      failed: true,
      latencyMs: 60_000,
      runMs: 59_990,
      waitedMs: 10,
      agent: "writer",
    },
    { tool: "search", latencyMs: 3.2 },
    {
      tool: "edit_file",
      state: "outcome_unknown",
      failed: true,
      executed: "unknown",
      latencyMs: 12_400,
      runMs: undefined,
      waitedMs: undefined,
      handler: undefined,
      agent: "writer",
      attempt: 2,
    },
    {
      tool: "web_browse",
      state: "overloaded",
      failed: true,
      executed: "no",
      latencyMs: 2.1,
      runMs: undefined,
      handler: "tool-handler/0199b1c2d3e4web",
    },
  ];
  const tools = ["read_file", "bash", "search", "list_files", "web_search", "execute_python_script"];
  return Array.from({ length: 60 }, (_, index) => {
    const latencyMs = 2 + ((index * 37) % 90);
    return call(index + 1, {
      tool: tools[index % tools.length],
      latencyMs,
      runMs: latencyMs * 0.8,
      waitedMs: latencyMs * 0.2,
      agent: index % 4 === 0 ? "writer" : "assistant",
      ...special[index],
    });
  });
}

export function details(subject: Call): CallDetails {
  return {
    call: subject,
    request: {
      atMs: subject.firstMs,
      key: "tool.invoke",
      replyTo: "tool.result.assistant.0199b1c2",
      budgetMs: 60_000,
      attempt: subject.attempt ?? 1,
      bytes: 165,
    },
    ...(subject.progress > 0
      ? {
          progress: {
            firstMs: subject.firstMs + 20,
            lastMs: subject.firstMs + 41,
            count: subject.progress,
            handler: subject.handler,
          },
        }
      : {}),
    ...(subject.live
      ? {}
      : {
          reply: {
            atMs: subject.repliedMs ?? subject.firstMs,
            status: subject.state,
            executed: subject.executed,
            handler: subject.handler,
            runMs: subject.runMs,
            bytes: 412,
          },
        }),
    contentKept: true,
  };
}

/** Fills a gateway with a small fleet. */
export function populate(gateway: MockGateway): void {
  gateway.agents = [
    {
      name: "assistant",
      state: "running",
      description: "General assistant",
      model: "gpt-4o-mini",
      tools: [{ name: "bash", source: "files", summary: "Runs a shell command." }],
      moreTools: 11,
    },
    { name: "writer", state: "not_running" },
  ];
  gateway.addConversation(TALK, "Tidy up notes.md");
  gateway.addConversation("0199b1c2-0000-7000-8000-0000000000a2", "Deploy check");
  gateway.addConversation("0199b1c2-0000-7000-8000-0000000000a3", "Log of calls", "writer");
  gateway.calls = sampleCalls();
  for (const subject of gateway.calls) {
    gateway.details.set(subject.id, details(subject));
    gateway.content.set(subject.id, {
      arguments: '{"command":"rg -c RabbitMQ docs"}',
      result: "docs/messaging.md:41\ndocs/watch.md:6\n",
    });
  }
  gateway.fleet = {
    atMs: Date.now(),
    bus: { product: "RabbitMQ 4.2.6", connected: true },
    queues: [
      { name: "tool.invoke", state: "present", ready: 37, consumers: 2, deadLetters: 2 },
      { name: "tool.invoke.mcp", state: "present", ready: 0, consumers: 1, deadLetters: 0 },
      { name: "user.message.assistant", state: "refused" },
      { name: "script.invoke", state: "missing" },
    ],
    handlers: [
      {
        name: HANDLER,
        handler: "tool-handler",
        instance: "a",
        version: "0.1.0",
        tools: 12,
        seenMs: Date.now() - 4000,
        load: { running: 64, waiting: 37, oldestMs: 12_000, capacity: 64, queueReady: 37, deadLetters: 2 },
      },
      {
        name: BRIDGE,
        handler: "mcp-bridge",
        instance: "b",
        pool: "web",
        version: "0.1.0",
        tools: 31,
        seenMs: Date.now() - 2000,
        load: { running: 1, waiting: 0 },
      },
    ],
    pools: [{ name: "web", handlers: 1, tools: 31 }],
    agents: [
      { name: "assistant", state: "running" },
      { name: "writer", state: "not_running" },
    ],
    findings: [
      {
        severity: "suspicious",
        message: "2 dead letters of tool.invoke; look at them with rockbot dlq show tool.invoke",
      },
      { severity: "warning", message: "tool-handler/0199b1c2d3e4465dafe0 is full: 64 of 64 calls run" },
    ],
  };
  gateway.tools = [
    {
      name: "bash",
      source: "files",
      description: "Runs a shell command in the workspace.",
      hints: { destructive: true, openWorld: true },
      fingerprint: "9c1e0f7744d1",
      handlers: [HANDLER],
      timeoutMs: 60_000,
      parameters: {
        type: "object",
        properties: { command: { type: "string", description: "The command." } },
        required: ["command"],
      },
    },
    {
      name: "read_file",
      source: "files",
      description: "Reads a file.",
      hints: { readOnly: true, idempotent: true },
      fingerprint: "1c1e0f7744d2",
      handlers: [HANDLER],
      parameters: { type: "object", properties: { path: { type: "string" } } },
    },
    {
      name: "github/search",
      source: "mcp:github",
      description: "Searches code.",
      hints: { readOnly: true },
      fingerprint: "2c1e0f7744d3",
      pool: "web",
      handlers: [BRIDGE],
    },
  ];
  gateway.tasks = [
    {
      agent: "assistant",
      state: "running",
      conversations: [
        {
          conversation: gateway.conversation(TALK).entry,
          tasks: [
            {
              id: "0199b1c2d3e4465dafe1",
              description: "Compare the three proposals",
              state: "completed",
              ended: true,
              createdMs: Date.now() - 90_000,
              endedMs: Date.now() - 30_000,
              deadlineMs: Date.now() + 600_000,
              usage: { promptTokens: 9000, completionTokens: 1000, costMicros: 4200, toolCalls: 3 },
              lastReport: "",
              passedOn: true,
            },
            {
              id: "0199b1c2d3e4465dafe2",
              agent: "writer",
              description: "Write the summary",
              state: "running",
              ended: false,
              createdMs: Date.now() - 20_000,
              deadlineMs: Date.now() + 600_000,
              lastReport: "two of five parts",
              passedOn: false,
            },
          ],
        },
      ],
    },
    { agent: "writer", state: "not_running", conversations: [] },
  ];
  gateway.letters.set("tool.invoke", [
    {
      messageId: "018f0000-0000-7000-8000-00000000d9e1",
      type: "ToolInvokeRequest",
      source: "agent/assistant",
      user: "rockbot.agent.assistant",
      sentMs: Date.now() - 7_200_000,
      attempt: 1,
      reason: "delivered too often",
      bytes: 165,
      tool: "bash",
      ifStarted: "outcome_unknown",
      body: '{"toolName":"bash"}',
      bodyLeftOut: 0,
    },
    {
      messageId: "018f0000-0000-7000-8000-00000000d9e2",
      type: "ToolInvokeRequest",
      source: "agent/writer",
      user: "rockbot.cli",
      sentMs: Date.now() - 9_200_000,
      attempt: 1,
      reason: "expired",
      bytes: 180,
      tool: "read_file",
      refusal: "its user is not the caller that it names",
      ifStarted: "runs_again",
      body: "{}",
      bodyLeftOut: 0,
    },
  ]);
  gateway.letters.set("tool.invoke.mcp", []);
  gateway.schedules = [
    {
      agent: "assistant",
      state: "running",
      nowMs: Date.now(),
      tasks: [
        {
          name: "morning report",
          cron: "0 8 * * 1-5",
          timezone: "Europe/Berlin",
          hasOwnTimezone: true,
          description: "Summarize the open dead letters and the failed calls of the night.",
          runOnce: false,
          nextMs: Date.now() + 3_600_000,
          last: {
            fireMs: Date.now() - 82_800_000,
            sessionId: TALK,
            endedMs: Date.now() - 82_790_000,
            outcome: "completed",
            text: "No dead letters.",
          },
          fired: 12,
          missed: 1,
          overlapped: 0,
          failed: 1,
          createdMs: Date.now() - 900_000_000,
        },
      ],
    },
    { agent: "writer", state: "not_running" },
  ];
}
