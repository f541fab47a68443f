/** The Content Security Policy of the gateway. */
import { expect, openCalls, test } from "./fixture.ts";

test("policy of the gateway blocks markup, scripts and styles", async ({ page, violations }) => {
  await openCalls(page);
  const blocked = await page.evaluate(() => {
    const directives = new Set<string>();
    const reported = new Promise<void>((resolve) => {
      document.addEventListener("securitypolicyviolation", (event) => {
        directives.add(event.effectiveDirective);
        if (directives.size === 3) {
          resolve();
        }
      });
    });
    let markup = "allowed";
    try {
      document.body.innerHTML = "<b>bold</b>";
    } catch {
      markup = "blocked";
    }
    const style = document.createElement("style");
    style.textContent = "body { display: none }";
    document.head.append(style);
    const image = new Image();
    image.src = "https://example.invalid/pixel.png";
    document.body.append(image);
    return reported.then(() => ({ markup, directives: [...directives].sort() }));
  });
  expect(blocked.markup).toBe("blocked");
  expect(blocked.directives).toEqual(["img-src", "require-trusted-types-for", "style-src-elem"]);
  await expect(page.getByRole("heading", { name: "Calls" })).toBeVisible();
  // All of them are reports of what was blocked.
  expect(violations.list.every((entry) => /^(policy|request): /.test(entry))).toBe(true);
  violations.list.length = 0;
});
