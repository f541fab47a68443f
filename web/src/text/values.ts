/** JSON values as rows of a tree, which is opened level by level. */

/** Largest text that is parsed, in UTF-16 units. Larger ones are shown as text. */
const MAX_PARSED = 1024 * 1024;
/** Children that are shown at once. */
export const PAGE = 100;

export type Json = null | boolean | number | string | Json[] | { [name: string]: Json };

/** Returns the value of a JSON text, or `undefined` if it cannot be parsed or is too large. */
export function parseJson(text: string): Json | undefined {
  if (text.length > MAX_PARSED) {
    return undefined;
  }
  try {
    return JSON.parse(text) as Json;
  } catch {
    return undefined;
  }
}

export interface Child {
  name: string;
  value: Json;
}

/** Returns the first `count` children of an array or object. */
export function children(value: Json, count: number): Child[] {
  if (Array.isArray(value)) {
    return value.slice(0, count).map((child, index) => ({ name: String(index), value: child }));
  }
  if (typeof value === "object" && value !== null) {
    const result: Child[] = [];
    for (const name in value) {
      if (result.length === count) {
        break;
      }
      result.push({ name, value: value[name] ?? null });
    }
    return result;
  }
  return [];
}

/** Returns the number of children; 0 for other values. */
export function size(value: Json): number {
  return typeof value === "object" && value !== null ? Object.keys(value).length : 0;
}

/** Returns the value on one line: its text, or the size of an array or object. */
export function summary(value: Json): string {
  if (Array.isArray(value)) {
    return `[${value.length}]`;
  }
  if (typeof value === "object" && value !== null) {
    return `{${size(value)}}`;
  }
  return JSON.stringify(value);
}

export function isRecord(value: unknown): value is Record<string, unknown> {
  return typeof value === "object" && value !== null && !Array.isArray(value);
}
