/** The tabs of one browser, by Web Locks and a broadcast channel. */
import type { TabMessage, Tabs } from "./hub.ts";

/** Tabs that share a stream. Where the browser has no locks, as on an unencrypted origin, each tab leads. */
export class BrowserTabs implements Tabs {
  readonly id = Array.from(crypto.getRandomValues(new Uint8Array(8)), (byte) => byte.toString(16)).join("");
  #channel: BroadcastChannel | undefined;
  #release: AbortController | undefined;

  join(group: string, lead: () => void, onMessage: (message: TabMessage) => void): void {
    const name = `rockbot-stream:${group}`;
    if (!navigator.locks) {
      queueMicrotask(lead);
      return;
    }
    const channel = new BroadcastChannel(name);
    channel.onmessage = ({ data }) => onMessage(data as TabMessage);
    this.#channel = channel;
    const release = new AbortController();
    this.#release = release;
    const hold = () =>
      new Promise<void>((resolve) => {
        if (release.signal.aborted) {
          resolve();
          return;
        }
        release.signal.addEventListener("abort", () => resolve());
        lead();
      });
    navigator.locks.request(name, { signal: release.signal }, hold).catch(() => {
      // The tab left while it waited.
    });
  }

  send(message: TabMessage): void {
    this.#channel?.postMessage(message);
  }

  leave(): void {
    this.#release?.abort();
    this.#release = undefined;
    this.#channel?.close();
    this.#channel = undefined;
  }
}
