import type { Page } from "@playwright/test";
import type { Letter } from "../../src/api.ts";
import { call, details, TALK } from "../mock/fleet.ts";
import type { MockGateway } from "../mock/gateway.ts";
import { hostileTexts } from "../mock/hostile.ts";
import { expect, test } from "./fixture.ts";

const texts = hostileTexts();
/** As much of a text as the gateway puts into an event. */
const short = texts.map((text) => text.slice(0, 4000));
/** Elements of the page. Anything else came from a text. */
const ELEMENTS =
  "a,article,aside,bdi,blockquote,body,br,button,code,dd,details,dialog,div,dl,dt,em,figcaption,figure,footer,form," +
  "h1,h2,h3,h4,head,header,hr,html,input,kbd,label,li,link,main,meta,nav,noscript,ol,option,p,path,pre,rect,s,section," +
  "select,span,strong,summary,svg,table,tbody,td,textarea,th,thead,title,tr,ul,script";

/** Checks that no text became markup, and that no hidden character is shown. */
async function expectHarmless(page: Page): Promise<void> {
  const found = await page.evaluate((elements) => {
    const problems: string[] = [];
    if ("pwned" in window || "polluted" in {}) {
      problems.push("code ran");
    }
    const scripts = document.querySelectorAll("script").length;
    if (scripts !== 1) {
      problems.push(`${scripts} scripts`);
    }
    for (const element of document.querySelectorAll(`:not(${elements})`)) {
      problems.push(`element ${element.tagName}`);
    }
    for (const element of document.querySelectorAll("*")) {
      for (const { name } of element.attributes) {
        if (name.startsWith("on") || name === "srcdoc") {
          problems.push(`attribute ${name}`);
        }
      }
    }
    for (const link of document.querySelectorAll("a")) {
      const target = link.getAttribute("href") ?? "";
      if (!/^(?:#|https?:\/\/|mailto:|\/api\/v1\/conversations\/)/.test(target)) {
        problems.push(`link ${target.slice(0, 80)}`);
      }
      if (/^https?:/.test(target) && !link.relList.contains("noopener")) {
        problems.push(`link without noopener ${target.slice(0, 80)}`);
      }
    }
    const shown = document.body.innerText;
    const hidden =
      /[\u0000-\u0008\u000b-\u001f\u007f-\u009f\u200b\u202a-\u202e\u2066-\u2069\ufeff]|[\u{e0000}-\u{e0fff}]/u.exec(
        shown,
      );
    if (hidden) {
      problems.push(
        `hidden character ${hidden[0].codePointAt(0)?.toString(16)} near ${JSON.stringify(shown.slice(hidden.index - 40, hidden.index + 20))}`,
      );
    }
    return problems;
  }, ELEMENTS);
  expect(found).toEqual([]);
}

async function open(page: Page, gateway: MockGateway, path: string): Promise<void> {
  await page.goto(`${gateway.url}/#/${path}`);
  await expect(page.locator("h1").first()).toBeAttached();
}

test.describe.configure({ timeout: 180_000 });

test("conversation draws hostile texts as text", async ({ page, gateway }) => {
  const conversation = gateway.conversation(TALK);
  for (const [number, text] of texts.entries()) {
    conversation.history.push(
      { number: number * 3, kind: "message", messageId: `m${number}`, text },
      {
        number: number * 3 + 1,
        kind: "model",
        text,
        calls: [{ toolCallId: `t${number}`, toolName: text, arguments: text }],
      },
      {
        number: number * 3 + 2,
        kind: "result",
        toolCallId: `t${number}`,
        toolName: text,
        text,
        error: text,
        executed: "unknown",
      },
    );
  }
  await open(page, gateway, `talk/${TALK}`);
  await expect(page.getByRole("log").locator("summary")).toHaveCount(100);
  await page.getByRole("button", { name: /earlier entries/ }).click();
  await expect(page.getByRole("log").locator("summary")).toHaveCount(200);
  await page.evaluate(() => {
    for (const details of document.querySelectorAll<HTMLDetailsElement>("[role=log] details")) {
      details.open = true;
    }
  });
  await expect(page.getByRole("region", { name: "Result, content" })).toHaveCount(200);
  await expectHarmless(page);
});

test("streamed events and approval requests draw hostile texts as text", async ({ page, gateway }) => {
  await open(page, gateway, `talk/${TALK}`);
  await expect(page.getByLabel("Message", { exact: true })).toBeVisible();
  for (const [number, text] of short.entries()) {
    const messageId = `m${number}`;
    gateway.emit(TALK, { kind: "text_delta", messageId, text });
    gateway.emit(TALK, {
      kind: "approval_asked",
      messageId,
      approvalId: `a${number}`,
      askingAgent: text,
      toolCallId: `t${number}`,
      toolName: text,
      toolSource: text,
      arguments: JSON.stringify({
        path: text,
        old_text: text,
        new_text: `${text}x`,
        [text.slice(0, 100)]: text,
      }),
      argumentsLeftOut: 0,
      callHash: text,
      expiresAtMs: Date.now() + 600_000,
      rule: text,
    });
    gateway.emit(TALK, { kind: "failed", messageId: `f${number}`, code: text, text });
  }
  await expect(page.getByRole("button", { name: /earlier entries/ })).toBeVisible();
  await page.getByRole("button", { name: /earlier entries/ }).click();
  await expect(page.getByRole("region", { name: /ask(?:s|ed) to call/ })).toHaveCount(200);
  await expect(page.getByText("What runs is what is shown").first()).toBeVisible();
  await expectHarmless(page);
});

test("lists draw hostile texts as text", async ({ page, gateway }) => {
  gateway.calls = short.map((text, number) =>
    call(number, {
      tool: text,
      server: text,
      agent: text,
      user: text,
      handler: text,
      state: text,
      trace: text,
    }),
  );
  gateway.fleet = {
    atMs: Date.now(),
    bus: { product: short[0], connected: true },
    queues: short.map((text, number) => ({ name: `${text}${number}`, state: "present", ready: number })),
    handlers: short.map((text, number) => ({
      name: text,
      handler: text,
      instance: `${number}`,
      pool: text,
      version: text,
      tools: 1,
      seenMs: 1,
    })),
    pools: short.map((text, number) => ({ name: `${text}${number}`, handlers: 1, tools: 1 })),
    agents: short.map((text, number) => ({ name: `${text}${number}`, state: "running" })),
    findings: short.map((message) => ({ severity: "warning", message })),
  };
  gateway.tools = texts.map((text, number) => ({
    name: text,
    source: text,
    description: text,
    fingerprint: `${number}`,
    pool: text,
    handlers: [text],
  }));
  gateway.letters.set(
    "tool.invoke",
    texts.map(
      (text, number): Letter => ({
        messageId: `${text}${number}`,
        type: text,
        source: text,
        user: text,
        attempt: 1,
        reason: text,
        bytes: 1,
        tool: text,
        refusal: text,
        body: text,
      }),
    ),
  );
  const task = {
    cron: "* * * * *",
    timezone: "UTC",
    hasOwnTimezone: false,
    runOnce: false,
    fired: 0,
    missed: 0,
    overlapped: 0,
    failed: 0,
    createdMs: 1,
  };
  gateway.schedules = [
    {
      agent: texts[0] ?? "",
      state: "running",
      tasks: texts.map((text, number) => ({
        ...task,
        name: `${text}${number}`,
        description: text,
        cron: text,
        timezone: text,
        last: { fireMs: 1, sessionId: text, endedMs: 1, outcome: text, text },
      })),
    },
  ];
  gateway.tasks = [
    {
      agent: texts[0] ?? "",
      state: "running",
      conversations: texts.slice(0, 60).map((text, number) => ({
        conversation: { ...gateway.conversation(TALK).entry, id: text, title: text },
        tasks: [
          {
            id: text,
            agent: number % 2 === 0 ? text : undefined,
            description: text,
            state: text,
            ended: false,
            createdMs: 1,
            deadlineMs: 1,
            lastReport: text,
            passedOn: false,
          },
        ],
      })),
    },
  ];
  gateway.agents = texts.map((text, number) => ({
    name: `${text}${number}`,
    state: "running",
    description: text,
    model: text,
  }));
  for (const [number, text] of texts.slice(0, 192).entries()) {
    gateway.addConversation(`c${number}`, text, text);
  }
  await open(page, gateway, "calls");
  const rows = page.getByRole("rowgroup").last();
  for (let step = 0; step < 12; step += 1) {
    await expect(page.getByRole("row").nth(3)).toBeVisible();
    await expectHarmless(page);
    await rows.evaluate((element) => element.scrollBy(0, 560));
  }
  await page.getByRole("button", { name: "By tool" }).click();
  await expectHarmless(page);
  for (const path of ["fleet", "tools", "letters/tool.invoke", "tasks", "schedules", "talk"]) {
    await open(page, gateway, path);
    await expect(
      page
        .locator(
          "main tr:nth-child(3), main li:nth-child(3), main article:nth-of-type(3), main option:nth-child(3)",
        )
        .first(),
    ).toBeAttached();
    await expectHarmless(page);
  }
});

test("details draw hostile texts as text", async ({ page, gateway }) => {
  await open(page, gateway, "fleet");
  for (const [number, text] of texts.entries()) {
    const subject = call(number, {
      id: `h${number}`,
      tool: text,
      server: text,
      agent: text,
      user: text,
      handler: text,
      state: text,
      trace: text,
      session: text,
    });
    const shown = details(subject);
    gateway.details.set(subject.id, { ...shown, request: { atMs: 1, key: text, replyTo: text, bytes: 1 } });
    gateway.content.set(subject.id, {
      arguments: text,
      progressText: text,
      cancelReason: text,
      result: text,
    });
    await page.evaluate((id) => {
      location.hash = `#/calls/${id}`;
    }, subject.id);
    const show = page.getByRole("button", { name: "Show arguments and result" });
    await show.click();
    await expect(page.getByRole("region", { name: "Result, content" }), `text ${number}`).toBeVisible();
    await expectHarmless(page);
  }
  const letter = {
    messageId: "l1",
    type: "x",
    attempt: 1,
    bytes: 1,
    body: texts.join("\n"),
    reason: texts.slice(0, 150).join(" "),
  };
  gateway.letters.set("tool.invoke", [letter]);
  gateway.tools = [
    {
      name: "t",
      source: texts[3] ?? "",
      description: texts.slice(0, 190).join("\n"),
      fingerprint: "f",
      handlers: texts.slice(0, 190),
      parameters: { texts, [texts[5] ?? ""]: texts[6] },
    },
  ];
  await open(page, gateway, "letters/tool.invoke");
  await page.getByRole("button", { name: "l1", exact: true }).click();
  await expect(page.getByRole("dialog")).toBeVisible();
  await expectHarmless(page);
  await open(page, gateway, "tools/t");
  await expect(page.getByText("Fingerprint")).toBeVisible();
  await expectHarmless(page);
});

test("problems of the gateway are text", async ({ page, gateway }) => {
  for (const text of texts.slice(0, 60)) {
    gateway.refusals.set("GET /tools", { status: 503, code: text, detail: text });
    await page.goto("about:blank");
    await open(page, gateway, "tools");
    await expect(page.getByRole("alert").filter({ hasText: ":" })).toBeVisible();
    await expectHarmless(page);
  }
});

test("assignment of markup is blocked by the policy", async ({ page, gateway, violations }) => {
  await open(page, gateway, "fleet");
  const error = await page.evaluate(() => {
    try {
      document.body.innerHTML = "<p>x</p>";
      return "";
    } catch (thrown) {
      return (thrown as Error).name;
    }
  });
  expect(error).toBe("TypeError");
  await expect.poll(() => violations.list.length).toBeGreaterThan(0);
  violations.list.length = 0;
});
