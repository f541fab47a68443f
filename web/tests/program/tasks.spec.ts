import { expect, say, test, writeText } from "./fixture.ts";

test("sub-agent is shown with its report, and with its spending at the end", async ({ page }) => {
  await say(page, "Please hand it over");
  await expect(page.getByText("A sub-agent works on it.")).toBeVisible();
  await page.getByRole("link", { name: "Tasks" }).click();
  const task = page.getByRole("article").getByRole("listitem");
  await expect(task).toContainText("running");
  await expect(task).toContainText("Watch the file, then count its lines.");
  await expect(task).toContainText("one of two parts");
  await writeText("go");
  await expect(task).toContainText("completed");
  await expect(task).toContainText("2 calls");
  await page.getByRole("article").getByRole("link").click();
  await expect(page.getByText("The sub-agent has counted them.")).toBeVisible();
});
