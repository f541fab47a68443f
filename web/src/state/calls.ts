/** Calls of the fleet, merged from the frames of the stream. */
import type { Call, CallsFrame } from "../api.ts";
import { percentile } from "../text/amounts.ts";

/** Most calls that are kept. */
export const MAX_CALLS = 10_000;

/** Calls in the order of their first message, newest first. */
export class CallList {
  #calls = new Map<string, Call>();
  #order: string[] = [];

  get order(): readonly string[] {
    return this.#order;
  }

  get(id: string): Call | undefined {
    return this.#calls.get(id);
  }

  /** Returns a copy that later frames do not change. */
  copy(): CallList {
    const copy = new CallList();
    copy.#calls = new Map(this.#calls);
    copy.#order = this.#order;
    return copy;
  }

  /** Merges a frame. Calls that no longer match the states of the filter are removed. */
  merge(frame: CallsFrame, filter = ""): void {
    if (frame.snapshot) {
      this.#calls.clear();
      this.#order = [];
    }
    const matches = stateFilter(filter);
    const added: Call[] = [];
    let isRemoved = false;
    for (const call of frame.calls) {
      if (!matches(call)) {
        isRemoved = this.#calls.delete(call.id) || isRemoved;
        continue;
      }
      if (!this.#calls.has(call.id)) {
        added.push(call);
      }
      this.#calls.set(call.id, call);
    }
    if (isRemoved) {
      this.#order = this.#order.filter((id) => this.#calls.has(id));
    }
    if (added.length > 0) {
      this.#insert(added);
    }
  }

  #insert(added: Call[]) {
    added.sort((a, b) => b.firstMs - a.firstMs);
    const merged: string[] = [];
    let index = 0;
    for (const id of this.#order) {
      const firstMs = this.#calls.get(id)?.firstMs ?? 0;
      for (; index < added.length && (added[index]?.firstMs ?? 0) >= firstMs; index += 1) {
        merged.push(added[index]?.id ?? "");
      }
      if (index === added.length) {
        // The rest is older.
        merged.push(...this.#order.slice(merged.length - index));
        break;
      }
      merged.push(id);
    }
    merged.push(...added.slice(index).map((call) => call.id));
    for (const id of merged.splice(MAX_CALLS)) {
      this.#calls.delete(id);
    }
    this.#order = merged;
  }

  /** Returns figures by tool, most calls first. */
  byTool(): ToolFigures[] {
    const tools = new Map<string, { figures: ToolFigures; latencies: number[] }>();
    for (const call of this.#calls.values()) {
      const name = toolName(call);
      let entry = tools.get(name);
      if (!entry) {
        entry = { figures: { tool: name, calls: 0, live: 0, failed: 0, p50Ms: 0, p95Ms: 0 }, latencies: [] };
        tools.set(name, entry);
      }
      entry.figures.calls += 1;
      entry.figures.live += call.live ? 1 : 0;
      entry.figures.failed += call.failed ? 1 : 0;
      if (call.latencyMs !== undefined) {
        entry.latencies.push(call.latencyMs);
      }
    }
    return [...tools.values()]
      .map(({ figures, latencies }) => ({
        ...figures,
        p50Ms: percentile(latencies, 0.5),
        p95Ms: percentile(latencies, 0.95),
      }))
      .sort((a, b) => b.calls - a.calls || a.tool.localeCompare(b.tool));
  }
}

export interface ToolFigures {
  tool: string;
  calls: number;
  live: number;
  failed: number;
  /** `NaN` without replies. */
  p50Ms: number;
  p95Ms: number;
}

/** Returns the name of a call's tool with its MCP server. */
export function toolName(call: Call): string {
  const tool = call.tool ?? "?";
  return call.server ? `${call.server}/${tool}` : tool;
}

/** Returns whether a call matches the `state:` terms of a filter; any of them suffices. */
function stateFilter(filter: string): (call: Call) => boolean {
  const states = filter
    .split(/\s+/)
    .filter((term) => term.startsWith("state:"))
    .map((term) => term.slice("state:".length));
  if (states.length === 0) {
    return () => true;
  }
  return (call) =>
    states.some((state) => {
      switch (state) {
        case "live":
          return call.live;
        case "ended":
          return !call.live;
        case "failed":
          return call.failed;
        default:
          return call.state === state;
      }
    });
}
