/** A fleet that the tests did not make themselves: its page, its folder, and what the page must not do. */
import { readFile, writeFile } from "node:fs/promises";
import { join } from "node:path";
import { test as base, expect, type Page } from "@playwright/test";
import { type Violations, watch } from "../browser/fixture.ts";

function variable(name: string): string {
  const value = process.env[name];
  if (!value) {
    throw new Error(
      `${name} is not set: run the tests with cargo xtask test -- -p rockbot-tests -E 'test(/^console::/)'`,
    );
  }
  return value;
}

/** The login link that the program printed. */
export const login = variable("ROCKBOT_CONSOLE_LINK");
/** Address of the page. */
export const url = new URL(login).origin;
const folder = variable("ROCKBOT_CONSOLE_FOLDER");

/** Returns the text of a file in the folder of the tool handler; empty while it is missing. */
export function fileText(name: string): Promise<string> {
  return readFile(join(folder, name), "utf8").catch(() => "");
}

/** Writes a file into the folder of the tool handler. Commands of the scripted model wait for some. */
export function writeText(name: string, text = ""): Promise<void> {
  return writeFile(join(folder, name), text);
}

/** Starts a conversation with this message. */
export async function say(page: Page, text: string): Promise<void> {
  await page.goto(`${url}/#/talk/new`);
  await page.getByLabel("Message").fill(text);
  await page.keyboard.press("Enter");
  await expect(page.getByRole("log").getByText(text, { exact: true })).toBeVisible();
}

/** Opens the screen Calls. The gateway observes all calls from then on, as long as a page is open. */
export async function openCalls(page: Page): Promise<void> {
  await page.goto(`${url}/#/calls`);
  await expect(page.getByRole("heading", { name: "Calls" })).toBeVisible();
  await expect(page.getByText("Waiting for the gateway…")).toHaveCount(0);
}

export const test = base.extend<{ violations: Violations }>({
  violations: [
    async ({ page }, use) => {
      const violations: Violations = { list: [] };
      watch(page, { url }, violations);
      await use(violations);
      expect(violations.list).toEqual([]);
    },
    { auto: true },
  ],
});

export { expect };
