/** Work that conversations delegated, as a tree with its spending. */
import type { AgentTasks, DelegatedTask, Spending, TaskTree } from "../api.ts";

/** Returns the trees of an agent with open work, or all of them. */
export function shownTrees(
  { conversations = [] }: Pick<AgentTasks, "conversations">,
  onlyOpen: boolean,
): TaskTree[] {
  return onlyOpen ? conversations.filter((tree) => openTasks(tree) > 0) : conversations;
}

/** Returns the number of tasks that have not ended. */
export function openTasks({ tasks }: TaskTree): number {
  return tasks.filter(({ ended }) => !ended).length;
}

/** Returns the spending of the tasks that have ended; that of open ones is not reported yet. */
export function taskSpending({ tasks }: TaskTree): Spending {
  const total: Required<Pick<Spending, "promptTokens" | "completionTokens" | "costMicros" | "toolCalls">> = {
    promptTokens: 0,
    completionTokens: 0,
    costMicros: 0,
    toolCalls: 0,
  };
  for (const { usage } of tasks) {
    total.promptTokens += usage?.promptTokens ?? 0;
    total.completionTokens += usage?.completionTokens ?? 0;
    total.costMicros += usage?.costMicros ?? 0;
    total.toolCalls += usage?.toolCalls ?? 0;
  }
  return total;
}

/** Returns the time that a task has taken so far, or took. */
export function taskTime({ createdMs, endedMs }: DelegatedTask, now: number): number {
  return Math.max(0, (endedMs ?? now) - createdMs);
}

const WORDS: Record<string, string> = {
  submitted: "waits for capacity",
  running: "running",
  input_required: "waits for an answer",
  cancelling: "being cancelled",
  completed: "completed",
  failed: "failed",
  expired: "time limit passed",
  cancelled: "cancelled",
};

/** Returns the state of a task in words. */
export function stateWords({ state }: Pick<DelegatedTask, "state">): string {
  return WORDS[state] ?? "unknown";
}
