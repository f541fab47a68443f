import { svelte } from "@sveltejs/vite-plugin-svelte";
import { defineConfig } from "vite";
import { sbom } from "./sbom.ts";

/**
 * Builds the files that the gateway compiles in: the page, its stylesheet, its script, and two scripts that are loaded
 * after it. Their names have a hash, so that a page never gets them from another version of the gateway. The licenses and
 * the bill of materials of the packages in them are beside them.
 */
export default defineConfig({
  base: "/",
  plugins: [svelte(), sbom("sbom.cdx.json")],
  build: {
    outDir: "../crates/gateway/assets",
    emptyOutDir: true,
    // Browsers with `light-dark()` and `:popover-open`, so that styles are not rewritten.
    target: ["chrome125", "firefox128", "safari17.5"],
    modulePreload: false,
    cssCodeSplit: false,
    assetsInlineLimit: 0,
    reportCompressedSize: false,
    license: { fileName: "licenses.txt" },
    rolldownOptions: {
      // The classes of `diff` that are not used have no effects.
      treeshake: { moduleSideEffects: (id) => !/node_modules\/diff\//.test(id) },
      output: {
        entryFileNames: "console.js",
        chunkFileNames: "[name]-[hash].js",
        assetFileNames: "console[extname]",
      },
    },
  },
});
