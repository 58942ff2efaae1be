// Protobuf's wire format: the primitives that contract.ts is written in.

/** Writer appends fields to a buffer that grows. */
export class Writer {
  /** path names the field that is being written, for errors. */
  readonly path: string[] = [];
  #buffer = Buffer.allocUnsafe(512);
  #at = 0;

  /** finish returns a copy of what was written, and empties the writer. */
  finish(): Buffer {
    const written = Buffer.from(this.#buffer.subarray(0, this.#at));
    this.reset();
    return written;
  }

  reset(): void {
    this.#at = 0;
    this.path.length = 0;
    if (this.#buffer.length > 65536) this.#buffer = Buffer.allocUnsafe(512);
  }

  get length(): number {
    return this.#at;
  }

  #reserve(size: number): void {
    if (this.#at + size <= this.#buffer.length) return;
    const grown = Buffer.allocUnsafe(Math.max(this.#buffer.length * 2, this.#at + size));
    this.#buffer.copy(grown, 0, 0, this.#at);
    this.#buffer = grown;
  }

  /** varint writes an integer from 0 to 2^53. */
  varint(value: number): void {
    this.#reserve(10);
    while (value > 127) {
      this.#buffer[this.#at++] = (value % 128) | 128;
      value = Math.floor(value / 128);
    }
    this.#buffer[this.#at++] = value;
  }

  /** big writes an integer of 64 bits. */
  big(value: bigint): void {
    this.#reserve(10);
    value = BigInt.asUintN(64, value);
    while (value > 127n) {
      this.#buffer[this.#at++] = Number(value & 127n) | 128;
      value >>= 7n;
    }
    this.#buffer[this.#at++] = Number(value);
  }

  double(value: number): void {
    this.#reserve(8);
    this.#at = this.#buffer.writeDoubleLE(value, this.#at);
  }

  bytes(value: Uint8Array): void {
    this.varint(value.length);
    this.#reserve(value.length);
    this.#buffer.set(value, this.#at);
    this.#at += value.length;
  }

  string(value: string): void {
    const length = value.length;
    this.#reserve(length * 3 + 5);
    if (length < 64 && this.#ascii(value, length)) return;
    const start = this.begin();
    this.#at += this.#buffer.write(value, this.#at);
    this.end(start);
  }

  /** ascii writes a short string, or returns false if it has other characters. */
  #ascii(value: string, length: number): boolean {
    const buffer = this.#buffer;
    let at = this.#at;
    buffer[at++] = length;
    for (let i = 0; i < length; i++) {
      const code = value.charCodeAt(i);
      if (code > 127) return false;
      buffer[at++] = code;
    }
    this.#at = at;
    return true;
  }

  /** begin starts a message inside the message; end ends it. */
  begin(): number {
    this.#reserve(1);
    return this.#at++;
  }

  end(start: number): void {
    const length = this.#at - start - 1;
    if (length < 128) {
      this.#buffer[start] = length;
      return;
    }
    const size = length < 1 << 14 ? 2 : length < 1 << 21 ? 3 : length < 1 << 28 ? 4 : 5;
    this.#reserve(size);
    this.#buffer.copyWithin(start + size, start + 1, this.#at);
    const end = this.#at + size - 1;
    this.#at = start;
    this.varint(length);
    this.#at = end;
  }

  /** fault throws a TypeError that names the field. */
  fault(field: string, what: string): never {
    const path = [...this.path, field].join(".");
    this.reset();
    throw new TypeError(`${path}: ${what}`);
  }
}

/** Reader reads the fields of a message. It throws an Error if the message is malformed. */
export class Reader {
  at = 0;
  readonly #bytes: Buffer;

  constructor(bytes: Buffer) {
    this.#bytes = bytes;
  }

  get length(): number {
    return this.#bytes.length;
  }

  /** uint32 reads the low 32 bits of a varint. */
  uint32(): number {
    const bytes = this.#bytes;
    let byte = bytes[this.at++]!;
    if (byte < 128) return byte;
    let value = byte & 127;
    for (let shift = 7; shift < 70; shift += 7) {
      byte = bytes[this.at++]!;
      if (shift < 32) value |= (byte & 127) << shift;
      if ((byte & 128) === 0) return value >>> 0; // also beyond the end, where byte is undefined
    }
    throw new Error("a varint is too long");
  }

  int32(): number {
    return this.uint32() | 0;
  }

  bool(): boolean {
    return this.uint32() !== 0;
  }

  uint64(): bigint {
    let value = 0n;
    for (let shift = 0n; shift < 70n; shift += 7n) {
      const byte = this.#bytes[this.at++]!;
      value |= BigInt(byte & 127) << shift;
      if ((byte & 128) === 0) return BigInt.asUintN(64, value);
    }
    throw new Error("a varint is too long");
  }

  /** int64 is exact up to 2^53. */
  int64(): number {
    const start = this.at;
    let value = 0;
    let factor = 1;
    for (let i = 0; i < 7; i++) {
      const byte = this.#bytes[this.at++]!;
      value += (byte & 127) * factor;
      if ((byte & 128) === 0) return value;
      factor *= 128;
    }
    this.at = start;
    return Number(BigInt.asIntN(64, this.uint64()));
  }

  double(): number {
    this.at += 8;
    if (this.at > this.#bytes.length) throw new Error("the message is truncated");
    return this.#bytes.readDoubleLE(this.at - 8);
  }

  /** end reads a length, and returns where the field ends. */
  end(): number {
    const length = this.uint32();
    const end = this.at + length;
    if (end > this.#bytes.length) throw new Error("the message is truncated");
    return end;
  }

  bytes(): Buffer {
    const end = this.end();
    const value = this.#bytes.subarray(this.at, end);
    this.at = end;
    return value;
  }

  string(): string {
    const end = this.end();
    const start = this.at;
    this.at = end;
    if (start === end) return "";
    return this.#bytes.toString("utf8", start, end);
  }

  /** skip passes over a field that this version does not know. */
  skip(tag: number): void {
    switch (tag & 7) {
      case 0:
        this.uint64();
        return;
      case 1:
        this.at += 8;
        return;
      case 2:
        this.at = this.end();
        return;
      case 5:
        this.at += 4;
        return;
      default:
        throw new Error(`a field has the wire type ${tag & 7}`);
    }
  }

  /** check throws unless a message ends where its length says. */
  check(end: number): void {
    if (this.at !== end) throw new Error("a field is longer than its message");
  }
}

/** seconds reads a google.protobuf.Duration. */
export function readDuration(r: Reader): number {
  const end = r.end();
  let seconds = 0;
  let nanos = 0;
  while (r.at < end) {
    const tag = r.uint32();
    if (tag === 8) seconds = r.int64();
    else if (tag === 16) nanos = r.int32();
    else r.skip(tag);
  }
  r.check(end);
  return seconds + nanos / 1e9;
}

export function readTimestamp(r: Reader): Date {
  return new Date(Math.round(readDuration(r) * 1000)); // the fields are those of Duration
}

/** durationOf returns a duration in seconds: 1.5 or "1.5s". */
export function durationOf(value: unknown): number | undefined {
  if (typeof value === "string" && /^-?\d{1,12}(\.\d{1,9})?s$/.test(value)) value = Number(value.slice(0, -1));
  return typeof value === "number" && Math.abs(value) <= 315_576_000_000 ? value : undefined; // protobuf's range
}

function writeParts(w: Writer, seconds: number, nanos: number): void {
  const start = w.begin();
  if (seconds !== 0) {
    w.varint(8);
    if (seconds > 0) w.varint(seconds);
    else w.big(BigInt(seconds));
  }
  if (nanos !== 0) {
    w.varint(16);
    if (nanos > 0) w.varint(nanos);
    else w.big(BigInt(nanos));
  }
  w.end(start);
}

// The functions below write a value with its tag. They throw a TypeError if the value has another form.

export function writeDuration(w: Writer, tag: number, name: string, value: unknown): void {
  const given = durationOf(value);
  if (given === undefined) w.fault(name, `${show(value)} is not a duration: give seconds, such as 1.5 or "1.5s"`);
  let seconds = Math.trunc(given);
  let nanos = Math.round((given - seconds) * 1e9);
  if (Math.abs(nanos) === 1e9) {
    seconds += Math.sign(nanos);
    nanos = 0;
  }
  w.varint(tag);
  writeParts(w, seconds, nanos);
}

export function writeTimestamp(w: Writer, tag: number, name: string, value: unknown): void {
  const ms = value instanceof Date ? value.getTime() : typeof value === "string" ? Date.parse(value) : NaN;
  if (Number.isNaN(ms)) w.fault(name, `${show(value)} is not a time: give a Date or "2026-01-31T12:00:00Z"`);
  const seconds = Math.floor(ms / 1000);
  w.varint(tag);
  writeParts(w, seconds, (ms - seconds * 1000) * 1e6);
}

export function writeString(w: Writer, tag: number, name: string, value: unknown): void {
  if (typeof value !== "string") w.fault(name, `${show(value)} is not a string`);
  w.varint(tag);
  w.string(value);
}

export function writeBytes(w: Writer, tag: number, name: string, value: unknown): void {
  if (typeof value === "string") value = Buffer.from(value);
  else if (value instanceof ArrayBuffer) value = new Uint8Array(value);
  else if (ArrayBuffer.isView(value)) value = new Uint8Array(value.buffer, value.byteOffset, value.byteLength);
  else w.fault(name, `${show(value)} is neither bytes nor a string`);
  w.varint(tag);
  w.bytes(value as Uint8Array);
}

export function writeBool(w: Writer, tag: number, name: string, value: unknown): void {
  if (typeof value !== "boolean") w.fault(name, `${show(value)} is neither true nor false`);
  w.varint(tag);
  w.varint(value ? 1 : 0);
}

export function writeDouble(w: Writer, tag: number, name: string, value: unknown): void {
  if (typeof value !== "number") w.fault(name, `${show(value)} is not a number`);
  w.varint(tag);
  w.double(value);
}

export function writeInteger(w: Writer, tag: number, name: string, value: unknown, min: bigint, max: bigint): void {
  if (typeof value === "number" && Number.isSafeInteger(value) && value >= 0 && value <= max) {
    w.varint(tag);
    w.varint(value);
    return;
  }
  let big: bigint | undefined;
  if (typeof value === "bigint") big = value;
  else if (typeof value === "number" && Number.isSafeInteger(value)) big = BigInt(value);
  else if (typeof value === "string" && /^-?\d{1,20}$/.test(value)) big = BigInt(value);
  if (big === undefined || big < min || big > max) w.fault(name, `${show(value)} is not an integer from ${min} to ${max}`);
  w.varint(tag);
  w.big(big);
}

export function writeEnum(w: Writer, tag: number, name: string, value: unknown, names: readonly string[], prefix: string): void {
  let number = names.indexOf(value as string);
  if (number < 0 && typeof value === "string" && value.startsWith(prefix)) {
    number = names.indexOf(value.slice(prefix.length).toLowerCase());
  }
  if (number < 0) w.fault(name, `${show(value)} is not one of ${names.slice(1).join(", ")}`);
  w.varint(tag);
  w.varint(number);
}

/** writeLabels writes a map of strings. */
export function writeLabels(w: Writer, tag: number, name: string, value: unknown): void {
  for (const [key, text] of Object.entries(object(w, name, value))) {
    w.varint(tag);
    const start = w.begin();
    writeString(w, 10, `${name}.${key}`, key);
    writeString(w, 18, `${name}.${key}`, text);
    w.end(start);
  }
}

/** readLabel reads an entry of a map of strings. */
export function readLabel(r: Reader, into: Record<string, string>): void {
  const end = r.end();
  let key = "";
  let value = "";
  while (r.at < end) {
    const tag = r.uint32();
    if (tag === 10) key = r.string();
    else if (tag === 18) value = r.string();
    else r.skip(tag);
  }
  r.check(end);
  Object.defineProperty(into, key, { value, enumerable: true, configurable: true, writable: true });
}

/** object throws unless the value of a field is a plain object. */
export function object(w: Writer, name: string, value: unknown): Record<string, unknown> {
  if (typeof value !== "object" || value === null || Array.isArray(value)) w.fault(name, `${show(value)} is not an object`);
  return value as Record<string, unknown>;
}

export function array(w: Writer, name: string, value: unknown): readonly unknown[] {
  if (!Array.isArray(value)) w.fault(name, `${show(value)} is not an array`);
  return value;
}

export function unknownField(w: Writer, field: string, fields: string): never {
  w.fault(field, `there is no such field; ${fields ? `the fields are ${fields}` : "the message has none"}`);
}

/** only returns a member of a oneof. It throws if another member was written before. */
export function only(w: Writer, field: string, before: string): string {
  if (before) w.fault(field, `${before} is given too: give one of them`);
  return field;
}

/** show returns a short text for a value. A long one is not quoted: it may be a secret. */
function show(value: unknown): string {
  if (typeof value === "string") return value.length <= 64 ? JSON.stringify(value) : `a string of ${value.length} characters`;
  if (typeof value === "object" && value !== null) return Array.isArray(value) ? "an array" : "an object";
  return String(value);
}

/** headerList returns headers as the list of the contract: from a Headers, pairs, an object, or such a list. Numbers, booleans, arrays, null and undefined become text, as in fetch. */
export function headerList(value: unknown): unknown {
  if (typeof value !== "object" || value === null) return value;
  const text = (given: unknown): unknown => (typeof given === "number" || typeof given === "boolean" || given == null || Array.isArray(given) ? String(given) : given);
  if (Symbol.iterator in value) {
    return Array.from(value as Iterable<unknown>, (item) => (Array.isArray(item) ? { name: item[0], value: text(item[1]) } : item));
  }
  return Object.entries(value).map(([name, given]) => ({ name, value: text(given) }));
}
