/** A whole turn without a mouse, and on the width of a phone. */
import { tabTo } from "../browser/tab.ts";
import { expect, fileText, openCalls, test, url } from "./fixture.ts";

test("call is approved, and its journey read, by keyboard alone", async ({ page }) => {
  await openCalls(page);
  await page.keyboard.press("g");
  await page.keyboard.press("t");
  await expect(page.getByRole("heading", { name: "New conversation" })).toBeVisible();
  await tabTo(page, /^Message/);
  await page.keyboard.type("Please fix the notes");
  await page.keyboard.press("Enter");
  await expect(page.getByRole("button", { name: /^Allow once/ })).toBeEnabled();
  await tabTo(page, /asks to call/, "Shift+Tab");
  await page.keyboard.press("y");
  await expect(page.getByText(/^Allowed once by/)).toBeVisible();
  await expect(page.getByText(/^The tool says:/)).toBeVisible();
  expect(await fileText("notes.md")).toContain("Tool calls cross RabbitMQ.");

  await page.keyboard.press("g");
  await page.keyboard.press("c");
  await expect(page.getByRole("row").filter({ hasText: "edit_file" })).toBeVisible();
  await page.keyboard.press("j");
  await page.keyboard.press("Enter");
  const journey = page.getByRole("region", { name: "Journey" });
  await expect(journey).toBeVisible();
  await tabTo(page, /^Show arguments/);
  await page.keyboard.press("Enter");
  await expect(page.getByRole("region", { name: "Result, content" })).toBeVisible();
  await page.keyboard.press("Escape");
  await expect(page.getByRole("table", { name: "Calls, newest first" })).toBeVisible();
});

test("call is denied on a phone", async ({ page }) => {
  await page.setViewportSize({ width: 390, height: 780 });
  const before = await fileText("notes.md");
  await page.goto(`${url}/#/talk/new`);
  await page.getByLabel("Message").fill("Please fix the notes");
  await page.getByRole("button", { name: "Send" }).click();
  const deny = page.getByRole("button", { name: /^Deny/ });
  await expect(deny).toBeEnabled();
  await deny.scrollIntoViewIfNeeded();
  await expect(deny).toBeInViewport();
  await deny.click();
  await expect(page.getByText(/^Denied by/)).toBeVisible();
  await expect(page.getByText(/^The tool says:/)).toBeVisible();
  expect(await fileText("notes.md")).toBe(before);
  const navigation = page.getByRole("navigation", { name: "Screens" });
  await navigation.getByRole("link", { name: "Fleet" }).click();
  await expect(page.getByRole("heading", { name: "Fleet" })).toBeVisible();
  const overflow = await page.evaluate(() => document.documentElement.scrollWidth - innerWidth);
  expect(overflow).toBeLessThanOrEqual(0);
});
