import { expect, openCalls, say, test, writeText } from "./fixture.ts";

test("call is listed while it runs, and its journey says that it ran", async ({ page, context }) => {
  await openCalls(page);
  const talk = await context.newPage();
  await say(talk, "Please count the lines");
  const row = page.getByRole("row").filter({ hasText: "bash" });
  await expect(row).toContainText("requested");
  await expect(row).toContainText("not known yet");
  await row.getByRole("link", { name: "bash" }).click();
  await expect(page.getByText("not known yet").first()).toBeVisible();
  await writeText("go");
  await expect(page.getByText("● ran")).toBeVisible();
  const journey = page.getByRole("region", { name: "Journey" });
  await expect(journey).toContainText("assistant");
  await expect(journey).toContainText("tool.invoke");
  await expect(journey).toContainText(/Queued .*Started in .*Ran .*Transport/);
  await page.getByRole("button", { name: "Show arguments and result" }).click();
  await expect(page.getByRole("region", { name: "Arguments, content" })).toContainText("wc -l");
});

test("journeys say that a call did not run, or that nobody knows", async ({ page }) => {
  await openCalls(page);
  // A caller outside of the page waits for this file.
  await writeText("watching");
  await page.getByRole("link", { name: "no_such_tool" }).click();
  await expect(page.getByText("○ did not run")).toBeVisible();
  await page.getByRole("link", { name: "Calls" }).first().click();
  await page.getByRole("row").filter({ hasText: "outcome unknown" }).getByRole("link").click();
  await expect(page.getByText("◐ unknown whether it ran")).toBeVisible();
  await expect(page.getByText("look at its effects before the call is sent again")).toBeVisible();
});
