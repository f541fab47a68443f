// Chat completions with the AI SDK: one scenario, whose outcome is printed as JSON.

import { createOpenAICompatible } from "@ai-sdk/openai-compatible";
import { generateText, streamText } from "ai";

const [scenario, baseURL] = process.argv.slice(2);
const provider = createOpenAICompatible({
  name: "rockbot",
  baseURL,
  apiKey: process.env.OPENAI_API_KEY,
  includeUsage: true,
});
const request = { model: provider("assistant"), prompt: "tools", maxRetries: 0 };

async function outcome(result) {
  const content = await result.text;
  const reasoning = await result.reasoningText;
  const { totalTokens } = await result.usage;
  return { content, reasoning, finish: await result.finishReason, totalTokens };
}

const scenarios = {
  whole: async () => outcome(await generateText(request)),
  stream: async () => {
    const result = streamText(request);
    for await (const _part of result.textStream);
    return outcome(result);
  },
};

console.log(JSON.stringify(await scenarios[scenario]()));
