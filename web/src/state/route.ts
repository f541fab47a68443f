/** Addresses of the screens, after the `#`. */

export type Screen = "talk" | "calls" | "fleet" | "tools" | "letters" | "tasks" | "schedules";

export interface Route {
  screen: Screen | "shared";
  /** Open item of the screen: a conversation, a call, a tool, a queue, or a share. */
  id: string;
}

export const SCREENS: readonly Screen[] = [
  "talk",
  "calls",
  "fleet",
  "tools",
  "letters",
  "tasks",
  "schedules",
];
const MAX_ID = 256;

/** Returns the route of an address; `null` for an unknown one. */
export function parseRoute(hash: string): Route | null {
  const match = /^#\/([a-z]+)(?:\/(.*))?$/.exec(hash);
  const screen = match?.[1] ?? "";
  if (screen !== "shared" && !SCREENS.includes(screen as Screen)) {
    return null;
  }
  let id = "";
  try {
    id = decodeURIComponent(match?.[2] ?? "");
  } catch {
    return null;
  }
  return id.length > MAX_ID ? null : { screen: screen as Route["screen"], id };
}

/** Returns the address of a screen, or of something on it. */
export function href(screen: Route["screen"], id = ""): string {
  return id === "" ? `#/${screen}` : `#/${screen}/${encodeURIComponent(id.toWellFormed())}`;
}

/** Returns the one-time code of a login link; `null` for other addresses. */
export function loginCode(hash: string): string | null {
  return /^#login=([\w-]{1,256})$/.exec(hash.trim())?.[1] ?? null;
}
