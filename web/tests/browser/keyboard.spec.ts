import { playTurns } from "../mock/turn.ts";
import { expect, test } from "./fixture.ts";
import { tabTo } from "./tab.ts";

test("every step works by keyboard alone", async ({ page, gateway }) => {
  gateway.isSignedIn = false;
  playTurns(gateway);
  await page.goto(gateway.url);
  await expect(page.getByLabel("Login link or code")).toBeVisible();
  await page.keyboard.press("Tab");
  await page.keyboard.type(`${gateway.url}/#login=${gateway.loginCode}`);
  await page.keyboard.press("Enter");
  await expect(page.getByRole("heading", { name: "New conversation" })).toBeVisible();

  await page.keyboard.press("g");
  await page.keyboard.press("c");
  await expect(page.getByRole("row").nth(4)).toBeVisible();
  await page.keyboard.press("j");
  await page.keyboard.press("j");
  await page.keyboard.press("Enter");
  await expect(page.getByRole("heading", { name: "bash" })).toBeVisible();
  await tabTo(page, /^Show arguments/);
  await page.keyboard.press("Enter");
  await expect(page.getByRole("region", { name: "Result, content" })).toBeVisible();
  await page.keyboard.press("Escape");
  await expect(page.getByRole("table", { name: "Calls, newest first" })).toBeVisible();
  await page.keyboard.press("/");
  await page.keyboard.type("state:failed");
  await expect(page.getByRole("searchbox")).toHaveValue("state:failed");
  await page.keyboard.press("Escape");

  await page.keyboard.press("g");
  await page.keyboard.press("t");
  await expect(
    page.getByRole("navigation", { name: "Conversations" }).getByRole("link").first(),
  ).toBeVisible();
  await page.keyboard.press("j");
  await expect(page.getByRole("log")).toBeVisible();
  await tabTo(page, /^Message/);
  await page.keyboard.type("Tidy up");
  await page.keyboard.press("Enter");
  await expect(page.getByRole("button", { name: /^Allow once/ })).toBeEnabled();
  await tabTo(page, /asks to call/, "Shift+Tab");
  await page.keyboard.press("y");
  await expect(page.getByText("Allowed once by ada")).toBeVisible();
  await expect(page.getByRole("cell", { name: "docs/watch.md" })).toBeVisible();

  await page.keyboard.press("Control+k");
  await page.keyboard.type("dark");
  await page.keyboard.press("Enter");
  await expect(page.locator("html")).toHaveAttribute("data-theme", "dark");
  await page.keyboard.press("?");
  await expect(page.getByRole("dialog")).toBeVisible();
  await page.keyboard.press("Escape");
  await expect(page.getByRole("dialog")).toHaveCount(0);

  await page.keyboard.press("g");
  await page.keyboard.press("l");
  await tabTo(page, /^tool\.invoke$/);
  await page.keyboard.press("Enter");
  await expect(page.getByLabel("Choose all")).toBeVisible();
  await tabTo(page, /Choose 018f.*d9e1/);
  await page.keyboard.press("Space");
  await tabTo(page, /^Rehearse$/, "Shift+Tab");
  await page.keyboard.press("Enter");
  await expect(page.getByText("Rehearsal: nothing was changed.")).toBeVisible();
});

test("keys outside an approval request do not decide", async ({ page, gateway }) => {
  playTurns(gateway);
  await page.goto(`${gateway.url}/#/talk/${[...gateway.conversations.keys()][0]}`);
  await page.getByLabel("Message", { exact: true }).fill("Tidy up");
  await page.keyboard.press("Enter");
  await expect(page.getByRole("button", { name: /^Allow once/ })).toBeEnabled();
  await page.keyboard.type("yes");
  await page.getByRole("log").focus();
  await page.keyboard.press("y");
  await page.keyboard.press("n");
  await expect(page.getByLabel("Message", { exact: true })).toHaveValue("yes");
  expect(gateway.received.filter(({ path }) => path.includes("/approvals/"))).toEqual([]);
});

test("single keys can be switched off", async ({ page, gateway }) => {
  await page.goto(`${gateway.url}/#/fleet`);
  await expect(page.getByText("64 of 64 full")).toBeVisible();
  await page.keyboard.press("?");
  await page.getByLabel("Single keys work on every screen").uncheck();
  await page.keyboard.press("Escape");
  await page.keyboard.press("?");
  await page.keyboard.press("g");
  await page.keyboard.press("c");
  await expect(page.getByRole("heading", { name: "Fleet" })).toBeVisible();
  await expect(page.getByRole("dialog")).toHaveCount(0);
});
