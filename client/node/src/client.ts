import { framed } from "./call.js";
import { Channel, type Call, type ChannelOptions } from "./channel.js";
import {
  decodeExplainResponse, decodeFetchResponse, encodeExplainRequest, type ExplainRequestInit, type ExplainResponse, type FetchEvent, type FetchOutcome,
  type FetchRequestInit,
} from "./contract.js";
import { FetchError, ServiceError, unknownEffect } from "./errors.js";
import { defaultBodyBytes, Many, maxSends, returned, Task } from "./many.js";
import { elsewhere, only } from "./options.js";
import { checkAborted, deliveryOf, encode, onAbort, parse, reasonOf, withStore, type FetchInit, type Parsed, type Policies, type StoreInit } from "./request.js";
import { broken, hasResponse, isTruncated, responseOf, Sequence, shown, type ClientResponse } from "./response.js";
import { Result } from "./result.js";
import { Reader, Writer } from "./wire.js";

/** ClientOptions are the options of a Client. */
export interface ClientOptions extends ChannelOptions {
  /** Policies of every fetch that does not set the same field itself. */
  readonly fetchd?: Policies | undefined;
}

/** CallInit limits a call. */
export interface CallInit {
  /** Aborts the call. It then fails with signal.reason. */
  readonly signal?: AbortSignal | undefined;
  /** Seconds until the call ends at the latest. */
  readonly deadline?: number | undefined;
}

/** ManyInit limits fetchMany. */
export interface ManyInit {
  /** Aborts all fetches. The iteration then throws signal.reason. */
  readonly signal?: AbortSignal | undefined;
  /** The maximum number of fetches whose results you have not received yet. The default is 64. */
  readonly open?: number | undefined;
}

/** What fetchMany takes for one fetch: a URL, or a request of the contract, with store and key. */
export type ManyRequest = string | URL | (FetchRequestInit & StoreInit);

const clientOptions: ReadonlySet<string> = new Set<keyof ClientOptions>(["token", "ca", "cert", "key", "metadata", "fetchd"]);
const callOptions: ReadonlySet<string> = new Set<keyof CallInit>(["signal", "deadline"]);
const manyOptions: ReadonlySet<string> = new Set<keyof ManyInit>(["signal", "open"]);
const ofRequest = "; other settings are fields of a request, such as { url, method, timeout_policy }";

/** Client fetches URLs through a service. One client serves a whole program. */
export class Client {
  readonly #channel: Channel;
  readonly #many: Many;
  readonly #policies: Policies | undefined;

  /**
   * The address of the service is HOST:PORT, dns:///HOST:PORT, http://HOST:PORT or https://HOST:PORT. The first two use
   * TLS if ca, cert or key is given. Calls are spread over all addresses of the host, or over several services. No
   * connection is made before the first call.
   */
  constructor(service: string | URL | readonly (string | URL)[], options: ClientOptions = {}) {
    only(options, clientOptions, elsewhere, "");
    this.#channel = new Channel(service, options);
    this.#many = new Many(this.#channel);
    this.#policies = options.fetchd;
    if (this.#policies?.retry_policy?.idempotency_key) throw new TypeError("fetchd.retry_policy.idempotency_key would be the key of each request: give each its own header idempotency-key");
    this.fetch = Object.defineProperty(this.fetch.bind(this), "name", { value: "fetch" }); // so that it can be passed on
    Object.defineProperty(this.fetch, "length", { value: 1 });
  }

  /**
   * fetch is used like the standard fetch. It resolves when the response starts, also if its status is that of a
   * failure. It rejects with a FetchError if there is no response, with a ServiceError if the service cannot be used or
   * refuses the request, and with a TypeError for an option that does not exist. The service retries, so no loop is needed.
   *
   *     const response = await client.fetch("https://example.com/", { deadline: 30, fetchd: { retry_policy: { max_attempts: 5 } } });
   *     console.log(response.status, await response.text());
   */
  fetch(input: string | URL | Request, init?: FetchInit): Promise<ClientResponse> {
    return new Promise((resolve, reject) => {
      const parsed = parse(input, init, this.#policies);
      if (parsed instanceof Promise) parsed.then((p) => this.#fetch(p, resolve, reject)).catch(reject);
      else this.#fetch(parsed, resolve, reject);
    });
  }

  #fetch({ request, signal, deadline }: Parsed, resolve: (r: ClientResponse) => void, reject: (e: unknown) => void): void {
    checkAborted(signal);
    request.event_level ??= "outcome";
    const policy = request.body_policy as NonNullable<Policies["body_policy"]> | undefined;
    const delivery = deliveryOf(policy);
    const recovery = (policy?.stream ?? policy?.auto)?.recovery;
    if (recovery === "restart" || recovery === "BODY_RECOVERY_RESTART") throw new TypeError(`body_policy.${delivery}.recovery: a Response cannot start again: use events for "restart"`);
    // A body that is read as a stream needs no limit but that of the service.
    request.body_policy = { ...(delivery ? {} : { auto: {} }), max_error_body_bytes: 65536, ...(delivery === "inline" ? {} : { max_size_bytes: Number.MAX_SAFE_INTEGER }), ...policy };
    const { url, method, retry_policy, body_policy } = request as FetchRequestInit & { url: string };
    const fetching = new Fetching({ url, method, retry_policy, body_policy }, signal, deadline, resolve, reject);
    if (delivery === "inline" && deadline === undefined) {
      const task = new Task(encode(request), defaultBodyBytes, (outcome, error) => (outcome ? fetching.outcome(outcome) : fetching.fail(error)), body_policy);
      fetching.cancel = () => this.#many.cancel(task);
      this.#many.send(task);
      return;
    }
    const message = framed(encode(request));
    fetching.start = () => (fetching.call = this.#channel.call({ method: "Fetch", request: message, deadline, receiver: fetching }));
    fetching.cancel = () => fetching.call?.cancel();
    fetching.start();
  }

  /**
   * events runs one fetch and yields its events as they happen, the pieces of its body too. The last one is the
   * outcome; a fetch that failed is an outcome here, not an error. Leaving the loop cancels the fetch.
   */
  async *events(request: ManyRequest, init: CallInit = {}): AsyncGenerator<FetchEvent, void, undefined> {
    only(init, callOptions, {}, ofRequest);
    const { signal, deadline } = init;
    checkAborted(signal);
    const asked = this.#withPolicies(request);
    const message = encode(asked);
    const queue: FetchEvent[] = [];
    const sequence = new Sequence(asked.body_policy);
    let wake: () => void = () => undefined;
    let over = false;
    let failure: unknown;
    const call = this.#channel.call({
      method: "Fetch",
      request: framed(message),
      deadline,
      receiver: {
        message(bytes) {
          for (const event of decodeFetchResponse(new Reader(bytes), bytes.length).events) {
            sequence.check(event);
            queue.push(event);
          }
          if (queue.length >= 16) call.pause();
          wake();
        },
        end(error) {
          over = true;
          const lost = error ?? (sequence.over ? undefined : broken("the call ended without an outcome"));
          failure = lost && unknownEffect(lost, asked);
          wake();
        },
      },
    });
    const abort = (): void => {
      call.cancel();
      queue.length = 0;
      over = true;
      failure = reasonOf(signal);
      wake();
    };
    onAbort(signal, abort);
    try {
      for (;;) {
        const next = queue.shift();
        if (next) {
          if (queue.length === 0) call.resume();
          yield next;
        } else if (over) {
          if (failure !== undefined) throw failure;
          return;
        } else await new Promise<void>((resolve) => (wake = resolve));
      }
    } finally {
      signal?.removeEventListener("abort", abort);
      call.cancel();
    }
  }

  #withPolicies(request: ManyRequest): FetchRequestInit {
    return withStore({ ...this.#policies, ...(isUrl(request) ? { url: String(request) } : request) });
  }

  /**
   * fetchMany fetches the URLs of an iterable and yields a Result for each when it ends. It reads the next URL only
   * when there is capacity for it. A fetch that fails does not end the iteration, nor does a request that is not
   * valid. Leaving the loop cancels the fetches in flight. It throws a ServiceError if the service cannot be used.
   */
  async *fetchMany<R extends ManyRequest>(requests: Iterable<R> | AsyncIterable<R>, init: ManyInit = {}): AsyncGenerator<Result<R>, void, undefined> {
    only(init, manyOptions, {}, ofRequest);
    const { signal, open = 64 } = init;
    if (!(open >= 1)) throw new TypeError(`open is ${open}: give at least 1`);
    checkAborted(signal);
    const source = Symbol.asyncIterator in requests ? requests[Symbol.asyncIterator]() : requests[Symbol.iterator]();
    const tasks = new Set<Task>(); // in flight
    const results: Result<R>[] = [];
    let wake: () => void = () => undefined;
    let reading = false;
    let ended = false;
    let failed = false;
    let failure: unknown;

    const fail = (error: unknown): void => {
      ended = failed = true;
      failure = error;
      wake();
    };
    const start = (request: R): void => {
      let asked: FetchRequestInit;
      let message: Buffer;
      let limit: number;
      try {
        asked = whole(this.#withPolicies(request));
        limit = Number(asked.body_policy?.max_size_bytes ?? defaultBodyBytes);
        message = encode(asked);
      } catch (error) {
        results.push(Result.invalid(request, error as TypeError));
        wake();
        return;
      }
      const task = new Task(message, limit, (outcome, error) => {
        tasks.delete(task);
        if (outcome) results.push(Result.of(request, outcome));
        else if (error?.sent === false) return fail(error);
        else results.push(Result.lost(request, unknownEffect(error as ServiceError, asked)));
        wake();
      }, asked.body_policy);
      tasks.add(task);
      this.#many.send(task);
    };
    const take = ({ done, value }: IteratorResult<R>): void => {
      if (done) {
        ended = true;
        wake();
      } else if (!failed) start(value);
    };
    const fill = (): void => {
      try {
        while (!ended && !reading && tasks.size + results.length < open) {
          const next = source.next();
          if (!isThenable(next)) {
            take(next as IteratorResult<R>);
            continue;
          }
          reading = true;
          next.then((r) => {
            reading = false;
            take(r);
            fill();
          }, fail);
        }
      } catch (error) {
        fail(error);
      }
    };
    const abort = (): void => {
      results.length = 0;
      fail(reasonOf(signal));
    };
    onAbort(signal, abort);
    try {
      for (;;) {
        fill();
        const result = results.shift();
        if (result) yield result;
        else if (failed) throw failure;
        else if (ended && tasks.size === 0) return;
        else await new Promise<void>((resolve) => (wake = resolve));
      }
    } finally {
      signal?.removeEventListener("abort", abort);
      ended = failed = true;
      for (const task of tasks) this.#many.cancel(task);
      if (!reading) await source.return?.();
      else void Promise.resolve(source.return?.()).catch(() => undefined); // it ends after the next request, which nobody awaits
    }
  }

  /** explain returns what the service would decide about an observation. Nothing is fetched. */
  explain(request: ExplainRequestInit, init: CallInit = {}): Promise<ExplainResponse> {
    return new Promise((resolve, reject) => {
      only(init, callOptions, {}, "");
      const { signal, deadline = 10 } = init;
      checkAborted(signal);
      const writer = new Writer();
      encodeExplainRequest(writer, request);
      let response: ExplainResponse | undefined;
      const call = this.#channel.call({
        method: "Explain",
        request: framed(writer.finish()),
        deadline,
        receiver: {
          message: (bytes) => (response = decodeExplainResponse(new Reader(bytes), bytes.length)),
          end: (error) => {
            signal?.removeEventListener("abort", abort);
            if (response && !error) resolve(response);
            else reject(error ?? broken("Explain ended without a response"));
          },
        },
      });
      const abort = (): void => {
        call.cancel();
        reject(reasonOf(signal));
      };
      onAbort(signal, abort);
    });
  }

  /** close ends all calls and connections. Fetches in flight fail. */
  close(): Promise<void> {
    return this.#channel.close();
  }

  [Symbol.asyncDispose](): Promise<void> {
    return this.close();
  }
}

const empty = new Uint8Array(0);

const isUrl = (request: ManyRequest): request is string | URL => typeof request === "string" || request instanceof URL;

/** isThenable reports whether a value is a promise, also one that is not the platform's. */
const isThenable = <T>(value: T | PromiseLike<T>): value is PromiseLike<T> => typeof (value as { then?: unknown }).then === "function";

/** whole asks for a body of any size that fits into memory, small ones with the outcome. */
function whole(request: FetchRequestInit): FetchRequestInit {
  const { body_policy, retry_policy } = request;
  // This profile has no limit of its own.
  const limit = retry_policy?.profile === "download" ? { max_size_bytes: defaultBodyBytes } : {};
  return { ...request, body_policy: typeof (body_policy ?? {}) === "object" ? { ...(deliveryOf(body_policy) ? {} : { auto: {} }), ...limit, ...body_policy } : body_policy };
}

/** Controller is a ReadableByteStreamController. Its byobRequest has the type undefined in the types of Node 18. */
type Controller = Omit<ReadableByteStreamController, "byobRequest"> & { readonly byobRequest: { respond(bytes: number): void } | null | undefined };

/** Sent is what is kept of a request. Its body may be large. */
type Sent = Pick<FetchRequestInit, "method" | "retry_policy" | "body_policy"> & { readonly url: string };

/** Waiting is a call of outcomeOf. */
interface Waiting {
  readonly resolve: (outcome: FetchOutcome) => void;
  readonly reject: (error: unknown) => void;
  /** Whether nothing reads the body. */
  readonly unread: () => boolean;
}

/** Fetching turns what the service sends for one fetch into a Response. */
class Fetching {
  call: Call | undefined;
  start: (() => void) | undefined; // sends the fetch again
  cancel: () => void = () => undefined;
  #sends = 1;
  readonly #request: Sent;
  readonly #signal: AbortSignal | undefined;
  readonly #deadline: number | undefined;
  readonly #resolve: (response: ClientResponse) => void;
  readonly #reject: (error: unknown) => void;
  #sequence: Sequence;
  readonly #abort = (): void => this.#aborted();
  #body: Controller | undefined;
  #ended = false;
  #outcome: FetchOutcome | undefined;
  #error: unknown;
  #waiting: Waiting[] = []; // for the outcome

  constructor(request: Sent, signal: AbortSignal | undefined, deadline: number | undefined, resolve: (response: ClientResponse) => void, reject: (error: unknown) => void) {
    this.#request = request;
    this.#sequence = new Sequence(request.body_policy);
    this.#signal = signal;
    this.#deadline = deadline;
    this.#resolve = resolve;
    this.#reject = reject;
    onAbort(signal, this.#abort);
  }

  message(bytes: Buffer): void {
    const sequence = this.#sequence; // a fetch that is sent again has another one
    for (const event of decodeFetchResponse(new Reader(bytes), bytes.length).events) {
      sequence.check(event);
      if (event.body_chunk) this.#piece(event.body_chunk.data);
      else if (event.outcome) this.outcome(event.outcome);
    }
  }

  end(error: ServiceError | undefined): void {
    if (!this.#ended) this.fail(error ?? broken("the call ended without an outcome"));
  }

  /** piece adds a piece to the body. The first one starts the response. */
  #piece(data: Uint8Array): void {
    if (this.#ended) return;
    if (!this.#body) {
      const source = {
        type: "bytes",
        start: (controller: Controller) => void (this.#body = controller),
        pull: () => this.call?.resume(),
        cancel: () => this.#stop(new DOMException("The body was cancelled", "AbortError")),
      } as unknown as undefined; // the types of Node 18 do not know "bytes"
      const body = new ReadableStream<Uint8Array>(source, { highWaterMark: 65536 });
      const head = this.#sequence.head;
      this.#resolve(responseOf({ response: head?.response, url: head?.url || this.#request.url, requested: this.#request.url, signal: this.#signal, outcome: this.#whenOver }, body));
    }
    const body = this.#body as unknown as Controller;
    body.enqueue(new Uint8Array(data)); // a copy: enqueue takes the memory, which the connection shares
    if ((body.desiredSize ?? 0) > 0) return;
    this.call?.pause();
    this.#checkUnread();
  }

  /** checkUnread rejects the calls of outcomeOf that would wait forever: the buffer is full, and nothing reads it. */
  #checkUnread(): void {
    if (this.#ended || !this.#body || (this.#body.desiredSize ?? 0) > 0) return;
    const stuck = this.#waiting.filter((w) => w.unread());
    this.#waiting = this.#waiting.filter((w) => !stuck.includes(w));
    for (const w of stuck) w.reject(new TypeError("outcomeOf waits for the end of the body, which nothing reads: read the body first, or cancel it with response.body.cancel()"));
  }

  outcome(outcome: FetchOutcome): void {
    if (this.#ended) return;
    if (this.start && returned(outcome) && this.#sends++ < maxSends) {
      this.call?.cancel();
      this.#sequence = new Sequence(this.#request.body_policy);
      this.start();
      return;
    }
    this.#over();
    this.#outcome = outcome;
    for (const w of this.#waiting) w.resolve(outcome);
    if (this.#body) {
      if (outcome.kind === "failed") this.#body.error(new FetchError(outcome, this.#deadline));
      else this.#closeBody();
    } else if (!hasResponse(outcome)) this.#reject(new FetchError(outcome, this.#deadline));
    else {
      const body = outcome.kind === "success" ? (outcome.inline_body ?? empty) : outcome.error_body;
      this.#resolve(responseOf({ response: shown(outcome), url: outcome.final_url, requested: this.#request.url, signal: this.#signal, outcome: this.#whenOver, stored: outcome.stored_object, truncated: isTruncated(outcome, this.#request.body_policy?.max_error_body_bytes ?? 0) }, outcome.stored_object ? undefined : body));
    }
  }

  #closeBody(): void {
    const body = this.#body as Controller;
    body.close();
    body.byobRequest?.respond(0); // a reader that waits with its own buffer
  }

  fail(error: unknown): void {
    if (this.#ended) return;
    this.#over();
    if (error instanceof ServiceError) error = unknownEffect(error, this.#request);
    this.#error = error;
    for (const w of this.#waiting) w.reject(error);
    if (this.#body) this.#body.error(error);
    else this.#reject(error);
  }

  #over(): void {
    this.#ended = true;
    this.#signal?.removeEventListener("abort", this.#abort);
  }

  #aborted(): void {
    this.cancel();
    this.fail(reasonOf(this.#signal));
  }

  /** stop ends the fetch when its body is no longer wanted. */
  #stop(reason: unknown): void {
    if (this.#ended) return;
    this.cancel();
    this.#over();
    this.#error = reason;
    for (const w of this.#waiting) w.reject(reason);
  }

  readonly #whenOver = (unread: () => boolean): Promise<FetchOutcome> =>
    new Promise((resolve, reject) => {
      if (this.#outcome) resolve(this.#outcome);
      else if (this.#ended) reject(this.#error);
      else {
        this.#waiting.push({ resolve, reject, unread });
        setImmediate(() => this.#checkUnread()); // the caller may read the body next, as in Promise.all
      }
    });
}

/** createFetch returns the function fetch of a client, for libraries that accept one. */
export function createFetch(client: Client): typeof fetch {
  return client.fetch as typeof fetch;
}
