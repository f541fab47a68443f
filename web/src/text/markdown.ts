/**
 * Markdown as a tree of nodes that the components draw.
 *
 * The text is untrusted: HTML in it stays text, images become links, links keep their host, and depth, number
 * of nodes and length are bounded. What exceeds a bound is drawn as plain text, so that nothing is left out.
 */
import { Lexer, type MarkedToken, type Token, type Tokens } from "marked";
import { stripped } from "./hidden.ts";
import { type SafeLink, safeLink } from "./links.ts";

export type Inline =
  | { type: "text"; text: string }
  | { type: "code"; text: string }
  | { type: "break" }
  | { type: "strong" | "emphasis" | "deleted"; children: Inline[] }
  | { type: "link"; link: SafeLink; children: Inline[]; isImage: boolean };

export type Block =
  | { type: "paragraph"; children: Inline[] }
  | { type: "heading"; level: number; children: Inline[] }
  | { type: "code"; language: string; text: string }
  | { type: "quote"; children: Block[] }
  | { type: "list"; isOrdered: boolean; start: number; items: ListItem[] }
  | { type: "table"; header: Cell[]; rows: Cell[][] }
  | { type: "rule" }
  | { type: "plain"; text: string };

export interface ListItem {
  /** State of a task's checkbox; absent in other items. */
  isDone?: boolean;
  children: Block[];
}

export interface Cell {
  align: "start" | "center" | "end";
  children: Inline[];
}

/** Longest text that is lexed, in UTF-16 units. The rest is plain text. */
export const MAX_LENGTH = 64 * 1024;
/** Deepest nesting that is drawn. */
const MAX_DEPTH = 12;
const MAX_NODES = 20_000;
/** Longest line that is lexed: the lexer takes quadratic time for some of them. */
const MAX_LINE = 8 * 1024;
/** Most delimiters in a text that is lexed, for the same reason. */
const MAX_DELIMITERS = 4_000;
/** Deepest markers of quotes and lists at the start of a line. */
const NESTED = /^[ \t]*(?:(?:>|[-*+]|\d{1,9}[.)])[ \t]*){13}/m;
const DELIMITERS = /[[\]<*_`~&!\\|]/g;

/** Returns the nodes of a Markdown text, without hidden characters. */
export function parseMarkdown(source: string): Block[] {
  const text = stripped(source);
  const head = text.slice(0, cut(text));
  const rest = text.slice(head.length);
  const blocks = isHarmless(head) ? lexed(head) : [plain(head)];
  if (rest !== "") {
    blocks.push(plain(rest));
  }
  return blocks;
}

function plain(text: string): Block {
  return { type: "plain", text };
}

/** Returns where to cut a text: after a whole line, if there is one. */
function cut(text: string): number {
  if (text.length <= MAX_LENGTH) {
    return text.length;
  }
  const line = text.lastIndexOf("\n", MAX_LENGTH);
  return line > 0 ? line + 1 : MAX_LENGTH;
}

function isHarmless(text: string): boolean {
  if (NESTED.test(text) || (text.match(DELIMITERS)?.length ?? 0) > MAX_DELIMITERS) {
    return false;
  }
  return text.split("\n").every((line) => line.length <= MAX_LINE);
}

function lexed(text: string): Block[] {
  try {
    const drawing = new Drawing();
    return drawing.blocks(new Lexer({ gfm: true }).lex(text), 0);
  } catch {
    // The lexer or the number of nodes.
    return [plain(text)];
  }
}

/** Turns tokens into nodes and counts them. */
class Drawing {
  #nodes = 0;

  #count() {
    this.#nodes += 1;
    if (this.#nodes > MAX_NODES) {
      throw new RangeError("too many nodes");
    }
  }

  blocks(tokens: Token[], depth: number): Block[] {
    return tokens.flatMap((token) => this.#block(token as MarkedToken, depth));
  }

  #block(token: MarkedToken, depth: number): Block[] {
    this.#count();
    if (depth >= MAX_DEPTH) {
      return [plain(token.raw)];
    }
    switch (token.type) {
      case "space":
      case "def":
        return [];
      case "heading":
        return [{ type: "heading", level: token.depth, children: this.#inlines(token.tokens, depth) }];
      case "paragraph":
        return [{ type: "paragraph", children: this.#inlines(token.tokens, depth) }];
      case "text":
        return [{ type: "paragraph", children: this.#inlines(token.tokens ?? [token], depth) }];
      case "code":
        return [{ type: "code", language: language(token.lang), text: token.text }];
      case "blockquote":
        return [{ type: "quote", children: this.blocks(token.tokens, depth + 1) }];
      case "list":
        return [this.#list(token, depth)];
      case "table":
        return [this.#table(token, depth)];
      case "hr":
        return [{ type: "rule" }];
      default:
        return token.raw.trim() === "" ? [] : [plain(token.raw.trimEnd())];
    }
  }

  #list(token: Tokens.List, depth: number): Block {
    const items = token.items.map((item): ListItem => {
      const children = this.blocks(
        item.tokens.filter((part) => part.type !== "checkbox"),
        depth + 1,
      );
      return item.task ? { isDone: item.checked === true, children } : { children };
    });
    const start = typeof token.start === "number" ? token.start : 1;
    return { type: "list", isOrdered: token.ordered, start, items };
  }

  #table(token: Tokens.Table, depth: number): Block {
    const cell = ({ align, tokens }: Tokens.TableCell): Cell => {
      this.#count();
      const side = align === "center" ? "center" : align === "right" ? "end" : "start";
      return { align: side, children: this.#inlines(tokens, depth) };
    };
    return { type: "table", header: token.header.map(cell), rows: token.rows.map((row) => row.map(cell)) };
  }

  #inlines(tokens: Token[], depth: number): Inline[] {
    return tokens.map((token) => this.#inline(token as MarkedToken, depth + 1));
  }

  #inline(token: MarkedToken, depth: number): Inline {
    this.#count();
    if (depth >= MAX_DEPTH * 2) {
      return { type: "text", text: token.raw };
    }
    switch (token.type) {
      case "strong":
        return { type: "strong", children: this.#inlines(token.tokens, depth) };
      case "em":
        return { type: "emphasis", children: this.#inlines(token.tokens, depth) };
      case "del":
        return { type: "deleted", children: this.#inlines(token.tokens, depth) };
      case "codespan":
        return { type: "code", text: token.text };
      case "br":
        return { type: "break" };
      case "escape":
        return { type: "text", text: token.text };
      case "link":
        return this.#link(token, this.#inlines(token.tokens, depth), false);
      case "image":
        return this.#link(token, [{ type: "text", text: token.text || "image" }], true);
      case "text":
        return token.tokens
          ? { type: "strong" as const, children: this.#inlines(token.tokens, depth) }
          : { type: "text", text: unescaped(token.text) };
      default:
        return { type: "text", text: token.raw };
    }
  }

  /** Returns a link, or the source text where the target may not be followed. */
  #link(token: Tokens.Link | Tokens.Image, children: Inline[], isImage: boolean): Inline {
    const link = safeLink(token.href);
    return link ? { type: "link", link, children, isImage } : { type: "text", text: token.raw };
  }
}

/** Returns the language of a code fence: its first word, if it looks like one. */
function language(info: string | undefined): string {
  return /^[\w+#.-]{1,24}/.exec(info ?? "")?.[0] ?? "";
}

const ENTITIES: Record<string, string> = { amp: "&", lt: "<", gt: ">", quot: '"', apos: "'", nbsp: "\u00a0" };

/** Replaces the character references that people write. Others stay as they are. */
function unescaped(text: string): string {
  return text.replace(/&(amp|lt|gt|quot|apos|nbsp);/g, (whole, name: string) => ENTITIES[name] ?? whole);
}
