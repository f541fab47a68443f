// Names and formats on the bus that a worker needs. docs/workers.md describes them.

import { randomUUID } from "node:crypto";
import type { MessageProperties, Options } from "amqplib";

export const url = process.env.ROCKBOT_BUS__URL ?? "amqp://guest:guest@127.0.0.1:5672/%2f";
export const namespace = process.env.ROCKBOT_BUS__NAMESPACE ?? "rockbot";
export const pool = process.env.ROCKBOT_HANDLER__POOL ?? "text";
export const key = `tool.invoke.pool.${pool}`;
export const queue = `${namespace}.${key}`;
export const deadLetters = `${namespace}.dlx`;
export const service = `${pool}-worker`;
export const instance = randomUUID().replaceAll("-", "");
export const user = decodeURIComponent(new URL(url).username) || "guest";

const MAX_BODY = 4 * 1024 * 1024;
const DAY = 24 * 3_600_000;

export const workQueue: Options.AssertQueue = {
  durable: true,
  arguments: {
    "x-queue-type": "quorum",
    "x-max-length": 100_000,
    "x-max-length-bytes": 256 * 1024 * 1024,
    "x-delivery-limit": 29,
    "x-overflow": "reject-publish",
    "x-dead-letter-exchange": deadLetters,
    "x-dead-letter-routing-key": queue,
    "x-dead-letter-strategy": "at-least-once",
  },
};

export const deadLetterQueue: Options.AssertQueue = {
  durable: true,
  arguments: {
    "x-queue-type": "quorum",
    "x-max-length": 10_000,
    "x-max-length-bytes": 512 * 1024 * 1024,
    "x-delivery-limit": 1_000_000,
    "x-message-ttl": 7 * DAY,
  },
};

const ID = /^[!-~]{1,200}$/;
const ADDRESS = /^tool\.result(\.[A-Za-z0-9_%~-]+){2}$/;

export type Executed = "no" | "yes" | "unknown";
export type Outcome = { type: "ToolInvokeResponse" | "ToolError"; payload: object };
export type Request = { id: string; tool: string; arguments: string };
export type Trace = { traceparent?: string; tracestate?: string };

export function failure(code: string, executed: Executed, message: string): Outcome {
  return { type: "ToolError", payload: { code, executed, message, isRetryable: code === "timeout" } };
}

/** Adds a heartbeat of 10 s to the URL of a broker. */
export function withHeartbeat(broker: string): string {
  const address = new URL(broker);
  address.searchParams.set("heartbeat", "10");
  return address.href;
}

/** Returns the milliseconds left: the smaller of the time budget and the time until the deadline. */
export function remaining(headers: Record<string, unknown>): number {
  const numbers = [Number(headers["rb-timeout-ms"] ?? 60_000), Number(headers["rb-deadline"] ?? Infinity) - Date.now()];
  if (numbers.some(Number.isNaN)) throw new Error("the time budget is not a number");
  return Math.min(...numbers, DAY);
}

/** Returns whether `replyTo` is an address for tool results, and not that of another caller. */
export function mayReply(sender: string | undefined, replyTo: string): boolean {
  if (replyTo !== "tool.result" && !ADDRESS.test(replyTo)) return false;
  const parts = (sender ?? "").split(".");
  const name = parts.at(-1);
  const isCaller = parts.length > 1 && (name === "cli" || parts.at(-2) === "agent");
  const caller = replyTo.split(".")[2];
  return !isCaller || caller === undefined || caller === name;
}

/** Returns the headers of the trace, without those that are invalid. */
export function traceOf({ traceparent, tracestate }: Record<string, unknown>): Trace {
  const valid = (text: unknown, limit: number) => (typeof text === "string" && text.length <= limit ? text : undefined);
  const trace = { traceparent: valid(traceparent, 200), tracestate: valid(tracestate, 512) };
  return Object.fromEntries(Object.entries(trace).filter(([, text]) => text !== undefined));
}

/** Reads the id of a call from a cancel; throws if that is not possible. */
export function cancelledCall(body: Buffer): string {
  const { toolCallId } = JSON.parse(body.toString());
  if (typeof toolCallId !== "string" || !ID.test(toolCallId)) throw new Error("expected a toolCallId");
  return toolCallId;
}

/** Reads a request; throws if that is not possible. */
export function read(properties: MessageProperties, body: Buffer): Request {
  if (Number(properties.headers?.["rb-wire"] ?? 1) !== 1) throw new Error("wire versions over 1 are not supported");
  if (String(properties.type).split(".").at(-1) !== "ToolInvokeRequest" || body.length > MAX_BODY) {
    throw new Error("expected a ToolInvokeRequest of at most 4 MiB");
  }
  const { toolCallId, toolName, arguments: text } = JSON.parse(new TextDecoder("utf-8", { fatal: true }).decode(body));
  if (![toolCallId, toolName].every((name) => typeof name === "string" && ID.test(name))) {
    throw new Error("expected toolCallId and toolName, of at most 200 characters");
  }
  if (typeof text !== "string") throw new Error("expected arguments as a text");
  return { id: properties.correlationId || toolCallId, tool: toolName, arguments: text };
}

/** Returns a payload as bytes, and an error in its place when it is too large for the broker. */
export function encode(id: string, tool: string, { type, payload }: Outcome): [string, Buffer] {
  const body = Buffer.from(JSON.stringify({ toolCallId: id, toolName: tool, ...payload }));
  if (body.length <= MAX_BODY) return [type, body];
  return encode(id, tool, failure("execution_failed", "yes", "the result is too large"));
}

/** Returns the properties of a message: about a call, or an announcement without an id. */
export function properties(type: string, id: string | undefined, trace: Trace, persistent: boolean): Options.Publish {
  const trust = id === undefined ? "system" : "tool-output";
  return {
    messageId: randomUUID().replaceAll("-", ""),
    type,
    correlationId: id,
    userId: user,
    timestamp: Math.floor(Date.now() / 1000),
    contentType: "application/json",
    persistent,
    mandatory: persistent,
    headers: { "rb-wire": 1, "rb-source": `${service}/${instance}`, "rb-content-trust": trust, ...trace },
  };
}
