/** Order of requests for the same data: an outcome counts only if none of a later request is shown. */
export class Latest {
  #started = 0;
  #shown = 0;

  /** Starts a request. The returned function is called with its outcome, and returns whether that is shown. */
  start(): () => boolean {
    this.#started += 1;
    const number = this.#started;
    return () => {
      if (number < this.#shown) {
        return false;
      }
      this.#shown = number;
      return true;
    };
  }
}
