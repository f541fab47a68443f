/** A call of a tool by hand. An attempt whose response was lost is repeated under its key, and does not run twice. */
import type { Tool, ToolOutcome } from "../api.ts";
import { idempotencyKey, pathPart, request } from "../http.ts";
import type { Json } from "../text/values.ts";

/** Longest time limit of a call. */
export const MAX_TIMEOUT_MS = 600_000;
/** Time limit of a call for which none is chosen. */
export const TIMEOUT_MS = 60_000;
/** Time beyond that of a call until its response is given up. */
const SLACK_MS = 45_000;

export interface Attempt {
  tool: string;
  key: string;
  body: {
    arguments: Record<string, Json>;
    timeoutMs: number;
    fingerprint: string;
    confirm?: string;
  };
}

/** Returns whether a call needs the confirmation of a person. */
export function needsConfirmation({ hints }: Pick<Tool, "hints">): boolean {
  return hints?.readOnly !== true && hints?.destructive !== false;
}

/** Creates a call with a key of its own. */
export function newAttempt(
  tool: Pick<Tool, "name" | "fingerprint" | "hints">,
  values: Record<string, Json>,
  timeoutMs: number,
): Attempt {
  const { name, fingerprint } = tool;
  const confirm = needsConfirmation(tool) ? { confirm: name } : {};
  return {
    tool: name,
    key: idempotencyKey(),
    body: { arguments: values, timeoutMs, fingerprint, ...confirm },
  };
}

/** Calls the tool, and waits for the outcome. Throws a problem. */
export function send({ tool, key, body }: Attempt, signal: AbortSignal): Promise<ToolOutcome> {
  return request<ToolOutcome>("POST", `/tools/${pathPart(tool)}/calls`, {
    body,
    headers: { "Idempotency-Key": key },
    signal,
    timeoutMs: body.timeoutMs + SLACK_MS,
  });
}
