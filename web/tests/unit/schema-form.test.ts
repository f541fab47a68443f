import assert from "node:assert/strict";
import { test } from "node:test";
import { enteredArguments, MAX_BYTES, MAX_DEPTH, schemaForm } from "../../src/state/schema-form.ts";
import { needsConfirmation, newAttempt } from "../../src/state/tool-attempt.ts";

const closed = { type: "object", additionalProperties: false };

/** Returns the value of the only argument, or its problem. */
function entered(property: unknown, text: string, isRequired = false): unknown {
  const form = schemaForm({ ...closed, properties: { a: property }, required: isRequired ? ["a"] : [] });
  const { arguments: args, problems } = enteredArguments(form, [text], "");
  return problems.get("a") ?? args.a;
}

test("each type has its control", () => {
  const properties = {
    text: { type: "string", description: "A text." },
    whole: { type: "integer", minimum: 1, maximum: 9 },
    real: { type: ["number", "null"], default: 0.5 },
    flag: { type: "boolean", default: true },
    color: { enum: ["red", 2, null], default: 2 },
    fixed: { const: "x" },
    list: { type: "array", default: [1] },
    object: { type: "object" },
    either: { type: ["string", "number"] },
    any: {},
  };
  const { fields, hasRest } = schemaForm({ ...closed, properties, required: ["color"] });
  assert.equal(hasRest, false);
  assert.deepEqual(
    fields.map(({ name, control, initial, isRequired }) => [name, control, initial, isRequired]),
    [
      ["color", "choice", "1", true],
      ["text", "text", "", false],
      ["whole", "integer", "", false],
      ["real", "number", "0.5", false],
      ["flag", "boolean", "true", false],
      ["fixed", "choice", "", false],
      ["list", "json", "[\n  1\n]", false],
      ["object", "json", "", false],
      ["either", "json", "", false],
      ["any", "json", "", false],
    ],
  );
});

test("texts become values of their types", () => {
  assert.equal(entered({ type: "string" }, " 1 "), " 1 ");
  assert.equal(entered({ type: "string" }, ""), undefined);
  assert.equal(entered({ type: "string" }, "", true), "");
  assert.equal(entered({ type: "integer" }, "-12"), -12);
  assert.equal(entered({ type: "number" }, "1.5e3"), 1500);
  assert.equal(entered({ type: "boolean" }, "false"), false);
  assert.equal(entered({ type: "boolean" }, ""), undefined);
  assert.deepEqual(entered({ enum: ["red", { b: 1 }] }, "1"), { b: 1 });
  assert.equal(entered({ enum: ["red", null] }, "1"), null);
  assert.deepEqual(entered({ type: "array" }, "[1, {}]"), [1, {}]);
  assert.equal(entered({}, '"x"'), "x");
});

test("texts that do not fit are refused", () => {
  assert.equal(entered({ type: "integer" }, "", true), "this argument is required");
  assert.equal(entered({ type: "integer" }, "1.5"), "enter a whole number");
  assert.equal(
    entered({ type: "integer" }, "9007199254740993"),
    "a browser cannot represent this number exactly",
  );
  for (const text of ["x", "1x", "Infinity", "NaN", "1e999", "--1"]) {
    assert.equal(entered({ type: "number" }, text), "enter a number", text);
  }
  assert.equal(entered({ type: "number", minimum: 1 }, "0"), "must be at least 1");
  assert.equal(entered({ type: "number", maximum: 1 }, "2"), "must be at most 1");
  assert.equal(entered({ type: "boolean" }, "maybe"), "choose yes or no");
  assert.equal(entered({ enum: ["red"] }, "1"), "choose one of the values");
  assert.equal(entered({ type: "array" }, "{}"), "enter a JSON array");
  assert.equal(entered({ type: "object" }, "[]"), "enter a JSON object");
  assert.match(String(entered({ type: "object" }, "{")), /^enter JSON: /);
});

test("numbers that a browser would change are refused, in JSON too", () => {
  const problem = "9007199254740993: a browser cannot represent this number exactly";
  assert.equal(entered({ type: "object" }, '{"id": 9007199254740993}'), problem);
  assert.equal(entered({}, "-9007199254740993"), `-${problem}`);
  assert.equal(entered({ type: "array" }, "[1, [9007199254740993]]"), problem);
  assert.match(String(entered({ type: "array" }, "[1e999]")), /^1e999: a browser/);
  const form = schemaForm({ type: "object" });
  assert.equal(enteredArguments(form, [], '{"id": 9007199254740993}').problems.get(""), problem);
  const kept =
    '{"big": 9007199254740991, "text": "9007199254740993 \\"9007199254740993", "part": 0.5, "power": 1e20}';
  assert.deepEqual(entered({ type: "object" }, kept), JSON.parse(kept));
});

test("values of the schema that were changed are not offered", () => {
  const schema = JSON.parse(
    '{"properties": {"id": {"type": "integer", "default": 9007199254740993}, "kind": {"enum": [1, 9007199254740993]}}}',
  );
  const { fields } = schemaForm(schema);
  assert.deepEqual(
    fields.map(({ control, initial }) => [control, initial]),
    [
      ["integer", ""],
      ["json", ""],
    ],
  );
});

test("depth and size of arguments are bounded", () => {
  const nested = (levels: number) => `${"[".repeat(levels)}${"]".repeat(levels)}`;
  assert.ok(Array.isArray(entered({ type: "array" }, nested(MAX_DEPTH))));
  assert.equal(entered({ type: "array" }, nested(MAX_DEPTH + 1)), "has more than 64 levels");
  const form = schemaForm({ ...closed, properties: { a: { type: "string" } } });
  const { problems } = enteredArguments(form, ["ä".repeat(MAX_BYTES / 2)], "");
  assert.equal(problems.get(""), "the arguments have more than 120 KiB");
});

test("properties without a field are entered as one object", () => {
  const form = schemaForm({ type: "object", properties: { a: { type: "string" } } });
  assert.equal(form.hasRest, true);
  assert.deepEqual(enteredArguments(form, ["x"], '{"b": [1]}').arguments, { a: "x", b: [1] });
  assert.equal(enteredArguments(form, ["x"], '{"a": 1}').problems.get(""), "a has a field of its own");
  assert.equal(enteredArguments(form, [], "[]").problems.get(""), "enter a JSON object");
  const large = Object.fromEntries(
    Array.from({ length: 100 }, (_, index) => [`p${index}`, { type: "string" }]),
  );
  const many = schemaForm({ ...closed, properties: large, required: ["p99"] });
  assert.deepEqual([many.fields.length, many.fields[0]?.name, many.hasRest], [60, "p99", true]);
  for (const schema of [undefined, null, true, [], "x", { type: "object" }]) {
    assert.deepEqual(schemaForm(schema), { fields: [], hasRest: true });
  }
});

test("references and optional types are followed within a bound", () => {
  const schema = {
    ...closed,
    $defs: { "a/b": { type: "integer", description: "of the definition" }, loop: { $ref: "#/$defs/loop" } },
    properties: {
      reference: { $ref: "#/$defs/a~1b", description: "of the property" },
      optional: { anyOf: [{ type: "boolean" }, { type: "null" }], default: null },
      union: { oneOf: [{ type: "string" }, { type: "number" }] },
      loop: { $ref: "#/$defs/loop" },
      elsewhere: { $ref: "https:other" },
      missing: { $ref: "#/constructor/name" },
    },
  };
  assert.deepEqual(
    schemaForm(schema).fields.map(({ control, description }) => [control, description]),
    [
      ["integer", "of the property"],
      ["boolean", ""],
      ["json", ""],
      ["json", ""],
      ["json", ""],
      ["json", ""],
    ],
  );
});

test("names of prototypes are ordinary arguments", () => {
  const form = schemaForm(JSON.parse('{"properties": {"__proto__": {"type": "string"}}}'));
  const { arguments: args } = enteredArguments(form, ["x"], '{"constructor": 1}');
  assert.equal(JSON.stringify(args), '{"__proto__":"x","constructor":1}');
});

test("a call names the tool that was shown, and confirms effects", () => {
  const tool = { name: "bash", fingerprint: "f" };
  const first = newAttempt(tool, { a: 1 }, 1000);
  assert.deepEqual(first.body, { arguments: { a: 1 }, timeoutMs: 1000, fingerprint: "f", confirm: "bash" });
  assert.notEqual(first.key, newAttempt(tool, { a: 1 }, 1000).key);
  assert.equal(newAttempt({ ...tool, hints: { readOnly: true } }, {}, 1).body.confirm, undefined);
  assert.equal(needsConfirmation({ hints: { destructive: false } }), false);
  assert.equal(needsConfirmation({}), true, "undeclared effects count as destructive");
});
