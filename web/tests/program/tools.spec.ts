import { expect, fileText, test, url } from "./fixture.ts";

test("tool that only reads is called by hand", async ({ page }) => {
  await page.goto(`${url}/#/tools`);
  await page.getByRole("link", { name: "read_file" }).click();
  await page.getByRole("textbox", { name: /^path/ }).fill("notes.md");
  await page.getByRole("button", { name: "Call" }).click();
  const outcome = page.getByRole("region", { name: "Outcome" });
  await expect(outcome).toContainText("ran");
  await expect(outcome.getByRole("region", { name: "Result, content" })).toContainText("# Notes");
  await outcome.getByRole("link", { name: "Journey of the call" }).click();
  await expect(page.getByRole("heading", { name: "read_file" })).toBeVisible();
});

test("destructive tool is called by hand after a confirmation", async ({ page }) => {
  await page.goto(`${url}/#/tools/bash`);
  await page.getByRole("textbox", { name: /^command/ }).fill("echo by hand > hand.txt");
  await page.getByRole("button", { name: "Call" }).click();
  await expect(page.getByRole("dialog")).toContainText("echo by hand");
  expect(await fileText("hand.txt")).toBe("");
  await page.getByRole("dialog").getByRole("button", { name: "Call bash" }).click();
  await expect(page.getByRole("region", { name: "Outcome" })).toContainText("ran");
  expect(await fileText("hand.txt")).toBe("by hand\n");
});
