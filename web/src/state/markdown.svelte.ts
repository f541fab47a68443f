/** The Markdown lexer, which is loaded after the page. */

import { stripped } from "../text/hidden.ts";
import type { Block } from "../text/markdown.ts";

class Markdown {
  #parse: ((source: string) => Block[]) | null = $state.raw(null);

  constructor() {
    import("../text/markdown.ts").then(
      ({ parseMarkdown }) => {
        this.#parse = parseMarkdown;
      },
      () => {
        // Text without the lexer is plain text.
      },
    );
  }

  /** Returns the nodes of a text; plain text until the lexer is loaded. */
  parse(source: string): Block[] {
    return this.#parse?.(source) ?? [{ type: "plain", text: stripped(source) }];
  }
}

export const markdown = new Markdown();
