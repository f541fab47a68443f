// Serves a handler pool of a RockBot fleet. docs/workers.md explains each step.
//
// The tool is read-only: a call that is delivered twice may run twice, so the worker keeps no journal.

import { createHash } from "node:crypto";
import { setTimeout as pause } from "node:timers/promises";
import amqp, { type Channel, type ConfirmChannel, type ConsumeMessage } from "amqplib";
import * as tool from "./test_regex.ts";
import * as wire from "./wire.ts";
import { failure, key, namespace, queue, type Outcome } from "./wire.ts";

const CONCURRENCY = 4;
const MAX_CANCELS = 4096;
const DRAIN = 25_000;
const stopping = new AbortController();

class Stopped extends Error {
  readonly code: "cancelled" | "timeout";

  constructor(code: "cancelled" | "timeout") {
    super(code);
    this.code = code;
  }
}

/** A call from its delivery to its reply. */
type Call = wire.Request & { replyTo: string; trace: wire.Trace; copies: ConsumeMessage[]; stop: AbortController };

class Session {
  readonly running = new Map<string, Call>();
  readonly cancelled = new Set<string>();
  readonly requests: ConfirmChannel;
  readonly notices: Channel;

  constructor(requests: ConfirmChannel, notices: Channel) {
    this.requests = requests;
    this.notices = notices;
  }

  /** Declares and consumes the queues, and returns the consumer of requests. `lost` is called when it ends. */
  async start(lost: () => void): Promise<string> {
    const { requests } = this;
    if (!wire.user.startsWith(`${namespace}.`)) {
      // The definitions of a fleet's users contain these.
      await requests.assertExchange(namespace, "topic", { durable: true });
      await requests.assertExchange(wire.deadLetters, "direct", { durable: true });
      await requests.assertQueue(`${queue}.dlq`, wire.deadLetterQueue);
      await requests.bindQueue(`${queue}.dlq`, wire.deadLetters, queue);
    }
    await this.subscribe("tool.cancel", (message) => this.onCancel(message));
    await this.subscribe("tool.catalog.refresh", () => this.announce());
    await requests.assertQueue(queue, wire.workQueue);
    await requests.bindQueue(queue, namespace, key);
    await requests.prefetch(CONCURRENCY);
    const limit = { "x-consumer-timeout": 90_000_000 };
    // Without a message, the broker has cancelled the consumer: the queue was deleted.
    const receive = (message: ConsumeMessage | null) => (message ? this.onRequest(message) : lost());
    return (await requests.consume(queue, receive, { arguments: limit })).consumerTag;
  }

  async subscribe(topic: string, receive: (message: ConsumeMessage) => void): Promise<void> {
    const own = `${namespace}.${topic}.${wire.instance}`;
    const limits = { "x-max-length": 10_000 };
    await this.notices.assertQueue(own, { exclusive: true, durable: false, autoDelete: true, arguments: limits });
    await this.notices.bindQueue(own, namespace, topic);
    await this.notices.consume(own, (message) => message && receive(message), { noAck: true });
  }

  announce(): void {
    const names = [tool.registration.name];
    const [tools, removed] = stopping.signal.aborted ? [[], names] : [[tool.registration], []];
    const fingerprint = createHash("sha256").update(JSON.stringify(tools)).digest("hex").slice(0, 16);
    const { service: handler, instance } = wire;
    const guides = tools.length > 0 ? tool.guides : [];
    const catalog = { handler, instance, invokeKey: key, tools, removed, fingerprint, guides };
    this.notify("tool.catalog.announce", "ToolCatalog", catalog, undefined, {});
  }

  notify(to: string, type: string, payload: object, id: string | undefined, trace: wire.Trace): void {
    const body = Buffer.from(JSON.stringify(payload));
    try {
      this.notices.publish(namespace, to, body, wire.properties(type, id, trace, false));
    } catch (error) {
      console.warn(`${type} not sent: ${error}`);
    }
  }

  onCancel({ content }: ConsumeMessage): void {
    try {
      const id = wire.cancelledCall(content);
      this.running.get(id)?.stop.abort(new Stopped("cancelled"));
      this.cancelled.add(id); // the request, or a copy of it, may still arrive
      const [oldest] = this.cancelled;
      if (oldest && this.cancelled.size > MAX_CANCELS) this.cancelled.delete(oldest);
    } catch {
      console.warn("unreadable cancel");
    }
  }

  onRequest(message: ConsumeMessage): void {
    const { properties } = message;
    const headers: Record<string, any> = properties.headers ?? {};
    const replyTo = properties.replyTo ?? "tool.result";
    if (!wire.mayReply(properties.userId, replyTo)) return this.requests.reject(message, false);
    const trace = wire.traceOf(headers);
    const unread = { id: properties.correlationId ?? "", tool: "", arguments: "" };
    const call: Call = { ...unread, replyTo, trace, copies: [message], stop: new AbortController() };
    let left: number;
    try {
      Object.assign(call, wire.read(properties, message.content));
      left = wire.remaining(headers);
    } catch (error) {
      const problem = error instanceof SyntaxError ? "not JSON" : String(error);
      return this.finish(call, failure("invalid_arguments", "no", `not a valid request: ${problem}`), true);
    }
    const running = this.running.get(call.id);
    if (running) {
      const same = running.tool === call.tool && running.arguments === call.arguments && running.replyTo === replyTo;
      if (same) running.copies.push(message); // one reply serves both
      else this.finish(call, failure("not_permitted", "no", "another call has this id"));
      return;
    }
    if (this.cancelled.has(call.id)) {
      return this.finish(call, failure("cancelled", "no", "the call was cancelled"));
    }
    if (left <= 0) return this.finish(call, failure("timeout", "no", "the deadline has passed"));
    if (call.tool !== tool.registration.name) {
      return this.finish(call, failure("tool_not_found", "no", "this pool has no such tool"));
    }
    let parsed: unknown;
    try {
      parsed = JSON.parse(call.arguments);
      tool.validate(parsed);
    } catch (error) {
      // The parser's message quotes the arguments.
      const problem = error instanceof SyntaxError ? "not JSON" : String(error);
      return this.finish(call, failure("invalid_arguments", "no", `invalid arguments: ${problem}`));
    }
    this.running.set(call.id, call);
    const timer = setTimeout(() => call.stop.abort(new Stopped("timeout")), left);
    const finish = (outcome: Outcome) => this.finish(call, outcome);
    // Without the connection nothing can be sent, and the broker redelivers the request.
    const lost = (error: unknown) => console.warn(`reply not sent: ${error}`);
    void this.run(call, parsed).finally(() => clearTimeout(timer)).then(finish).catch(lost);
  }

  async run(call: Call, parsed: Parameters<typeof tool.run>[0]): Promise<Outcome> {
    const progress = this.reportProgress(call);
    try {
      return { type: "ToolInvokeResponse", payload: await tool.run(parsed, call.stop.signal) };
    } catch (error) {
      if (error instanceof Stopped) return failure(error.code, "yes", "the expression was stopped");
      console.error("the tool failed", error);
      return failure("execution_failed", "yes", "the tool crashed");
    } finally {
      clearInterval(progress);
    }
  }

  reportProgress({ id, tool, replyTo, trace }: Call): NodeJS.Timeout | undefined {
    const to = replyTo.replace("tool.result", "tool.progress");
    if (to === "tool.progress") return undefined; // of no particular caller
    let sequence = 0;
    return setInterval(() => {
      sequence += 1;
      const progress = { toolCallId: id, toolName: tool, sequence, text: "matching" };
      this.notify(to, "ToolProgress", progress, id, trace);
    }, 500);
  }

  /** Publishes the reply, and settles the request when the broker has confirmed the reply. */
  finish(call: Call, outcome: Outcome, unreadable = false): void {
    if (this.running.get(call.id) === call) this.running.delete(call.id);
    const settle = (error?: unknown) => {
      for (const copy of call.copies) {
        if (error) this.requests.nack(copy, false, true);
        else if (unreadable) this.requests.reject(copy, false);
        else this.requests.ack(copy);
      }
    };
    if (!call.id) return settle();
    const [type, reply] = wire.encode(call.id, call.tool, outcome);
    // A reply that is returned is confirmed too: the caller's queue is gone, and nothing is left to do.
    this.requests.publish(namespace, call.replyTo, reply, wire.properties(type, call.id, call.trace, true), settle);
  }
}

/** Serves the pool until the connection is lost, or until the process is stopped and idle. */
async function serve(): Promise<void> {
  const connection = await amqp.connect(wire.withHeartbeat(wire.url), { timeout: 5_000 });
  const lost = new Promise<never>((_, reject) => {
    connection.on("close", () => reject(new Error("the connection was closed")));
    connection.on("error", reject);
  });
  lost.catch(() => {});
  const [requests, notices] = [await connection.createConfirmChannel(), await connection.createChannel()];
  const close = () => void connection.close().catch(() => {});
  for (const channel of [requests, notices]) channel.on("error", close);
  const session = new Session(requests, notices);
  const consumer = await session.start(close);
  session.announce();
  const heartbeat = setInterval(() => session.announce(), 10_000);
  console.error(`ready: serving ${key}`);
  try {
    await Promise.race([lost, aborted(stopping.signal)]);
    await requests.cancel(consumer);
    session.announce();
    const deadline = Date.now() + DRAIN;
    while (session.running.size > 0 && Date.now() < deadline) await Promise.race([lost, pause(50)]);
    await requests.waitForConfirms();
  } finally {
    clearInterval(heartbeat);
    // The broker redelivers what is not settled.
    for (const call of session.running.values()) call.stop.abort(new Stopped("cancelled"));
  }
  connection.removeAllListeners("close");
  await connection.close();
}

function aborted(signal: AbortSignal): Promise<void> {
  return new Promise((resolve) => {
    if (signal.aborted) resolve();
    signal.addEventListener("abort", () => resolve(), { once: true });
  });
}

for (const name of ["SIGTERM", "SIGINT"] as const) process.on(name, () => stopping.abort());
while (!stopping.signal.aborted) {
  try {
    await serve();
  } catch (error) {
    console.warn(`no connection: ${error}; connecting again`);
    await pause(1_000);
  }
}
