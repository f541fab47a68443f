import assert from "node:assert/strict";
import { test } from "node:test";
import type { ConnectionState } from "../../src/stream/connection.ts";
import { Hub, type StreamEvent, type TabMessage, type Tabs } from "../../src/stream/hub.ts";

/** Tabs of one browser: the first of a group leads until it leaves. */
class Browser {
  readonly #groups = new Map<
    string,
    { tab: string; lead: () => void; onMessage: (message: TabMessage) => void }[]
  >();
  #count = 0;

  tab(): Tabs {
    this.#count += 1;
    const id = `tab${this.#count}`;
    let group = "";
    return {
      id,
      join: (name, lead, onMessage) => {
        group = name;
        const members = this.#groups.get(name) ?? [];
        this.#groups.set(name, [...members, { tab: id, lead, onMessage }]);
        if (members.length === 0) {
          lead();
        }
      },
      send: (message) => {
        for (const member of this.#groups.get(group) ?? []) {
          if (member.tab !== id) {
            member.onMessage(structuredClone(message));
          }
        }
      },
      leave: () => {
        const members = this.#groups.get(group) ?? [];
        const others = members.filter(({ tab }) => tab !== id);
        this.#groups.set(group, others);
        if (members[0]?.tab === id) {
          others[0]?.lead();
        }
      },
    };
  }
}

/** A gateway whose open streams can be written to. */
class Streams {
  readonly asked: URLSearchParams[] = [];
  #open: ReadableStreamDefaultController<Uint8Array>[] = [];
  #waiting: (() => void)[] = [];

  readonly fetch = (async (input: unknown, init?: RequestInit) => {
    this.asked.push(new URL(String(input), "http://gateway").searchParams);
    const body = new ReadableStream<Uint8Array>({
      start: (controller) => {
        this.#open.push(controller);
        init?.signal?.addEventListener("abort", () => {
          this.#open = this.#open.filter((known) => known !== controller);
          controller.error(new Error("aborted"));
        });
      },
    });
    for (const wake of this.#waiting.splice(0)) {
      wake();
    }
    return new Response(body, { status: 200 });
  }) as typeof fetch;

  get open(): number {
    return this.#open.length;
  }

  /** Waits until a number of streams were asked for. */
  async until(count: number): Promise<void> {
    while (this.asked.length < count) {
      await new Promise<void>((resolve) => this.#waiting.push(resolve));
    }
    await settled();
  }

  send(event: string, data: unknown, id?: string): Promise<void> {
    const text = `event: ${event}\n${id ? `id: ${id}\n` : ""}data: ${JSON.stringify(data)}\n\n`;
    for (const controller of this.#open) {
      controller.enqueue(new TextEncoder().encode(text));
    }
    return settled();
  }
}

/** Lets everything run that is ready. */
async function settled(): Promise<void> {
  for (let turn = 0; turn < 10; turn += 1) {
    await new Promise((resolve) => setImmediate(resolve));
  }
}

function hub(browser: Browser, streams: Streams) {
  const states: ConnectionState[] = [];
  const options = { base: "", tabs: browser.tab(), fetch: streams.fetch, retryMs: 1 };
  return { hub: new Hub({ ...options, onState: (state) => states.push(state) }), states };
}

test("one tab holds the stream and passes events on", async () => {
  const [browser, streams] = [new Browser(), new Streams()];
  const [first, second] = [hub(browser, streams), hub(browser, streams)];
  const [atFirst, atSecond]: StreamEvent[][] = [[], []];
  first.hub.subscribe("conversation:a", (event) => atFirst?.push(event), "e-5");
  await streams.until(1);
  second.hub.subscribe("conversation:b", (event) => atSecond?.push(event), "e-3");
  await streams.until(2);
  assert.equal(streams.open, 1);
  assert.equal(streams.asked[1]?.get("topics"), "conversation:a,conversation:b");
  assert.equal(streams.asked[1]?.get("after"), "e-3");
  await streams.send("conversation", { conversation: "b" }, "e-6");
  assert.equal(atFirst?.length, 0);
  assert.equal(atSecond?.length, 1);
  assert.equal(second.states.at(-1)?.kind, "open");
  first.hub.close();
  second.hub.close();
});

test("next tab leads and continues where the first was", async () => {
  const [browser, streams] = [new Browser(), new Streams()];
  const [first, second] = [hub(browser, streams), hub(browser, streams)];
  const received: string[] = [];
  first.hub.subscribe("conversation:a", () => {}, "e-1");
  second.hub.subscribe("conversation:a", (event) => received.push(event.id ?? ""), "e-1");
  await streams.until(2);
  await streams.send("conversation", { conversation: "a" }, "e-4");
  first.hub.close();
  await streams.until(3);
  assert.equal(streams.asked[2]?.get("after"), "e-4");
  assert.equal(streams.open, 1);
  await streams.send("conversation", { conversation: "a" }, "e-5");
  assert.deepEqual(received, ["e-4", "e-5"]);
  second.hub.close();
});

test("tabs with another filter have a stream of their own", async () => {
  const [browser, streams] = [new Browser(), new Streams()];
  const [first, second] = [hub(browser, streams), hub(browser, streams)];
  first.hub.subscribe("calls", () => {});
  second.hub.setFilter("tool:bash");
  second.hub.subscribe("calls", () => {});
  await streams.until(2);
  assert.equal(streams.open, 2);
  assert.deepEqual(
    streams.asked.map((query) => query.get("filter")),
    [null, "tool:bash"],
  );
  first.hub.close();
  second.hub.close();
});

test("topic without listeners leaves the stream", async () => {
  const [browser, streams] = [new Browser(), new Streams()];
  const only = hub(browser, streams);
  const leave = only.hub.subscribe("calls", () => {});
  only.hub.subscribe("fleet", () => {});
  await streams.until(2);
  leave();
  await streams.until(3);
  assert.equal(streams.asked[2]?.get("topics"), "fleet");
  only.hub.close();
  await settled();
  assert.equal(streams.open, 0);
});

test("paused tab lets go and returns", async () => {
  const [browser, streams] = [new Browser(), new Streams()];
  const only = hub(browser, streams);
  only.hub.subscribe("conversation:a", () => {}, "e-1");
  await streams.until(1);
  await streams.send("conversation", { conversation: "a" }, "e-2");
  only.hub.pause();
  await settled();
  assert.equal(streams.open, 0);
  only.hub.resume();
  await streams.until(2);
  assert.equal(streams.asked[1]?.get("after"), "e-2");
  only.hub.close();
});
