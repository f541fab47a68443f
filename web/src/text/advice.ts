/** Advice after a failed call. */
import type { Executed } from "../api.ts";

const CODES: Record<string, string> = {
  tool_not_found: "No live handler announces this tool. See Fleet and Tools for what runs.",
  invalid_arguments: "The arguments do not fit the schema of the tool.",
  timeout: "The deadline passed. See Fleet for handlers at capacity, and the caller for its time limit.",
  execution_failed: "The tool failed. The log of its handler has the cause.",
  cancelled: "The caller cancelled the call.",
  not_permitted: "A rule refused the call.",
  overloaded: "No handler had capacity. See Fleet for queues that grow.",
  unavailable: "The bus, the handlers or their journal could not be reached.",
  outcome_unknown: "The call or its reply was lost.",
  no_reply: "No reply was observed within the time limit of the caller.",
};

/** Returns the advice for the outcome of a call; an empty text where none is needed. */
export function advice(state: string, executed: Executed | undefined): string {
  const code = CODES[state];
  if (code === undefined) {
    return "";
  }
  switch (executed) {
    case "no":
      return `${code} The tool did not run, so the call can be sent again.`;
    case "yes":
      return `${code} The tool ran, completely or in part: look at its effects before the call is sent again.`;
    default:
      return `${code} It is not known whether the tool ran: look at its effects before the call is sent again.`;
  }
}
