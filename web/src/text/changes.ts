/** Line differences between two texts, with a bound on the work. */
import { diffLines } from "diff";
import { isRecord } from "./values.ts";

export interface ChangedLine {
  kind: "same" | "added" | "removed";
  text: string;
}

/** A run of unchanged lines that is folded. */
export interface Fold {
  kind: "fold";
  lines: string[];
}

export type ChangeRow = ChangedLine | Fold;

/** Differences after which the texts count as different in every line. */
const MAX_EDITS = 2_000;
const MAX_MILLISECONDS = 100;
/** Unchanged lines around a change. */
const CONTEXT = 3;

/** Returns the differences between two texts; all lines are removed and added if they differ too much. */
export function changes(before: string, after: string): ChangedLine[] {
  const options = { maxEditLength: MAX_EDITS, timeout: MAX_MILLISECONDS };
  const parts = diffLines(before, after, options);
  if (!parts) {
    return [...lines("removed", before), ...lines("added", after)];
  }
  return parts.flatMap((part) => lines(part.added ? "added" : part.removed ? "removed" : "same", part.value));
}

/** Folds long runs of unchanged lines. */
export function folded(all: ChangedLine[]): ChangeRow[] {
  const rows: ChangeRow[] = [];
  let index = 0;
  while (index < all.length) {
    const start = index;
    while (index < all.length && all[index]?.kind === "same") {
      index += 1;
    }
    const run = all.slice(start, index);
    const head = start === 0 ? 0 : CONTEXT;
    const tail = index === all.length ? 0 : CONTEXT;
    if (run.length > head + tail + 1) {
      rows.push(...run.slice(0, head));
      rows.push({ kind: "fold", lines: run.slice(head, run.length - tail).map((line) => line.text) });
      rows.push(...run.slice(run.length - tail));
    } else {
      rows.push(...run);
    }
    while (index < all.length && all[index]?.kind !== "same") {
      const line = all[index];
      if (line) {
        rows.push(line);
      }
      index += 1;
    }
  }
  return rows;
}

function lines(kind: ChangedLine["kind"], text: string): ChangedLine[] {
  if (text === "") {
    return [];
  }
  const split = text.split("\n");
  if (split.at(-1) === "") {
    split.pop();
  }
  return split.map((line) => ({ kind, text: line }));
}

/**
 * Returns the names of the arguments that two calls of a tool do not share, in the order of the later call, or
 * `undefined` if they cannot be compared.
 */
export function changedArguments(before: unknown, after: unknown): string[] | undefined {
  if (!isRecord(before) || !isRecord(after)) {
    return undefined;
  }
  const names = new Set([...Object.keys(after), ...Object.keys(before)]);
  return [...names].filter((name) => JSON.stringify(before[name]) !== JSON.stringify(after[name]));
}
