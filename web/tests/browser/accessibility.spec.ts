import type { Page } from "@playwright/test";
import { TALK } from "../mock/fleet.ts";
import type { MockGateway } from "../mock/gateway.ts";
import { playTurns } from "../mock/turn.ts";
import { axeViolations } from "./axe.ts";
import { expect, test } from "./fixture.ts";

/** Screens, and the steps that lead to them. */
const SCREENS: Record<string, (page: Page, gateway: MockGateway) => Promise<void>> = {
  "sign-in": async (page, gateway) => {
    gateway.isSignedIn = false;
    await page.goto(gateway.url);
    await expect(page.getByLabel("Login link or code")).toBeVisible();
  },
  "new conversation": async (page, gateway) => {
    await page.goto(`${gateway.url}/#/talk/new`);
    await expect(page.getByText("General assistant")).toBeVisible();
  },
  approval: async (page, gateway) => {
    playTurns(gateway);
    await page.goto(`${gateway.url}/#/talk/${TALK}`);
    await page.getByLabel("Message", { exact: true }).fill("Tidy up");
    await page.keyboard.press("Enter");
    await expect(page.getByRole("button", { name: /^Allow once/ })).toBeEnabled();
    await page.locator("summary").filter({ hasText: "search" }).click();
  },
  answer: async (page, gateway) => {
    playTurns(gateway);
    await page.goto(`${gateway.url}/#/talk/${TALK}`);
    await page.getByLabel("Message", { exact: true }).fill("Tidy up");
    await page.keyboard.press("Enter");
    await page.getByRole("button", { name: /^Allow once/ }).click();
    await expect(page.getByRole("cell", { name: "docs/watch.md" })).toBeVisible();
    await page.getByLabel("Actions").click();
  },
  calls: async (page, gateway) => {
    await page.goto(`${gateway.url}/#/calls`);
    await expect(page.getByRole("row").nth(4)).toBeVisible();
  },
  "calls by tool": async (page, gateway) => {
    await page.goto(`${gateway.url}/#/calls`);
    await page.getByRole("button", { name: "By tool" }).click();
    await expect(page.getByRole("row").nth(2)).toBeVisible();
  },
  journey: async (page, gateway) => {
    await page.goto(`${gateway.url}/#/calls/${gateway.calls[4]?.id}`);
    await page.getByRole("button", { name: "Show arguments and result" }).click();
    await expect(page.getByRole("region", { name: "Result, content" })).toBeVisible();
  },
  fleet: async (page, gateway) => {
    await page.goto(`${gateway.url}/#/fleet`);
    await expect(page.getByText("64 of 64 full")).toBeVisible();
  },
  tools: async (page, gateway) => {
    await page.goto(`${gateway.url}/#/tools`);
    await expect(page.getByRole("link", { name: "bash" })).toBeVisible();
  },
  tool: async (page, gateway) => {
    await page.goto(`${gateway.url}/#/tools/bash`);
    await expect(page.getByText("Fingerprint")).toBeVisible();
  },
  "call by hand": async (page, gateway) => {
    const call = { callId: "c", tool: "read_file", retryable: false, elapsedMs: 5 };
    const content = [{ kind: "text" as const, text: "{}" }];
    gateway.outcomes.set("read_file", { ...call, outcome: "tool_error", executed: "yes", content });
    await page.goto(`${gateway.url}/#/tools/read_file`);
    await page.getByRole("button", { name: "Call" }).click();
    await expect(page.getByRole("region", { name: "Result, content" })).toBeVisible();
  },
  "confirmation of a call": async (page, gateway) => {
    await page.goto(`${gateway.url}/#/tools/bash`);
    await page.getByRole("button", { name: "Call" }).click();
    await expect(page.getByRole("dialog")).toBeVisible();
  },
  tasks: async (page, gateway) => {
    await page.goto(`${gateway.url}/#/tasks`);
    await expect(page.getByText("two of five parts")).toBeVisible();
  },
  queues: async (page, gateway) => {
    await page.goto(`${gateway.url}/#/letters`);
    await expect(page.getByText("2 dead letters")).toBeVisible();
  },
  letters: async (page, gateway) => {
    await page.goto(`${gateway.url}/#/letters/tool.invoke`);
    await page.getByLabel("Choose all").check();
    await page.getByRole("button", { name: "Rehearse" }).click();
    await expect(page.getByText("nothing was changed")).toBeVisible();
  },
  letter: async (page, gateway) => {
    await page.goto(`${gateway.url}/#/letters/tool.invoke`);
    await page.getByRole("button", { name: /00000000d9e1$/ }).click();
    await expect(page.getByRole("dialog")).toBeVisible();
  },
  schedules: async (page, gateway) => {
    await page.goto(`${gateway.url}/#/schedules`);
    await expect(page.getByText("morning report")).toBeVisible();
  },
  help: async (page, gateway) => {
    await page.goto(`${gateway.url}/#/fleet`);
    await page.getByRole("button", { name: "Help and keys" }).click();
    await expect(page.getByRole("dialog")).toBeVisible();
  },
  commands: async (page, gateway) => {
    await page.goto(`${gateway.url}/#/fleet`);
    await page.keyboard.press("Control+k");
    await expect(page.getByRole("option").first()).toBeVisible();
  },
  unavailable: async (page, gateway) => {
    gateway.me.parts.watch = { available: false, missing: "gateway.watch.url" };
    await page.goto(`${gateway.url}/#/calls`);
    await expect(page.getByText("gateway.watch.url")).toBeVisible();
  },
  problem: async (page, gateway) => {
    gateway.refusals.set("GET /tools", {
      status: 503,
      code: "unavailable",
      detail: "the bus cannot be reached",
    });
    await page.goto(`${gateway.url}/#/tools`);
    await expect(page.getByText("the bus cannot be reached")).toBeVisible();
  },
};

for (const colorScheme of ["light", "dark"] as const) {
  for (const width of [1280, 390]) {
    test.describe(`${colorScheme} theme, ${width} px`, () => {
      test.use({ colorScheme, viewport: { width, height: 800 } });
      for (const [name, prepare] of Object.entries(SCREENS)) {
        test(`${name} has no violation`, async ({ page, gateway }) => {
          await prepare(page, gateway);
          expect(await axeViolations(page)).toEqual([]);
          const overflow = await page.evaluate(() => document.documentElement.scrollWidth - innerWidth);
          expect(overflow).toBeLessThanOrEqual(0);
        });
      }
    });
  }
}

test("reduced motion has no animation", async ({ page, gateway }) => {
  await page.emulateMedia({ reducedMotion: "reduce" });
  playTurns(gateway);
  gateway.onMessage = () => {};
  await page.goto(`${gateway.url}/#/talk/${TALK}`);
  await page.getByLabel("Message", { exact: true }).fill("Tidy up");
  await page.keyboard.press("Enter");
  await expect(page.getByText("is working")).toBeVisible();
  expect(await page.evaluate(() => document.getAnimations().length)).toBe(0);
});
