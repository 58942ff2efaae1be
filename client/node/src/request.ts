import { setMaxListeners } from "node:events";

import { encodeFetchRequest, type FetchRequestInit, type HeadersInit } from "./contract.js";
import { elsewhere, only } from "./options.js";
import { headerList, Writer } from "./wire.js";

/** StoreInit lets the service write the body to a store that its operator has configured. */
export interface StoreInit {
  /** The name of the store. Short for body_policy.store.store. */
  readonly store?: string | undefined;
  /** The key of the object. Short for body_policy.store.key. Without a key the object is named by its digest. */
  readonly key?: string | undefined;
}

/** Policies are the fields of a FetchRequest that the standard init of fetch does not have, and store and key. */
export type Policies = Omit<FetchRequestInit, "url" | "method" | "headers" | "body"> & StoreInit;

/** FetchInit is the init of client.fetch: that of the standard fetch, and the policies of the service. */
export interface FetchInit {
  method?: string | undefined;
  headers?: Headers | HeadersInit | undefined;
  body?: BodyInit | null | undefined;
  /** Aborts the fetch, and its request to the target. The promise rejects with signal.reason. */
  signal?: AbortSignal | null | undefined;
  /** "follow" is the default. "manual" returns the redirect. With "error" a redirect fails with too_many_redirects. */
  redirect?: "follow" | "manual" | "error" | undefined;
  /** Policies of this fetch. A field that is given here wins over the same field of the client's options. */
  fetchd?: Policies | undefined;
  /** Seconds until the call ends at the latest. The service ends the fetch a little earlier, with an outcome. */
  deadline?: number | undefined;
  /** "sha256-" and the digest of the body in base64. Another body fails with the class "integrity". */
  integrity?: string | undefined;

  // These options of fetch have no effect.

  cache?: string | undefined;
  credentials?: string | undefined;
  duplex?: string | undefined;
  keepalive?: boolean | undefined;
  mode?: string | undefined;
  priority?: string | undefined;
  referrerPolicy?: string | undefined;
  window?: null | undefined;
}

const options: ReadonlySet<string> = new Set<keyof FetchInit>([
  "method", "headers", "body", "signal", "redirect", "integrity", "deadline", "fetchd",
  "cache", "credentials", "duplex", "keepalive", "mode", "priority", "referrerPolicy", "window",
]);

type BodyInit = string | ArrayBuffer | ArrayBufferView | URLSearchParams | Blob | FormData | ReadableStream;
type Blob = import("node:buffer").Blob;

/** maxTask is the limit of an encoded request. No valid one exceeds it. */
export const maxTask = 2 << 20;

/** withStore moves store and key into body_policy.store of a request. */
export function withStore<R extends StoreInit>(request: R): Omit<R, "store" | "key"> {
  if (!("store" in request) && !("key" in request)) return request;
  const { store, key, ...rest } = request;
  if (store === undefined) {
    if (key !== undefined) throw new TypeError("key is given without store");
    return rest;
  }
  const policy = (rest as { body_policy?: FetchRequestInit["body_policy"] }).body_policy;
  if (typeof (policy ?? {}) !== "object") throw new TypeError(`body_policy: a ${typeof policy} is not an object`);
  const delivery = deliveryOf(policy);
  if (delivery) throw new TypeError(`store is given with body_policy.${delivery}: give one of them`);
  return { ...rest, body_policy: { ...policy, store: { store, key } } };
}

/** deliveryOf returns the delivery that a body_policy sets. */
export function deliveryOf(policy: FetchRequestInit["body_policy"]): (typeof deliveries)[number] | undefined {
  return deliveries.find((name) => (policy?.[name] ?? undefined) !== undefined);
}

const deliveries = ["stream", "auto", "inline", "digest", "none", "store"] as const;

const writer = new Writer();

/** encode returns a FetchRequest in protobuf. It throws a TypeError that names a field that cannot be encoded. */
export function encode(request: FetchRequestInit): Buffer {
  writer.reset();
  encodeFetchRequest(writer, request);
  if (writer.length > maxTask) {
    const length = writer.length;
    writer.reset();
    throw new TypeError(`the request has ${length} bytes: the limit is ${maxTask}, and a body may have 1 MiB`);
  }
  return writer.finish();
}

/** Parsed is a request in the form of the contract, with what the client itself needs. */
export interface Parsed {
  readonly request: Record<string, unknown> & { url: string };
  readonly signal: AbortSignal | undefined;
  readonly deadline: number | undefined;
}

const normalized = new Set(["delete", "get", "head", "options", "post", "put", "patch"]);

/**
 * parse converts the arguments of fetch. It returns a promise only if the body must be read first.
 */
export function parse(input: string | URL | Request, init: FetchInit | undefined, defaults: Policies | undefined): Parsed | Promise<Parsed> {
  only(init, options, elsewhere, "; fields of FetchRequest are in fetchd");
  const from = typeof input === "object" && !(input instanceof URL) ? input : undefined;
  const request: Record<string, unknown> & { url: string } = withStore({ url: from ? from.url : String(input), ...defaults, ...init?.fetchd });
  const method = init?.method ?? from?.method;
  if (method !== undefined) request.method = normalized.has(method.toLowerCase()) ? method.toUpperCase() : method;

  const redirect = init?.redirect ?? from?.redirect;
  request.redirect_policy = { max_redirects: 20, ...(request.redirect_policy as object) }; // as in fetch
  if (redirect === "manual") request.redirect_policy = { ...(request.redirect_policy as object), follow: false };
  else if (redirect === "error") request.redirect_policy = { ...(request.redirect_policy as object), max_redirects: 0 };
  else if (redirect !== undefined && redirect !== "follow") throw new TypeError(`redirect is ${String(redirect)}: give "follow", "manual" or "error"`);

  const integrity = init?.integrity ?? from?.integrity;
  if (integrity) request.integrity = { ...(request.integrity as object), sha256: hexOf(integrity) };

  const headers = init?.headers ?? (from && init?.headers === undefined ? from.headers : undefined);
  if (headers !== undefined) request.headers = forwarded(headers, (request.body_policy as FetchRequestInit["body_policy"])?.keep_encoding === true);
  withKey(request, init?.fetchd?.retry_policy === undefined);

  const signal = init?.signal === undefined ? from?.signal : (init.signal ?? undefined);
  if (signal && typeof signal.addEventListener !== "function") throw new TypeError("signal: give an AbortSignal");
  const parsed = { request, signal, deadline: init?.deadline };
  const body = init?.body === undefined ? from?.body : init.body;
  if (body === undefined || body === null) return parsed;
  if (typeof body === "string" || body instanceof ArrayBuffer || ArrayBuffer.isView(body)) {
    request.body = body;
    if (typeof body === "string") addType(request, "text/plain;charset=UTF-8");
    return parsed;
  }
  const whole = from && init?.body === undefined ? from : new Response(body as ConstructorParameters<typeof Response>[0]);
  return read(whole, parsed.signal).then((bytes) => {
    request.body = bytes;
    const type = whole.headers.get("content-type");
    if (type) addType(request, type);
    return parsed;
  });
}

/**
 * withKey moves the header idempotency-key to the field with which the service sets it. defaults reports whether the
 * retry_policy is that of the client: then a request without a key is sent once.
 */
function withKey(request: Record<string, unknown>, defaults: boolean): void {
  const list = request.headers;
  const policy = request.retry_policy as FetchRequestInit["retry_policy"];
  const key = Array.isArray(list) ? (list as { name: string; value: string }[]).find((field) => nameOf(field) === "idempotency-key") : undefined;
  if (key) {
    request.headers = (list as unknown[]).filter((field) => field !== key);
    request.retry_policy = { ...policy, idempotency_key: key.value };
  } else if (defaults && policy?.allow_non_idempotent) request.retry_policy = { ...policy, allow_non_idempotent: false };
}

/** hexOf returns the digest of an integrity of the standard fetch as the contract has it. */
function hexOf(integrity: string): string {
  const [, digest] = /^\s*sha256-([A-Za-z0-9+/]{43}=)\s*$/.exec(integrity) ?? [];
  if (!digest) throw new TypeError('integrity: give one digest, as "sha256-" and 44 characters of base64');
  return Buffer.from(digest, "base64").toString("hex");
}

/** reasonOf returns why a signal has aborted. That of another implementation of AbortController may have no reason. */
export function reasonOf(signal: AbortSignal | undefined): unknown {
  return signal && "reason" in signal ? signal.reason : new DOMException("This operation was aborted", "AbortError");
}

/** checkAborted throws the reason if a signal has aborted. */
export function checkAborted(signal: AbortSignal | undefined): void {
  if (signal?.aborted) throw reasonOf(signal);
}

/** onAbort calls abort when a signal aborts. Node warns about more than ten listeners, but each fetch removes its own. */
export function onAbort(signal: AbortSignal | undefined, abort: () => void): void {
  if (!signal) return;
  if (signal instanceof AbortSignal) setMaxListeners(0, signal);
  signal.addEventListener("abort", abort, { once: true });
}

/** read returns a body. It stops at the limit of a request, and when the signal aborts. */
async function read(from: Request | Response, signal: AbortSignal | undefined): Promise<Buffer> {
  if (signal?.aborted) void from.body?.cancel(reasonOf(signal)).catch(() => undefined);
  checkAborted(signal);
  if (from.bodyUsed || !from.body) return Buffer.from(await from.arrayBuffer());
  const reader = (from.body as ReadableStream<Uint8Array>).getReader();
  const pieces: Uint8Array[] = [];
  let size = 0;
  const abort = (): void => void reader.cancel(reasonOf(signal)).catch(() => undefined);
  onAbort(signal, abort);
  try {
    for (;;) {
      const { done, value } = await reader.read();
      checkAborted(signal);
      if (done) return Buffer.concat(pieces, size);
      pieces.push(value);
      size += value.length;
      if (size > maxTask) {
        void reader.cancel().catch(() => undefined);
        throw new TypeError(`the body has more than ${maxTask} bytes: it may have 1 MiB`);
      }
    }
  } finally {
    signal?.removeEventListener("abort", abort);
  }
}

/** forwarded returns header fields as a list. The service decodes a body only if it asks for the codings itself. */
function forwarded(headers: unknown, keepEncoding: boolean): unknown {
  const list = headerList(headers);
  return Array.isArray(list) ? list.filter((field) => !ofConnection.has(nameOf(field)) || (keepEncoding && nameOf(field) === "accept-encoding")).map(latin1) : list;
}

/** latin1 returns a header field in which a character is a byte, as in fetch. */
function latin1(field: unknown): unknown {
  const { name, value } = field as { name: string; value: unknown };
  if (typeof value !== "string" || !/[^\0-\x7f]/.test(value) || nameOf(field) === "idempotency-key") return field;
  if (/[^\0-\xff]/.test(value)) throw new TypeError(`headers: the value of ${name} has a character above U+00FF, which is no byte: encode it`);
  return { name, raw_value: Buffer.from(value, "latin1") };
}

// The service makes these header fields itself.
const ofConnection: ReadonlySet<string> = new Set(["accept-encoding", "connection", "content-length", "keep-alive", "te", "transfer-encoding"]);

const nameOf = (field: unknown): string => String((field as { name?: unknown } | null)?.name).toLowerCase();

/** addType sets the Content-Type of a body, as fetch does, unless the caller has. */
function addType(request: Record<string, unknown>, type: string): void {
  const list = (request.headers ?? []) as unknown[];
  if (!Array.isArray(list) || list.some((field) => nameOf(field) === "content-type")) return;
  request.headers = [...(list as unknown[]), { name: "content-type", value: type }];
}
