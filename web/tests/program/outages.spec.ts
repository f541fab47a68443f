/**
 * Programs that are killed in mid-turn: `kill` asks for it, and `killed` says that it was done. Each test has a fleet of
 * its own, so they are started one by one.
 */
import type { Locator, Page } from "@playwright/test";
import { expect, fileText, say, test, writeText } from "./fixture.ts";

/** Time within which the page shows the known state in milliseconds. */
const KNOWN = { timeout: 10_000 };

const RUNNING = /running\s*\d+(\.\d)? s/;
const WORKING = /is working, \d+ s; last event \d+ s ago/;

/** Starts a turn, and kills the program while its call runs. Returns the line of the call. */
async function killInMidTurn(page: Page): Promise<Locator> {
  await say(page, "Wait for the file");
  const call = page.getByRole("log").locator("summary").filter({ hasText: "bash" });
  await expect(call).toContainText("running");
  await expect.poll(() => fileText("pid")).toMatch(/^\d+\n$/);
  await writeText("kill");
  await expect.poll(() => fileText("killed"), { intervals: [50] }).toBe("1");
  return call;
}

/**
 * Fails if something moves on the page, like a spinner, without a time beside it, or if the dot of a running turn is
 * visible and does not move.
 */
async function expectTimesBesideSpinners(page: Page): Promise<void> {
  const { texts, still } = await page.evaluate(() => {
    const moving = document.getAnimations().map(({ effect }) => (effect as KeyframeEffect).target);
    const dots = [...document.querySelectorAll(".working .dot")].filter((dot) => dot.checkVisibility());
    return {
      texts: moving.map((target) => target?.parentElement?.textContent ?? ""),
      still: dots.filter((dot) => !moving.includes(dot)).length,
    };
  });
  expect(still).toBe(0);
  for (const text of texts) {
    expect(text).toMatch(/\d (s|min|h)\b/);
  }
}

/** Waits for a text that reports the outage, and checks that the call runs on with its time. */
async function expectOutage(page: Page, call: Locator, report: RegExp): Promise<void> {
  await expect(page.getByText(report)).toBeVisible(KNOWN);
  await expect(call).toContainText(RUNNING);
  await expect(page.locator(".working .dot")).toBeVisible();
  await expectTimesBesideSpinners(page);
}

test("killed agent: the call runs on with its time, and the turn continues in the next agent", async ({
  page,
}) => {
  const call = await killInMidTurn(page);
  await expectOutage(page, call, WORKING);
  await writeText("restart");
  await expect(page.getByText(/continues the turn \(attempt 2\)/)).toBeVisible();
  await writeText("go");
  await expect(page.getByText("It says: passed")).toBeVisible();
  await expect(call).toContainText("● ran");
  expect(await fileText("runs")).toBe("1\n");
});

test("killed handler: it is unknown whether the call ran", async ({ page }) => {
  const call = await killInMidTurn(page);
  await expect(call).toContainText(RUNNING);
  // The other handler waits until the lease of the killed one has expired, 10 s after its last renewal.
  await expect(call).toContainText("outcome unknown");
  await expect(call).toContainText("◐ unknown whether it ran");
  await expectTimesBesideSpinners(page);
  await expect(page.getByText(/^It says: /)).toBeVisible();
  expect(await fileText("runs")).toBe("1\n");
});

test("killed broker: the call runs on with its time, and the turn ends after the restart", async ({
  page,
}) => {
  const call = await killInMidTurn(page);
  await expectOutage(page, call, WORKING);
  await writeText("restart");
  await writeText("go");
  await expect(page.getByText(/^It says: /)).toBeVisible();
  await expect(call).not.toContainText("running");
  expect(await fileText("runs")).toBe("1\n");
});

test("killed gateway: the page says that it is not live, and when it tries again", async ({ page }) => {
  const call = await killInMidTurn(page);
  await expectOutage(page, call, /^Not live: .*Next attempt in \d+ s/);
  await writeText("go");
});
