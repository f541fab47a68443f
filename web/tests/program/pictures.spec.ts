/**
 * Pictures of the README and the documentation, of the real programs. `cargo xtask web --screenshots` writes them to the
 * documentation; other runs check that they can be made.
 */
import type { Page, TestInfo } from "@playwright/test";
import { IMAGES, record } from "../pictures.ts";
import { expect, openCalls, say, test, writeText } from "./fixture.ts";

const WRITES = process.env.ROCKBOT_CONSOLE_PICTURES === "1";

const FILES: Record<string, string> = {
  "messaging.md":
    "# Messaging\n\nRabbitMQ carries every request and every reply.\nQueues are quorum queues.\n",
  "watch.md": "# Watch\n\n`rockbot watch` shows the calls that cross RabbitMQ.\n",
};

test.describe.configure({ mode: "serial" });

/** Takes a picture of the page in both themes. */
async function take(page: Page, info: TestInfo, name: string): Promise<void> {
  await page.mouse.move(0, 0);
  await page.evaluate(() => (document.activeElement as HTMLElement | null)?.blur());
  for (const colorScheme of ["light", "dark"] as const) {
    await page.emulateMedia({ colorScheme });
    const file = `console-${name}-${colorScheme}.png`;
    await page.screenshot({ path: WRITES ? `${IMAGES}${file}` : info.outputPath(file) });
  }
}

test.beforeAll(async () => {
  for (const [name, text] of Object.entries(FILES)) {
    await writeText(name, text);
  }
});

test("calls", async ({ page, context }, info) => {
  await page.setViewportSize({ width: 1180, height: 560 });
  await openCalls(page);
  const talk = await context.newPage();
  await say(talk, "Survey the notes");
  await expect(talk.getByText("The survey is in report.md.")).toBeVisible();
  await say(talk, "Watch the log");
  const running = page.getByRole("row").filter({ hasText: "not known yet" });
  await expect(running).toHaveCount(1);
  await expect(page.getByRole("row").filter({ hasText: "execution failed" })).toHaveCount(1);
  await take(page, info, "calls");
  await writeText("go");
  await expect(running).toHaveCount(0);
});

test("journey of a call", async ({ page }, info) => {
  await page.setViewportSize({ width: 1180, height: 860 });
  await openCalls(page);
  await page.getByRole("row").filter({ hasText: "search" }).first().getByRole("link").click();
  await page.getByRole("button", { name: "Show arguments and result" }).click();
  await expect(page.getByRole("region", { name: "Result, content" })).toBeVisible();
  await take(page, info, "call");
});

test("talk with an approval request", async ({ page }, info) => {
  await page.setViewportSize({ width: 1180, height: 880 });
  await say(page, "Which files mention RabbitMQ? Fix the first line of notes.md.");
  await expect(page.getByRole("button", { name: /^Allow once/ })).toBeEnabled();
  await take(page, info, "talk");
});

// The last one: it runs only if all pictures were made.
test("record of the sources", async () => {
  test.skip(!WRITES, "the pictures were not written to the documentation");
  await record();
});
