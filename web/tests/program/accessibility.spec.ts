/** Every screen with the content of a real fleet, in both themes and on two widths. */
import type { Page } from "@playwright/test";
import { axeViolations } from "../browser/axe.ts";
import { expect, openCalls, say, test, url } from "./fixture.ts";

/** Screens, and the steps that lead to them. */
const SCREENS: Record<string, (page: Page) => Promise<void>> = {
  "new conversation": async (page) => {
    await page.goto(`${url}/#/talk/new`);
    await expect(page.getByLabel("Message")).toBeVisible();
  },
  "approval request": async (page) => {
    await say(page, "Please fix the notes");
    await expect(page.getByRole("button", { name: /^Allow once/ })).toBeEnabled();
    await page.locator("summary").filter({ hasText: "search" }).click();
  },
  answer: async (page) => {
    await say(page, "Please fix the notes");
    await page.getByRole("button", { name: /^Allow once/ }).click();
    await expect(page.getByText(/^The tool says:/)).toBeVisible();
    await page.getByLabel("Actions").click();
  },
  calls: async (page) => {
    await callWasObserved(page);
    await page.goto(`${url}/#/calls`);
    await expect(page.getByRole("row").filter({ hasText: "search" }).first()).toBeVisible();
  },
  "calls by tool": async (page) => {
    await callWasObserved(page);
    await page.goto(`${url}/#/calls`);
    await page.getByRole("button", { name: "By tool" }).click();
    await expect(page.getByRole("row").filter({ hasText: "search" }).first()).toBeVisible();
  },
  journey: async (page) => {
    await callWasObserved(page);
    await page.goto(`${url}/#/calls`);
    await page.getByRole("link", { name: "search" }).first().click();
    await page.getByRole("button", { name: "Show arguments and result" }).click();
    await expect(page.getByRole("region", { name: "Result, content" })).toBeVisible();
  },
  fleet: async (page) => {
    await page.goto(`${url}/#/fleet`);
    await expect(page.getByRole("row").filter({ hasText: "user.message.assistant" })).toBeVisible();
  },
  tools: async (page) => {
    await page.goto(`${url}/#/tools`);
    await expect(page.getByRole("link", { name: "bash" })).toBeVisible();
  },
  "call by hand": async (page) => {
    await page.goto(`${url}/#/tools/read_file`);
    await page.getByRole("textbox", { name: /^path/ }).fill("notes.md");
    await page.getByRole("button", { name: "Call" }).click();
    await expect(page.getByRole("region", { name: "Result, content" })).toBeVisible();
  },
  "confirmation of a call": async (page) => {
    await page.goto(`${url}/#/tools/bash`);
    await page.getByRole("textbox", { name: /^command/ }).fill("true");
    await page.getByRole("button", { name: "Call" }).click();
    await expect(page.getByRole("dialog")).toBeVisible();
  },
  tasks: async (page) => {
    await say(page, "Please hand it over");
    await expect(page.getByText("A sub-agent works on it.")).toBeVisible();
    await page.goto(`${url}/#/tasks`);
    await expect(page.getByRole("article").first()).toContainText("one of two parts");
  },
  queues: async (page) => {
    await page.goto(`${url}/#/letters`);
    await expect(page.getByText("1 dead letter", { exact: true })).toBeVisible();
  },
  letters: async (page) => {
    await page.goto(`${url}/#/letters/tool.invoke`);
    await page.getByLabel("Choose all").check();
    await page.getByRole("button", { name: "Rehearse" }).click();
    await expect(page.getByText("nothing was changed")).toBeVisible();
  },
  schedules: async (page) => {
    await say(page, "Please greet me every second");
    await expect(page.getByText(/^It says: Scheduled task/)).toBeVisible();
    await page.goto(`${url}/#/schedules`);
    await expect(page.getByRole("row").filter({ hasText: "greeting" })).toBeVisible();
  },
};

const VARIANTS = (["light", "dark"] as const).flatMap((colorScheme) =>
  [1280, 390].map((width) => ({ colorScheme, width })),
);

for (const [name, prepare] of Object.entries(SCREENS)) {
  test(`${name} has no violation`, async ({ page }) => {
    await prepare(page);
    for (const { colorScheme, width } of VARIANTS) {
      await page.emulateMedia({ colorScheme });
      await page.setViewportSize({ width, height: 800 });
      expect(await axeViolations(page), `${colorScheme}, ${width} px`).toEqual([]);
      const overflow = await page.evaluate(() => document.documentElement.scrollWidth - innerWidth);
      expect(overflow, `${width} px`).toBeLessThanOrEqual(0);
    }
  });
}

test("sign-in has no violation", async ({ browser }) => {
  const context = await browser.newContext({ storageState: { cookies: [], origins: [] } });
  const page = await context.newPage();
  await page.goto(url);
  await expect(page.getByLabel("Login link or code")).toBeVisible();
  expect(await axeViolations(page)).toEqual([]);
  await context.close();
});

/** Makes a call that the gateway observes. */
async function callWasObserved(page: Page): Promise<void> {
  await openCalls(page);
  await say(page, "Please fix the notes");
  await expect(page.getByText("One line is wrong.")).toBeVisible();
}
