// An agent of the gateway, used with the JavaScript client of A2A over one binding: a scenario, whose outcome is printed as JSON.

import {
  ClientFactory,
  ClientFactoryOptions,
  DefaultAgentCardResolver,
  JsonRpcTransportFactory,
  RestTransportFactory,
} from "@a2a-js/sdk/client";
import { Role, TaskState, taskStateToJSON } from "@a2a-js/sdk";

const state = (status) => taskStateToJSON(status.state);
const textOf = (artifact) => artifact.parts.map((part) => part.content.value).join("");
const summary = (task) => ({ id: task.id, state: state(task.status), text: task.artifacts.map(textOf).join("") });

function request(messageId, text, configuration = undefined) {
  const part = { content: { $case: "text", value: text }, metadata: undefined, filename: "", mediaType: "" };
  const message = {
    messageId,
    contextId: "",
    taskId: "",
    role: Role.ROLE_USER,
    parts: [part],
    metadata: undefined,
    extensions: [],
    referenceTaskIds: [],
  };
  return { tenant: "", message, configuration, metadata: undefined };
}

const immediately = {
  acceptedOutputModes: [],
  taskPushNotificationConfig: undefined,
  historyLength: undefined,
  returnImmediately: true,
};

// Returns the task after the events of a stream.
async function read(events) {
  let outcome = {};
  for await (const { payload } of events) {
    if (payload.$case === "task") {
      outcome = summary(payload.value);
    } else if (payload.$case === "artifactUpdate") {
      const text = textOf(payload.value.artifact);
      outcome.text = payload.value.append ? outcome.text + text : text;
    } else if (payload.$case === "statusUpdate") {
      outcome.state = state(payload.value.status);
    }
  }
  return outcome;
}

// Sends a message, streams it, and sends it again.
async function stream(client) {
  const outcomes = [await read(client.sendMessageStream(request("m1", "hello")))];
  outcomes.push(await read(client.sendMessageStream(request("m1", "hello"))));
  outcomes.push(summary(await client.sendMessage(request("m1", "hello"))));
  outcomes.push(summary(await client.getTask({ tenant: "", id: outcomes[0].id, historyLength: 5 })));
  return outcomes;
}

// Cancels a task whose stream is read.
async function cancel(client) {
  const started = await client.sendMessage(request("m1", "wait", immediately));
  const events = client.resubscribeTask({ tenant: "", id: started.id });
  await events.next();
  const cancelled = await client.cancelTask({ tenant: "", id: started.id, metadata: undefined });
  const rest = await read(events);
  return [state(cancelled.status), rest.state];
}

async function listing(client) {
  const sent = [];
  for (const text of ["one", "two", "three"]) {
    sent.push((await client.sendMessage(request(`m-${text}`, text))).id);
  }
  const params = { tenant: "", contextId: "", status: TaskState.TASK_STATE_UNSPECIFIED, pageSize: 2, pageToken: "",
    historyLength: undefined, statusTimestampAfter: undefined, includeArtifacts: true };
  const sizes = [];
  const found = new Map();
  let page;
  do {
    page = await client.listTasks({ ...params, pageToken: page?.nextPageToken ?? "" });
    sizes.push(page.tasks.length);
    page.tasks.forEach((task) => found.set(task.id, summary(task).text));
  } while (page.nextPageToken !== "");
  return { sizes, total: page.totalSize, texts: sent.map((id) => found.get(id)) };
}

async function errors(client) {
  const unknown = { tenant: "", id: "unknown" };
  const done = await client.sendMessage(request("m1", "hello"));
  const outcomes = [];
  for (const call of [
    () => client.getTask(unknown),
    () => client.cancelTask({ ...unknown, metadata: undefined }),
    () => read(client.resubscribeTask(unknown)),
    () => client.cancelTask({ tenant: "", id: done.id, metadata: undefined }),
    () => read(client.resubscribeTask({ tenant: "", id: done.id })),
    () => client.sendMessage(request("m1", "another text")),
  ]) {
    try {
      await call();
      outcomes.push("no error");
    } catch (error) {
      outcomes.push(error.name);
    }
  }
  return outcomes;
}

const SCENARIOS = { stream, cancel, listing, errors };
const [scenario, url, binding] = process.argv.slice(2);
const authorization = `Bearer ${process.env.A2A_TOKEN}`;
const fetchImpl = (target, init = {}) => fetch(target, { ...init, headers: { ...init.headers, authorization } });
const transports = [new JsonRpcTransportFactory({ fetchImpl }), new RestTransportFactory({ fetchImpl })];
const options = ClientFactoryOptions.createFrom(ClientFactoryOptions.default, {
  transports,
  preferredTransports: [binding],
  cardResolver: new DefaultAgentCardResolver({ fetchImpl }),
});
// The address of the card is relative to the one that is given.
const client = await new ClientFactory(options).createFromUrl(`${url}/`, ".well-known/agent-card.json");
const outcome = await SCENARIOS[scenario](client);
console.log(JSON.stringify({ transport: client.transport.protocolName, outcome }));
