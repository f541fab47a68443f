/** Positions of topics in the stream, from which a lost stream continues. */

export interface Position {
  epoch: string;
  sequence: number;
}

/** Returns the position of an event id `EPOCH-SEQUENCE`, or `null` if it is not one. */
function parsePosition(id: string): Position | null {
  const match = /^([0-9a-z]{1,64})-(\d{1,15})$/.exec(id);
  return match ? { epoch: match[1] ?? "", sequence: Number(match[2]) } : null;
}

/** Returns whether an event is new for a reader at a position. Events of another epoch are. */
export function isAfter(id: string, position: string): boolean {
  const [event, last] = [parsePosition(id), parsePosition(position)];
  return !event || !last || event.epoch !== last.epoch || event.sequence > last.sequence;
}

/** Last known position of each topic that can be resumed. */
export class Positions {
  #topics = new Map<string, string>();

  get(topic: string): string | undefined {
    return this.#topics.get(topic);
  }

  /** Moves a topic back to a position that a reader starts from, if it is further. */
  include(topic: string, from: string): void {
    const known = this.#topics.get(topic);
    if (known === undefined || isAfter(known, from)) {
      this.#topics.set(topic, from);
    }
  }

  /** Forgets the other topics. */
  retain(topics: readonly string[]): void {
    for (const topic of this.#topics.keys()) {
      if (!topics.includes(topic)) {
        this.#topics.delete(topic);
      }
    }
  }

  /** Moves all topics forward: an event was received, so none before it is outstanding. */
  advance(id: string): void {
    for (const [topic, position] of this.#topics) {
      if (isAfter(id, position)) {
        this.#topics.set(topic, id);
      }
    }
  }

  /** Returns the earliest position of the topics, `undefined` without one. Where their epochs differ, the gateway
   * resets the topics of the wrong one. */
  resumeFrom(topics: Iterable<string>): string | undefined {
    let earliest: string | undefined;
    for (const topic of topics) {
      const position = this.#topics.get(topic);
      if (position !== undefined && (earliest === undefined || isAfter(earliest, position))) {
        earliest = position;
      }
    }
    return earliest;
  }
}
