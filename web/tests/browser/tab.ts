/** Steps with the keyboard alone. */
import type { Page } from "@playwright/test";

/** Moves the focus with Tab until an element has it. */
export async function tabTo(page: Page, name: RegExp, key = "Tab"): Promise<void> {
  for (let presses = 0; presses < 60; presses += 1) {
    const focused = await page.evaluate(() => {
      const element = document.activeElement === document.body ? null : document.activeElement;
      const label = element?.getAttribute("aria-labelledby");
      const labels = element instanceof HTMLTextAreaElement ? [...element.labels] : [];
      const labelled = (label ? document.getElementById(label) : labels[0])?.textContent ?? "";
      return `${element?.getAttribute("aria-label") ?? ""} ${labelled} ${element?.textContent ?? ""}`;
    });
    if (name.test(focused.trim())) {
      return;
    }
    await page.keyboard.press(key);
  }
  throw new Error(`${name} cannot be reached with ${key}`);
}
