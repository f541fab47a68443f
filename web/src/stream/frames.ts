/** Server-sent events, decoded from chunks of text. */

export interface Frame {
  event: string;
  /** Position in the stream; absent for events that cannot be resumed from. */
  id?: string;
  data: string;
}

/** Longest event, in UTF-16 units. A frame of the gateway has at most 256 KiB. */
const MAX_EVENT = 4 * 1024 * 1024;

/** Collects chunks and returns the events that they complete. */
export class FrameParser {
  #rest = "";
  #event = "";
  #id: string | undefined;
  #data: string[] = [];
  #length = 0;

  /** Adds a chunk. Throws a `RangeError` on an event that is too long. */
  push(chunk: string): Frame[] {
    const lines = (this.#rest + chunk).split(/\r\n|\n|\r(?!$)/);
    this.#rest = lines.pop() ?? "";
    if (this.#rest.length > MAX_EVENT) {
      throw new RangeError("event of the stream is too long");
    }
    const frames: Frame[] = [];
    for (const line of lines) {
      if (line === "") {
        this.#end(frames);
      } else {
        this.#field(line);
      }
    }
    return frames;
  }

  #field(line: string) {
    const colon = line.indexOf(":");
    if (colon === 0) {
      return;
    }
    const name = colon < 0 ? line : line.slice(0, colon);
    const value = colon < 0 ? "" : line.slice(colon + (line[colon + 1] === " " ? 2 : 1));
    if (name === "data") {
      this.#length += value.length;
      if (this.#length > MAX_EVENT) {
        throw new RangeError("event of the stream is too long");
      }
      this.#data.push(value);
    } else if (name === "event") {
      this.#event = value;
    } else if (name === "id" && !value.includes("\0")) {
      this.#id = value;
    }
  }

  #end(frames: Frame[]) {
    if (this.#data.length > 0) {
      const frame: Frame = { event: this.#event || "message", data: this.#data.join("\n") };
      frames.push(this.#id === undefined ? frame : { ...frame, id: this.#id });
    }
    this.#event = "";
    this.#id = undefined;
    this.#data = [];
    this.#length = 0;
  }
}
