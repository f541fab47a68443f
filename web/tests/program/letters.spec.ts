import { expect, test, url } from "./fixture.ts";

test("dead letter is rehearsed and replayed, and another one is purged", async ({ page }) => {
  await page.goto(`${url}/#/letters`);
  const queue = page
    .getByRole("listitem")
    .filter({ has: page.getByRole("link", { name: "tool.invoke", exact: true }) });
  await expect(queue).toContainText("2 dead letters");
  await page.getByRole("link", { name: "tool.invoke", exact: true }).click();
  const poison = page.getByRole("row").filter({ hasText: "delivered too often" });
  await poison.getByRole("checkbox").check();
  await page.getByRole("button", { name: "Rehearse" }).click();
  await expect(page.getByText("Rehearsal: nothing was changed.")).toBeVisible();
  await page.getByRole("button", { name: "Replay 1" }).click();
  await expect(page.getByText("Replayed.", { exact: true })).toBeVisible();
  await expect(poison).toHaveCount(0);
  await page.getByLabel("Choose all").check();
  await page.getByRole("button", { name: "Purge…" }).click();
  const purge = page.getByRole("button", { name: "Purge 1" });
  await expect(purge).toBeDisabled();
  await page.getByLabel("Type the name of the queue").fill("tool.invoke");
  await purge.click();
  await expect(page.getByText("No dead letters.")).toBeVisible();
});
