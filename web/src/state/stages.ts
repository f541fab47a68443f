/** Stages of a call, as far as messages show them. */
import type { Call } from "../api.ts";

export interface Stage {
  kind: "waited" | "ran";
  name: string;
  ms: number;
  /** Beginning and length as shares of the latency. */
  start: number;
  share: number;
}

/** Returns the stages of a call; none before its reply. The time before the run and the time after it are not
 * reported separately, so both are one stage. */
export function stages(call: Call): Stage[] {
  const { latencyMs, runMs } = call;
  if (latencyMs === undefined || latencyMs <= 0) {
    return [];
  }
  const ran = Math.min(runMs ?? 0, latencyMs);
  const waited = call.waitedMs ?? latencyMs - ran;
  const total = Math.max(waited + ran, Number.MIN_VALUE);
  const parts: Stage[] = [
    { kind: "waited", name: "Waited and transported", ms: waited, start: 0, share: waited / total },
  ];
  if (runMs !== undefined) {
    parts.push({ kind: "ran", name: "Ran", ms: ran, start: waited / total, share: ran / total });
  }
  return parts;
}
