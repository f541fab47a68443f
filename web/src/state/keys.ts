/** Keys that work on every screen. Screens add their own with {@link onKey}. */
import type { Screen } from "./route.ts";

export type KeyAction = { kind: "go"; screen: Screen } | { kind: "help" } | { kind: "commands" };

const GO: Record<string, Screen> = {
  t: "talk",
  c: "calls",
  f: "fleet",
  o: "tools",
  l: "letters",
  k: "tasks",
  s: "schedules",
};
/** Time for the second key of `g t`. */
const SEQUENCE_MS = 1500;

/** Returns whether keys belong to the element with the focus. */
function isTyping(target: EventTarget | null): boolean {
  return (
    target instanceof HTMLElement &&
    (target.isContentEditable || /^(?:INPUT|TEXTAREA|SELECT)$/.test(target.tagName))
  );
}

/** Returns whether a dialog is open, which has the keys for itself. */
function isModal(): boolean {
  return document.querySelector("dialog[open]") !== null;
}

/** Handles the keys of all screens until the returned function is called. */
export function installKeys(act: (action: KeyAction) => void, isEnabled: () => boolean): () => void {
  let goUntil = 0;
  const onKeydown = (event: KeyboardEvent) => {
    if ((event.ctrlKey || event.metaKey) && event.key.toLowerCase() === "k") {
      event.preventDefault();
      act({ kind: "commands" });
      return;
    }
    if (!isEnabled() || isTyping(event.target) || isModal() || hasModifier(event)) {
      return;
    }
    const screen = event.timeStamp < goUntil ? GO[event.key] : undefined;
    goUntil = event.key === "g" ? event.timeStamp + SEQUENCE_MS : 0;
    if (screen !== undefined) {
      event.preventDefault();
      act({ kind: "go", screen });
    } else if (event.key === "?") {
      event.preventDefault();
      act({ kind: "help" });
    }
  };
  window.addEventListener("keydown", onKeydown);
  return () => window.removeEventListener("keydown", onKeydown);
}

/** Handles the keys of one screen until the returned function is called. */
export function onKey(keys: Record<string, () => void>, isEnabled: () => boolean): () => void {
  const onKeydown = (event: KeyboardEvent) => {
    if (event.defaultPrevented || !isEnabled() || isTyping(event.target) || isModal() || hasModifier(event)) {
      return;
    }
    const isControl =
      event.target instanceof HTMLElement && /^(?:BUTTON|A|SUMMARY)$/.test(event.target.tagName);
    if (isControl && (event.key === "Enter" || event.key === " ")) {
      return;
    }
    const handle = keys[event.key];
    if (handle) {
      event.preventDefault();
      handle();
    }
  };
  window.addEventListener("keydown", onKeydown);
  return () => window.removeEventListener("keydown", onKeydown);
}

function hasModifier(event: KeyboardEvent): boolean {
  return event.ctrlKey || event.metaKey || event.altKey;
}
