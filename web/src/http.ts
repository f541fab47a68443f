/** Requests to the gateway. */
import type { Executed, ProblemBody } from "./api.ts";

export const BASE = "/api/v1";
const TIMEOUT_MS = 15_000;

/** A request that failed: refused by the gateway, or without a response. */
export class Problem extends Error {
  /** HTTP status; 0 when there was no response. */
  readonly status: number;
  readonly code: string;
  /** Effect of a message, decision, call, replay or purge; absent for other requests. */
  readonly executed: Executed | undefined;

  constructor(body: ProblemBody) {
    super(body.detail ?? body.title ?? `the gateway responded with status ${body.status}`);
    this.status = body.status;
    this.code = body.code;
    this.executed = body.executed;
  }

  /** Returns whether the same request may succeed later. */
  get isTemporary(): boolean {
    return this.status === 0 || this.status === 429 || this.status >= 500;
  }
}

/** Returns the problem of a failed request, whatever was thrown. */
export function asProblem(error: unknown): Problem {
  if (error instanceof Problem) {
    return error;
  }
  const detail = "the gateway did not respond; check that it runs, and try again";
  return new Problem({ status: 0, code: "no_response", detail });
}

export interface RequestOptions {
  body?: unknown;
  headers?: Record<string, string>;
  signal?: AbortSignal;
  /** Time limit. Default 15 s. */
  timeoutMs?: number;
}

type Listener = () => void;
let onUnauthorized: Listener = () => {};

/** Sets what happens when the session has ended. */
export function whenUnauthorized(listener: Listener): void {
  onUnauthorized = listener;
}

/** Sends a request and returns the JSON of its response; `undefined` for an empty one. Throws a {@link Problem}. */
export async function request<T>(method: string, path: string, options: RequestOptions = {}): Promise<T> {
  const timeout = AbortSignal.timeout(options.timeoutMs ?? TIMEOUT_MS);
  const signal = options.signal ? AbortSignal.any([options.signal, timeout]) : timeout;
  const hasBody = options.body !== undefined;
  let response: Response;
  try {
    response = await fetch(BASE + path, {
      method,
      credentials: "same-origin",
      redirect: "error",
      cache: "no-store",
      headers: { ...(hasBody ? { "Content-Type": "application/json" } : {}), ...options.headers },
      ...(hasBody ? { body: JSON.stringify(options.body) } : {}),
      signal,
    });
  } catch (error) {
    throw asProblem(error);
  }
  if (!response.ok) {
    const problem = await readProblem(response);
    if (problem.status === 401 && path !== "/session") {
      onUnauthorized();
    }
    throw problem;
  }
  if (response.status === 204) {
    return undefined as T;
  }
  try {
    return (await response.json()) as T;
  } catch {
    throw new Problem({ status: response.status, code: "unreadable", detail: "the response is not JSON" });
  }
}

async function readProblem(response: Response): Promise<Problem> {
  try {
    const body = (await response.json()) as Partial<ProblemBody>;
    return new Problem({ ...body, status: response.status, code: String(body.code ?? response.status) });
  } catch {
    return new Problem({ status: response.status, code: String(response.status) });
  }
}

/** Returns a name or id as a part of a path or a value of a query. */
export function pathPart(text: string): string {
  return encodeURIComponent(text.toWellFormed());
}

export const get = <T>(path: string, signal?: AbortSignal) =>
  request<T>("GET", path, signal ? { signal } : {});
export const post = <T>(path: string, body: unknown, headers: Record<string, string> = {}) =>
  request<T>("POST", path, { body, headers });

/** Returns a random UUID, under which the gateway takes a message once. Works on unencrypted origins too. */
export function idempotencyKey(): string {
  const bytes = crypto.getRandomValues(new Uint8Array(16));
  bytes[6] = 0x40 | ((bytes[6] ?? 0) & 0x0f);
  bytes[8] = 0x80 | ((bytes[8] ?? 0) & 0x3f);
  const hex = Array.from(bytes, (byte) => byte.toString(16).padStart(2, "0")).join("");
  return hex.replace(/^(.{8})(.{4})(.{4})(.{4})(.{12})$/, "$1-$2-$3-$4-$5");
}
