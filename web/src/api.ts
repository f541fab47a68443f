/** Shapes of the gateway's HTTP API, `/api/v1`. Times are Unix milliseconds. Unknown fields are ignored. */

export type Executed = "no" | "yes" | "unknown";
export type Right = "talk" | "watch" | "content" | "letters" | "call";
export type PartName = "talk" | "watch" | "letters" | "schedules" | "tasks" | "calls";
export type Decision = "allow" | "allow_in_session" | "deny";

export interface PartState {
  available: boolean;
  /** Configuration key that has to be set where the part is not available. */
  missing?: string;
}

export interface Me {
  subject: string;
  name: string;
  rights: Right[];
  parts: Partial<Record<PartName, PartState>>;
  version: string;
  serverTimeMs: number;
}

export interface ProblemBody {
  status: number;
  code: string;
  detail?: string;
  title?: string;
  executed?: Executed;
}

export interface ToolHints {
  readOnly?: boolean;
  destructive?: boolean;
  idempotent?: boolean;
  openWorld?: boolean;
}

export interface AgentTool {
  name: string;
  source: string;
  summary: string;
  hints?: ToolHints;
  isAnnounced?: boolean;
}

export interface Agent {
  name: string;
  state: "running" | "not_running" | "silent";
  description?: string;
  model?: string;
  tools?: AgentTool[];
  moreTools?: number;
}

/** Absent amounts are 0. */
export interface Spending {
  modelCalls?: number;
  promptTokens?: number;
  completionTokens?: number;
  unmeteredCalls?: number;
  toolCalls?: number;
  toolBytesIn?: number;
  toolBytesOut?: number;
  costMicros?: number;
  unpricedCalls?: number;
}

export interface TurnUsage {
  turn: Spending;
  children: Spending;
  session: Spending;
}

export interface ConversationEntry {
  id: string;
  agent: string;
  title: string;
  createdMs: number;
  lastActiveMs: number;
  state: string;
  turns?: number;
  usage?: Spending;
  openApprovals?: number;
  shareId?: string;
}

export type HistoryItem = { number: number; atMs?: number } & (
  | { kind: "message" | "steered"; messageId?: string; text: string }
  | { kind: "cancelled" }
  | { kind: "model"; text: string; calls: { toolCallId: string; toolName: string; arguments: string }[] }
  | {
      kind: "result";
      toolCallId: string;
      toolName?: string;
      text: string;
      error?: string;
      executed?: Executed;
    }
  | { kind: "approval_asked"; toolCallId: string; toolName?: string }
  | { kind: "decided"; decision: string }
  | { kind: "answer"; text: string; outcome: string; usage?: TurnUsage }
  | { kind: "summary"; text: string }
  | { kind: "feedback"; messageId: string; rating: string; comment: string }
  | { kind: "resumed"; on: string; attempt: number }
  | { kind: "put_down"; on: string }
);

export interface ApprovalAsked {
  kind: "approval_asked";
  approvalId: string;
  askingAgent: string;
  toolCallId: string;
  toolName: string;
  toolSource: string;
  arguments: string;
  argumentsLeftOut: number;
  callHash: string;
  expiresAtMs: number;
  hints?: ToolHints;
  rule?: string;
}

/** Durations of a call's stages in whole milliseconds, as its handler measured them. */
export interface CallStages {
  queueMs?: number;
  startMs: number;
  runMs: number;
}

export interface ToolFinished {
  kind: "tool_finished";
  toolCallId: string;
  toolName: string;
  ranOn?: string;
  elapsedUs: number;
  bytes: number;
  error?: string;
  executed: Executed;
  childLoopId?: string;
  stages?: CallStages;
  result?: string;
  resultLeftOut?: number;
}

/**
 * `messageId` is absent in events of the conversation itself. `key` of a message is the idempotency key of the request
 * that sent it.
 */
export type ConversationEvent = {
  id: string;
  conversation: string;
  messageId?: string;
  atMs: number;
} & (
  | { kind: "message"; text: string; key?: string }
  | { kind: "text_delta"; text: string }
  | {
      kind: "tool_started";
      toolCallId: string;
      toolName: string;
      arguments: string;
      argumentsLeftOut?: number;
    }
  | { kind: "tool_progressed"; toolCallId: string; text: string }
  | ToolFinished
  | ApprovalAsked
  | { kind: "approval_closed"; approvalId: string; decision: string; by?: string }
  | { kind: "steered" }
  | { kind: "resumed"; on: string; attempt: number }
  | { kind: "handed_off"; to: string }
  | { kind: "task_status"; status: string; done: string; pending: string; now: string }
  | { kind: "delegation_progressed"; taskId: string; text: string }
  | { kind: "delegation_ended"; taskId: string; state: string; preview: string }
  | { kind: "follow_up"; taskIds: string[]; text: string; outcome: string; usage?: TurnUsage }
  | { kind: "answer"; text: string; outcome: string; usage?: TurnUsage }
  | { kind: "lost"; count: number }
  | { kind: "failed"; code: string; text: string }
  | { kind: "renamed"; title: string }
  | { kind: "deleted" }
);

export interface ConversationSnapshot {
  conversation: ConversationEntry;
  readOnly: boolean;
  history: HistoryItem[];
  next?: number;
  running: ConversationEvent[];
  lastEventId: string;
}

export interface Call {
  id: string;
  tool?: string;
  server?: string;
  agent?: string;
  trace?: string;
  session?: string;
  user?: string;
  state: string;
  live: boolean;
  failed: boolean;
  executed?: Executed;
  firstMs: number;
  requestedMs?: number;
  repliedMs?: number;
  latencyMs?: number;
  runMs?: number;
  waitedMs?: number;
  stages?: CallStages;
  handler?: string;
  attempt?: number;
  progress: number;
  bytesIn?: number;
  bytesOut?: number;
}

export interface Tally {
  calls: number;
  replied: number;
  failed: number;
}

export interface Rates {
  perSecond: number;
  p50Ms?: number;
  p95Ms?: number;
}

export interface CallsFrame {
  snapshot: boolean;
  calls: Call[];
  skipped: number;
  tally: Tally;
  sinceMs: number;
  rates: Rates;
}

export interface CallDetails {
  call: Call;
  request?: {
    atMs: number;
    key: string;
    replyTo?: string;
    budgetMs?: number;
    attempt?: number;
    bytes: number;
  };
  progress?: { firstMs: number; lastMs: number; count: number; handler?: string };
  cancel?: { atMs: number };
  reply?: {
    atMs: number;
    status: string;
    executed?: Executed;
    handler?: string;
    runMs?: number;
    bytes: number;
  };
  contentKept: boolean;
}

export interface CallContent {
  arguments?: string;
  progressText?: string;
  cancelReason?: string;
  result?: string;
}

export interface QueueReport {
  name: string;
  state: "present" | "missing" | "refused";
  ready?: number;
  consumers?: number;
  deadLetters?: number;
}

export interface HandlerLoad {
  running: number;
  waiting: number;
  oldestMs?: number;
  capacity?: number;
  queueReady?: number;
  deadLetters?: number;
}

export interface Handler {
  name: string;
  handler: string;
  instance: string;
  pool?: string;
  version?: string;
  tools: number;
  seenMs: number;
  load?: HandlerLoad;
}

export interface Finding {
  severity: "warning" | "suspicious" | "unusable";
  message: string;
}

export interface Fleet {
  atMs: number;
  bus: { product?: string; connected: boolean };
  queues: QueueReport[];
  handlers: Handler[];
  pools: { name: string; handlers: number; tools: number }[];
  agents: { name: string; state: "running" | "not_running" | "unknown" }[];
  findings: Finding[];
}

export interface Tool {
  name: string;
  source: string;
  label?: string;
  description: string;
  hints?: ToolHints;
  fingerprint: string;
  pool?: string;
  handlers: string[];
  timeoutMs?: number;
  parameters?: unknown;
}

export interface ToolContent {
  kind: "text" | "image" | "audio" | "resource";
  text?: string;
  textLeftOut?: number;
  /** Size of an image or audio, which is not part of the response. */
  bytes?: number;
  mimeType?: string;
  uri?: string;
}

/** Outcome of a call by hand: `ok`, `tool_error`, or an error code. */
export interface ToolOutcome {
  callId: string;
  tool: string;
  outcome: string;
  executed: Executed;
  retryable: boolean;
  message?: string;
  content: ToolContent[];
  blocksLeftOut?: number;
  handler?: string;
  elapsedMs: number;
}

export interface Letter {
  messageId: string;
  type: string;
  correlationId?: string;
  source?: string;
  user?: string;
  replyTo?: string;
  sentMs?: number;
  attempt: number;
  reason?: string;
  bytes: number;
  tool?: string;
  refusal?: string;
  ifStarted?: "runs_again" | "outcome_unknown";
  body?: string;
  bodyLeftOut?: number;
}

export interface LetterQueues {
  queues: { name: string; state: "present" | "missing" | "refused"; deadLetters?: number }[];
}

export interface Letters {
  queue: string;
  waiting: number;
  letters: Letter[];
}

export interface ReplayReport {
  dryRun: boolean;
  replayed: string[];
  refused: { messageId: string; reason: string }[];
  left: number;
  failure?: string;
}

export interface PurgeReport {
  dryRun: boolean;
  deleted: string[];
  left: number;
  failure?: string;
}

export interface ScheduledTask {
  name: string;
  cron: string;
  timezone: string;
  hasOwnTimezone: boolean;
  description: string;
  runOnce: boolean;
  nextMs?: number;
  running?: { fireMs: number; sessionId: string };
  last?: { fireMs: number; sessionId: string; endedMs: number; outcome: string; text: string };
  fired: number;
  missed: number;
  overlapped: number;
  failed: number;
  createdMs: number;
  createdIn?: string;
  createdByTask?: string;
}

/** Delegated work. Its usage is absent while it is open. */
export interface DelegatedTask {
  id: string;
  agent?: string;
  description: string;
  state: string;
  ended: boolean;
  createdMs: number;
  endedMs?: number;
  deadlineMs: number;
  usage?: Spending;
  lastReport: string;
  passedOn: boolean;
}

export interface TaskTree {
  conversation: ConversationEntry;
  tasks: DelegatedTask[];
}

export interface AgentTasks {
  agent: string;
  state: "running" | "not_running" | "silent";
  conversations: TaskTree[];
  /** Set if the agent lists its newest 500 tasks only. */
  limited?: boolean;
}

export interface AgentSchedule {
  agent: string;
  state: "running" | "off" | "not_running" | "silent";
  nowMs?: number;
  tasks?: ScheduledTask[];
}
