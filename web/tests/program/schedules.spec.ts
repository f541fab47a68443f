import { expect, say, test } from "./fixture.ts";

test("task that an agent scheduled is shown with its last result", async ({ page }) => {
  await say(page, "Please greet me every second");
  await expect(page.getByText(/^It says: Scheduled task/)).toBeVisible();
  await page.getByRole("link", { name: "Schedules" }).click();
  const task = page.getByRole("row").filter({ hasText: "greeting" });
  await expect(task).toContainText("* * * * * *");
  await expect(task).toContainText("completed");
  await expect(task).toContainText("Hello from the model.");
});
