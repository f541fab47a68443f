/** A conversation as a list of entries, folded from its history and its events. */
import type {
  ApprovalAsked,
  CallStages,
  ConversationEvent,
  Executed,
  HistoryItem,
  ToolFinished,
  TurnUsage,
} from "../api.ts";
import { isAfter } from "../stream/positions.ts";

export interface UserEntry {
  kind: "user";
  key: string;
  /** Idempotency key of the request that sends it; empty in recorded messages. */
  sendKey: string;
  text: string;
  atMs?: number;
  /** `steered`: taken into the running turn. `unsent`: refused, or without a response. */
  state: "sending" | "sent" | "steered" | "unsent";
  problem?: string;
}

export interface TextEntry {
  kind: "text";
  key: string;
  text: string;
  isStreaming: boolean;
}

export interface CallEntry {
  kind: "call";
  key: string;
  toolCallId: string;
  tool: string;
  arguments: string;
  argumentsLeftOut: number;
  isRunning: boolean;
  /** Set while the call waits for a decision. */
  awaitsApproval?: boolean;
  startedMs?: number;
  progress?: string;
  ranOn?: string;
  elapsedUs?: number;
  bytes?: number;
  error?: string;
  executed?: Executed;
  stages?: CallStages;
  result?: string;
  resultLeftOut: number;
  childLoopId?: string;
}

export interface ApprovalEntry {
  kind: "approval";
  key: string;
  asked: ApprovalAsked;
  closed?: { decision: string; by?: string };
}

export interface NoteEntry {
  kind: "note";
  key: string;
  text: string;
  tone: "plain" | "warning";
}

export interface EndEntry {
  kind: "end";
  key: string;
  outcome: string;
  usage?: TurnUsage;
}

export type Entry = UserEntry | TextEntry | CallEntry | ApprovalEntry | NoteEntry | EndEntry;

const OUTCOMES: Record<string, string> = {
  iteration_limit: "The agent reached its limit of model calls.",
  tool_timeouts: "The turn ended: tools timed out too often in a row.",
  cancelled: "The turn was cancelled.",
  model_failed: "The model failed.",
  overloaded: "The agent had no capacity; send the message again later.",
  expired: "The message expired before the agent took it. Nothing was done.",
};

/** Returns the description of an outcome; an empty text for a completed turn. */
export function outcomeText(outcome: string): string {
  return outcome === "completed" ? "" : (OUTCOMES[outcome] ?? `The turn ended: ${outcome}.`);
}

function statusText({ status, done, pending, now }: ConversationEvent & { kind: "task_status" }): string {
  const parts = [
    ["done", done],
    ["left", pending],
    ["now", now],
  ].filter(([, text]) => text !== "");
  return [`Status: ${status}`, ...parts.map(([name, text]) => `${name}: ${text}`)].join("; ");
}

/** Folds history and events. Entries are replaced, never changed, so that a list can compare them. */
export class Transcript {
  #entries: Entry[] = [];
  #keys = new Map<string, number>();
  /** Keys of the texts that are streaming, by message. */
  #streaming = new Map<string, string>();
  /** Keys of the entries of messages. */
  #messages = new Map<string, string>();
  /** Messages without an answer, and the times of their first events. */
  #running = new Map<string, number>();
  #lastEventMs: number | undefined;
  #position = "";
  #count = 0;

  get entries(): readonly Entry[] {
    return this.#entries;
  }

  get isRunning(): boolean {
    return this.#running.size > 0;
  }

  /** Beginning of the running turn in Unix milliseconds, as far as events show it. */
  get runningSinceMs(): number | undefined {
    return this.isRunning ? Math.min(...this.#running.values()) : undefined;
  }

  /** Time of the last event in Unix milliseconds. */
  get lastEventMs(): number | undefined {
    return this.#lastEventMs;
  }

  /** Id of the last event that is contained. */
  get position(): string {
    return this.#position;
  }

  /** Returns the approval requests that are open. */
  get approvals(): ApprovalEntry[] {
    return this.#entries.filter(
      (entry): entry is ApprovalEntry => entry.kind === "approval" && !entry.closed,
    );
  }

  /** Returns usage after the last turn that reported it. */
  get usage(): TurnUsage | undefined {
    const end = this.#entries.findLast((entry) => entry.kind === "end" && entry.usage);
    return end?.kind === "end" ? end.usage : undefined;
  }

  addHistory(items: readonly HistoryItem[]): void {
    for (const item of items) {
      this.#addItem(item);
    }
  }

  /** Sets the position that a snapshot describes. */
  setPosition(id: string): void {
    this.#position = id;
  }

  /** Applies an event of a snapshot, whatever its position. */
  addRunning(event: ConversationEvent): void {
    this.#apply(event);
  }

  /** Applies an event of the stream. Returns `false` if it is contained already. */
  add(event: ConversationEvent): boolean {
    if (this.#position !== "" && !isAfter(event.id, this.#position)) {
      return false;
    }
    this.#position = event.id;
    this.#apply(event);
    return true;
  }

  /** Adds a message that this page sends, or changes its state while it has no response. */
  setSending(sendKey: string, text: string, state: "sending" | "unsent", problem?: string): void {
    const key = `send:${sendKey}`;
    const known = this.#get(key);
    if (known?.kind === "user" && (known.state === "sent" || known.state === "steered")) {
      return;
    }
    this.#put({ kind: "user", key, sendKey, text, state, ...(problem === undefined ? {} : { problem }) });
  }

  /** Notes the id of a message that the gateway took. */
  setSent(sendKey: string, messageId: string): void {
    const key = `send:${sendKey}`;
    const known = this.#get(key);
    if (known?.kind !== "user") {
      return;
    }
    const recorded = this.#messages.get(messageId);
    if (recorded !== undefined && recorded !== key) {
      // It was sent before the page was loaded.
      this.#remove(key);
      return;
    }
    this.#messages.set(messageId, key);
    if (known.state !== "steered") {
      const { problem, ...entry } = known;
      this.#put({ ...entry, state: "sent" });
    }
  }

  /** Returns the arguments of the last call of a tool before an approval request. */
  argumentsBefore(asked: ApprovalAsked): string | undefined {
    const before = this.#entries.findLast(
      (entry) =>
        entry.kind === "call" &&
        entry.tool === asked.toolName &&
        entry.toolCallId !== asked.toolCallId &&
        entry.argumentsLeftOut === 0,
    );
    return before?.kind === "call" ? before.arguments : undefined;
  }

  #get(key: string): Entry | undefined {
    const index = this.#keys.get(key);
    return index === undefined ? undefined : this.#entries[index];
  }

  #put(entry: Entry) {
    const index = this.#keys.get(entry.key);
    if (index === undefined) {
      this.#keys.set(entry.key, this.#entries.length);
      this.#entries = [...this.#entries, entry];
    } else {
      this.#entries = this.#entries.with(index, entry);
    }
  }

  #remove(key: string) {
    const index = this.#keys.get(key);
    if (index === undefined) {
      return;
    }
    this.#entries = this.#entries.toSpliced(index, 1);
    this.#keys = new Map(this.#entries.map((entry, position) => [entry.key, position]));
  }

  #newKey(kind: string): string {
    this.#count += 1;
    return `${kind}:${this.#count}`;
  }

  #note(text: string, tone: NoteEntry["tone"] = "plain") {
    this.#put({ kind: "note", key: this.#newKey("note"), text, tone });
  }

  /** Shows the latest state of work that the agent delegated. */
  #task(taskId: string, text: string) {
    this.#put({ kind: "note", key: `task:${taskId}`, text, tone: "plain" });
  }

  #text(text: string) {
    if (text !== "") {
      this.#put({ kind: "text", key: this.#newKey("text"), text, isStreaming: false });
    }
  }

  #call(toolCallId: string, changes: Partial<CallEntry>) {
    const key = `call:${toolCallId}`;
    const known = this.#get(key);
    const call: CallEntry =
      known?.kind === "call"
        ? known
        : {
            kind: "call",
            key,
            toolCallId,
            tool: "?",
            arguments: "",
            argumentsLeftOut: 0,
            isRunning: true,
            resultLeftOut: 0,
          };
    this.#put({ ...call, ...changes });
  }

  #setRunning({ messageId = "", atMs }: ConversationEvent) {
    if (!this.#running.has(messageId)) {
      this.#running.set(messageId, atMs);
    }
  }

  #apply(event: ConversationEvent) {
    const { messageId = "" } = event;
    this.#lastEventMs = event.atMs;
    switch (event.kind) {
      case "message":
        this.#setRunning(event);
        this.#message(event);
        break;
      case "steered":
        this.#running.delete(messageId);
        this.#steer(messageId);
        break;
      case "text_delta":
        this.#setRunning(event);
        this.#stream(messageId, event.text);
        break;
      case "tool_started":
        this.#setRunning(event);
        this.#endText(messageId);
        this.#call(event.toolCallId, {
          tool: event.toolName,
          arguments: event.arguments,
          argumentsLeftOut: event.argumentsLeftOut ?? 0,
          startedMs: event.atMs,
        });
        break;
      case "tool_progressed":
        this.#call(event.toolCallId, { progress: event.text });
        break;
      case "tool_finished":
        this.#call(event.toolCallId, finished(event));
        break;
      case "approval_asked":
        this.#setRunning(event);
        this.#put({ kind: "approval", key: `approval:${event.approvalId}`, asked: event });
        this.#setAwaiting(event.toolCallId, true);
        break;
      case "approval_closed":
        this.#close(event.approvalId, event.decision, event.by);
        break;
      case "resumed":
        this.#resume(messageId, event.on, event.attempt);
        break;
      case "answer":
        this.#answer(messageId, event.text, event.outcome, event.usage);
        break;
      case "handed_off":
        this.#note(`${event.to} answers from here on`);
        break;
      case "task_status":
        this.#note(statusText(event));
        break;
      case "delegation_progressed":
        this.#task(event.taskId, `Sub-agent ${event.taskId}: ${event.text}`);
        break;
      case "delegation_ended":
        // Its calls may have waited for a decision.
        this.#running.delete(messageId);
        this.#task(event.taskId, `Sub-agent ${event.taskId} ${event.state}: ${event.preview}`);
        break;
      case "follow_up":
        this.#text(event.text);
        this.#end(event.outcome, event.usage);
        break;
      case "failed":
        this.#endTurn(messageId);
        this.#note(`${event.text || event.code}`, "warning");
        break;
      case "lost":
        this.#note(event.count > 0 ? `Up to ${event.count} events were lost` : "Events were lost", "warning");
        break;
      default:
        break;
    }
  }

  #message({ messageId = "", key, text, atMs }: ConversationEvent & { kind: "message" }) {
    const entryKey = key === undefined ? `user:${messageId}` : `send:${key}`;
    this.#messages.set(messageId, entryKey);
    this.#put({ kind: "user", key: entryKey, sendKey: key ?? "", text, atMs, state: "sent" });
  }

  #steer(messageId: string) {
    const known = this.#get(this.#messages.get(messageId) ?? "");
    if (known?.kind === "user") {
      this.#put({ ...known, state: "steered" });
    }
  }

  #stream(messageId: string, text: string) {
    const key = this.#streaming.get(messageId);
    const known = key === undefined ? undefined : this.#get(key);
    if (known?.kind === "text") {
      this.#put({ ...known, text: known.text + text });
    } else {
      const fresh: TextEntry = { kind: "text", key: this.#newKey("text"), text, isStreaming: true };
      this.#streaming.set(messageId, fresh.key);
      this.#put(fresh);
    }
  }

  /** Ends the streaming text of a message. */
  #endText(messageId: string) {
    const key = this.#streaming.get(messageId);
    const known = key === undefined ? undefined : this.#get(key);
    if (known?.kind === "text") {
      this.#put({ ...known, isStreaming: false });
    }
    this.#streaming.delete(messageId);
  }

  #resume(messageId: string, on: string, attempt: number) {
    const key = this.#streaming.get(messageId);
    if (key !== undefined) {
      this.#remove(key);
      this.#streaming.delete(messageId);
    }
    this.#note(`${on} continues the turn (attempt ${attempt})`);
  }

  #answer(messageId: string, text: string, outcome: string, usage: TurnUsage | undefined) {
    const key = this.#streaming.get(messageId);
    const known = key === undefined ? undefined : this.#get(key);
    if (known?.kind !== "text" && this.#isRepeated(text, outcome)) {
      this.#endTurn(messageId);
      return;
    }
    if (known?.kind === "text") {
      this.#put({ ...known, text, isStreaming: false });
    } else {
      this.#text(text);
    }
    this.#endTurn(messageId);
    this.#end(outcome, usage);
  }

  /** Returns whether the entries end with the same answer: each message of a cancelled turn gets one. */
  #isRepeated(text: string, outcome: string): boolean {
    const [last, end] = this.#entries.slice(-2);
    return (
      outcome === "cancelled" &&
      end?.kind === "end" &&
      end.outcome === outcome &&
      last?.kind === "text" &&
      last.text === text
    );
  }

  #end(outcome: string, usage: TurnUsage | undefined) {
    this.#put({ kind: "end", key: this.#newKey("end"), outcome, ...(usage ? { usage } : {}) });
  }

  /** Ends the open parts of a turn. Calls without an outcome are no longer running here. */
  #endTurn(messageId: string) {
    this.#endText(messageId);
    this.#running.delete(messageId);
    if (this.#running.size > 0) {
      return;
    }
    for (const entry of this.#entries) {
      if (entry.kind === "call" && entry.isRunning) {
        this.#put({ ...entry, isRunning: false, executed: entry.executed ?? "unknown" });
      } else if (entry.kind === "approval" && !entry.closed) {
        this.#put({ ...entry, closed: { decision: "cancelled" } });
      }
    }
  }

  /** Marks a call that was announced before its approval was requested. */
  #setAwaiting(toolCallId: string, awaitsApproval: boolean) {
    const call = this.#get(`call:${toolCallId}`);
    if (call?.kind === "call") {
      this.#put({ ...call, awaitsApproval });
    }
  }

  #close(approvalId: string, decision: string, by: string | undefined) {
    const known = this.#get(`approval:${approvalId}`);
    if (known?.kind === "approval" && !known.closed) {
      this.#setAwaiting(known.asked.toolCallId, false);
      this.#put({ ...known, closed: { decision, ...(by === undefined ? {} : { by }) } });
    }
  }

  #addItem(item: HistoryItem) {
    switch (item.kind) {
      case "message":
      case "steered":
        this.#addMessage(item);
        break;
      case "model":
        this.#text(item.text);
        for (const call of item.calls) {
          this.#call(call.toolCallId, { tool: call.toolName, arguments: call.arguments, isRunning: false });
        }
        break;
      case "result":
        this.#call(item.toolCallId, {
          ...(item.toolName === undefined ? {} : { tool: item.toolName }),
          isRunning: false,
          result: item.text,
          bytes: new Blob([item.text]).size,
          ...(item.error === undefined ? {} : { error: item.error }),
          executed: item.executed ?? (item.error === undefined ? "yes" : "unknown"),
        });
        break;
      case "approval_asked":
        this.#note(`Approval was asked for ${item.toolName ?? "a call"}`);
        break;
      case "decided":
        this.#note(`Decision: ${decisionText(item.decision)}`);
        break;
      case "answer":
        this.#addAnswer(item.text);
        this.#end(item.outcome, item.usage);
        break;
      case "cancelled":
        this.#note("Cancellation was requested");
        break;
      case "summary":
        this.#note(`Summary of what was before: ${item.text}`);
        break;
      case "feedback":
        this.#note(`Feedback: ${item.rating}${item.comment === "" ? "" : `, ${item.comment}`}`);
        break;
      case "resumed":
        this.#note(`${item.on} continued the turn (attempt ${item.attempt})`);
        break;
      case "put_down":
        this.#note(`${item.on} stopped and left the turn to another process`);
        break;
    }
  }

  #addMessage({ kind, messageId, text, atMs }: HistoryItem & { kind: "message" | "steered" }) {
    const id = messageId ?? this.#newKey("message");
    const state = kind === "steered" ? "steered" : "sent";
    const key = `user:${id}`;
    this.#messages.set(id, key);
    this.#put({ kind: "user", key, sendKey: "", text, state, ...(atMs ? { atMs } : {}) });
  }

  /** Adds an answer, unless the model's last text is the same. */
  #addAnswer(text: string) {
    const last = this.#entries.at(-1);
    if (last?.kind !== "text" || last.text.trim() !== text.trim()) {
      this.#text(text);
    }
  }
}

function finished(event: ToolFinished): Partial<CallEntry> {
  const { toolName, ranOn, elapsedUs, bytes, error, executed, result, resultLeftOut, childLoopId, stages } =
    event;
  return {
    tool: toolName,
    isRunning: false,
    elapsedUs,
    bytes,
    executed,
    ...(ranOn === undefined ? {} : { ranOn }),
    ...(error === undefined ? {} : { error }),
    ...(result === undefined ? {} : { result }),
    ...(childLoopId === undefined ? {} : { childLoopId }),
    ...(stages === undefined ? {} : { stages }),
    resultLeftOut: resultLeftOut ?? 0,
  };
}

const DECISIONS: Record<string, string> = {
  allow: "allowed once",
  allow_in_session: "allowed in this conversation",
  deny: "denied",
  expired: "expired",
  cancelled: "cancelled",
};

/** Returns a decision as people read it. */
export function decisionText(decision: string): string {
  return DECISIONS[decision] ?? decision.replaceAll("_", " ");
}
