/** The conversations of the person. */
import type { ConversationEntry } from "../api.ts";
import { asProblem, get, type Problem, pathPart, post, request } from "../http.ts";

const REFRESH_MS = 15_000;
const FIND_MS = 250;

export class ConversationIndex {
  entries: ConversationEntry[] = $state.raw([]);
  isLoaded = $state(false);
  problem: Problem | null = $state.raw(null);
  #query = "";
  #requests = 0;
  #timer: ReturnType<typeof setTimeout> | undefined;

  /** Keeps the list current until the returned function is called. */
  follow(): () => void {
    void this.refresh();
    const timer = setInterval(() => {
      if (!document.hidden) {
        void this.refresh();
      }
    }, REFRESH_MS);
    return () => {
      clearInterval(timer);
      clearTimeout(this.#timer);
    };
  }

  /** Limits the list to titles with these words. */
  find(query: string): void {
    this.#query = query.trim();
    clearTimeout(this.#timer);
    this.#timer = setTimeout(() => void this.refresh(), FIND_MS);
  }

  async refresh(): Promise<void> {
    this.#requests += 1;
    const current = this.#requests;
    const query = this.#query === "" ? "" : `?query=${pathPart(this.#query)}`;
    try {
      const { conversations } = await get<{ conversations: ConversationEntry[] }>(`/conversations${query}`);
      if (current === this.#requests) {
        this.entries = conversations;
        this.problem = null;
        this.isLoaded = true;
      }
    } catch (error) {
      if (current === this.#requests) {
        this.problem = asProblem(error);
      }
    }
  }

  /** Starts a conversation with an agent. */
  async create(agent: string, title: string): Promise<ConversationEntry> {
    const entry = await post<ConversationEntry>("/conversations", { agent, title });
    this.entries = [entry, ...this.entries];
    return entry;
  }

  async remove(id: string): Promise<Problem | null> {
    try {
      await request("DELETE", `/conversations/${pathPart(id)}`);
      this.entries = this.entries.filter((entry) => entry.id !== id);
      return null;
    } catch (error) {
      return asProblem(error);
    }
  }

  /** Shows a change of an entry before the next refresh. */
  update(entry: ConversationEntry): void {
    this.entries = this.entries.map((known) => (known.id === entry.id ? { ...known, ...entry } : known));
  }
}
