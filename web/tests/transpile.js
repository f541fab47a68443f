/** Module hook that removes the types of TypeScript sources. */
import { readFile } from "node:fs/promises";
import { fileURLToPath } from "node:url";
import ts from "typescript";

const options = {
  target: ts.ScriptTarget.ES2022,
  module: ts.ModuleKind.ESNext,
  verbatimModuleSyntax: true,
  inlineSourceMap: true,
};

export async function load(url, context, next) {
  if (!url.endsWith(".ts") || url.includes("/node_modules/")) {
    return next(url, context);
  }
  const fileName = fileURLToPath(url);
  const { outputText } = ts.transpileModule(await readFile(fileName, "utf8"), {
    fileName,
    compilerOptions: options,
  });
  return { format: "module", source: outputText, shortCircuit: true };
}
