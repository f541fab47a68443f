/** Pictures of the README and the documentation. `cargo xtask web --screenshots` writes them. */
import { call, TALK } from "../mock/fleet.ts";
import { playTurns } from "../mock/turn.ts";
import { IMAGES, record } from "../pictures.ts";
import { expect, test } from "./fixture.ts";

const TOOLS = ["read_file", "bash", "search", "list_files", "web_search"];
const RATES = [3, 5, 4, 8, 12, 9, 14, 18, 11, 7, 9, 13];

test.describe.configure({ mode: "serial" });

for (const colorScheme of ["light", "dark"] as const) {
  test.describe(`${colorScheme} @screenshots`, () => {
    test.use({ colorScheme, viewport: { width: 1180, height: 700 } });

    test("talk with an approval request", async ({ page, gateway }) => {
      await page.setViewportSize({ width: 1180, height: 810 });
      playTurns(gateway);
      await page.goto(`${gateway.url}/#/talk/${TALK}`);
      await page
        .getByLabel("Message", { exact: true })
        .fill("Which files mention RabbitMQ? Fix the first line of notes.md.");
      await page.keyboard.press("Enter");
      await expect(page.getByRole("button", { name: /^Allow once/ })).toBeEnabled();
      await page.mouse.move(0, 0);
      await page.evaluate(() => (document.activeElement as HTMLElement | null)?.blur());
      await page.screenshot({ path: `${IMAGES}console-talk-${colorScheme}.png` });
    });

    test("calls", async ({ page, gateway }) => {
      await page.clock.install();
      await page.setViewportSize({ width: 1180, height: 560 });
      await page.goto(`${gateway.url}/#/calls`);
      await expect(page.getByRole("row").nth(4)).toBeVisible();
      for (const [index, perSecond] of RATES.entries()) {
        await page.clock.runFor(1100);
        const isLive = index > RATES.length - 3;
        const latencyMs = 3 + ((index * 29) % 70);
        const fresh = call(0, {
          id: `new-${index}`,
          tool: TOOLS[index % TOOLS.length],
          agent: index % 3 === 0 ? "writer" : "assistant",
          ...(isLive
            ? { live: true, state: "running", executed: undefined, latencyMs: undefined, waitedMs: undefined }
            : { latencyMs, runMs: latencyMs * 0.8, waitedMs: latencyMs * 0.2 }),
          firstMs: Date.now() + index * 1100,
        });
        gateway.sendCalls([fresh], perSecond);
        await expect(page.getByText(`${perSecond.toFixed(1)} /s`)).toBeVisible();
      }
      await page.screenshot({ path: `${IMAGES}console-calls-${colorScheme}.png` });
    });

    test("journey of a call", async ({ page, gateway }) => {
      await page.goto(`${gateway.url}/#/calls/${gateway.calls[1]?.id}`);
      await page.getByRole("button", { name: "Show arguments and result" }).click();
      await expect(page.getByRole("region", { name: "Result, content" })).toBeVisible();
      await page.screenshot({ path: `${IMAGES}console-call-${colorScheme}.png` });
    });
  });
}

// The last one: it runs only if all pictures were made.
test("record of the sources @screenshots", record);
