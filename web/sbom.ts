/** A software bill of materials (CycloneDX 1.6) of the packages whose code is in the built files. */
import { readFileSync } from "node:fs";
import { join } from "node:path";
import type { Plugin } from "vite";

interface Manifest {
  name: string;
  version: string;
  license: string;
}

/** Returns the folder of the package that a module belongs to; `undefined` for a module of the console. */
function packageFolder(module: string): string | undefined {
  return /^.*\/node_modules\/(?:@[^/]+\/)?[^/]+(?=\/)/.exec(module.replaceAll("\\", "/"))?.[0];
}

function component({ name, version, license }: Manifest) {
  return {
    type: "library",
    name,
    version,
    purl: `pkg:npm/${name.replace("@", "%40")}@${version}`,
    licenses: [{ expression: license }],
  };
}

/** Writes the bill as `fileName`. It has no time and no serial number, so that two builds are equal. */
export function sbom(fileName: string): Plugin {
  return {
    name: "sbom",
    generateBundle(_, bundle) {
      const modules = Object.values(bundle).flatMap((file) =>
        file.type === "chunk" ? Object.keys(file.modules) : [],
      );
      const folders = new Set(modules.map(packageFolder).filter((folder) => folder !== undefined));
      const packages = [...folders].map(
        (folder) => JSON.parse(readFileSync(join(folder, "package.json"), "utf8")) as Manifest,
      );
      packages.sort((a, b) => (a.name < b.name ? -1 : 1));
      const bill = {
        bomFormat: "CycloneDX",
        specVersion: "1.6",
        version: 1,
        metadata: { component: { type: "application", name: "rockbot-console" } },
        components: packages.map(component),
      };
      this.emitFile({ type: "asset", fileName, source: `${JSON.stringify(bill, null, 2)}\n` });
    },
  };
}
