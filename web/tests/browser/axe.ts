/** Checks of WCAG 2.2 A and AA by axe-core. */
import { readFile } from "node:fs/promises";
import type { Page } from "@playwright/test";

const axe = await readFile(new URL("../../node_modules/axe-core/axe.min.js", import.meta.url), "utf8");

interface Result {
  violations: { id: string; nodes: { html: string; failureSummary?: string }[] }[];
}

/** Returns the violations of the page, up to three places of each rule. */
export async function axeViolations(page: Page): Promise<string[]> {
  await page.evaluate(axe);
  const result = await page.evaluate(async () => {
    const { axe } = window as unknown as {
      axe: { run: (context: Document, options: object) => Promise<Result> };
    };
    return axe.run(document, { runOnly: ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "wcag22aa"] });
  });
  return result.violations.flatMap(({ id, nodes }) =>
    nodes
      .slice(0, 3)
      .map(({ html, failureSummary }) => `${id}: ${html.slice(0, 160)} ${failureSummary ?? ""}`),
  );
}
