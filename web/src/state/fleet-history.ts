/** Depths of queues over time. */
import type { Fleet } from "../api.ts";

const MAX_SAMPLES = 120;
const INTERVAL_MS = 5_000;

/** Keeps a sample of each queue every 5 s, for 10 min. */
export class FleetHistory {
  #samples = new Map<string, number[]>();
  #lastMs = 0;

  add(fleet: Fleet): void {
    if (fleet.atMs - this.#lastMs < INTERVAL_MS - 500) {
      return;
    }
    this.#lastMs = fleet.atMs;
    const known = new Map<string, number[]>();
    for (const queue of fleet.queues) {
      const samples = this.#samples.get(queue.name) ?? [];
      known.set(
        queue.name,
        queue.ready === undefined ? samples : [...samples, queue.ready].slice(-MAX_SAMPLES),
      );
    }
    this.#samples = known;
  }

  of(queue: string): readonly number[] {
    return this.#samples.get(queue) ?? [];
  }
}
