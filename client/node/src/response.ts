import { STATUS_CODES } from "node:http";

import type { FetchEvent, FetchOutcome, FetchRequestInit, HttpResponse, ResponseStarted, StoredObject } from "./contract.js";
import { ServiceError } from "./errors.js";
import { deliveryOf, reasonOf } from "./request.js";

// Statuses whose response has no body, in the words of the Fetch standard.
const nullBody = new Set([101, 103, 204, 205, 304]);

/** headersOf returns the header fields of a response. */
export function headersOf(response: HttpResponse | undefined): Headers {
  const headers = new Headers();
  for (const { name, value, raw_value } of response?.headers ?? []) {
    try {
      headers.append(name, raw_value.length > 0 ? Buffer.from(raw_value).toString("latin1") : latin1(value));
    } catch {
      // Headers cannot hold this field; the outcome has it.
    }
  }
  return headers;
}

const ofBytes = new Set(["content-type", "content-length", "content-encoding"]);

/** shown returns the response of an outcome. If the body is a text of text_policy, its headers are about the text. */
export function shown({ response, text_summary: text }: FetchOutcome): HttpResponse | undefined {
  if (!response || !text) return response;
  const headers = response.headers.filter(({ name }) => !ofBytes.has(name.toLowerCase()));
  const field = (name: string, value: string): (typeof headers)[number] => ({ name, value, raw_value: new Uint8Array() });
  return { ...response, headers: [...headers, field("Content-Type", `${text.media_type}; charset=utf-8`), field("Content-Length", String(text.size_bytes))] };
}

/** latin1 returns a value in the form in which fetch has it: one character for each byte. */
function latin1(value: string): string {
  for (let i = 0; i < value.length; i++) {
    if (value.charCodeAt(i) > 127) return Buffer.from(value).toString("latin1");
  }
  return value;
}

/** What is known when a response starts. */
export interface Head {
  readonly response: HttpResponse | undefined;
  readonly url: string;
  readonly requested: string;
  /** Waits for the outcome, or rejects if unread reports that nothing reads the body that it waits for. */
  readonly outcome: (unread: () => boolean) => Promise<FetchOutcome>;
  readonly stored?: StoredObject | undefined;
  /** Whether the body is only the start of that of a failed status. */
  readonly truncated?: boolean;
  readonly signal?: AbortSignal | undefined;
}

/**
 * ClientResponse is a Response. A body that the service wrote to a store is there, and not in the response. truncated
 * means that the body is only the start of that of a failed status.
 */
export type ClientResponse = Response & { readonly stored: StoredObject | undefined; readonly truncated: boolean };

/** isTruncated reports whether an outcome has less than the body of its failed status, of which so many bytes are kept. */
export function isTruncated({ error_body, response }: FetchOutcome, kept: number): boolean {
  const headers = headersOf(response);
  const length = headers.has("content-encoding") ? null : headers.get("content-length");
  return length === null ? error_body.length > 0 && error_body.length >= kept : error_body.length > 0 && error_body.length < Number(length);
}

/**
 * FetchdResponse has the prototype and every member of a standard Response. A body that arrived in one piece is
 * returned without a stream, and the headers are made when they are first read. The platform makes both at once, at
 * the price of a whole small fetch, so its constructor is not called.
 */
class FetchdResponse {
  readonly #head: Head;
  readonly #copies: FetchdResponse[]; // of the same body, with this one
  #bytes: Uint8Array | undefined; // a body that is complete and was not used yet
  #stream: ReadableStream<Uint8Array> | undefined;
  #headers: Headers | undefined;
  #inner: Response | undefined; // has the body as a stream
  #used = false;
  #read: ReadableStream<Uint8Array> | undefined; // the body, if it was used

  constructor(head: Head, body: Uint8Array | ReadableStream<Uint8Array> | undefined, copies: FetchdResponse[] = []) {
    this.#head = head;
    this.#copies = copies;
    copies.push(this);
    if (nullBody.has(this.status)) return;
    if (body instanceof Uint8Array) this.#bytes = body;
    else this.#stream = body;
  }

  /** outcome is not part of the standard; outcomeOf returns its result. */
  outcome(): Promise<FetchOutcome> {
    return this.#head.outcome(() => this.#copies.every((r) => !r.bodyUsed && !r.body?.locked));
  }
  /** stored is not part of the standard. */
  get stored(): StoredObject | undefined {
    return this.#head.stored;
  }
  /** truncated is not part of the standard. */
  get truncated(): boolean {
    return this.#head.truncated ?? false;
  }
  get status(): number {
    return this.#head.response?.status_code ?? 200;
  }
  get statusText(): string {
    return STATUS_CODES[this.status] ?? "";
  }
  get type(): string {
    return "basic";
  }
  get ok(): boolean {
    return this.status >= 200 && this.status < 300;
  }
  get url(): string {
    return this.#head.url;
  }
  get redirected(): boolean {
    return normal(this.#head.url) !== normal(this.#head.requested);
  }
  get headers(): Headers {
    return (this.#headers ??= headersOf(this.#head.response));
  }

  /** The same response with the platform's body. */
  get #real(): Response {
    if (!this.#inner) {
      const { signal } = this.#head;
      const given = this.#stream ?? this.#bytes;
      const body = given && signal?.aborted ? new ReadableStream({ start: (controller) => controller.error(reasonOf(signal)) }) : given;
      this.#inner = new Response(!this.#used && body ? (body as ConstructorParameters<typeof Response>[0]) : null);
      const type = this.headers.get("content-type");
      if (type) this.#inner.headers.set("content-type", type); // blob and formData read it
      this.#bytes = undefined;
    }
    return this.#inner;
  }

  /** take returns a body that arrived in one piece, once. */
  #take(): Uint8Array | undefined {
    const bytes = this.#inner || this.#head.signal?.aborted ? undefined : this.#bytes;
    if (bytes) {
      this.#bytes = undefined;
      this.#used = true;
    }
    return bytes;
  }

  get body(): Response["body"] {
    return this.#used ? (this.#read ??= usedBody()) : this.#real.body;
  }
  get bodyUsed(): boolean {
    return this.#used || (this.#inner?.bodyUsed ?? false);
  }
  async arrayBuffer(): Promise<ArrayBuffer> {
    const bytes = this.#take();
    if (bytes) return bytes.buffer.slice(bytes.byteOffset, bytes.byteOffset + bytes.byteLength) as ArrayBuffer;
    return this.#readable().arrayBuffer();
  }
  async bytes(): Promise<Uint8Array<ArrayBuffer>> {
    return new Uint8Array(await this.arrayBuffer());
  }
  async text(): Promise<string> {
    const bytes = this.#take();
    return bytes ? decoder.decode(bytes) : this.#readable().text();
  }
  async json(): Promise<unknown> {
    const bytes = this.#take();
    return bytes ? (JSON.parse(decoder.decode(bytes)) as unknown) : this.#readable().json();
  }
  async blob(): ReturnType<Response["blob"]> {
    return this.#readable().blob();
  }
  async formData(): ReturnType<Response["formData"]> {
    return this.#readable().formData();
  }
  clone(): Response {
    const head = this.#head;
    if (this.bodyUsed) throw new TypeError("Response.clone: Body has already been consumed.");
    const inner = this.#checked().clone();
    const copy = new FetchdResponse(head, undefined, this.#copies);
    copy.#inner = inner;
    return copy as unknown as Response;
  }

  /** readable throws if the signal has aborted, also of a body that was complete before. */
  #readable(): Response {
    const { signal } = this.#head;
    if (signal?.aborted && !this.bodyUsed) throw reasonOf(signal);
    return this.#checked();
  }

  #checked(): Response {
    if (this.#used) throw new TypeError("Body is unusable: Body has already been read");
    return this.#real;
  }
}

Object.setPrototypeOf(FetchdResponse.prototype, Response.prototype);

/** responseOf returns a response with a body that is complete, a stream, or missing. */
export function responseOf(head: Head, body: Uint8Array | ReadableStream<Uint8Array> | undefined): ClientResponse {
  return new FetchdResponse(head, body) as unknown as ClientResponse;
}

/**
 * outcomeOf returns how the fetch of a response ended. It waits until the body has been read to its end. If the
 * body is large and nothing reads it, it rejects with a TypeError.
 */
export function outcomeOf(response: Response): Promise<FetchOutcome> {
  if (!((response as object) instanceof FetchdResponse)) return Promise.reject(new TypeError("the response does not come from a client of fetchd"));
  return (response as unknown as FetchdResponse).outcome();
}

const decoder = new TextDecoder();

/** usedBody returns a stream that is at its end and disturbed, as the body of a response that was read. */
function usedBody(): ReadableStream<Uint8Array> {
  const response = new Response("");
  void response.text();
  return response.body as ReadableStream<Uint8Array>;
}

/** normal returns a URL in one of its spellings, without its fragment. */
function normal(text: string): string {
  try {
    const url = new URL(text);
    url.hash = "";
    return url.href;
  } catch {
    return text; // the service accepted it
  }
}

// The classes of failures that are a response with a status.
const statuses = new Set(["http_server_error", "rate_limited", "auth_required", "forbidden", "request_timeout", "http_client_error", "unexpected_not_modified"]);

/** hasResponse reports whether an outcome is a response, rather than an error. */
export function hasResponse(o: FetchOutcome): boolean {
  return o.kind !== "failed" || (hasStatus(o.response) && statuses.has(o.error?.error_class ?? ""));
}

const hasStatus = (r: HttpResponse | undefined): boolean => r !== undefined && r.status_code >= 100 && r.status_code <= 999;

const kinds = new Set(["success", "not_modified", "redirect", "failed"]);

/** checkOutcome throws if an outcome lacks what it must have. A failure could be taken for a success. */
function checkOutcome(o: FetchOutcome): void {
  const failed = o.kind === "failed";
  if (!kinds.has(o.kind)) throw broken(`an outcome of an unknown kind, ${o.kind}`);
  if (failed !== (o.error !== undefined)) throw broken(failed ? "the outcome is a failure without an error" : "the outcome has an error, and is none");
  if (!failed && !hasStatus(o.response)) throw broken("the outcome has no response with a status");
}

/** Sequence checks that the events of a fetch are in order and that the pieces of its body fit together. */
export class Sequence {
  head: ResponseStarted | undefined;
  begun = false;
  over = false;
  readonly #delivered: boolean;
  readonly #resume: number;
  #offset = 0; // of the end of the body so far
  #expected = 0; // of the next piece: lower than the offset after the head of a new body

  constructor(policy?: FetchRequestInit["body_policy"]) {
    const delivery = deliveryOf(policy);
    this.#delivered = delivery === undefined || ["stream", "auto", "inline"].includes(delivery);
    this.#resume = Number(policy?.stream?.resume_point?.offset_bytes ?? policy?.auto?.resume_point?.offset_bytes ?? 0);
  }

  check(m: FetchEvent): void {
    if (this.over) throw broken("an event came after the outcome");
    if (m.response_started) {
      this.head = m.response_started;
      if (!hasStatus(this.head.response)) throw broken("a response has no status");
      if (this.head.body_offset_bytes < 0) throw broken(`a body begins at byte ${this.head.body_offset_bytes}`);
      if (!this.begun) this.#offset = this.head.body_offset_bytes;
      this.#expected = Math.min(this.head.body_offset_bytes, this.#offset);
    } else if (m.body_chunk) {
      const { offset_bytes, data } = m.body_chunk;
      if (!this.head) throw broken("a body came before its head");
      if (offset_bytes !== this.#expected) throw broken(`the body continues at byte ${offset_bytes}, want ${this.#expected}`);
      if (!this.begun && offset_bytes > this.#resume) throw broken(`a body begins at byte ${offset_bytes}, want byte ${this.#resume} at most`);
      this.begun = true;
      this.#expected += data.length;
      this.#offset = this.#expected;
    } else if (m.outcome) {
      checkOutcome(m.outcome);
      this.#checkSize(m.outcome);
      this.over = true;
    }
  }

  /** checkSize compares what has arrived of a body with the size in the outcome. */
  #checkSize({ kind, inline_body, body_summary, text_summary }: FetchOutcome): void {
    if (kind !== "success" || !this.#delivered || (!this.begun && this.#resume > 0)) return;
    const got = this.begun ? this.#expected : (inline_body?.length ?? 0);
    const size = (text_summary ?? body_summary)?.size_bytes ?? 0;
    if (got !== size) throw broken(`the body has ${size} bytes, but ${got} came`);
  }
}

export function broken(what: string): ServiceError {
  return new ServiceError("INTERNAL", `the service broke its contract: ${what}`, true);
}
