/**
 * The stream of this tab: topics, their listeners, and the connection that tabs share.
 *
 * Browsers open six connections to a host, so one tab holds the stream and passes its events on to the others. Tabs
 * with another filter of calls need another stream and form a group of their own.
 */
import { Connection, type ConnectionState } from "./connection.ts";
import type { Frame } from "./frames.ts";
import { Positions } from "./positions.ts";

export interface StreamEvent {
  event: string;
  id?: string;
  /** Parsed JSON. */
  data: unknown;
}

export type Listener = (event: StreamEvent) => void;

/** Messages between the tabs of a group. */
export type TabMessage =
  | { kind: "topics"; tab: string; topics: Record<string, string>; restart: boolean }
  | { kind: "left"; tab: string }
  | { kind: "event"; event: StreamEvent }
  | { kind: "state"; state: ConnectionState }
  | { kind: "leader" };

/** The tabs of a group, one of which leads. */
export interface Tabs {
  readonly id: string;
  /** Calls `lead` when this tab leads, until {@link leave}. */
  join(group: string, lead: () => void, onMessage: (message: TabMessage) => void): void;
  send(message: TabMessage): void;
  leave(): void;
}

export interface HubOptions {
  base: string;
  tabs: Tabs;
  onState: (state: ConnectionState) => void;
  fetch?: typeof fetch;
  retryMs?: number;
  now?: () => number;
}

/** Most topics of a stream. */
const MAX_TOPICS = 16;
/** Tabs that did not announce their topics for so long are gone. Hidden tabs run timers once a minute. */
const FORGET_MS = 200_000;

interface Member {
  topics: Record<string, string>;
  seenMs: number;
}

/** Distributes the events of the stream to the listeners of their topics. */
export class Hub {
  readonly #options: HubOptions;
  readonly #listeners = new Map<string, Set<Listener>>();
  readonly #members = new Map<string, Member>();
  readonly #positions = new Positions();
  #connection: Connection | undefined;
  #address = "";
  #isJoined = false;
  #isLeader = false;
  #filter = "";
  #isPaused = false;

  constructor(options: HubOptions) {
    this.#options = options;
  }

  /** Listens to a topic from a position on. Returns the function that ends it. */
  subscribe(topic: string, listener: Listener, from?: string): () => void {
    const listeners = this.#listeners.get(topic) ?? new Set();
    this.#listeners.set(topic, listeners);
    listeners.add(listener);
    if (from !== undefined) {
      this.#positions.include(topic, from);
    }
    this.#changed(true);
    return () => {
      listeners.delete(listener);
      if (listeners.size === 0 && this.#listeners.get(topic) === listeners) {
        this.#listeners.delete(topic);
        this.#changed(false);
      }
    };
  }

  /** Sets the filter of the topic `calls`. */
  setFilter(filter: string): void {
    if (filter !== this.#filter) {
      this.#filter = filter;
      this.#leave();
      this.#changed(true);
    }
  }

  /** Lets go of the stream: the tab is hidden for long. */
  pause(): void {
    this.#isPaused = true;
    this.#leave();
  }

  resume(): void {
    if (this.#isPaused) {
      this.#isPaused = false;
      this.#changed(true);
    }
  }

  /** Tries at once to connect again. */
  retry(): void {
    this.#connection?.restart();
  }

  /** Announces the topics of this tab again. Call it at least once a minute. */
  heartbeat(): void {
    if (this.#isJoined) {
      this.#announce(false);
      this.#connect(false);
    }
  }

  close(): void {
    this.#leave();
  }

  #changed(restart: boolean) {
    if (this.#isPaused) {
      return;
    }
    if (this.#listeners.size === 0) {
      this.#leave();
      return;
    }
    if (!this.#isJoined) {
      this.#isJoined = true;
      this.#options.onState({ kind: "connecting" });
      this.#options.tabs.join(
        this.#filter,
        () => {
          this.#isLeader = true;
          this.#connect(true);
        },
        (message) => this.#receive(message),
      );
    }
    this.#announce(restart);
    this.#connect(restart);
  }

  #announce(restart: boolean) {
    const topics: Record<string, string> = {};
    for (const topic of this.#listeners.keys()) {
      topics[topic] = this.#positions.get(topic) ?? "";
    }
    const { tabs } = this.#options;
    this.#addMember(tabs.id, topics);
    tabs.send({ kind: "topics", tab: tabs.id, topics, restart });
  }

  /** Notes the topics of a tab. The stream continues from where the tab was with topics that it did not have. */
  #addMember(tab: string, topics: Record<string, string>) {
    const known = this.#members.get(tab)?.topics ?? {};
    for (const [topic, from] of Object.entries(topics)) {
      if (from !== "" && known[topic] === undefined) {
        this.#positions.include(topic, from);
      }
    }
    this.#members.set(tab, { topics, seenMs: this.#now() });
    this.#positions.retain(this.#topics());
  }

  #now(): number {
    return (this.#options.now ?? Date.now)();
  }

  /** Returns the topics of all tabs that are here, at most as many as a stream may have. */
  #topics(): string[] {
    const topics = new Set<string>();
    for (const [tab, { topics: own, seenMs }] of this.#members) {
      if (this.#now() - seenMs > FORGET_MS) {
        this.#members.delete(tab);
        continue;
      }
      for (const topic of Object.keys(own)) {
        topics.add(topic);
      }
    }
    return [...topics].sort().slice(0, MAX_TOPICS);
  }

  #connect(restart: boolean) {
    const topics = this.#topics();
    if (!this.#isLeader || topics.length === 0) {
      return;
    }
    const address = new URLSearchParams({ topics: topics.join(",") });
    if (this.#filter !== "" && topics.includes("calls")) {
      address.set("filter", this.#filter);
    }
    const isChanged = this.#address !== address.toString();
    this.#address = address.toString();
    if (!this.#connection) {
      const { fetch, retryMs } = this.#options;
      this.#connection = new Connection({
        address: () => this.#nextAddress(),
        onFrame: (frame) => this.#onFrame(frame),
        onState: (state) => this.#onState(state),
        ...(fetch ? { fetch } : {}),
        ...(retryMs === undefined ? {} : { retryMs }),
      });
      this.#options.tabs.send({ kind: "leader" });
    } else if (restart || isChanged) {
      this.#connection.restart();
    }
  }

  #nextAddress(): string {
    const after = this.#positions.resumeFrom(this.#topics());
    return `${this.#options.base}/stream?${this.#address}${after ? `&after=${encodeURIComponent(after)}` : ""}`;
  }

  #onState(state: ConnectionState) {
    this.#options.onState(state);
    this.#options.tabs.send({ kind: "state", state });
    if (state.kind === "refused") {
      // A later change of the topics tries again.
      this.#connection = undefined;
    }
  }

  #onFrame(frame: Frame) {
    let data: unknown;
    try {
      data = JSON.parse(frame.data);
    } catch {
      return;
    }
    const event = { event: frame.event, ...(frame.id === undefined ? {} : { id: frame.id }), data };
    this.#options.tabs.send({ kind: "event", event });
    this.#deliver(event);
  }

  /** Hands an event to the listeners of its topic. A position is kept by followers too: they may lead next. */
  #deliver(event: StreamEvent) {
    if (event.id !== undefined) {
      this.#positions.advance(event.id);
    }
    for (const topic of topicsOf(event, this.#listeners.keys())) {
      for (const listener of this.#listeners.get(topic) ?? []) {
        listener(event);
      }
    }
  }

  #receive(message: TabMessage) {
    switch (message.kind) {
      case "topics":
        this.#addMember(message.tab, message.topics);
        this.#connect(message.restart);
        break;
      case "left":
        this.#members.delete(message.tab);
        this.#connect(false);
        break;
      case "event":
        this.#deliver(message.event);
        break;
      case "state":
        this.#options.onState(message.state);
        break;
      case "leader":
        this.#announce(false);
        break;
    }
  }

  #leave() {
    if (!this.#isJoined) {
      return;
    }
    this.#isJoined = false;
    this.#isLeader = false;
    this.#connection?.close();
    this.#connection = undefined;
    this.#members.clear();
    this.#options.tabs.send({ kind: "left", tab: this.#options.tabs.id });
    this.#options.tabs.leave();
  }
}

/** Returns the topics that an event belongs to. */
function topicsOf({ event, data }: StreamEvent, subscribed: Iterable<string>): string[] {
  const { topic, conversation } = (data ?? {}) as { topic?: unknown; conversation?: unknown };
  switch (event) {
    case "conversation":
      // A shared conversation is subscribed to by the id of its share.
      return [...subscribed].filter((name) => name === `conversation:${conversation}` || isShared(name));
    case "calls":
    case "fleet":
    case "letters":
      return [event];
    case "reset":
    case "lost":
      return typeof topic === "string" ? [topic] : [];
    default:
      return [];
  }
}

function isShared(topic: string): boolean {
  return topic.startsWith("shared:");
}
