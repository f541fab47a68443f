// Permits to run a call.

export class Permits {
  private free: number;
  private readonly waiting = new Set<(granted: boolean) => void>();

  constructor(count: number) {
    this.free = count;
  }

  /** Waits for a permit, in order. Returns false, without a permit, when `signal` is aborted before. */
  acquire(signal: AbortSignal): Promise<boolean> {
    if (signal.aborted || this.free > 0) {
      this.free -= signal.aborted ? 0 : 1;
      return Promise.resolve(!signal.aborted);
    }
    return new Promise((resolve) => {
      this.waiting.add(resolve);
      // Resolving again after a grant has no effect.
      const abandon = () => this.waiting.delete(resolve) && resolve(false);
      signal.addEventListener("abort", abandon, { once: true });
    });
  }

  release(): void {
    const [next] = this.waiting;
    if (next === undefined) {
      this.free += 1;
      return;
    }
    this.waiting.delete(next);
    next(true);
  }
}
