import { defineConfig } from "@playwright/test";
import { STATE } from "./tests/program/sign-in-state.ts";

export default defineConfig({
  workers: 1,
  timeout: 60_000,
  expect: { timeout: 8_000 },
  forbidOnly: true,
  reporter: [["list"]],
  outputDir: process.env.ROCKBOT_CONSOLE_OUTPUT ?? "test-results",
  use: {
    browserName: "chromium",
    viewport: { width: 1280, height: 800 },
    locale: "en-US",
    timezoneId: "UTC",
    launchOptions: {
      executablePath: process.env.ROCKBOT_CHROMIUM ?? "/usr/bin/chromium",
      args: ["--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage"],
    },
  },
  projects: [
    { name: "page", testDir: "tests/browser" },
    // Against the programs of this repository, which `cargo xtask test` starts.
    { name: "sign-in", testDir: "tests/program", testMatch: "sign-in.ts" },
    {
      name: "program",
      testDir: "tests/program",
      dependencies: ["sign-in"],
      use: { storageState: STATE },
      // Other tests run beside these ones.
      timeout: 150_000,
      expect: { timeout: 60_000 },
    },
  ],
});
