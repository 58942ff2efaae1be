// Writes src/contract.ts from the contract: a type for each message and enum, and functions that
// encode and decode them. Each field is written and read by its own line, so there is no table to
// walk, and no conversion follows: durations are seconds, enum values are their short names.

import { mkdirSync, writeFileSync } from "node:fs";
import { fileURLToPath } from "node:url";

import protobuf from "protobufjs";

const path = (name) => fileURLToPath(new URL(name, import.meta.url));
const root = new protobuf.Root();
root.resolvePath = (_, file) => (file.startsWith("google/") ? file : path(`../../../proto/${file}`));
root.loadSync("fetchd/v1/fetch.proto", { keepCase: true, alternateCommentMode: true });
root.resolveAll();
const contract = root.lookup("fetchd.v1");

const messages = contract.nestedArray.filter((t) => t instanceof protobuf.Type);
const enums = contract.nestedArray.filter((t) => t instanceof protobuf.Enum);

/** reachable returns the messages that the named ones contain, and themselves. */
function reachable(...names) {
  const found = new Set();
  const visit = (type) => {
    if (found.has(type)) return;
    found.add(type);
    for (const f of type.fieldsArray) if (kind(f) === "message") visit(f.resolvedType);
  };
  for (const name of names) visit(contract.lookupType(name));
  return found;
}

const sent = reachable("FetchRequest", "ExplainRequest");
const received = reachable("FetchResponse", "FetchManyResponse", "ExplainResponse");

/** kind returns how a field is written: by its scalar type, or as one of the types below. */
function kind(f) {
  if (f instanceof protobuf.MapField) return "labels";
  if (f.resolvedType instanceof protobuf.Enum) return "enum";
  if (!f.resolvedType) return f.type;
  if (f.resolvedType.fullName === ".google.protobuf.Duration") return "duration";
  if (f.resolvedType.fullName === ".google.protobuf.Timestamp") return "timestamp";
  return "message";
}

/** values returns the short names of an enum's values, by number. */
function values(e) {
  const list = [];
  for (const [name, number] of Object.entries(e.values)) list[number] = name.slice(prefix(e).length).toLowerCase();
  return Array.from(list, (name) => name ?? "");
}

/** prefix returns the prefix of the names of an enum's values, such as RETRY_PROFILE_. */
const prefix = (e) => `${e.name.replace(/(?<=[a-z])(?=[A-Z])/g, "_").toUpperCase()}_`;

/** table returns the name of the list of an enum's values. */
const table = (e) => `${e.name[0].toLowerCase()}${e.name.slice(1)}s`;

// A field without presence always has a value. A field of a oneof, a message and an optional
// scalar can be missing.
const hasPresence = (f) => !f.repeated && (f.partOf != null || ["message", "duration", "timestamp"].includes(kind(f)) || f.options?.proto3_optional);

const doc = (comment, indent) =>
  comment
    ? `${indent}/**\n${comment.split("\n").map((line) => `${indent} * ${line.replaceAll("*/", "*\\/")}`.trimEnd()).join("\n")}\n${indent} */\n`
    : "";

const given = {
  string: "string", bool: "boolean", int32: "number", int64: "number | bigint | string", uint64: "number | bigint | string",
  double: "number", bytes: "Uint8Array | ArrayBuffer | string", duration: "DurationInit", timestamp: "Date | string",
};
const got = { string: "string", bool: "boolean", int32: "number", int64: "number", uint64: "bigint", double: "number", bytes: "Uint8Array", duration: "number", timestamp: "Date" };
const zero = { string: '""', bool: "false", int32: "0", int64: "0", uint64: "0n", double: "0", bytes: "empty", enum: '"unspecified"', labels: "{}" };

function typeOf(f, forInit) {
  const k = kind(f);
  let type;
  if (k === "labels") type = forInit ? "Readonly<Record<string, string>>" : "Record<string, string>";
  else if (k === "enum") type = forInit ? `${f.resolvedType.name} | ${prefix(f.resolvedType).replace(/(.*)/, "`$1${string}`")}` : f.resolvedType.name;
  else if (k === "message") type = f.resolvedType.name + (forInit ? "Init" : "");
  else type = forInit ? given[k] : got[k];
  if (!f.repeated) return type;
  if (forInit && f.resolvedType?.name === "Header") return "HeadersInit";
  return forInit ? `readonly (${type})[]` : `${type}[]`;
}

const wireType = (f) => ({ bool: 0, int32: 0, int64: 0, uint64: 0, enum: 0, double: 1 })[kind(f)] ?? 2;
const tag = (f) => (f.id << 3) | wireType(f);

const ranges = { int32: "-0x80000000n, 0x7fffffffn", int64: "-0x8000000000000000n, 0x7fffffffffffffffn", uint64: "0n, 0xffffffffffffffffn" };

/** writing returns the statement that writes a value of a field. */
function writing(f, value, name) {
  const k = kind(f);
  switch (k) {
    case "message":
      return `write${f.resolvedType.name}(w, ${tag(f)}, ${name}, ${value});`;
    case "enum":
      return `writeEnum(w, ${tag(f)}, ${name}, ${value}, ${table(f.resolvedType)}, "${prefix(f.resolvedType)}");`;
    case "int32": case "int64": case "uint64":
      return `writeInteger(w, ${tag(f)}, ${name}, ${value}, ${ranges[k]});`;
    default:
      return `write${k[0].toUpperCase()}${k.slice(1)}(w, ${tag(f)}, ${name}, ${value});`;
  }
}

/** choice returns the oneof of a field, if it has other members too. */
const choice = (f) => (f.partOf?.fieldsArray.length > 1 ? f.partOf.name : undefined);

function encoder(type) {
  const choices = new Set(type.fieldsArray.map(choice).filter(Boolean));
  const cases = type.fieldsArray.map((f) => {
    const name = JSON.stringify(f.name);
    const only = choice(f) ? `${choice(f)} = only(w, ${name}, ${choice(f)});\n        ` : "";
    if (!f.repeated) return `      case ${name}:\n        ${only}${writing(f, "value", name)}\n        break;`;
    const list = f.resolvedType?.name === "Header" ? "headerList(value)" : "value";
    return `      case ${name}:\n        for (const item of array(w, ${name}, ${list})) ${writing(f, "item", name)}\n        break;`;
  });
  return `
export function encode${type.name}(w: Writer, m: object): void {${[...choices].map((name) => `\n  let ${name} = "";`).join("")}
  for (const field in m) {
    const value = (m as Record<string, unknown>)[field];
    if (value === undefined || value === null) continue;
    switch (field) {
${cases.join("\n")}
      default:
        unknownField(w, field, "${type.fieldsArray.map((f) => f.name).join(", ")}");
    }
  }
}

export function write${type.name}(w: Writer, tag: number, name: string, value: unknown): void {
  const m = object(w, name, value);
  w.varint(tag);
  const start = w.begin();
  w.path.push(name);
  encode${type.name}(w, m);
  w.path.pop();
  w.end(start);
}
`;
}

/** reading returns the expression that reads a value of a field. */
function reading(f) {
  const k = kind(f);
  if (k === "message") return `decode${f.resolvedType.name}(r, r.end())`;
  if (k === "enum") return `${table(f.resolvedType)}[r.uint32()] || "unspecified"`;
  if (k === "duration" || k === "timestamp") return `read${k[0].toUpperCase()}${k.slice(1)}(r)`;
  return `r.${k}()`;
}

function decoder(type) {
  const scalars = type.fieldsArray.filter((f) => !hasPresence(f)).map((f) => `${f.name}: ${f.repeated ? "[]" : zero[kind(f)]}`);
  const cases = type.fieldsArray.map((f) => {
    const number = `      case ${tag(f)}:\n        `;
    if (kind(f) === "labels") return `${number}readLabel(r, m.${f.name});\n        break;`;
    if (!f.repeated) return `${number}m.${f.name} = ${reading(f)};\n        break;`;
    const packed = wireType(f) === 2 ? "" : `\n      case ${(f.id << 3) | 2}:\n        for (const end = r.end(); r.at < end; ) m.${f.name}.push(${reading(f)});\n        break;`;
    return `${number}m.${f.name}.push(${reading(f)});\n        break;${packed}`;
  });
  return `
export function decode${type.name}(r: Reader, end: number): ${type.name} {
  const m: ${type.name} = { ${scalars.join(", ")} };
  while (r.at < end) {
    const tag = r.uint32();
    switch (tag) {
${cases.join("\n")}
      default:
        r.skip(tag);
    }
  }
  r.check(end);
  return m;
}
`;
}

let out = `// Written by build/contract.mjs from fetchd/v1/fetch.proto.

import {
  array, headerList, object, only, readDuration, readLabel, Reader, readTimestamp, unknownField, writeBool, writeBytes, writeDouble, writeDuration, writeEnum,
  writeInteger, writeLabels, Writer, writeString, writeTimestamp,
} from "./wire.js";

const empty = Buffer.alloc(0);

/** DurationInit is a duration in seconds: 1.5 or "1.5s". */
export type DurationInit = number | \`\${number}s\`;

/** HeadersInit is a list of header fields: a Headers, pairs, an object, or the list of the contract. */
export type HeadersInit = Iterable<readonly [string, string]> | readonly HeaderInit[] | Readonly<Record<string, string | readonly string[]>>;
`;

for (const e of enums) {
  const names = values(e);
  out += `\nconst ${table(e)} = ${JSON.stringify(names)} as const;\n${doc(e.comment, "")}export type ${e.name} = ${names.filter(Boolean).map((n) => JSON.stringify(n)).join(" | ")};\n`;
}
for (const type of messages) {
  if (received.has(type)) {
    const fields = type.fieldsArray.map((f) => `${doc(f.comment, "  ")}  ${f.name}${hasPresence(f) ? "?" : ""}: ${typeOf(f, false)};`);
    out += `\n${doc(type.comment, "")}export interface ${type.name} {\n${fields.join("\n")}\n}\n${decoder(type)}`;
  }
  if (sent.has(type)) {
    const fields = type.fieldsArray.map((f) => `${doc(f.comment, "  ")}  readonly ${f.name}?: ${typeOf(f, true)} | undefined;`);
    if (fields.length === 0) fields.push("  readonly [field: string]: never;");
    out += `\n${doc(type.comment, "")}export interface ${type.name}Init {\n${fields.join("\n")}\n}\n${encoder(type)}`;
  }
}

mkdirSync(path("../src"), { recursive: true });
writeFileSync(path("../src/contract.ts"), out);
