import { expect, fileText, say, test } from "./fixture.ts";

test("denied call does not run, and the model reads the reason", async ({ page }) => {
  const before = await fileText("notes.md");
  await say(page, "Please fix the notes");
  const request = page.getByRole("region", { name: /asks to call/ });
  const diff = request.getByRole("region", { name: "Change of the file" });
  await expect(diff).toContainText("Tool calls cross RabbitMQ.");
  await expect(request).toContainText("may destroy");
  await request.getByLabel("Reason that the model reads").fill("the file is generated");
  await request.getByRole("button", { name: /^Deny/ }).click();
  await expect(page.getByText(/^Denied by/)).toBeVisible();
  await expect(page.getByText(/The tool says: .*the file is generated/)).toBeVisible();
  expect(await fileText("notes.md")).toBe(before);
});

test("allowed call runs with the shown arguments", async ({ page }) => {
  await say(page, "Please fix the notes");
  await page.getByRole("button", { name: /^Allow once/ }).click();
  await expect(page.getByText(/^Allowed once by/)).toBeVisible();
  await expect(page.getByText(/^The tool says:/)).toBeVisible();
  await expect(page.locator("summary").filter({ hasText: "edit_file" })).toContainText("ran");
  expect(await fileText("notes.md")).toContain("Tool calls cross RabbitMQ.");
});
