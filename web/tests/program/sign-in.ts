/** Signs in with the printed link, and keeps the session for the tests. */
import { expect, test } from "@playwright/test";
import { login } from "./fixture.ts";
import { STATE } from "./sign-in-state.ts";

test("printed link signs in", async ({ page }) => {
  await page.goto(login);
  await expect(page.getByRole("navigation", { name: "Screens" })).toBeVisible();
  expect(page.url()).not.toContain("login");
  await page.context().storageState({ path: STATE });
});
