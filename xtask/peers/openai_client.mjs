// Completions and responses with OpenAI's client for Node.js: one scenario, whose outcome is printed as JSON.

import OpenAI from "openai";

const [scenario, baseURL, key] = process.argv.slice(2);
// The key comes from OPENAI_API_KEY.
const client = new OpenAI({ baseURL, timeout: 60_000 });

function ask(content, options = {}, request = {}) {
  const messages = [{ role: "user", content }];
  return client.chat.completions.create({ model: "assistant", messages, ...options }, request);
}

function respond(input, options = {}, request = {}) {
  return client.responses.create({ model: "assistant", input, ...options }, request);
}

function check(holds, what) {
  if (!holds) throw new Error(JSON.stringify(what));
}

// Text, lines about the course of the turn, and the usage of a response.
function summary(response) {
  const lines = response.output.filter((item) => item.type === "reasoning");
  return {
    content: response.output_text,
    reasoning: lines.map((item) => item.summary[0].text).join(""),
    finish: response.status,
    totalTokens: response.usage.total_tokens,
  };
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

  async response_whole() {
    return summary(await respond("tools"));
  },

  // Reads a stream as events, and another one with the client's own reader, which checks their order.
  async response_stream() {
    const kinds = [];
    let [deltas, last] = ["", null];
    for await (const event of await respond("tools", { stream: true })) {
      kinds.push(event.type);
      if (event.type === "response.output_text.delta") deltas += event.delta;
      if (event.type === "response.completed") last = event.response;
    }
    check(kinds[0] === "response.created" && kinds[1] === "response.in_progress", kinds);
    const read = await client.responses
      .stream({ model: "assistant", input: "tools" })
      .finalResponse();
    check(read.output_text === deltas, [read, deltas]);
    check(last.status === "completed", last);
    return summary(read);
  },

  async response_continued() {
    const first = await respond("first");
    const second = await respond("second", { previous_response_id: first.id });
    const read = await client.responses.retrieve(second.id);
    check(read.output_text === second.output_text, read);
    check(read.previous_response_id === first.id, read);
    await client.responses.delete(second.id);
    try {
      await client.responses.retrieve(second.id);
    } catch (error) {
      check(error.constructor.name === "NotFoundError", error);
      return second.output_text;
    }
    return "not deleted";
  },

  async response_errors() {
    const outcomes = [];
    for (const options of [
      { model: "absent" },
      { tools: [{ type: "web_search" }] },
      { input: "fail" },
    ]) {
      for (const stream of [false, true]) {
        try {
          const request = { model: "assistant", input: "x", stream, ...options };
          let last = null;
          for await (const event of await client.responses.create(request)) last = event;
          outcomes.push([last.type, last.response.error.code]);
        } catch (error) {
          outcomes.push([error.constructor.name, error.code]);
        }
      }
    }
    return outcomes;
  },

  async response_repeat() {
    const answers = new Map();
    for (let attempt = 0; attempt < 5; attempt += 1) {
      const { id, output_text: text } = await respond("tools", {}, {
        headers: { "Idempotency-Key": key },
      });
      answers.set(`${id} ${text}`, [id, text]);
    }
    return [...answers.values()].sort();
  },

  async response_hang_up() {
    const stream = await respond("sleep", { stream: true });
    for await (const event of stream) {
      if (event.type === "response.reasoning_summary_text.delta") {
        stream.controller.abort();
        return "hung up";
      }
    }
    return "ended";
  },
};

console.log(JSON.stringify(await scenarios[scenario]()));
