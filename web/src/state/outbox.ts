/** Messages without a confirmed response. They survive a reload of the tab and are sent again under their key. */

export interface Outgoing {
  conversation: string;
  /** Idempotency key. */
  key: string;
  text: string;
}

const NAME = "rockbot.outbox";
const MAX_MESSAGES = 32;

/** Returns the messages of a conversation, oldest first. */
export function outgoing(conversation: string): Outgoing[] {
  return read().filter((message) => message.conversation === conversation);
}

export function keep(message: Outgoing): void {
  const others = read().filter((known) => known.key !== message.key);
  write([...others, message].slice(-MAX_MESSAGES));
}

export function settle(key: string): void {
  write(read().filter((message) => message.key !== key));
}

function read(): Outgoing[] {
  try {
    const messages: unknown = JSON.parse(sessionStorage.getItem(NAME) ?? "[]");
    return Array.isArray(messages) ? messages.filter(isOutgoing) : [];
  } catch {
    return [];
  }
}

function write(messages: Outgoing[]): void {
  try {
    sessionStorage.setItem(NAME, JSON.stringify(messages));
  } catch {
    // Without storage, a message is lost with the tab.
  }
}

function isOutgoing(value: unknown): value is Outgoing {
  const message = value as Partial<Outgoing> | null;
  return [message?.conversation, message?.key, message?.text].every((part) => typeof part === "string");
}
