import assert from "node:assert/strict";
import { test } from "node:test";
import { Connection, type ConnectionState } from "../../src/stream/connection.ts";
import { type Frame, FrameParser } from "../../src/stream/frames.ts";
import { isAfter, Positions } from "../../src/stream/positions.ts";

test("events are decoded whatever the chunks", () => {
  const text = ': hello\r\n\r\nevent: calls\ndata: {"a":1}\ndata: 2\n\nid: e-1\ndata:x\n\nevent: empty\n\n';
  const expected = [
    { event: "calls", data: '{"a":1}\n2' },
    { event: "message", id: "e-1", data: "x" },
  ];
  for (let step = 1; step <= text.length; step += 1) {
    const parser = new FrameParser();
    const frames: Frame[] = [];
    for (let index = 0; index < text.length; index += step) {
      frames.push(...parser.push(text.slice(index, index + step)));
    }
    assert.deepEqual(frames, expected, `chunks of ${step}`);
  }
});

test("event without end is refused", () => {
  const parser = new FrameParser();
  assert.throws(() => {
    for (let index = 0; index < 100; index += 1) {
      parser.push(`data: ${"x".repeat(100_000)}\n`);
    }
  }, RangeError);
  assert.throws(() => new FrameParser().push("x".repeat(5 << 20)), RangeError);
});

test("positions are compared within an epoch", () => {
  assert.equal(isAfter("e1-10", "e1-9"), true);
  assert.equal(isAfter("e1-9", "e1-9"), false);
  assert.equal(isAfter("e2-1", "e1-9"), true);
});

test("stream resumes from the earliest topic", () => {
  const positions = new Positions();
  positions.include("conversation:a", "e-10");
  positions.include("conversation:b", "e-7");
  assert.equal(positions.resumeFrom(["conversation:a", "conversation:b", "calls"]), "e-7");
  positions.advance("e-9");
  assert.equal(positions.resumeFrom(["conversation:b"]), "e-9");
  assert.equal(positions.resumeFrom(["conversation:a"]), "e-10");
  positions.include("conversation:a", "e-8");
  assert.equal(positions.resumeFrom(["conversation:a"]), "e-8");
  positions.retain(["conversation:b"]);
  assert.equal(positions.resumeFrom(["conversation:a"]), undefined);
});

/** Responses of a gateway: a status, or the text of a stream that then breaks off. */
function responses(...answers: (number | string)[]): { fetch: typeof fetch; asked: string[] } {
  const asked: string[] = [];
  const next = answers.values();
  const respond = async (input: unknown) => {
    asked.push(String(input));
    const answer = next.next().value ?? 401;
    if (typeof answer === "number") {
      return new Response(null, { status: answer });
    }
    const bytes = new TextEncoder().encode(answer);
    const body = new ReadableStream<Uint8Array>({
      start(controller) {
        controller.enqueue(bytes);
        controller.close();
      },
    });
    return new Response(body, { status: 200 });
  };
  return { fetch: respond as typeof fetch, asked };
}

/** Runs a connection until it is refused. */
function untilRefused(
  fetch: typeof globalThis.fetch,
): Promise<{ frames: Frame[]; states: ConnectionState[] }> {
  return new Promise((resolve) => {
    const frames: Frame[] = [];
    const states: ConnectionState[] = [];
    let last = "";
    new Connection({
      address: () => `/stream?after=${last}`,
      onFrame: (frame) => {
        frames.push(frame);
        last = frame.id ?? last;
      },
      onState: (state) => {
        states.push(state);
        if (state.kind === "refused") {
          resolve({ frames, states });
        }
      },
      fetch,
      retryMs: 1,
    });
  });
}

test("broken stream continues after its last event", async () => {
  const { fetch, asked } = responses(
    "id: e-1\ndata: 1\n\nid: e-2\ndata: 2\n\ndata: cut",
    "id: e-3\ndata: 3\n\n",
    503,
  );
  const { frames } = await untilRefused(fetch);
  assert.deepEqual(
    frames.map(({ data }) => data),
    ["1", "2", "3"],
  );
  assert.deepEqual(asked, ["/stream?after=", "/stream?after=e-2", "/stream?after=e-3", "/stream?after=e-3"]);
});

test("temporary failure is repeated, a refusal is final", async () => {
  const { fetch, asked } = responses(503, 429, 500, 403);
  const { states } = await untilRefused(fetch);
  assert.equal(asked.length, 4);
  assert.equal(states.filter(({ kind }) => kind === "waiting").length, 3);
  assert.deepEqual(states.at(-1), { kind: "refused", status: 403 });
});

test("silent stream is opened again", async () => {
  let opened = 0;
  const silent = (async (_input: unknown, init?: RequestInit) => {
    opened += 1;
    if (opened === 2) {
      return new Response(null, { status: 401 });
    }
    return new Promise((_resolve, reject) => {
      init?.signal?.addEventListener("abort", () => reject(init.signal?.reason));
    });
  }) as typeof fetch;
  const reasons: string[] = [];
  await new Promise<void>((resolve) => {
    new Connection({
      address: () => "/stream",
      onFrame: () => {},
      onState: (state) => {
        if (state.kind === "waiting") {
          reasons.push(state.reason);
        } else if (state.kind === "refused") {
          resolve();
        }
      },
      fetch: silent,
      silenceMs: 10,
      retryMs: 1,
    });
  });
  assert.deepEqual(reasons, ["the gateway was silent"]);
});
