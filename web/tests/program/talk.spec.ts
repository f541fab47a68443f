import { expect, fileText, say, test, writeText } from "./fixture.ts";

test("turn streams text, shows its call, and ends with the answer", async ({ page }) => {
  await say(page, "Please count the lines");
  const log = page.getByRole("log");
  // The tool waits for the file: the turn cannot have ended.
  await expect(log.getByText("I count them now.")).toBeVisible();
  const call = log.locator("summary").filter({ hasText: "bash" });
  await expect(call).toContainText("running");
  await expect(page.getByText("is working")).toBeVisible();
  await writeText("go");
  await expect(log.getByText("Number of lines: 5")).toBeVisible();
  await expect(call).toContainText("ran");
  await call.click();
  await expect(log.getByRole("region", { name: "Result, content" })).toContainText("5");
  await expect(log.getByText("1 call")).toBeVisible();
  await page.reload();
  await expect(log.getByText("Number of lines: 5")).toBeVisible();
});

test("stop ends the turn and the command in the other process", async ({ page }) => {
  await say(page, "sleep");
  await expect.poll(() => fileText("pid.txt")).toMatch(/^\d+\n$/);
  const pid = Number(await fileText("pid.txt"));
  await page.getByRole("button", { name: "Stop" }).click();
  await expect(page.getByRole("button", { name: "Stop" })).toHaveCount(0);
  await expect(
    page
      .getByRole("log")
      .getByText(/cancelled|stopped/i)
      .first(),
  ).toBeVisible();
  await expect.poll(() => isAlive(pid)).toBe(false);
});

test("conversation is renamed, found and deleted", async ({ page }) => {
  await say(page, "Good morning");
  await expect(page.getByText("Hello from the model.")).toBeVisible();
  await page.getByLabel("Actions").click();
  await page.getByRole("button", { name: "Rename" }).click();
  await page.getByLabel("Title").fill("Greetings");
  await page.getByRole("dialog").getByRole("button", { name: "Rename" }).click();
  await expect(page.getByRole("heading", { name: "Greetings" })).toBeVisible();
  await page.getByLabel("Find conversations").fill("greet");
  await expect(page.getByRole("navigation", { name: "Conversations" }).getByRole("link")).toHaveCount(1);
  await page.getByRole("button", { name: "Delete" }).click();
  await page.getByRole("dialog").getByRole("button", { name: "Delete" }).click();
  await expect(page.getByRole("heading", { name: "New conversation" })).toBeVisible();
  await page.getByLabel("Find conversations").fill("greet");
  await expect(page.getByRole("navigation", { name: "Conversations" }).getByRole("link")).toHaveCount(0);
});

function isAlive(pid: number): boolean {
  try {
    return process.kill(pid, 0);
  } catch {
    return false;
  }
}
