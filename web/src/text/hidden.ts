/**
 * Characters that a reader cannot see, or that change the direction of text.
 *
 * The table is that of `crates/contracts/src/outside_text.rs`; a test compares the two. Running text loses
 * these characters. Text that has to be exact, such as the arguments of a call that waits for approval, shows
 * them as escapes.
 */

/** Inclusive ranges of hidden characters. */
export const HIDDEN: readonly (readonly [number, number])[] = [
  [0x61c, 0x61c],
  [0x200e, 0x200e],
  [0x200f, 0x200f],
  [0x202a, 0x202e],
  [0x2066, 0x2069],
  [0xad, 0xad],
  [0x34f, 0x34f],
  [0x180b, 0x180f],
  [0x200b, 0x200b],
  [0x2028, 0x2028],
  [0x2029, 0x2029],
  [0x2060, 0x2065],
  [0x206a, 0x206f],
  [0xfeff, 0xfeff],
  [0xfff0, 0xfffb],
  [0x1bca0, 0x1bca3],
  [0x1d173, 0x1d17a],
  [0x115f, 0x115f],
  [0x1160, 0x1160],
  [0x17b4, 0x17b4],
  [0x17b5, 0x17b5],
  [0x3164, 0x3164],
  [0xffa0, 0xffa0],
  [0xfe00, 0xfe0d],
  [0xe0000, 0xe0fff],
];

/** Joiners between letters or emoji: part of running text, and shown in exact text. */
const JOINERS: readonly (readonly [number, number])[] = [[0x200c, 0x200d]];

/** Control characters other than line feeds and tabs. */
const CONTROLS: readonly (readonly [number, number])[] = [
  [0x0, 0x8],
  [0xb, 0x1f],
  [0x7f, 0x9f],
];

const hidden = pattern([...CONTROLS, ...HIDDEN]);
const exact = pattern([...CONTROLS, ...HIDDEN, ...JOINERS], "+");
/** Escape sequences of terminals, up to the end of their line. */
const sequence = /\u001b\[[0-?]*[ -/]*[@-~]?|\u001b[\]PX^_][^\n\u0007\u001b]*(?:\u0007|\u001b\\)?|\u001b/g;

/** A part of a text, or hidden characters in place of which their escapes are shown. */
export interface Part {
  text: string;
  isHidden: boolean;
}

/** Returns `text` without terminal sequences and hidden characters. */
export function stripped(text: string): string {
  return text.replaceAll("\r\n", "\n").replace(sequence, "").replace(hidden, "");
}

/** The beginning of a text, in parts. */
export interface Exact {
  parts: Part[];
  /** End of the beginning, in UTF-16 units. */
  end: number;
}

/**
 * Splits `text` at hidden characters, which become escapes such as `\u{202e}`. It ends after `maxUnits` UTF-16 units, or
 * before more than `maxHidden` groups of hidden characters.
 */
export function exactParts(text: string, maxUnits = text.length, maxHidden = maxUnits): Exact {
  const head = text.length <= maxUnits ? text : text.slice(0, maxUnits);
  const parts: Part[] = [];
  let end = 0;
  let groups = 0;
  for (const match of head.matchAll(exact)) {
    if (match.index > end) {
      parts.push({ text: head.slice(end, match.index), isHidden: false });
      end = match.index;
    }
    groups += 1;
    if (groups > maxHidden) {
      return { parts, end };
    }
    parts.push({ text: Array.from(match[0], escaped).join(""), isHidden: true });
    end = match.index + match[0].length;
  }
  if (end < head.length) {
    parts.push({ text: head.slice(end), isHidden: false });
  }
  return { parts, end: head.length };
}

/** Returns the first line of `text` without hidden characters, at most `maxChars` characters and an ellipsis. */
export function oneLine(text: string, maxChars: number): string {
  // A character has at most two units; the rest of a large text is not read.
  const line = stripped(text.slice(0, maxChars * 4 + 64))
    .trim()
    .replace(/\s+/g, " ");
  const characters = Array.from(line.slice(0, maxChars * 2 + 2));
  const isCut = characters.length > maxChars || text.length > maxChars * 4 + 64;
  return isCut ? `${characters.slice(0, maxChars).join("")}…` : line;
}

function escaped(character: string): string {
  return `\\u{${(character.codePointAt(0) ?? 0).toString(16)}}`;
}

function pattern(ranges: readonly (readonly [number, number])[], repeat = ""): RegExp {
  const hex = (code: number) => `\\u{${code.toString(16)}}`;
  const set = ranges.map(([first, last]) => `${hex(first)}-${hex(last)}`).join("");
  return new RegExp(`[${set}]${repeat}`, "gu");
}
