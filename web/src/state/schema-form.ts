/**
 * Fields of a form for the arguments of a tool, made from its JSON Schema.
 *
 * Only the properties of the schema become fields: text, numbers, switches and choices. Arrays, objects and everything
 * else are entered as JSON. The schema is untrusted, and the gateway checks the arguments again.
 */
import { isRecord, type Json } from "../text/values.ts";

/** Fields of a form. Further properties are entered as JSON. */
const MAX_FIELDS = 60;
/** Choices of a field. Fields with more are entered as JSON. */
const MAX_CHOICES = 200;
/** References that are followed. */
const MAX_REFERENCES = 8;
/** Levels of arrays and objects in an argument. */
export const MAX_DEPTH = 64;
/** Bytes of all arguments, below what a request may have. */
export const MAX_BYTES = 120 * 1024;

export type Control = "text" | "integer" | "number" | "boolean" | "choice" | "json";

export interface Field {
  name: string;
  control: Control;
  description: string;
  isRequired: boolean;
  /** Values of a choice. */
  choices: Json[];
  minimum?: number;
  maximum?: number;
  /** Type of the value of a JSON field; absent if any is accepted. */
  type?: "array" | "object";
  /** The text of the field at first. */
  initial: string;
}

export interface Form {
  fields: Field[];
  /** Properties without a field may be given, as one JSON object. */
  hasRest: boolean;
}

/** Arguments, or what is wrong with the texts of the fields. */
export interface Entered {
  arguments: Record<string, Json>;
  /** Problems by name of the field; that of the JSON object has the name `""`. */
  problems: Map<string, string>;
}

type Schema = Record<string, unknown>;

/** Returns the form of a schema. One without properties has a JSON object only. */
export function schemaForm(schema: unknown): Form {
  const root = resolve(schema, schema);
  const properties = isRecord(root.properties) ? root.properties : {};
  const required = Array.isArray(root.required) ? new Set(root.required) : new Set();
  const names = Object.keys(properties);
  // Required ones first, so that none of them is left to the JSON object.
  const ordered = [
    ...names.filter((name) => required.has(name)),
    ...names.filter((name) => !required.has(name)),
  ];
  const fields = ordered
    .slice(0, MAX_FIELDS)
    .map((name) => field(name, resolve(properties[name], schema), required.has(name)));
  const hasRest = names.length > MAX_FIELDS || root.additionalProperties !== false;
  return { fields, hasRest };
}

/** Returns the arguments that the texts of the fields stand for. `rest` is the text of the JSON object. */
export function enteredArguments(form: Form, texts: readonly string[], rest: string): Entered {
  const problems = new Map<string, string>();
  const entries: [string, Json][] = [];
  for (const [index, field] of form.fields.entries()) {
    const value = fieldValue(field, texts[index] ?? "");
    if ("problem" in value) {
      problems.set(field.name, value.problem);
    } else if (value.value !== undefined) {
      entries.push([field.name, value.value]);
    }
  }
  if (form.hasRest && rest.trim() !== "") {
    const value = json(rest);
    if ("problem" in value || !isRecord(value.value)) {
      problems.set("", "problem" in value ? value.problem : "enter a JSON object");
    } else {
      const taken = new Set(form.fields.map(({ name }) => name));
      const twice = Object.keys(value.value).find((name) => taken.has(name));
      if (twice === undefined) {
        entries.push(...(Object.entries(value.value) as [string, Json][]));
      } else {
        problems.set("", `${twice} has a field of its own`);
      }
    }
  }
  // Own properties, whatever their names are.
  const args = Object.fromEntries(entries);
  if (problems.size === 0 && new Blob([JSON.stringify(args)]).size > MAX_BYTES) {
    problems.set("", `the arguments have more than ${MAX_BYTES / 1024} KiB`);
  }
  return { arguments: args, problems };
}

function field(name: string, schema: Schema, isRequired: boolean): Field {
  const description = typeof schema.description === "string" ? schema.description : "";
  const { control, choices, type } = controlOf(schema);
  const bound = (key: string) => {
    const value = schema[key];
    return typeof value === "number" && Number.isFinite(value) ? value : undefined;
  };
  const [minimum, maximum] = [bound("minimum"), bound("maximum")];
  return {
    name,
    control,
    description,
    isRequired,
    choices,
    ...(minimum === undefined ? {} : { minimum }),
    ...(maximum === undefined ? {} : { maximum }),
    ...(type === undefined ? {} : { type }),
    initial: initialText(control, choices, schema.default as Json | undefined),
  };
}

function controlOf(schema: Schema): Pick<Field, "control" | "choices" | "type"> {
  const values = "const" in schema ? [schema.const] : schema.enum;
  if (Array.isArray(values) && values.length > 0 && values.length <= MAX_CHOICES && !isInexact(values)) {
    return { control: "choice", choices: values as Json[] };
  }
  const types = (Array.isArray(schema.type) ? schema.type : [schema.type]).filter((type) => type !== "null");
  const type: unknown = types.length === 1 ? types[0] : undefined;
  switch (type) {
    case "string":
      return { control: "text", choices: [] };
    case "integer":
    case "number":
    case "boolean":
      return { control: type, choices: [] };
    case "array":
    case "object":
      return { control: "json", choices: [], type };
    default:
      return { control: "json", choices: [] };
  }
}

function initialText(control: Control, choices: Json[], value: Json | undefined): string {
  if (value === undefined || value === null || isInexact(value)) {
    return "";
  }
  switch (control) {
    case "choice": {
      const index = choices.findIndex((choice) => JSON.stringify(choice) === JSON.stringify(value));
      return index < 0 ? "" : String(index);
    }
    case "json":
      return JSON.stringify(value, null, 2);
    case "text":
      return typeof value === "string" ? value : "";
    default:
      return typeof value === "number" || typeof value === "boolean" ? String(value) : "";
  }
}

/** Problem of a number that JavaScript would change. */
const INEXACT = "a browser cannot represent this number exactly";

type Value = { value: Json | undefined } | { problem: string };

/** Returns the value of a field; `undefined` for one that is not given. */
function fieldValue(field: Field, text: string): Value {
  if (field.control === "text") {
    return { value: text === "" && !field.isRequired ? undefined : text };
  }
  if (text.trim() === "") {
    return field.isRequired ? { problem: "this argument is required" } : { value: undefined };
  }
  switch (field.control) {
    case "integer":
    case "number":
      return number(field, text.trim());
    case "boolean":
      return text === "true" || text === "false"
        ? { value: text === "true" }
        : { problem: "choose yes or no" };
    case "choice": {
      const choice = field.choices[Number(text)];
      return choice === undefined ? { problem: "choose one of the values" } : { value: choice };
    }
    case "json": {
      const value = json(text);
      const fits =
        "problem" in value ||
        field.type === undefined ||
        (field.type === "array" ? Array.isArray(value.value) : isRecord(value.value));
      return fits ? value : { problem: `enter a JSON ${field.type}` };
    }
  }
}

function number({ control, minimum, maximum }: Field, text: string): Value {
  const value = Number(text);
  if (!/^[+-]?(?:\d|\.\d)/.test(text) || !Number.isFinite(value)) {
    return { problem: "enter a number" };
  }
  if (control === "integer" && !Number.isInteger(value)) {
    return { problem: "enter a whole number" };
  }
  if (Number.isInteger(value) && !Number.isSafeInteger(value)) {
    return { problem: INEXACT };
  }
  if (minimum !== undefined && value < minimum) {
    return { problem: `must be at least ${minimum}` };
  }
  return maximum !== undefined && value > maximum ? { problem: `must be at most ${maximum}` } : { value };
}

function json(text: string): Value {
  let value: Json;
  try {
    value = JSON.parse(text) as Json;
  } catch (error) {
    return { problem: `enter JSON: ${error instanceof Error ? error.message : "it is invalid"}` };
  }
  const inexact = inexactNumber(text);
  if (inexact !== undefined) {
    return { problem: `${inexact.slice(0, 40)}: ${INEXACT}` };
  }
  return isDeeper(value, MAX_DEPTH) ? { problem: `has more than ${MAX_DEPTH} levels` } : { value };
}

/** Returns the first number of a JSON text that its value would not have: a whole one beyond 2^53, or an infinite one. */
function inexactNumber(text: string): string | undefined {
  for (const [token] of text.matchAll(/"(?:[^"\\]|\\.)*"|-?\d[\d.eE+-]*/g)) {
    const isWhole = /^-?\d+$/.test(token);
    const value = Number(token);
    if (!token.startsWith('"') && (isWhole ? !Number.isSafeInteger(value) : !Number.isFinite(value))) {
      return token;
    }
  }
  return undefined;
}

/** Returns whether a value of the schema has a number that was changed when the schema was read. */
function isInexact(value: Json | undefined): boolean {
  if (typeof value === "object" && value !== null) {
    return Object.values(value).some(isInexact);
  }
  return typeof value === "number" && Number.isInteger(value) && !Number.isSafeInteger(value);
}

/** Returns whether a value has more than `levels` levels of arrays and objects. */
function isDeeper(value: Json, levels: number): boolean {
  if (typeof value !== "object" || value === null) {
    return false;
  }
  return levels === 0 || Object.values(value).some((child) => isDeeper(child, levels - 1));
}

/** Follows references within the schema, and takes the one alternative to null. */
function resolve(schema: unknown, root: unknown): Schema {
  let current = schema;
  for (let step = 0; step < MAX_REFERENCES && isRecord(current); step += 1) {
    const next = referenced(current, root) ?? alternative(current);
    if (next === undefined) {
      return current;
    }
    // Texts beside a reference describe the property better than those of its target.
    const { description, default: value } = current;
    current = {
      ...(isRecord(next) ? next : {}),
      ...(description === undefined ? {} : { description }),
      ...(value === undefined ? {} : { default: value }),
    };
  }
  // An unresolved one is entered as JSON.
  return {};
}

function referenced({ $ref: reference }: Schema, root: unknown): unknown {
  if (typeof reference !== "string" || !reference.startsWith("#/")) {
    return undefined;
  }
  let target: unknown = root;
  for (const part of reference.slice(2).split("/")) {
    const name = part.replaceAll("~1", "/").replaceAll("~0", "~");
    target = isRecord(target) && Object.hasOwn(target, name) ? target[name] : undefined;
  }
  return target;
}

function alternative(schema: Schema): unknown {
  const list = schema.anyOf ?? schema.oneOf ?? schema.allOf;
  if (!Array.isArray(list) || schema.properties !== undefined || schema.type !== undefined) {
    return undefined;
  }
  const others = list.filter((entry) => !isRecord(entry) || entry.type !== "null");
  return others.length === 1 ? others[0] : undefined;
}
