import type { ToolOutcome } from "../../src/api.ts";
import { hostileTexts } from "../mock/hostile.ts";
import { expect, test } from "./fixture.ts";

function outcome(tool: string, changes: Partial<ToolOutcome> = {}): ToolOutcome {
  return {
    callId: "0199c0de",
    tool,
    outcome: "ok",
    executed: "yes",
    retryable: false,
    content: [{ kind: "text", text: "docs/watch.md" }],
    handler: "tool-handler/0199b1c2d3e4465dafe0",
    elapsedMs: 57,
    ...changes,
  };
}

test("destructive tool is called after a confirmation of its arguments", async ({ page, gateway }) => {
  gateway.outcomes.set("bash", outcome("bash"));
  await page.goto(`${gateway.url}/#/tools/bash`);
  await page.getByRole("textbox", { name: /^command/ }).fill("ls docs");
  await page.getByRole("button", { name: "Call" }).click();
  const dialog = page.getByRole("dialog");
  await expect(dialog.getByRole("region", { name: "Arguments, content" })).toContainText("ls docs");
  expect(gateway.received).toEqual([]);
  await dialog.getByRole("button", { name: "Call bash" }).click();
  const result = page.getByRole("region", { name: "Outcome" });
  await expect(result).toContainText("ran");
  await expect(result.getByRole("region", { name: "Result, content" })).toContainText("docs/watch.md");
  expect(gateway.received[0]?.body).toEqual({
    arguments: { command: "ls docs" },
    timeoutMs: 60_000,
    fingerprint: "9c1e0f7744d1",
    confirm: "bash",
  });
});

test("lost response is repeated under the same key", async ({ page, gateway }) => {
  gateway.outcomes.set("read_file", outcome("read_file"));
  // A browser repeats a lost request by itself at first.
  gateway.lose.set("POST /tools/read_file/calls", 100);
  await page.goto(`${gateway.url}/#/tools/read_file`);
  await page.getByLabel("path").fill("notes.md");
  await page.getByRole("button", { name: "Call" }).click();
  await expect(page.getByText("it does not run twice")).toBeVisible();
  gateway.lose.clear();
  await page.getByRole("button", { name: "Try again" }).click();
  await expect(page.getByRole("region", { name: "Outcome" })).toContainText("docs/watch.md");
  expect(gateway.received.length).toBeGreaterThan(1);
  expect(gateway.toolCalls.size).toBe(1);
});

test("failed call says whether the tool ran and what to do", async ({ page, gateway }) => {
  const failure = { outcome: "timeout", executed: "unknown", message: "timeout", content: [] } as const;
  gateway.outcomes.set("read_file", outcome("read_file", { ...failure, content: [] }));
  await page.goto(`${gateway.url}/#/tools/read_file`);
  await page.getByRole("button", { name: "Call" }).click();
  const result = page.getByRole("region", { name: "Outcome" });
  await expect(result).toContainText("unknown whether it ran");
  await expect(result).toContainText("look at its effects before the call is sent again");
});

test("invalid argument is reported at its field, and nothing is sent", async ({ page, gateway }) => {
  const tool = gateway.tools.find(({ name }) => name === "read_file");
  if (tool) {
    tool.parameters = { properties: { lines: { type: "integer", minimum: 1 } }, required: ["lines"] };
  }
  await page.goto(`${gateway.url}/#/tools/read_file`);
  await page.getByLabel("lines").fill("0");
  await page.getByRole("button", { name: "Call" }).click();
  await expect(page.getByText("must be at least 1")).toBeVisible();
  await expect(page.getByLabel("lines")).toHaveAttribute("aria-invalid", "true");
  expect(gateway.received).toEqual([]);
});

test("without the right or the setting there is no form", async ({ page, gateway }) => {
  gateway.me.parts.calls = { available: false, missing: "gateway.call_tools" };
  await page.goto(`${gateway.url}/#/tools/bash`);
  await expect(page.getByText("gateway.call_tools")).toBeVisible();
  await expect(page.getByRole("button", { name: "Call" })).toHaveCount(0);
  gateway.me.rights = ["watch"];
  await page.reload();
  await expect(page.getByText("Fingerprint")).toBeVisible();
  await expect(page.getByRole("heading", { name: "Try it" })).toHaveCount(0);
  await expect(page.getByText("gateway.call_tools")).toHaveCount(0);
});

test("hostile schema and result are text", async ({ page, gateway }) => {
  const texts = hostileTexts().slice(0, 50);
  const properties = texts.map((text) => [text, { type: "string", description: text, enum: [text] }]);
  const content = texts.map((text) => ({ kind: "resource" as const, text, uri: text, mimeType: text }));
  const hints = { readOnly: true };
  gateway.tools = [
    {
      name: "t",
      source: "s",
      description: "",
      fingerprint: "f",
      handlers: [],
      hints,
      parameters: { properties: Object.fromEntries(properties) },
    },
  ];
  gateway.outcomes.set("t", outcome("t", { outcome: texts[0] ?? "", message: texts.join("\n"), content }));
  await page.goto(`${gateway.url}/#/tools/t`);
  await page.getByRole("button", { name: "Call" }).click();
  await expect(page.getByRole("region", { name: "Outcome" }).getByRole("region").first()).toBeVisible();
  const found = await page.evaluate(() => [
    "pwned" in window,
    document.querySelectorAll("script").length,
    document.querySelectorAll("img, iframe, style, base, form[action]").length,
  ]);
  expect(found).toEqual([false, 1, 0]);
});
