// Compares requests of operations with those of swagger-client, for `cargo xtask bench openapi`.
//
// Reads lines of JSON from the example `openapi_requests`: document, method, path, arguments and the request that was
// built from them. Prints how many requests are equal, and the others with what differs.

import { readFileSync } from "node:fs";
import { createInterface } from "node:readline";
import * as swagger from "swagger-client";

const buildRequest = swagger.buildRequest ?? swagger.default.buildRequest;
const DOCUMENT_URL = "https://api.example.com/openapi.json";
const SECRET = "secret-of-the-survey";
const LOCATIONS = ["path", "query", "header", "cookie"];
// A client sets them itself, as OpenAPI says.
const OWN_HEADERS = ["accept", "authorization", "content-type"];
const MOST_SHOWN = 40;

function target(document, value) {
  for (let level = 0; value?.$ref?.startsWith("#/") && level < 10; level += 1) {
    const steps = value.$ref.slice(2).split("/");
    const unescaped = steps.map((step) => decodeURIComponent(step).replaceAll("~1", "/").replaceAll("~0", "~"));
    value = unescaped.reduce((part, step) => part?.[step], document);
  }
  return value;
}

/** Returns the parameters with their schemas, those of the operation first. */
function parametersOf(document, pathItem, operation) {
  const found = new Map();
  for (const one of [...(operation.parameters ?? []), ...(pathItem.parameters ?? [])]) {
    const parameter = target(document, one);
    const key = `${parameter?.in} ${parameter?.name}`;
    if (!LOCATIONS.includes(parameter?.in) || found.has(key)) continue;
    found.set(key, { ...parameter, schema: target(document, parameter.schema) });
  }
  const all = [...found.values()];
  return LOCATIONS.flatMap((location) => all.filter((parameter) => parameter.in === location));
}

/** Assigns the arguments to parameters, by the rules of docs/rest.md. Returns their values by `in.name`. */
function valuesOf(parameters, given) {
  const values = {};
  const used = new Set("body" in given ? ["body"] : []);
  for (const { name, in: location } of parameters) {
    const clean = name.replaceAll(/[^A-Za-z0-9_.-]/gu, "_");
    const key = [clean, `${clean}_in_${location}`].find((one) => one in given && !used.has(one));
    if (key === undefined) continue;
    used.add(key);
    values[`${location}.${name}`] = given[key];
  }
  const unused = Object.keys(given).filter((key) => key !== "body" && !used.has(key));
  return { values, unused };
}

function isSupplied(document, { name, in: location, required }) {
  const schemes = Object.values(document.components?.securitySchemes ?? {}).map((one) => target(document, one));
  const isKey = schemes.some((scheme) => scheme?.type === "apiKey" && scheme.in === location && scheme.name === name);
  return !required || isKey || (location === "header" && OWN_HEADERS.includes(name.toLowerCase()));
}

const essence = (type) => type.split(";")[0].trim().toLowerCase();

/** Returns the body in the form that swagger-client takes. */
function bodyFor(type, body) {
  if (type === "multipart/form-data" && typeof body === "object") {
    const field = ([name, value]) => {
      if (typeof value?.base64 !== "string") return [name, value];
      return [name, new File([Buffer.from(value.base64, "base64")], value.filename ?? name)];
    };
    return Object.fromEntries(Object.entries(body).map(field));
  }
  return body;
}

function expected(line, document) {
  const pathItem = target(document, document.paths[line.path]);
  const method = line.method.toLowerCase();
  const operation = pathItem[method];
  const parameters = parametersOf(document, pathItem, operation);
  const { values, unused } = valuesOf(parameters, line.arguments);
  if (unused.length > 0) throw new Error(`arguments without a parameter: ${unused}`);
  const isGiven = (parameter) => `${parameter.in}.${parameter.name}` in values;
  const missing = parameters.filter((one) => !isGiven(one) && !isSupplied(document, one));
  if (missing.length > 0) throw new Error(`no argument for ${missing.map((one) => one.name)}`);
  const only = {
    operationId: "compared",
    parameters: parameters.filter(isGiven),
    requestBody: target(document, operation.requestBody),
    servers: operation.servers,
    security: [],
  };
  const type = line.request.contentType && essence(line.request.contentType);
  const types = Object.keys(only.requestBody?.content ?? {});
  return buildRequest({
    spec: {
      openapi: document.openapi,
      servers: document.servers,
      paths: { [line.path]: { servers: pathItem.servers, [method]: only } },
    },
    operationId: "compared",
    parameters: values,
    contextUrl: DOCUMENT_URL,
    requestContentType: type && types.find((one) => essence(one) === type),
    requestBody: "body" in line.arguments && type ? bodyFor(type, line.arguments.body) : undefined,
  });
}

function decoded(text) {
  try {
    return decodeURIComponent(text.replaceAll("+", " "));
  } catch {
    return text;
  }
}

function pairs(query) {
  const parts = query.split("&").filter((part) => part !== "" && !part.includes(SECRET));
  return parts.map((part) => part.split("=").map(decoded).join("=")).sort();
}

function split(url) {
  const at = url.indexOf("?");
  return at < 0 ? [url, ""] : [url.slice(0, at), url.slice(at + 1)];
}

function cookies(text) {
  const parts = (text ?? "").split("; ").filter((part) => part !== "" && !part.includes(SECRET));
  return parts.map(decoded).sort();
}

function headersOf(headers) {
  const lower = Object.entries(headers).map(([name, value]) => [name.toLowerCase(), String(value)]);
  const shown = lower.filter(([name, value]) => ![...OWN_HEADERS, "cookie"].includes(name) && !value.includes(SECRET));
  return { headers: shown.sort(), cookies: cookies(Object.fromEntries(lower).cookie) };
}

function isJson(type) {
  return /[/+]json$/u.test(type);
}

async function formOf(form) {
  const entries = [...form.entries()].map(async ([name, value]) => [
    name,
    typeof value === "string" ? value : await value.text(),
  ]);
  return (await Promise.all(entries)).sort();
}

async function bodyOf(type, body) {
  if (body === undefined || body === null) return null;
  if (body instanceof FormData) return formOf(body);
  if (Array.isArray(body) && type === "multipart/form-data") return body.sort();
  if (isJson(type)) {
    return typeof body === "string" ? JSON.parse(body) : body;
  }
  if (type === "application/x-www-form-urlencoded") return pairs(String(body));
  return body;
}

/** Objects are equal in any order of their members. */
function ordered(value) {
  if (Array.isArray(value)) return value.map(ordered);
  if (value === null || typeof value !== "object") return value;
  return Object.fromEntries(Object.entries(value).sort().map(([name, part]) => [name, ordered(part)]));
}

async function normal(method, url, headers, type, body) {
  const [address, query] = split(url);
  return {
    method: method.toUpperCase(),
    address: decoded(address),
    query: pairs(query),
    ...headersOf(headers),
    body: ordered(await bodyOf(type, body)),
  };
}

async function differences(line, document) {
  const theirs = expected(line, document);
  const { request } = line;
  const type = request.contentType ? essence(request.contentType) : "";
  let own = request.body;
  let other = theirs.body;
  if (typeof own === "object" && own?.base64 !== undefined) {
    // Bytes are given in base64.
    own = own.base64;
    other = Buffer.from(String(line.arguments.body), "base64").toString("base64");
  } else if (isJson(type) && typeof other === "string" && typeof line.arguments.body !== "string") {
    other = JSON.parse(other);
  } else if (isJson(type)) {
    other = line.arguments.body;
  }
  const ours = await normal(line.method, request.url, request.headers, type, own);
  const compared = await normal(theirs.method, theirs.url, theirs.headers, type, isJson(type) ? JSON.stringify(other) : other);
  const keys = Object.keys(ours).filter((key) => JSON.stringify(ours[key]) !== JSON.stringify(compared[key]));
  return keys.map((key) => `${key}: ${JSON.stringify(ours[key])} instead of ${JSON.stringify(compared[key])}`);
}

let document = null;
let file = null;
const counts = { compared: 0, equal: 0, fragments: 0 };
const shown = [];
for await (const text of createInterface({ input: process.stdin })) {
  const line = JSON.parse(text);
  if (line.file !== file) {
    file = line.file;
    document = JSON.parse(readFileSync(file, "utf8"));
  }
  // swagger-client sends them as they are written: a fragment, or a second query.
  if (/[#?]/u.test(line.path)) {
    counts.fragments += 1;
    continue;
  }
  counts.compared += 1;
  let reasons;
  try {
    reasons = await differences(line, document);
  } catch (error) {
    reasons = [`swagger-client: ${error.message}`];
  }
  if (reasons.length === 0) counts.equal += 1;
  else shown.push(`${line.file} ${line.method} ${line.path}\n    ${reasons.join("\n    ").slice(0, 1200)}`);
}
for (const one of shown.slice(0, MOST_SHOWN)) console.log(`  ${one}`);
if (shown.length > MOST_SHOWN) console.log(`  and ${shown.length - MOST_SHOWN} more`);
const share = ((100 * counts.equal) / counts.compared).toFixed(2);
console.log(`requests of paths with # or ?   ${counts.fragments}, not compared`);
console.log(`requests equal to swagger-client ${counts.equal} of ${counts.compared} (${share} %)`);
