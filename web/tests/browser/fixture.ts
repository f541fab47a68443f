/** A gateway and a page that fails on dialogs, other hosts, and violations of the policy. */
import { test as base, expect, type Page } from "@playwright/test";
import { populate } from "../mock/fleet.ts";
import { MockGateway } from "../mock/gateway.ts";

export interface Violations {
  list: string[];
}

export const test = base.extend<{ gateway: MockGateway; violations: Violations }>({
  gateway: async ({}, use) => {
    const gateway = new MockGateway();
    populate(gateway);
    await gateway.start();
    await use(gateway);
    await gateway.stop();
  },
  violations: [
    async ({ page, gateway }, use) => {
      const violations: Violations = { list: [] };
      watch(page, gateway, violations);
      await use(violations);
      expect(violations.list).toEqual([]);
    },
    { auto: true },
  ],
});

/** Records dialogs, requests to other hosts, and violations of the policy. */
export function watch(page: Page, gateway: Pick<MockGateway, "url">, { list }: Violations): void {
  page.on("dialog", (dialog) => {
    list.push(`dialog: ${dialog.message()}`);
    void dialog.dismiss();
  });
  page.on("pageerror", (error) => list.push(`error: ${error.message}`));
  page.on("popup", (popup) => list.push(`popup: ${popup.url()}`));
  page.on("request", (request) => {
    if (!request.url().startsWith(gateway.url)) {
      list.push(`request: ${request.url()}`);
    }
  });
  page.on("console", (message) => {
    if (/Content Security Policy|Trusted/i.test(message.text())) {
      list.push(`policy: ${message.text()}`);
    }
  });
}

export { expect };
