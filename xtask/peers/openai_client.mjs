// Chat completions with OpenAI's client for Node.js: one scenario, whose outcome is printed as JSON.

import OpenAI from "openai";

const [scenario, baseURL, key] = process.argv.slice(2);
// The key comes from OPENAI_API_KEY.
const client = new OpenAI({ baseURL, timeout: 60_000 });

function ask(content, options = {}, request = {}) {
  const messages = [{ role: "user", content }];
  return client.chat.completions.create({ model: "assistant", messages, ...options }, request);
}

const scenarios = {
  async models() {
    const names = [];
    for await (const model of client.models.list()) names.push(model.id);
    return names;
  },

  async whole() {
    const completion = await ask("tools");
    const { message, finish_reason: finish } = completion.choices[0];
    const { content, reasoning_content: reasoning } = message;
    return { content, reasoning, finish, totalTokens: completion.usage.total_tokens };
  },

  async stream() {
    const stream = await ask("tools", { stream: true, stream_options: { include_usage: true } });
    const outcome = { content: "", reasoning: "", totalTokens: null };
    for await (const chunk of stream) {
      outcome.totalTokens = chunk.usage?.total_tokens ?? outcome.totalTokens;
      for (const { delta } of chunk.choices) {
        outcome.content += delta.content ?? "";
        outcome.reasoning += delta.reasoning_content ?? "";
      }
    }
    return outcome;
  },

  async conversation() {
    const first = (await ask("first")).choices[0].message.content;
    const messages = [
      { role: "user", content: "first" },
      { role: "assistant", content: first },
      { role: "user", content: "second" },
    ];
    const second = await client.chat.completions.create({ model: "assistant", messages });
    return second.choices[0].message.content;
  },

  async errors() {
    const outcomes = [];
    for (const [model, content] of [["absent", "x"], ["assistant", "fail"]]) {
      for (const stream of [false, true]) {
        try {
          const messages = [{ role: "user", content }];
          const reply = await client.chat.completions.create({ model, messages, stream });
          if (stream) for await (const _chunk of reply);
          outcomes.push("no error");
        } catch (error) {
          outcomes.push([error.constructor.name, error.code]);
        }
      }
    }
    return outcomes;
  },

  async repeat() {
    const ids = new Set();
    for (let attempt = 0; attempt < 5; attempt += 1) {
      const completion = await ask("tools", {}, { headers: { "Idempotency-Key": key } });
      ids.add(completion.id);
    }
    return [...ids].sort();
  },

  async hang_up() {
    const stream = await ask("sleep", { stream: true });
    for await (const chunk of stream) {
      if (chunk.choices[0].delta.reasoning_content) {
        stream.controller.abort();
        return "hung up";
      }
    }
    return "ended";
  },
};

console.log(JSON.stringify(await scenarios[scenario]()));
