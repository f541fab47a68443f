/** The live list of calls. */
import type { CallsFrame, Rates, Tally } from "../api.ts";
import type { StreamEvent } from "../stream/hub.ts";
import { CallList, type ToolFigures } from "./calls.ts";
import { session } from "./session.svelte.ts";

const FIGURES_MS = 1000;
const MAX_RATES = 60;

/** Follows the calls that match a filter. */
export class LiveCalls {
  list = $state.raw(new CallList());
  order: readonly string[] = $state.raw([]);
  tally: Tally = $state.raw({ calls: 0, replied: 0, failed: 0 });
  rates: Rates = $state.raw({ perSecond: 0 });
  /** Calls per second, one value a second. */
  perSecond: readonly number[] = $state.raw([]);
  figures: ToolFigures[] = $state.raw([]);
  sinceMs = $state(0);
  skipped = $state(0);
  lost = $state(0);
  isLoaded = $state(false);
  isHeld = $state(false);
  /** Changes with every frame that is shown. */
  version = $state(0);
  #current = new CallList();
  #filter = "";
  #hasFigures = false;
  #figuresMs = Number.NEGATIVE_INFINITY;

  /** Follows the stream until the returned function is called. */
  follow(filter: string): () => void {
    this.#filter = filter;
    this.isLoaded = false;
    session.hub.setFilter(filter);
    return session.hub.subscribe("calls", (event) => this.#receive(event));
  }

  /** Stops or continues the display. Recording goes on. */
  hold(isHeld: boolean): void {
    this.isHeld = isHeld;
    this.list = isHeld ? this.#current.copy() : this.#current;
    this.#show();
  }

  /** Starts or stops the figures by tool, which are computed once a second. */
  setFigures(hasFigures: boolean): void {
    this.#hasFigures = hasFigures;
    this.figures = hasFigures ? this.#current.byTool() : [];
  }

  #receive({ event, data }: StreamEvent) {
    if (event === "lost") {
      this.lost += Number((data as { count?: number }).count ?? 0);
      return;
    }
    if (event !== "calls") {
      return;
    }
    const frame = data as CallsFrame;
    this.#current.merge(frame, this.#filter);
    if (frame.snapshot) {
      this.skipped = 0;
    }
    this.skipped += frame.skipped;
    this.tally = frame.tally;
    this.rates = frame.rates;
    this.sinceMs = frame.sinceMs;
    this.isLoaded = true;
    const now = performance.now();
    if (frame.snapshot || now - this.#figuresMs > FIGURES_MS) {
      this.#figuresMs = now;
      this.perSecond = [...this.perSecond, frame.rates.perSecond].slice(-MAX_RATES);
      if (this.#hasFigures) {
        this.figures = this.#current.byTool();
      }
    }
    if (!this.isHeld) {
      this.list = this.#current;
      this.#show();
    }
  }

  #show() {
    this.order = this.list.order;
    this.version += 1;
  }
}
