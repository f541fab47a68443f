/** One stream from the gateway, which is opened again where it broke off. */
import { type Frame, FrameParser } from "./frames.ts";

export type ConnectionState =
  | { kind: "connecting" }
  | { kind: "open" }
  /** Lost; the next attempt begins at `retryAtMs`. */
  | { kind: "waiting"; retryAtMs: number; reason: string }
  /** Refused for good: signed out, forbidden, or a topic that does not exist. */
  | { kind: "refused"; status: number };

export interface ConnectionOptions {
  /** Returns the address for the next attempt, which contains the position to resume from. */
  address: () => string;
  onFrame: (frame: Frame) => void;
  onState: (state: ConnectionState) => void;
  fetch?: typeof fetch;
  /** Longest silence in milliseconds: the gateway sends a comment every 15 s. */
  silenceMs?: number;
  /** Delay before the first repetition in milliseconds; it doubles up to 15 s. */
  retryMs?: number;
}

const MAX_RETRY_MS = 15_000;
const FINAL = new Set([400, 401, 403, 404]);

/** Runs until {@link close}. */
export class Connection {
  readonly #options: Required<ConnectionOptions>;
  readonly #closing = new AbortController();
  #wake: () => void = () => {};
  #attempt: AbortController | undefined;

  constructor(options: ConnectionOptions) {
    this.#options = { fetch: (...args) => fetch(...args), silenceMs: 40_000, retryMs: 500, ...options };
    void this.#run();
  }

  /** Ends the stream. */
  close(): void {
    this.#closing.abort();
    this.#attempt?.abort();
    this.#wake();
  }

  /** Starts the next attempt at once, also if the stream is open: its address changed. */
  restart(): void {
    this.#attempt?.abort();
    this.#wake();
  }

  async #run(): Promise<void> {
    let failures = 0;
    while (!this.#closing.signal.aborted) {
      this.#attempt = new AbortController();
      const restarted = this.#attempt.signal;
      this.#options.onState({ kind: "connecting" });
      let reason = "the stream ended";
      try {
        const status = await this.#read(this.#attempt, () => {
          failures = 0;
        });
        if (FINAL.has(status)) {
          this.#options.onState({ kind: "refused", status });
          return;
        }
        if (status !== 200) {
          reason = `the gateway responded with status ${status}`;
        }
      } catch (error) {
        reason = error instanceof RangeError ? error.message : "no connection to the gateway";
      }
      if (this.#closing.signal.aborted) {
        return;
      }
      if (restarted.aborted && !(restarted.reason instanceof RangeError)) {
        continue;
      }
      failures += 1;
      await this.#pause(failures, reason);
    }
  }

  async #pause(failures: number, reason: string): Promise<void> {
    const longest = Math.min(MAX_RETRY_MS, this.#options.retryMs * 2 ** Math.min(failures - 1, 10));
    // Half of the delay is random, so that the viewers of a restarted gateway do not return at once.
    const delay = longest / 2 + (Math.random() * longest) / 2;
    this.#options.onState({ kind: "waiting", retryAtMs: Date.now() + delay, reason });
    await new Promise<void>((resolve) => {
      const timer = setTimeout(resolve, delay);
      this.#wake = () => {
        clearTimeout(timer);
        resolve();
      };
    });
    this.#wake = () => {};
  }

  /** Reads one response to its end and returns its status. */
  async #read(attempt: AbortController, onOpen: () => void): Promise<number> {
    const silent = () => attempt.abort(new RangeError("the gateway was silent"));
    let timer = setTimeout(silent, this.#options.silenceMs);
    try {
      const response = await this.#options.fetch(this.#options.address(), {
        headers: { Accept: "text/event-stream" },
        credentials: "same-origin",
        cache: "no-store",
        redirect: "error",
        signal: attempt.signal,
      });
      if (response.status !== 200 || !response.body) {
        await response.body?.cancel();
        return response.status;
      }
      onOpen();
      this.#options.onState({ kind: "open" });
      const parser = new FrameParser();
      const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
      for (;;) {
        const { value, done } = await reader.read();
        if (done || attempt.signal.aborted) {
          return 200;
        }
        clearTimeout(timer);
        timer = setTimeout(silent, this.#options.silenceMs);
        for (const frame of parser.push(value)) {
          this.#options.onFrame(frame);
        }
      }
    } finally {
      clearTimeout(timer);
      attempt.abort(attempt.signal.reason ?? new RangeError("the stream ended"));
    }
  }
}
