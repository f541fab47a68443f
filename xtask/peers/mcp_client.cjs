// An MCP client for the tests, made with the official TypeScript SDK.
//
// `mcp_client.cjs LIBRARY ERA TARGET STEPS`: LIBRARY is `sdk` (version 1) or `client` (version 2); the rest is as for
// mcp_client.py. Prints the results as a JSON list.

const [library, era, targetText, stepsText] = process.argv.slice(2);
const target = targetText.startsWith("[") ? JSON.parse(targetText) : targetText;
const information = { name: "rockbot-tests", version: "1" };

function load() {
  if (library === "client") {
    const { Client, StreamableHTTPClientTransport } = require("@modelcontextprotocol/client");
    const { StdioClientTransport } = require("@modelcontextprotocol/client/stdio");
    const mode = era === "legacy" ? "legacy" : { pin: era };
    const client = new Client(information, { versionNegotiation: { mode } });
    return { client, StreamableHTTPClientTransport, StdioClientTransport };
  }
  const { Client } = require("@modelcontextprotocol/sdk/client/index.js");
  const http = require("@modelcontextprotocol/sdk/client/streamableHttp.js");
  const stdio = require("@modelcontextprotocol/sdk/client/stdio.js");
  return { client: new Client(information), ...http, ...stdio };
}

async function call(client, step) {
  const progress = [];
  const others = [];
  const onprogress = (update) => {
    progress.push(update.message);
    if (progress.length === step.afterProgress?.count) {
      others.push(client.callTool({ name: step.afterProgress.call }));
    }
  };
  const options = { onprogress, timeout: 60000 };
  const parameters = { name: step.call, arguments: step.arguments ?? {} };
  if (step.meta) parameters._meta = step.meta;
  const result =
    library === "client"
      ? await client.callTool(parameters, options)
      : await client.callTool(parameters, undefined, options);
  await Promise.all(others);
  return { result, progress };
}

async function run(client, step) {
  try {
    if (step.call) return await call(client, step);
    if (step.list === "tools") return (await client.listTools()).tools;
    if (step.list === "prompts") return (await client.listPrompts()).prompts;
    if (step.list === "resources") return (await client.listResources()).resources;
    if (step.prompt) return await client.getPrompt({ name: step.prompt });
    return (await client.readResource({ uri: step.read })).contents;
  } catch (error) {
    return { error: String(error) };
  }
}

async function main() {
  const { client, StreamableHTTPClientTransport, StdioClientTransport } = load();
  const transport =
    typeof target === "string"
      ? new StreamableHTTPClientTransport(new URL(target))
      : new StdioClientTransport({ command: target[0], args: target.slice(1), stderr: "inherit" });
  await client.connect(transport);
  const results = [];
  for (const step of JSON.parse(stepsText)) results.push(await run(client, step));
  await client.close();
  console.log(JSON.stringify(results));
}

main().catch((error) => {
  console.error(error);
  process.exit(1);
});
