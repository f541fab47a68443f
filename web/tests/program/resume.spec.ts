/** A turn that goes on while its page is gone. */
import { expect, fileText, say, test, writeText } from "./fixture.ts";

test("turn is whole after a reload, in a second tab, and in a tab that was away", async ({
  page,
  context,
}) => {
  await say(page, "Please count the lines");
  const log = page.getByRole("log");
  await expect(log.getByText("I count them now.")).toBeVisible();
  const call = log.locator("summary").filter({ hasText: "bash" });
  await expect(call).toContainText("running");
  await page.reload();
  await expect(call).toContainText("running");
  const address = page.url();

  const second = await context.newPage();
  await second.goto(address);
  const secondLog = second.getByRole("log");
  await expect(secondLog.getByText("I count them now.")).toBeVisible();

  // The first tab holds the stream of both: the second one takes over.
  await page.goto("about:blank");
  // The tool waits for the file: the turn ends while the first tab is away.
  await writeText("go");
  await expect(secondLog.getByText("Number of lines: 5")).toBeVisible();
  await page.goto(address);
  for (const shown of [log, secondLog]) {
    await expect(shown.getByText("Number of lines: 5")).toHaveCount(1);
    await expect(shown.getByText("I count them now.")).toHaveCount(1);
    await expect(shown.locator("summary").filter({ hasText: "bash" })).toHaveCount(1);
    await expect(shown.getByText("1 call")).toBeVisible();
  }
  await expect(call).toContainText("ran");
  // The command of the turn ran once.
  expect(await fileText("counted")).toBe("1\n");
  await second.close();
});
