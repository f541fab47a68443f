import { svelte } from "@sveltejs/vite-plugin-svelte";
import { defineConfig } from "vite";

/** Builds one page, one script and one stylesheet with fixed names, which the gateway compiles in. */
export default defineConfig({
  base: "/",
  plugins: [svelte()],
  build: {
    outDir: "../crates/gateway/assets",
    emptyOutDir: true,
    // Browsers with `light-dark()` and `:popover-open`, so that styles are not rewritten.
    target: ["chrome125", "firefox128", "safari17.5"],
    modulePreload: false,
    cssCodeSplit: false,
    assetsInlineLimit: 0,
    reportCompressedSize: false,
    rolldownOptions: {
      // The classes of `diff` that are not used have no effects.
      treeshake: { moduleSideEffects: (id) => !/node_modules\/diff\//.test(id) },
      output: {
        codeSplitting: false,
        entryFileNames: "console.js",
        assetFileNames: "console[extname]",
      },
    },
  },
});
