/** A gateway for browser tests: the built page, the HTTP API, and a stream that can be cut. */
import { readFile } from "node:fs/promises";
import { createServer, type IncomingMessage, type Server, type ServerResponse } from "node:http";
import type { AddressInfo } from "node:net";
import type {
  Agent,
  AgentSchedule,
  AgentTasks,
  Call,
  CallContent,
  CallDetails,
  ConversationEntry,
  ConversationEvent,
  Fleet,
  HistoryItem,
  Letter,
  Me,
  Tool,
  ToolOutcome,
} from "../../src/api.ts";

const ASSETS = new URL("../../../crates/gateway/assets/", import.meta.url);
const TYPES: Record<string, string> = {
  html: "text/html; charset=utf-8",
  js: "text/javascript; charset=utf-8",
  css: "text/css; charset=utf-8",
  svg: "image/svg+xml",
};
/** The policy that the gateway sends. */
export const POLICY =
  "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; " +
  "form-action 'none'; base-uri 'none'; frame-ancestors 'none'; " +
  "require-trusted-types-for 'script'; trusted-types svelte-trusted-html";

/** An event without what the gateway adds. */
export type NewEvent = ConversationEvent extends infer Event
  ? Event extends ConversationEvent
    ? Omit<Event, "id" | "conversation" | "atMs">
    : never
  : never;

export interface Received {
  method: string;
  path: string;
  body: unknown;
  key: string | undefined;
}

interface Conversation {
  entry: ConversationEntry;
  history: HistoryItem[];
  events: ConversationEvent[];
}

interface Stream {
  response: ServerResponse;
  topics: string[];
}

/** A response in place of the usual one. */
export interface Refusal {
  status: number;
  code: string;
  detail: string;
  executed?: string;
}

const EVERYTHING: Me = {
  subject: "local",
  name: "ada",
  rights: ["talk", "watch", "content", "letters", "call"],
  parts: {
    talk: { available: true },
    watch: { available: true },
    letters: { available: true },
    schedules: { available: true },
    tasks: { available: true },
    calls: { available: true },
  },
  version: "0.1.0",
  serverTimeMs: 0,
};

export class MockGateway {
  me: Me = structuredClone(EVERYTHING);
  isSignedIn = true;
  readonly loginCode = "0123456789abcdef0123456789abcdef";
  agents: Agent[] = [];
  conversations = new Map<string, Conversation>();
  calls: Call[] = [];
  details = new Map<string, CallDetails>();
  content = new Map<string, CallContent>();
  fleet: Fleet | null = null;
  tools: Tool[] = [];
  /** Outcomes of calls by hand, by tool. */
  outcomes = new Map<string, ToolOutcome>();
  /** Calls by hand that were carried out, by idempotency key. */
  readonly toolCalls = new Map<string, unknown>();
  letters = new Map<string, Letter[]>();
  schedules: AgentSchedule[] = [];
  tasks: AgentTasks[] = [];
  /** Requests that changed something, in order. */
  readonly received: Received[] = [];
  /** Called after a message was accepted for the first time. */
  onMessage: (conversation: string, messageId: string, text: string) => void = () => {};
  onDecision: (
    conversation: string,
    approvalId: string,
    body: { decision: string; reason?: string },
  ) => void = () => {};
  /** Refuses requests whose method and path begin with a key. */
  refusals = new Map<string, Refusal>();
  /** Responses to lose after the request was carried out, by method and path. */
  lose = new Map<string, number>();
  url = "";
  /** Number of streams that were opened. */
  opened = 0;
  #epoch = "5f3c9a1b2d4e6f70";
  #sequence = 0;
  /** Message ids by idempotency key. */
  #messages = new Map<string, string>();
  readonly #streams = new Set<Stream>();
  #server: Server | undefined;
  #callsTotal = 0;

  async start(): Promise<void> {
    const server = createServer((request, response) => {
      this.#serve(request, response).catch(() => response.destroy());
    });
    this.#server = server;
    await new Promise<void>((resolve) => server.listen(0, "127.0.0.1", resolve));
    this.url = `http://127.0.0.1:${(server.address() as AddressInfo).port}`;
  }

  async stop(): Promise<void> {
    this.#server?.closeAllConnections();
    await new Promise((resolve) => this.#server?.close(resolve));
  }

  get streams(): number {
    return this.#streams.size;
  }

  addConversation(id: string, title: string, agent = "assistant"): void {
    const now = Date.now();
    this.conversations.set(id, {
      entry: {
        id,
        agent,
        title,
        createdMs: now - 600_000,
        lastActiveMs: now - 60_000,
        state: "idle",
        turns: 1,
      },
      history: [],
      events: [],
    });
  }

  conversation(id: string): Conversation {
    const conversation = this.conversations.get(id);
    if (!conversation) {
      throw new Error(`no conversation ${id}`);
    }
    return conversation;
  }

  /** Records an event and sends it to the streams of its conversation. */
  emit(conversation: string, event: NewEvent): ConversationEvent {
    this.#sequence += 1;
    const id = `${this.#epoch}-${this.#sequence}`;
    const full = { ...event, id, conversation, atMs: Date.now() } as ConversationEvent;
    this.conversation(conversation).events.push(full);
    this.send(`conversation:${conversation}`, "conversation", full, id);
    return full;
  }

  /** Sends an event to the streams of a topic, without recording it. */
  send(topic: string, event: string, data: unknown, id?: string): void {
    for (const stream of this.#streams) {
      if (stream.topics.includes(topic)) {
        write(stream.response, event, data, id);
      }
    }
  }

  /** Sends changed calls. */
  sendCalls(calls: Call[], perSecond = calls.length * 10): void {
    this.#callsTotal += calls.filter(({ live }) => live).length;
    this.send("calls", "calls", this.#callsFrame(calls, false, perSecond));
  }

  /** Ends all streams as a lost network does. */
  cut(): void {
    for (const { response } of this.#streams) {
      response.destroy();
    }
  }

  /** Starts again: positions are void and rings are empty. */
  restart(): void {
    this.#epoch = "0a0b0c0d0e0f0a0b";
    this.#sequence = 0;
    this.cut();
  }

  #callsFrame(calls: Call[], snapshot: boolean, perSecond: number) {
    const failed = calls.filter((call) => call.failed).length;
    const total = Math.max(this.#callsTotal, this.calls.length);
    return {
      snapshot,
      calls,
      skipped: 0,
      tally: { calls: total, replied: total - 1, failed },
      sinceMs: Date.now() - 60_000,
      rates: { perSecond, p50Ms: 3, p95Ms: 210 },
    };
  }

  async #serve(request: IncomingMessage, response: ServerResponse): Promise<void> {
    const url = new URL(request.url ?? "/", this.url);
    response.setHeader("Content-Security-Policy", POLICY);
    response.setHeader("X-Content-Type-Options", "nosniff");
    response.setHeader("Referrer-Policy", "no-referrer");
    if (!url.pathname.startsWith("/api/v1/")) {
      await asset(url.pathname, response);
      return;
    }
    const path = url.pathname.slice("/api/v1".length);
    const method = request.method ?? "GET";
    const chunks: Buffer[] = [];
    for await (const chunk of request) {
      chunks.push(chunk as Buffer);
    }
    const text = Buffer.concat(chunks).toString();
    const body: unknown = text === "" ? undefined : JSON.parse(text);
    const key = request.headers["idempotency-key"] as string | undefined;
    if (method !== "GET") {
      this.received.push({ method, path, body, key });
    }
    const name = [...this.refusals.keys()].find((start) => `${method} ${path}`.startsWith(start));
    if (name !== undefined) {
      problem(response, this.refusals.get(name) as Refusal);
      return;
    }
    if (!this.isSignedIn && path !== "/session") {
      problem(response, { status: 401, code: "unauthorized", detail: "sign in with a login link" });
      return;
    }
    if (path === "/stream") {
      this.#stream(url, request, response);
      return;
    }
    const result = this.#answer(method, path, url.searchParams, body, key);
    const losses = this.lose.get(`${method} ${path}`) ?? 0;
    if (losses > 0) {
      this.lose.set(`${method} ${path}`, losses - 1);
      response.destroy();
    } else if ("code" in result) {
      problem(response, result);
    } else {
      response.writeHead(result.status, { "Content-Type": "application/json" });
      response.end(result.status === 204 ? undefined : JSON.stringify(result.body));
    }
  }

  #answer(
    method: string,
    path: string,
    query: URLSearchParams,
    body: unknown,
    key: string | undefined,
  ): Answer {
    const parts = path.slice(1).split("/").map(decodeURIComponent);
    switch (`${method} ${parts[0]}`) {
      case "POST session": {
        this.isSignedIn = (body as { code?: string }).code === this.loginCode;
        const detail = "the code was used or has expired";
        return this.isSignedIn ? { status: 204 } : { status: 401, code: "unauthorized", detail };
      }
      case "DELETE session":
        this.isSignedIn = false;
        return { status: 204 };
      case "GET me":
        return ok({ ...this.me, serverTimeMs: Date.now() });
      case "GET agents":
        return ok({ agents: this.agents });
      case "GET calls":
        return this.#call(parts);
      case "GET tools":
        return parts[1] === undefined
          ? ok({ tools: this.tools.map(({ parameters, ...tool }) => tool) })
          : found(this.tools.find(({ name }) => name === parts[1]));
      case "POST tools":
        return this.#callTool(parts[1] ?? "", body, key);
      case "GET schedules":
        return ok({ agents: this.schedules });
      case "GET tasks":
        return ok({ agents: this.tasks });
      case "GET letters":
      case "POST letters":
        return this.#letter(parts, body);
      case "GET shared":
        return this.#snapshot(parts[1] ?? "", true);
      default:
        return parts[0] === "conversations" ? this.#talk(method, parts, query, body, key) : missing();
    }
  }

  #callTool(name: string, body: unknown, key: string | undefined): Answer {
    if (key === undefined) {
      return { status: 400, code: "missing_key", detail: "send an Idempotency-Key" };
    }
    this.toolCalls.set(key, body);
    return found(this.outcomes.get(name));
  }

  #call([, id, part]: string[]): Answer {
    if (id === undefined) {
      return ok({ ...this.#callsFrame(this.calls.slice(0, 500), true, 0), matched: this.calls.length });
    }
    return part === "content" ? found(this.content.get(id ?? "")) : found(this.details.get(id ?? ""));
  }

  #letter([, queue = "", action]: string[], body: unknown): Answer {
    const letters = this.letters.get(queue);
    if (!letters) {
      return missing();
    }
    const { ids = [], dryRun = true } = (body ?? {}) as { ids?: string[]; dryRun?: boolean };
    const chosen = letters.filter(({ messageId }) => ids.includes(messageId));
    const isRefused = ({ refusal }: Letter) => refusal !== undefined;
    if (action === "replay") {
      const replayed = chosen.filter((letter) => !isRefused(letter)).map(({ messageId }) => messageId);
      const refused = chosen
        .filter(isRefused)
        .map(({ messageId, refusal }) => ({ messageId, reason: refusal ?? "" }));
      this.#drop(queue, dryRun ? [] : replayed);
      return ok({ dryRun, replayed, refused, left: this.letters.get(queue)?.length ?? 0 });
    }
    if (action === "purge") {
      this.#drop(queue, dryRun ? [] : ids);
      return ok({ dryRun, deleted: ids, left: this.letters.get(queue)?.length ?? 0 });
    }
    return action === undefined
      ? ok({ queue, waiting: letters.length, letters })
      : found(letters.find(({ messageId }) => messageId === action));
  }

  #drop(queue: string, ids: string[]) {
    const left = (this.letters.get(queue) ?? []).filter(({ messageId }) => !ids.includes(messageId));
    this.letters.set(queue, left);
  }

  #talk(
    method: string,
    [, id = "", action, approval = ""]: string[],
    query: URLSearchParams,
    body: unknown,
    key: string | undefined,
  ): Answer {
    const values = (body ?? {}) as Record<string, string>;
    if (id === "") {
      return method === "GET" ? this.#list(query.get("query") ?? "") : this.#create(values);
    }
    const conversation = this.conversations.get(id);
    if (!conversation) {
      return missing();
    }
    switch (`${method} ${action ?? ""}`) {
      case "GET ":
        return this.#snapshot(id, false);
      case "PATCH ":
        conversation.entry.title = values.title ?? "";
        this.emit(id, { kind: "renamed", messageId: "", title: conversation.entry.title });
        return ok(conversation.entry);
      case "DELETE ":
        this.conversations.delete(id);
        return { status: 204 };
      case "POST messages":
        return this.#message(id, key, values.text ?? "");
      case "POST cancel":
        return { status: 202, body: { state: "sent" } };
      case "POST approvals":
        this.onDecision(id, approval, values as { decision: string; reason?: string });
        return { status: 202, body: { state: "sent" } };
      case "POST share":
        conversation.entry.shareId = id;
        return ok({ shareId: id, createdMs: Date.now() });
      case "DELETE share":
        delete conversation.entry.shareId;
        return { status: 204 };
      default:
        return missing();
    }
  }

  #list(query: string): Answer {
    const entries = [...this.conversations.values()].map(({ entry }) => entry);
    const matches = entries.filter(({ title }) => title.toLowerCase().includes(query.toLowerCase()));
    return ok({ conversations: matches.sort((a, b) => b.lastActiveMs - a.lastActiveMs) });
  }

  #create({ agent, title }: Record<string, string>): Answer {
    const id = `0199aaaa-0000-7000-8000-${String(this.conversations.size).padStart(12, "0")}`;
    this.addConversation(id, title ?? "", agent);
    return { status: 201, body: this.conversation(id).entry };
  }

  #message(id: string, key: string | undefined, text: string): Answer {
    if (key === undefined) {
      return { status: 400, code: "missing_key", detail: "send an Idempotency-Key" };
    }
    const known = this.#messages.get(key);
    if (known !== undefined) {
      return { status: 202, body: { messageId: known, state: "repeated" } };
    }
    const messageId = `0199eeee-0000-7000-8000-${String(this.#messages.size).padStart(12, "0")}`;
    this.#messages.set(key, messageId);
    this.emit(id, { kind: "message", messageId, text, key });
    this.onMessage(id, messageId, text);
    return { status: 202, body: { messageId, state: "accepted" } };
  }

  #snapshot(id: string, readOnly: boolean): Answer {
    const conversation = this.conversations.get(id);
    if (!conversation) {
      return missing();
    }
    const { entry, history, events } = conversation;
    const lastEventId = `${this.#epoch}-${this.#sequence}`;
    return ok({ conversation: entry, readOnly, history, running: events, lastEventId });
  }

  #stream(url: URL, request: IncomingMessage, response: ServerResponse) {
    this.opened += 1;
    const topics = (url.searchParams.get("topics") ?? "").split(",");
    response.writeHead(200, { "Content-Type": "text/event-stream", "Cache-Control": "no-store" });
    response.write(":\n\n");
    write(response, "hello", { epoch: this.#epoch, serverTimeMs: Date.now() });
    const after = (request.headers["last-event-id"] as string) ?? url.searchParams.get("after") ?? "";
    const [epoch, sequence] = after.split("-");
    for (const topic of topics) {
      const id = topic.replace(/^(?:conversation|shared):/, "");
      if (id === topic) {
        continue;
      }
      if (after !== "" && epoch !== this.#epoch) {
        write(response, "reset", { topic, reason: "epoch" });
        continue;
      }
      for (const event of this.conversations.get(id)?.events ?? []) {
        if (after !== "" && Number(event.id.split("-")[1]) > Number(sequence)) {
          write(response, "conversation", event, event.id);
        }
      }
    }
    if (topics.includes("calls")) {
      write(response, "calls", this.#callsFrame(this.calls.slice(0, 500), true, 12.5));
    }
    if (topics.includes("fleet") && this.fleet) {
      write(response, "fleet", { ...this.fleet, atMs: Date.now() });
    }
    if (topics.includes("letters")) {
      const queues = [...this.letters].map(([name, letters]) => ({
        name,
        state: "present",
        deadLetters: letters.length,
      }));
      write(response, "letters", { queues });
    }
    const stream = { response, topics };
    this.#streams.add(stream);
    response.on("close", () => this.#streams.delete(stream));
  }
}

type Answer = { status: number; body?: unknown } | Refusal;

const ok = (body: unknown): Answer => ({ status: 200, body });
const missing = (): Answer => ({ status: 404, code: "not_found", detail: "there is no such thing" });
const found = (body: unknown): Answer => (body === undefined ? missing() : ok(body));

function write(response: ServerResponse, event: string, data: unknown, id?: string) {
  response.write(
    `event: ${event}\n${id === undefined ? "" : `id: ${id}\n`}data: ${JSON.stringify(data)}\n\n`,
  );
}

function problem(response: ServerResponse, { status, ...rest }: Refusal) {
  response.writeHead(status, { "Content-Type": "application/problem+json" });
  response.end(JSON.stringify({ type: "about:blank", title: rest.code, status, ...rest }));
}

async function asset(path: string, response: ServerResponse) {
  const name = path === "/" ? "index.html" : path.slice(1);
  if (!/^[\w.-]+$/.test(name)) {
    response.writeHead(404).end();
    return;
  }
  const body = await readFile(new URL(name, ASSETS)).catch(() => null);
  if (body === null) {
    response.writeHead(404).end();
    return;
  }
  response.writeHead(200, { "Content-Type": TYPES[name.split(".").at(-1) ?? ""] ?? "text/plain" });
  response.end(body);
}
