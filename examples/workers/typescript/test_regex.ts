// The tool `test_regex`: runs a regular expression over a text, in a thread that can be terminated.

import { Worker } from "node:worker_threads";

const MAX_MATCHES = 1_000;
const MAX_RESULT = 1024 * 1024;
const LIMITS = { pattern: 10_000, text: 900_000, flags: 8 };

export const registration = {
  name: "test_regex",
  label: "Test a regular expression",
  description:
    "Run a JavaScript regular expression over a text and return its matches with their positions and groups, " +
    `one JSON object per line, at most ${MAX_MATCHES}.`,
  parameters: {
    type: "object",
    properties: {
      pattern: { type: "string", maxLength: LIMITS.pattern },
      text: { type: "string", maxLength: LIMITS.text },
      flags: { type: "string", maxLength: LIMITS.flags },
    },
    required: ["pattern", "text"],
    additionalProperties: false,
  },
  source: "text",
  hints: { readOnly: true, destructive: false, idempotent: true, openWorld: false },
};

const markdown = `# Regular expressions

\`test_regex\` shows what a JavaScript expression matches, before you use it elsewhere.

1. Without the flag \`i\` the case matters; \`m\` lets \`^\` and \`$\` match at each line.
2. The result has one JSON object per match: position, text and groups; "no match" without any.
3. An expression that backtracks for long is stopped at the deadline of the call. Use \`[^"]*\` rather than
   \`.*\` between quotes.
`;

export const guides = [{ source: "text", name: "regex", summary: "Testing regular expressions on a text", markdown }];

type Arguments = { pattern: string; text: string; flags?: string };

/** Throws unless the value matches the schema of the tool. */
export function validate(value: unknown): asserts value is Arguments {
  const fields = typeof value === "object" && value !== null && !Array.isArray(value) ? value : undefined;
  if (!fields || !("pattern" in fields) || !("text" in fields)) {
    throw new Error("expected an object with the fields pattern and text");
  }
  for (const [name, field] of Object.entries(fields)) {
    const limit = Object.hasOwn(LIMITS, name) ? LIMITS[name as keyof typeof LIMITS] : undefined;
    if (limit === undefined || typeof field !== "string" || field.length > limit) {
      throw new Error(limit === undefined ? "unknown field" : `${name}: expected a text of at most ${limit} characters`);
    }
  }
}

const PROGRAM = `
  const { parentPort, workerData: { pattern, text, flags } } = require("node:worker_threads");
  let [count, result] = [0, ""];
  for (const match of text.matchAll(new RegExp(pattern, flags))) {
    result += JSON.stringify({ index: match.index, match: match[0], groups: match.slice(1) }) + "\\n";
    count += 1;
    if (count >= ${MAX_MATCHES} || result.length > ${MAX_RESULT}) break;
  }
  const note = "\\n[result truncated at 1 MiB; match less text]";
  parentPort.postMessage(result.length > ${MAX_RESULT} ? result.slice(0, ${MAX_RESULT}) + note : result || "no match");
`;

export type Result = { content: string; isError: boolean };

/** Runs the expression. Aborting `signal` terminates its thread and rejects. */
export function run({ pattern, text, flags = "" }: Arguments, signal: AbortSignal): Promise<Result> {
  const global = flags.includes("g") ? flags : `${flags}g`;
  const thread = new Worker(PROGRAM, {
    eval: true,
    env: {},
    workerData: { pattern, text, flags: global },
    resourceLimits: { maxOldGenerationSizeMb: 128 },
  });
  const result = new Promise<Result>((resolve, reject) => {
    signal.addEventListener("abort", () => reject(signal.reason), { once: true });
    thread.once("message", (content: string) => resolve({ content, isError: false }));
    thread.once("error", (error) => resolve({ content: `the expression failed: ${error.message}`, isError: true }));
    thread.once("exit", () => reject(new Error("the thread ended without a result")));
  });
  return result.finally(() => thread.terminate());
}
