/** Stages of a call, as far as messages show them. */
import type { Call } from "../api.ts";

/** What is known of the times of a call. */
export type Times = Pick<Call, "latencyMs" | "runMs" | "waitedMs" | "stages">;

export interface Stage {
  kind: "waited" | "queued" | "started" | "ran" | "replied";
  name: string;
  ms: number;
  /** Beginning and length as shares of all stages. */
  start: number;
  share: number;
}

type Part = Pick<Stage, "kind" | "name" | "ms">;

/** Returns the stages of a call; none before its reply. */
export function stages(call: Times): Stage[] {
  const { latencyMs } = call;
  if (latencyMs === undefined || latencyMs <= 0) {
    return [];
  }
  const parts = call.stages === undefined ? observed(call, latencyMs) : reported(call.stages, latencyMs);
  const total = Math.max(
    parts.reduce((sum, { ms }) => sum + ms, 0),
    Number.MIN_VALUE,
  );
  let start = 0;
  return parts.map((part) => {
    const stage = { ...part, start, share: part.ms / total };
    start += stage.share;
    return stage;
  });
}

/** Stages that the handler measured, and the rest of the latency. */
function reported(stages: NonNullable<Call["stages"]>, latencyMs: number): Part[] {
  const { queueMs, startMs, runMs } = stages;
  const rest = Math.max(0, latencyMs - (queueMs ?? 0) - startMs - runMs);
  const parts: Part[] = [
    { kind: "started", name: "Started in", ms: startMs },
    { kind: "ran", name: "Ran", ms: runMs },
    { kind: "replied", name: queueMs === undefined ? "Queue and transport" : "Transport", ms: rest },
  ];
  return queueMs === undefined ? parts : [{ kind: "queued", name: "Queued", ms: queueMs }, ...parts];
}

/** Stages by the latency and the run time alone: the time before the run and the time after it are one stage. */
function observed(call: Times, latencyMs: number): Part[] {
  const ran = Math.min(call.runMs ?? 0, latencyMs);
  const parts: Part[] = [
    { kind: "waited", name: "Waited and transported", ms: call.waitedMs ?? latencyMs - ran },
  ];
  return call.runMs === undefined ? parts : [...parts, { kind: "ran", name: "Ran", ms: ran }];
}
