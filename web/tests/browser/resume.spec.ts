import type { Page } from "@playwright/test";
import { TALK } from "../mock/fleet.ts";
import type { MockGateway } from "../mock/gateway.ts";
import { afterApproval, untilApproval } from "../mock/turn.ts";
import { expect, test } from "./fixture.ts";

const CLOSED = {
  kind: "approval_closed" as const,
  messageId: "",
  approvalId: "0199d000-0000-7000-8000-000000000001",
  decision: "allow",
  by: "ada",
};

async function send(page: Page, gateway: MockGateway): Promise<string> {
  let sent = "";
  gateway.onMessage = (_, messageId) => {
    sent = messageId;
  };
  await page.getByLabel("Message", { exact: true }).fill("Tidy up");
  await page.keyboard.press("Enter");
  await expect.poll(() => sent).not.toBe("");
  return sent;
}

/** Returns the text of the conversation without ages and countdowns. */
async function transcript(page: Page): Promise<string> {
  await expect(page.getByText("3 calls · 12.0k tokens")).toBeVisible();
  return page.getByRole("log").innerText();
}

async function undisturbed(page: Page, gateway: MockGateway): Promise<string> {
  await page.goto(`${gateway.url}/#/talk/${TALK}`);
  const messageId = await send(page, gateway);
  for (const event of [...untilApproval(messageId), { ...CLOSED, messageId }, ...afterApproval(messageId)]) {
    gateway.emit(TALK, event);
  }
  const text = await transcript(page);
  gateway.conversation(TALK).events.length = 0;
  await page.goto("about:blank");
  return text;
}

test("turn is whole after three cuts, a reload and a restart", async ({ page, gateway }) => {
  const expected = await undisturbed(page, gateway);
  await page.goto(`${gateway.url}/#/talk/${TALK}`);
  const messageId = await send(page, gateway);
  const events = [...untilApproval(messageId), { ...CLOSED, messageId }, ...afterApproval(messageId)];
  for (const [index, event] of events.entries()) {
    gateway.emit(TALK, event);
    if (index === 1 || index === 4 || index === 9) {
      const opened = gateway.opened;
      gateway.cut();
      await expect.poll(() => gateway.opened).toBeGreaterThan(opened);
    } else if (index === 6) {
      await page.reload();
      await expect(page.getByText("I look for it.")).toBeVisible();
    } else if (index === 10) {
      // The ring of a gateway that starts again holds nothing, so the page asks for a snapshot.
      gateway.restart();
      await expect.poll(() => gateway.streams).toBe(1);
    }
  }
  expect(await transcript(page)).toBe(expected);
  expect(gateway.received.filter(({ path }) => path.endsWith("/messages"))).toHaveLength(2);
});

test("events during a cut arrive once", async ({ page, gateway }) => {
  await page.goto(`${gateway.url}/#/talk/${TALK}`);
  const messageId = await send(page, gateway);
  gateway.emit(TALK, { kind: "text_delta", messageId, text: "one " });
  await expect(page.getByText("one")).toBeVisible();
  gateway.cut();
  gateway.emit(TALK, { kind: "text_delta", messageId, text: "two " });
  gateway.emit(TALK, { kind: "text_delta", messageId, text: "three" });
  await expect(page.getByText("one two three", { exact: true })).toBeVisible();
});

test("lost responses to a message start one turn", async ({ page, gateway }) => {
  gateway.lose.set(`POST /conversations/${TALK}/messages`, 4);
  const turns: string[] = [];
  await page.goto(`${gateway.url}/#/talk/${TALK}`);
  gateway.onMessage = (_, messageId) => turns.push(messageId);
  await page.getByLabel("Message", { exact: true }).fill("Tidy up");
  await page.keyboard.press("Enter");
  const posts = () => gateway.received.filter(({ path }) => path.endsWith("/messages"));
  await expect.poll(() => posts().length, { timeout: 20_000 }).toBe(5);
  expect(new Set(posts().map(({ key }) => key)).size).toBe(1);
  expect(turns).toHaveLength(1);
  await expect(page.getByRole("log").getByText("Tidy up")).toHaveCount(1);
});

test("message without response is sent again after a reload", async ({ page, gateway }) => {
  gateway.lose.set(`POST /conversations/${TALK}/messages`, 2);
  const turns: string[] = [];
  gateway.onMessage = (_, messageId) => turns.push(messageId);
  await page.goto(`${gateway.url}/#/talk/${TALK}`);
  gateway.refusals.set("GET /stream", { status: 503, code: "overloaded", detail: "try later" });
  gateway.cut();
  await page.getByLabel("Message", { exact: true }).fill("Tidy up");
  await page.keyboard.press("Enter");
  await expect.poll(() => gateway.received.length).toBeGreaterThan(0);
  gateway.refusals.clear();
  await page.reload();
  await expect(page.getByRole("log").getByText("Tidy up")).toHaveCount(1);
  await expect
    .poll(() => gateway.received.filter(({ path }) => path.endsWith("/messages")).length)
    .toBeGreaterThan(1);
  expect(new Set(gateway.received.map(({ key }) => key)).size).toBe(1);
  expect(turns).toHaveLength(1);
});

test("refused message can be sent again", async ({ page, gateway }) => {
  gateway.refusals.set(`POST /conversations/${TALK}/messages`, {
    status: 503,
    code: "agent_unavailable",
    detail: "nothing consumes the inbox of assistant; start the agent",
    executed: "no",
  });
  await page.goto(`${gateway.url}/#/talk/${TALK}`);
  await page.getByLabel("Message", { exact: true }).fill("Tidy up");
  await page.keyboard.press("Enter");
  await expect(
    page.getByText("not sent: nothing consumes the inbox of assistant; start the agent"),
  ).toBeVisible();
  gateway.refusals.clear();
  await page.getByRole("button", { name: "Send again" }).click();
  await expect(page.getByText("is working")).toBeVisible();
});

test("lost stream is reported with the next attempt", async ({ page, gateway }) => {
  await page.goto(`${gateway.url}/#/fleet`);
  await expect(page.getByText("64 of 64 full")).toBeVisible();
  gateway.refusals.set("GET /stream", { status: 503, code: "overloaded", detail: "try later" });
  gateway.cut();
  await expect(page.getByText(/Not live: the gateway responded with status 503/)).toBeVisible();
  gateway.refusals.clear();
  await page.getByRole("button", { name: "Try now" }).click();
  await expect(page.getByText(/Not live/)).toHaveCount(0);
});

test("shared conversation shows its own events only", async ({ context, page, gateway }) => {
  const other = "0199b1c2-0000-7000-8000-0000000000a2";
  await page.goto(`${gateway.url}/#/shared/${TALK}`);
  await expect.poll(() => gateway.streams).toBe(1);
  const tab = await context.newPage();
  await tab.goto(`${gateway.url}/#/talk/${other}`);
  await expect.poll(() => gateway.opened).toBeGreaterThan(1);
  await expect.poll(() => gateway.streams).toBe(1);
  gateway.emit(other, { kind: "text_delta", messageId: "m", text: "of the other" });
  await expect(tab.getByText("of the other")).toBeVisible();
  const event = {
    id: "5f3c9a1b2d4e6f70-900",
    conversation: TALK,
    messageId: "m",
    atMs: 1,
    kind: "text_delta",
    text: "of the shared",
  };
  gateway.send(`shared:${TALK}`, "conversation", event, event.id);
  await expect(page.getByText("of the shared")).toBeVisible();
  await expect(page.getByText("of the other")).toHaveCount(0);
});

test("seven tabs share one stream", async ({ context, page, gateway }) => {
  await page.goto(`${gateway.url}/#/talk/${TALK}`);
  const tabs = [page];
  for (let number = 1; number < 7; number += 1) {
    const tab = await context.newPage();
    await tab.goto(`${gateway.url}/#/talk/${TALK}`);
    tabs.push(tab);
  }
  await expect.poll(() => gateway.streams).toBe(1);
  gateway.emit(TALK, { kind: "text_delta", messageId: "m", text: "for all tabs" });
  for (const tab of tabs) {
    await expect(tab.getByText("for all tabs")).toHaveCount(1);
  }
  // The tab that holds the stream goes; another one continues.
  await page.close();
  gateway.emit(TALK, { kind: "text_delta", messageId: "m", text: " and for six" });
  for (const tab of tabs.slice(1)) {
    await expect(tab.getByText("for all tabs and for six")).toHaveCount(1);
  }
  expect(gateway.streams).toBe(1);
});
