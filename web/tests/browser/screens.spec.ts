import { call, TALK } from "../mock/fleet.ts";
import { playTurns } from "../mock/turn.ts";
import { expect, test } from "./fixture.ts";

test("login link signs in and leaves the address", async ({ page, gateway }) => {
  gateway.isSignedIn = false;
  await page.goto(`${gateway.url}/#login=${gateway.loginCode}`);
  await expect(page.getByRole("heading", { name: "New conversation" })).toBeVisible();
  expect(page.url()).not.toContain("login");
  expect(gateway.received[0]).toMatchObject({ method: "POST", path: "/session" });
});

test("used login link is reported, and another can be entered", async ({ page, gateway }) => {
  gateway.isSignedIn = false;
  await page.goto(`${gateway.url}/#login=used`);
  await expect(page.getByRole("alert").filter({ hasText: "not valid" })).toBeVisible();
  await page.getByLabel("Login link or code").fill(`${gateway.url}/#login=${gateway.loginCode}`);
  await page.getByRole("button", { name: "Sign in" }).click();
  await expect(page.getByRole("navigation", { name: "Screens" })).toBeVisible();
});

test("ended session returns to the sign-in page", async ({ page, gateway }) => {
  await page.goto(`${gateway.url}/#/calls`);
  await expect(page.getByRole("table", { name: "Calls, newest first" })).toBeVisible();
  gateway.isSignedIn = false;
  gateway.cut();
  await expect(page.getByLabel("Login link or code")).toBeVisible();
});

test("screen without connection names the missing key", async ({ page, gateway }) => {
  gateway.me.parts.talk = { available: false, missing: "gateway.talk.url" };
  gateway.me.rights = ["talk", "watch"];
  await page.goto(gateway.url);
  await expect(page.getByText("gateway.talk.url")).toBeVisible();
  await expect(page.getByRole("link", { name: "Letters" })).toHaveCount(0);
  await page.getByRole("link", { name: "Calls" }).click();
  await expect(page.getByRole("row").nth(2)).toBeVisible();
});

test("turn shows text, calls, a failure and the answer", async ({ page, gateway }) => {
  playTurns(gateway);
  await page.goto(`${gateway.url}/#/talk/${TALK}`);
  await page.getByLabel("Message", { exact: true }).fill("Which files mention RabbitMQ?");
  await page.keyboard.press("Enter");
  const log = page.getByRole("log");
  await expect(log.getByText("I look for it.")).toBeVisible();
  await expect(log.locator("summary").filter({ hasText: "bash" })).toContainText("timeout");
  await expect(log.locator("summary").filter({ hasText: "bash" })).toContainText("ran");
  await log.locator("summary").filter({ hasText: "search" }).click();
  await expect(log.getByRole("region", { name: "Result, content" })).toContainText("docs/messaging.md:41");
  await page.getByRole("button", { name: /^Allow once/ }).click();
  await expect(log.getByRole("cell", { name: "docs/watch.md" })).toBeVisible();
  await expect(log.getByText("3 calls · 12.0k tokens · $0.0123")).toBeVisible();
  await expect(log.getByText("(www.rabbitmq.com)")).toBeVisible();
  const sent = gateway.received.filter(({ path }) => path.endsWith("/messages"));
  expect(sent).toHaveLength(1);
  expect(sent[0]?.key).toMatch(/^[0-9a-f]{8}-[0-9a-f]{4}-4[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}$/);
});

test("approval request shows a diff, and a reason for the model is sent with a denial", async ({
  page,
  gateway,
}) => {
  playTurns(gateway);
  await page.goto(`${gateway.url}/#/talk/${TALK}`);
  await page.getByLabel("Message", { exact: true }).fill("Tidy up");
  await page.getByRole("button", { name: "Send" }).click();
  const request = page.getByRole("region", { name: /asks to call/ });
  await expect(request.getByRole("region", { name: "Change of the file" })).toContainText(
    "Tool calls cross RabbitMQ.",
  );
  await expect(request).toContainText('rule 2: tool = "edit_file"');
  await expect(request).toContainText("may destroy");
  await expect(page.locator("summary").filter({ hasText: "edit_file" })).toContainText("awaits approval");
  await expect(request).toContainText(/0:5\d|1:00/);
  await request.getByLabel("Reason that the model reads").fill("the file is generated");
  await request.getByRole("button", { name: /^Deny/ }).click();
  await expect(page.getByText("Denied by ada")).toBeVisible();
  const decision = gateway.received.find(({ path }) => path.includes("/approvals/"));
  expect(decision?.body).toEqual({
    callHash: "9c1e0f77aa44bb55cc66dd77ee88ff0044",
    decision: "deny",
    reason: "the file is generated",
  });
});

test("approval request that ended elsewhere says how and by whom", async ({ page, gateway }) => {
  playTurns(gateway);
  await page.goto(`${gateway.url}/#/talk/${TALK}`);
  await page.getByLabel("Message", { exact: true }).fill("Tidy up");
  await page.keyboard.press("Enter");
  await expect(page.getByRole("button", { name: /^Allow once/ })).toBeVisible();
  gateway.onDecision(TALK, "0199d000-0000-7000-8000-000000000001", { decision: "allow" });
  await expect(page.getByText("Allowed once by ada")).toBeVisible();
  await expect(page.getByRole("button", { name: /^Allow once/ })).toHaveCount(0);
});

test("refused decision says why", async ({ page, gateway }) => {
  playTurns(gateway);
  gateway.refusals.set(`POST /conversations/${TALK}/approvals`, {
    status: 409,
    code: "approval_closed",
    detail: "the approval has expired",
    executed: "no",
  });
  await page.goto(`${gateway.url}/#/talk/${TALK}`);
  await page.getByLabel("Message", { exact: true }).fill("Tidy up");
  await page.keyboard.press("Enter");
  await expect(page.getByRole("button", { name: /^Allow once/ })).toBeVisible();
  await page.getByRole("button", { name: /^Allow once/ }).click();
  await expect(page.getByText("the approval has expired")).toBeVisible();
});

test("click in the first moment of an approval request does not count", async ({ page, gateway }) => {
  playTurns(gateway);
  await page.goto(`${gateway.url}/#/talk/${TALK}`);
  await page.getByLabel("Message", { exact: true }).fill("Tidy up");
  await page.evaluate(() => {
    new MutationObserver((_, observer) => {
      const allow = [...document.querySelectorAll("button")].find((button) =>
        button.textContent?.startsWith("Allow once"),
      );
      if (allow) {
        observer.disconnect();
        allow.click();
      }
    }).observe(document.body, { childList: true, subtree: true });
  });
  await page.keyboard.press("Enter");
  await expect(page.getByRole("button", { name: /^Allow once/ })).toBeVisible();
  expect(gateway.received.filter(({ path }) => path.includes("/approvals/"))).toEqual([]);
});

test("first message to an agent starts a conversation", async ({ page, gateway }) => {
  playTurns(gateway);
  await page.goto(`${gateway.url}/#/talk/new`);
  await page.getByLabel("Message").fill("Hello");
  await page.keyboard.press("Enter");
  await expect(page.getByRole("heading", { name: "Hello" })).toBeVisible();
  await expect(page.getByRole("log").getByText("I look for it.")).toBeVisible();
});

test("conversation is renamed, shared, found and deleted", async ({ page, gateway }) => {
  await page.goto(`${gateway.url}/#/talk/${TALK}`);
  await page.getByLabel("Actions").click();
  await page.getByRole("button", { name: "Rename" }).click();
  await page.getByLabel("Title").fill("Notes");
  await page.getByRole("dialog").getByRole("button", { name: "Rename" }).click();
  await expect(page.getByRole("heading", { name: "Notes" })).toBeVisible();
  await page.getByRole("button", { name: "Share" }).click();
  await page.getByRole("button", { name: "Create a link" }).click();
  await expect(page.getByText(`#/shared/${TALK}`)).toBeVisible();
  await page.getByRole("button", { name: "Close" }).click();
  await page.getByLabel("Find conversations").fill("deploy");
  await expect(page.getByRole("navigation", { name: "Conversations" }).getByRole("link")).toHaveCount(1);
  await page.getByLabel("Find conversations").fill("");
  await page.getByRole("button", { name: "Delete" }).click();
  await page.getByRole("dialog").getByRole("button", { name: "Delete" }).click();
  await expect(page.getByRole("heading", { name: "New conversation" })).toBeVisible();
  expect(gateway.conversations.has(TALK)).toBe(false);
});

test("ended share stays and says so", async ({ page, gateway }) => {
  gateway.conversation(TALK).history.push({ number: 1, kind: "answer", text: "Done.", outcome: "completed" });
  await page.goto(`${gateway.url}/#/shared/${TALK}`);
  await expect(page.getByText("read only")).toBeVisible();
  await expect.poll(() => gateway.streams).toBe(1);
  gateway.refusals.set(`GET /shared/${TALK}`, {
    status: 404,
    code: "not_found",
    detail: "the share has ended",
  });
  gateway.send(`shared:${TALK}`, "reset", { topic: `shared:${TALK}`, reason: "ended" });
  await expect(page.getByText("the share has ended")).toBeVisible();
  await expect(page.getByText("Done.")).toBeVisible();
});

test("message during a turn is taken into it, and the turn is stopped", async ({ page, gateway }) => {
  playTurns(gateway);
  await page.goto(`${gateway.url}/#/talk/${TALK}`);
  const field = page.getByLabel("Message", { exact: true });
  await field.fill("Tidy up");
  await field.press("Enter");
  await expect(page.getByRole("button", { name: "Stop" })).toBeVisible();
  gateway.onMessage = (conversation, messageId) => gateway.emit(conversation, { kind: "steered", messageId });
  await field.fill("Only the first line");
  await field.press("Enter");
  await expect(page.getByText("taken into the turn")).toBeVisible();
  await field.press("Escape");
  await expect.poll(() => gateway.received.some(({ path }) => path.endsWith("/cancel"))).toBe(true);
});

test("calls are listed, held, filtered and grouped", async ({ page, gateway }) => {
  await page.goto(`${gateway.url}/#/calls`);
  const table = page.getByRole("table", { name: "Calls, newest first" });
  await expect(table.getByRole("row").filter({ hasText: "outcome unknown" })).toBeVisible();
  await page.getByRole("button", { name: "Hold" }).click();
  gateway.sendCalls([call(0, { tool: "fresh_tool" })]);
  gateway.sendCalls([call(0, { id: "later", tool: "later_tool" })]);
  await expect(page.getByText("calls are still recorded")).toBeVisible();
  await expect(table.getByText("fresh_tool")).toHaveCount(0);
  await page.keyboard.press("Escape");
  await expect(table.getByText("fresh_tool")).toBeVisible();
  await expect(table.getByText("later_tool")).toBeVisible();
  const opened = gateway.opened;
  await page.getByRole("searchbox").fill("state:failed tool:bash");
  await expect.poll(() => gateway.opened).toBeGreaterThan(opened);
  await expect(table.getByRole("row").filter({ hasText: "timeout" })).toBeVisible();
  await expect(table.getByText("later_tool")).toHaveCount(0);
  await page.getByRole("button", { name: "By tool" }).click();
  await expect(page.getByRole("region", { name: "Calls by tool" }).getByRole("row").nth(1)).toBeVisible();
});

test("journey shows stages, outcome and content", async ({ page, gateway }) => {
  const bash = gateway.calls[1];
  await page.goto(`${gateway.url}/#/calls/${bash?.id}`);
  await expect(page.getByRole("heading", { name: "bash" })).toBeVisible();
  await expect(
    page.getByRole("img", { name: "Queued 3.0 ms, Started in 1.0 ms, Ran 57 ms, Transport 3.2 ms" }),
  ).toBeVisible();
  const related = page.getByRole("region", { name: "Calls of the same trace" });
  await expect(related.getByRole("link", { name: "github/search" })).toBeVisible();
  await page.getByRole("button", { name: "Show arguments and result" }).click();
  await expect(page.getByRole("region", { name: "Result, content" })).toContainText("docs/watch.md:6");
});

test("journey of a call with unknown outcome says what to look at", async ({ page, gateway }) => {
  await page.goto(`${gateway.url}/#/calls/${gateway.calls[4]?.id}`);
  await expect(page.getByText("unknown whether it ran")).toBeVisible();
  await expect(page.getByText("look at its effects before the call is sent again")).toBeVisible();
});

test("fleet shows queues, unknown figures and findings", async ({ page, gateway }) => {
  await page.goto(`${gateway.url}/#/fleet`);
  await expect(page.getByText("64 of 64 full")).toBeVisible();
  await expect(page.getByText("2 dead letters of tool.invoke")).toBeVisible();
  const refused = page.getByRole("row").filter({ hasText: "user.message.assistant" });
  await expect(refused.getByRole("cell", { name: "?" })).toHaveCount(3);
});

test("tools are found and described", async ({ page, gateway }) => {
  await page.goto(`${gateway.url}/#/tools`);
  await page.getByRole("searchbox").fill("shell");
  await page.getByRole("link", { name: "bash" }).click();
  await expect(page.getByText("may destroy, reaches other systems")).toBeVisible();
  await expect(page.getByText("properties")).toBeVisible();
});

test("letters are rehearsed, replayed and purged", async ({ page, gateway }) => {
  await page.goto(`${gateway.url}/#/letters/tool.invoke`);
  await expect(page.getByText("runs if it had not started, else outcome_unknown")).toBeVisible();
  await page.getByLabel("Choose all").check();
  await page.getByRole("button", { name: "Rehearse" }).click();
  await expect(page.getByText("Rehearsal: nothing was changed.")).toBeVisible();
  await expect(page.getByText("its user is not the caller that it names").first()).toBeVisible();
  expect(gateway.letters.get("tool.invoke")).toHaveLength(2);
  await page.getByRole("button", { name: "Replay 2" }).click();
  await expect(page.getByText("Replayed.", { exact: true })).toBeVisible();
  expect(gateway.letters.get("tool.invoke")).toHaveLength(1);
  await page.getByRole("button", { name: "Purge…" }).click();
  const purge = page.getByRole("button", { name: "Purge 1" });
  await expect(purge).toBeDisabled();
  await page.getByLabel("Type the name of the queue").fill("tool.invoke");
  await purge.click();
  await expect(page.getByText("No dead letters.")).toBeVisible();
  expect(gateway.received.at(-1)?.body).toMatchObject({ dryRun: false, confirm: "tool.invoke" });
});

test("schedules show tasks and agents that do not run", async ({ page, gateway }) => {
  await page.goto(`${gateway.url}/#/schedules`);
  await expect(page.getByText("morning report")).toBeVisible();
  await expect(page.getByText("The agent does not run.")).toBeVisible();
});

test("screen of another version of the gateway asks for a reload", async ({ page, gateway }) => {
  await page.route("**/operations-*.js", (route) => route.abort());
  await page.goto(`${gateway.url}/#/talk`);
  await page.getByRole("link", { name: "Fleet" }).click();
  await expect(page.getByText("another version of it was started")).toBeVisible();
  await page.unroute("**/operations-*.js");
  await page.getByRole("button", { name: "Reload the page" }).click();
  await expect(page.getByText("64 of 64 full")).toBeVisible();
});

test("answer is plain text without the lexer", async ({ page, gateway }) => {
  await page.route("**/markdown-*.js", (route) => route.abort());
  gateway.conversation(TALK).history.push({
    number: 1,
    kind: "answer",
    text: "Some **bold** text\n<script>x</script>",
    outcome: "completed",
  });
  await page.goto(`${gateway.url}/#/talk/${TALK}`);
  await expect(page.getByText("Some **bold** text <script>x</script>")).toBeVisible();
});

test("tasks are a tree with states and spending", async ({ page, gateway }) => {
  await page.goto(gateway.url);
  await page.getByRole("link", { name: "Tasks" }).click();
  const tree = page.getByRole("article");
  await expect(tree).toContainText("1 open · tasks 10.0k tokens · $0.0042");
  await expect(tree.getByRole("listitem").first()).toContainText("3 calls");
  await expect(tree.getByRole("listitem").nth(1)).toContainText("two of five parts");
  await expect(page.getByText("The agent does not run.")).toBeVisible();
  gateway.tasks[0]?.conversations[0]?.tasks.pop();
  await expect(tree.getByRole("listitem")).toHaveCount(1);
  await page.getByLabel("open only").check();
  await expect(page.getByText("No open tasks.")).toBeVisible();
});

test("newer state of the tasks stays when an older response arrives late", async ({ page, gateway }) => {
  await page.clock.install();
  let release: (() => Promise<void>) | undefined;
  await page.route("**/api/v1/tasks", async (route) => {
    const response = await route.fetch();
    if (release === undefined) {
      release = () => route.fulfill({ response });
    } else {
      await route.fulfill({ response });
    }
  });
  await page.goto(`${gateway.url}/#/tasks`);
  await expect.poll(() => release !== undefined).toBe(true);
  gateway.tasks[0]?.conversations[0]?.tasks.pop();
  await page.clock.runFor(5_000);
  const tasks = page.getByRole("article").getByRole("listitem");
  await expect(tasks).toHaveCount(1);
  const late = page.waitForEvent("requestfinished");
  await release?.();
  await late;
  await page.clock.runFor(100);
  expect(await tasks.count()).toBe(1);
});

test("list of tasks that is cut says so", async ({ page, gateway }) => {
  await page.goto(`${gateway.url}/#/tasks`);
  await expect(page.getByRole("article")).toBeVisible();
  await expect(page.getByText("the newest 500 tasks")).toHaveCount(0);
  Object.assign(gateway.tasks[0] ?? {}, { limited: true });
  await expect(page.getByText("the newest 500 tasks")).toBeVisible();
});
