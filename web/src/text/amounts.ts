/** Amounts as people read them. */

/** Returns a duration in milliseconds as `0.6 ms`, `57 ms`, `12.4 s`, `3 min` or `2 h 5 min`. */
export function duration(ms: number): string {
  if (!Number.isFinite(ms)) {
    return "?";
  }
  if (ms < 9.95) {
    return `${Math.max(0, ms).toFixed(1)} ms`;
  }
  if (ms < 999.5) {
    return `${Math.round(ms)} ms`;
  }
  if (ms < 99_950) {
    return `${(ms / 1000).toFixed(1)} s`;
  }
  const minutes = Math.round(ms / 60_000);
  if (minutes < 60) {
    return `${minutes} min`;
  }
  const hours = Math.floor(minutes / 60);
  return hours < 48 ? `${hours} h ${minutes % 60} min` : `${Math.round(hours / 24)} days`;
}

/** Returns a run time that was reported in whole milliseconds. */
export function runTime(ms: number): string {
  return ms === 0 ? "< 1 ms" : duration(ms);
}

/** Returns the time that passed as `3 s`, `12 min`, `4 h` or `5 days`. */
export function age(ms: number): string {
  const seconds = Math.max(0, Math.floor(ms / 1000));
  if (seconds < 60) {
    return `${seconds} s`;
  }
  if (seconds < 3600) {
    return `${Math.floor(seconds / 60)} min`;
  }
  return seconds < 172_800 ? `${Math.floor(seconds / 3600)} h` : `${Math.floor(seconds / 86_400)} days`;
}

/** Returns a countdown as `0:54`. */
export function countdown(ms: number): string {
  const seconds = Math.max(0, Math.ceil(ms / 1000));
  return `${Math.floor(seconds / 60)}:${String(seconds % 60).padStart(2, "0")}`;
}

/** Returns a size as `412 B`, `2.1 KiB` or `4.0 MiB`. */
export function bytes(count: number): string {
  if (count < 1024) {
    return `${count} B`;
  }
  const kibibytes = count / 1024;
  return kibibytes < 1024 ? `${kibibytes.toFixed(1)} KiB` : `${(kibibytes / 1024).toFixed(1)} MiB`;
}

/** Returns a number with separators between thousands. */
export function count(value: number): string {
  return value.toLocaleString("en-US");
}

/** Returns a number of tokens as `812` or `12.3k`. */
export function tokens(value: number): string {
  return value < 1000 ? String(value) : `${(value / 1000).toFixed(1)}k`;
}

/** Returns an amount of millionths of a US dollar as `$0.0123`. */
export function cost(micros: number): string {
  return `$${(micros / 1_000_000).toFixed(micros < 1_000_000 ? 4 : 2)}`;
}

/** Returns the last characters of a long identifier. */
export function shortId(id: string, chars = 8): string {
  return id.length > chars + 1 ? `…${id.slice(-chars)}` : id;
}

/** Returns the name of a process with its instance cut to the last characters. */
export function shortInstance(name: string): string {
  const slash = name.lastIndexOf("/");
  return slash < 0 ? shortId(name, 24) : `${name.slice(0, slash)}/${shortId(name.slice(slash + 1), 6)}`;
}

/** Returns the value below which `share` of the samples lie; `NaN` without samples. */
export function percentile(samples: readonly number[], share: number): number {
  if (samples.length === 0) {
    return Number.NaN;
  }
  const sorted = [...samples].sort((a, b) => a - b);
  return sorted[Math.min(sorted.length - 1, Math.floor(share * sorted.length))] ?? Number.NaN;
}
