/** An open conversation: its snapshot, its events, and the actions of a person. */
import type {
  ApprovalAsked,
  ConversationEntry,
  ConversationEvent,
  ConversationSnapshot,
  Decision,
} from "../api.ts";
import { asProblem, get, idempotencyKey, type Problem, pathPart, post, request } from "../http.ts";
import type { StreamEvent } from "../stream/hub.ts";
import { keep, outgoing, settle } from "./outbox.ts";
import { session } from "./session.svelte.ts";
import { type ApprovalEntry, type Entry, outcomeText, Transcript, type UserEntry } from "./transcript.ts";

const MAX_PAGES = 40;
/** Delays between attempts to send a message in milliseconds. */
const RETRY_MS = [500, 1000, 2000, 4000, 8000];

/** A conversation, by its own id or by that of a share. */
export interface Source {
  id: string;
  isShared: boolean;
}

export class OpenConversation {
  entry: ConversationEntry | null = $state.raw(null);
  entries: readonly Entry[] = $state.raw([]);
  approvals: ApprovalEntry[] = $state.raw([]);
  isRunning = $state(false);
  /** Beginning of the running turn, and the last event, in Unix milliseconds. */
  runningSinceMs: number | undefined = $state();
  lastEventMs: number | undefined = $state();
  isReadOnly = $state(false);
  isLoading = $state(true);
  problem: Problem | null = $state.raw(null);
  readonly source: Source;
  #transcript = new Transcript();
  #waiting: ConversationEvent[] = [];
  #unsubscribe: (() => void) | undefined;
  #isClosed = false;
  #loads = 0;

  constructor(source: Source) {
    this.source = source;
    void this.load();
  }

  close(): void {
    this.#isClosed = true;
    this.#unsubscribe?.();
  }

  get usage() {
    return this.entries.length > 0 ? this.#transcript.usage : undefined;
  }

  argumentsBefore(asked: ApprovalAsked): string | undefined {
    return this.#transcript.argumentsBefore(asked);
  }

  /** Reads the snapshot, and follows the stream from there. */
  async load(): Promise<void> {
    this.#loads += 1;
    const load = this.#loads;
    this.isLoading = true;
    this.#waiting = [];
    try {
      const transcript = new Transcript();
      const snapshot = await this.#readSnapshot(transcript);
      if (this.#isClosed || load !== this.#loads) {
        return;
      }
      this.entry = snapshot.conversation;
      this.isReadOnly = snapshot.readOnly;
      this.#transcript = transcript;
      for (const event of this.#waiting.splice(0)) {
        if (event.conversation === snapshot.conversation.id) {
          transcript.add(event);
        }
      }
      this.problem = null;
      this.isLoading = false;
      this.#resend();
      this.#show();
      this.#unsubscribe ??= session.hub.subscribe(
        this.#topic,
        (event) => this.#receive(event),
        snapshot.lastEventId,
      );
    } catch (error) {
      if (!this.#isClosed && load === this.#loads) {
        this.problem = asProblem(error);
        this.isLoading = false;
        if (this.problem.status === 404) {
          // Deleted, or no longer shared. The gateway refuses streams with its topic.
          this.#unsubscribe?.();
          this.isReadOnly = true;
        }
      }
    }
  }

  get #path(): string {
    const id = pathPart(this.source.id);
    return this.source.isShared ? `/shared/${id}` : `/conversations/${id}`;
  }

  get #topic(): string {
    return `${this.source.isShared ? "shared" : "conversation"}:${this.source.id}`;
  }

  async #readSnapshot(transcript: Transcript): Promise<ConversationSnapshot> {
    let from: number | undefined;
    for (let page = 0; ; page += 1) {
      const snapshot = await get<ConversationSnapshot>(`${this.#path}?from=${from ?? 0}`);
      transcript.addHistory(snapshot.history);
      from = snapshot.next;
      if (from === undefined || page >= MAX_PAGES) {
        for (const event of snapshot.running) {
          transcript.addRunning(event);
        }
        transcript.setPosition(snapshot.lastEventId);
        return snapshot;
      }
    }
  }

  #receive({ event, data }: StreamEvent) {
    if (event === "reset") {
      void this.load();
      return;
    }
    if (event !== "conversation") {
      return;
    }
    const received = data as ConversationEvent;
    if (this.isLoading) {
      this.#waiting.push(received);
      return;
    }
    // Other conversations share the stream, and a shared one has no topic with its own id.
    if (received.conversation !== this.entry?.id || !this.#transcript.add(received)) {
      return;
    }
    if (received.kind === "renamed" && this.entry) {
      this.entry = { ...this.entry, title: received.title };
    } else if (received.kind === "message") {
      settle(received.key ?? "");
    } else if (received.kind === "deleted") {
      this.#unsubscribe?.();
      this.isReadOnly = true;
      session.warn("The conversation was deleted.");
    } else if (received.kind === "approval_asked") {
      session.warn(`${received.askingAgent.slice(0, 64)} asks to call ${received.toolName.slice(0, 128)}`);
    } else if (received.kind === "answer" || received.kind === "follow_up") {
      session.say(outcomeText(received.outcome) || "The agent has answered.");
    }
    this.#show();
  }

  #show() {
    this.entries = this.#transcript.entries;
    this.approvals = this.#transcript.approvals;
    this.isRunning = this.#transcript.isRunning;
    this.runningSinceMs = this.#transcript.runningSinceMs;
    this.lastEventMs = this.#transcript.lastEventMs;
  }

  /** Sends again what had no response before the page was loaded. */
  #resend() {
    for (const message of this.source.isShared ? [] : outgoing(this.source.id)) {
      void this.#send(message.key, message.text);
    }
  }

  /** Sends a message. It is sent again under the same key until the gateway responds, so it starts one turn. */
  send(text: string): void {
    this.resend({ sendKey: idempotencyKey(), text });
  }

  /** Sends a message again that had no response. */
  resend({ sendKey, text }: Pick<UserEntry, "sendKey" | "text">): void {
    keep({ conversation: this.source.id, key: sendKey, text });
    void this.#send(sendKey, text);
  }

  async #send(key: string, text: string): Promise<void> {
    const set = (state: "sending" | "unsent", problem?: string) => {
      this.#transcript.setSending(key, text, state, problem);
      this.#show();
    };
    set("sending");
    for (let attempt = 0; !this.#isClosed; attempt += 1) {
      try {
        const path = `${this.#path}/messages`;
        const { messageId } = await post<{ messageId: string }>(path, { text }, { "Idempotency-Key": key });
        settle(key);
        this.#transcript.setSent(key, messageId);
        this.#show();
        return;
      } catch (error) {
        const problem = asProblem(error);
        const delay = RETRY_MS[attempt];
        if (!problem.isTemporary || problem.code === "agent_unavailable" || delay === undefined) {
          settle(key);
          set("unsent", problem.message);
          return;
        }
        set("sending", `${problem.message}; trying again`);
        await new Promise((resolve) => setTimeout(resolve, delay));
      }
    }
  }

  /** Cancels the running turn. */
  async cancel(): Promise<void> {
    await this.#act(() => post(`${this.#path}/cancel`, {}), "Cancellation was sent.");
  }

  /** Decides on a call. Returns the problem if the decision was refused. */
  async decide(asked: ApprovalAsked, decision: Decision, reason: string): Promise<Problem | null> {
    const body = { callHash: asked.callHash, decision, ...(reason === "" ? {} : { reason }) };
    const path = `${this.#path}/approvals/${pathPart(asked.approvalId)}`;
    try {
      await post(path, body);
      session.say("The decision was sent.");
      return null;
    } catch (error) {
      return asProblem(error);
    }
  }

  async rename(title: string): Promise<Problem | null> {
    return this.#act(async () => {
      this.entry = await request<ConversationEntry>("PATCH", this.#path, { body: { title } });
    }, "Renamed.");
  }

  async share(): Promise<Problem | null> {
    return this.#act(async () => {
      const { shareId } = await post<{ shareId: string }>(`${this.#path}/share`, {});
      if (this.entry) {
        this.entry = { ...this.entry, shareId };
      }
    }, "The conversation is shared.");
  }

  async endShare(): Promise<Problem | null> {
    return this.#act(async () => {
      await request("DELETE", `${this.#path}/share`);
      if (this.entry) {
        this.entry = { ...this.entry, shareId: undefined };
      }
    }, "The conversation is no longer shared.");
  }

  async #act(action: () => Promise<unknown>, done: string): Promise<Problem | null> {
    try {
      await action();
      session.say(done);
      return null;
    } catch (error) {
      const problem = asProblem(error);
      session.say(problem.message);
      return problem;
    }
  }
}
