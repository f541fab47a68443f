/** Spending as people read it. */
import type { Spending } from "../api.ts";
import { cost, tokens } from "../text/amounts.ts";

/** Returns the tokens and the cost, such as `12.0k tokens · $0.0123`. Without a price there is no cost. */
export function spent({ promptTokens = 0, completionTokens = 0, costMicros = 0 }: Spending): string {
  const amount = `${tokens(promptTokens + completionTokens)} tokens`;
  return costMicros > 0 ? `${amount} · ${cost(costMicros)}` : amount;
}

/** Returns the number of tool calls, such as `3 calls`. */
export function calls({ toolCalls = 0 }: Spending): string {
  return toolCalls === 1 ? "1 call" : `${toolCalls} calls`;
}
