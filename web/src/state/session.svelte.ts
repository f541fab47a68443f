/** The signed-in person, the address of the page, and the stream. */
import type { Me, PartName, Right } from "../api.ts";
import { asProblem, BASE, get, type Problem, request, whenUnauthorized } from "../http.ts";
import type { ConnectionState } from "../stream/connection.ts";
import { Hub } from "../stream/hub.ts";
import { BrowserTabs } from "../stream/tabs.ts";
import { stripped } from "../text/hidden.ts";
import { href, loginCode, parseRoute, type Route, type Screen } from "./route.ts";

/** Right and part that each screen needs. */
const NEEDS: Record<Screen, { right: Right; part: PartName }> = {
  talk: { right: "talk", part: "talk" },
  calls: { right: "watch", part: "watch" },
  fleet: { right: "watch", part: "watch" },
  tools: { right: "watch", part: "watch" },
  letters: { right: "letters", part: "letters" },
  tasks: { right: "talk", part: "tasks" },
  schedules: { right: "talk", part: "schedules" },
};

/** Time after which a hidden tab closes the stream. */
const HIDDEN_MS = 5 * 60_000;
const HEARTBEAT_MS = 20_000;

export type Phase = "starting" | "signed-out" | "ready" | "unreachable";

export class Session {
  phase: Phase = $state("starting");
  me: Me | null = $state.raw(null);
  problem: Problem | null = $state.raw(null);
  route: Route = $state.raw({ screen: "talk", id: "" });
  connection: ConnectionState = $state.raw({ kind: "connecting" });
  /** Clock of the gateway minus that of the browser, in milliseconds. */
  #clockOffsetMs = 0;
  /** Local time, once a second. */
  now = $state(Date.now());
  /** Announced to screen readers when they have nothing else to say. */
  notice = $state("");
  /** Announced to screen readers at once. */
  alert = $state("");
  readonly hub = new Hub({
    base: BASE,
    tabs: new BrowserTabs(),
    onState: (state) => {
      this.connection = state;
      if (state.kind === "refused" && state.status === 401) {
        this.#signedOut();
      }
    },
  });

  constructor() {
    whenUnauthorized(() => this.#signedOut());
    window.addEventListener("hashchange", () => void this.#onAddress());
    window.addEventListener("pagehide", () => this.hub.close());
    window.addEventListener("online", () => this.hub.retry());
    setInterval(() => {
      this.now = Date.now();
    }, 1000);
    setInterval(() => this.hub.heartbeat(), HEARTBEAT_MS);
    this.#watchVisibility();
  }

  async start(): Promise<void> {
    await this.#onAddress();
    if (this.phase === "starting") {
      await this.load();
    }
  }

  /** Requests the signed-in person. */
  async load(): Promise<void> {
    try {
      const me = await get<Me>("/me");
      this.#clockOffsetMs = me.serverTimeMs - Date.now();
      this.me = me;
      this.phase = "ready";
      this.problem = null;
      if (parseRoute(location.hash) === null) {
        location.replace(href(this.screens[0] ?? "talk"));
      }
    } catch (error) {
      this.problem = asProblem(error);
      this.phase = this.problem.status === 401 ? "signed-out" : "unreachable";
    }
  }

  /** Signs in with the code of a login link. */
  async login(code: string): Promise<void> {
    try {
      await request("POST", "/session", { body: { code } });
      await this.load();
    } catch (error) {
      this.problem = asProblem(error);
      this.phase = "signed-out";
    }
  }

  async logout(): Promise<void> {
    try {
      await request("DELETE", "/session");
    } catch (error) {
      if (asProblem(error).status !== 401) {
        this.say(`Not signed out: ${asProblem(error).message}`);
        return;
      }
    }
    this.#signedOut();
  }

  /** Time by the clock of the gateway, once a second. */
  get gatewayNow(): number {
    return this.now + this.#clockOffsetMs;
  }

  /** Screens that the person may use. */
  get screens(): Screen[] {
    return (Object.keys(NEEDS) as Screen[]).filter((screen) => this.me?.rights.includes(NEEDS[screen].right));
  }

  /** Returns the configuration key that a screen lacks; `null` if it is available. */
  missing(screen: Screen): string | null {
    const part = this.me?.parts[NEEDS[screen].part];
    return part?.available ? null : (part?.missing ?? `gateway.${NEEDS[screen].part}`);
  }

  may(right: Right): boolean {
    return this.me?.rights.includes(right) === true;
  }

  /** Announces a change politely. */
  say(text: string): void {
    // The same text twice would not be announced.
    const shown = stripped(text);
    this.notice = this.notice === shown ? `${shown}\u00a0` : shown;
  }

  /** Announces at once. */
  warn(text: string): void {
    this.alert = stripped(text);
  }

  async #onAddress(): Promise<void> {
    const code = loginCode(location.hash);
    if (code !== null) {
      history.replaceState(null, "", location.pathname);
      await this.login(code);
      return;
    }
    const route = parseRoute(location.hash);
    if (route) {
      this.route = route;
    }
  }

  #signedOut() {
    this.me = null;
    this.problem = null;
    this.phase = "signed-out";
  }

  #watchVisibility() {
    let timer: ReturnType<typeof setTimeout> | undefined;
    document.addEventListener("visibilitychange", () => {
      clearTimeout(timer);
      if (document.hidden) {
        timer = setTimeout(() => this.hub.pause(), HIDDEN_MS);
      } else {
        this.hub.resume();
      }
    });
  }
}

export const session = new Session();
