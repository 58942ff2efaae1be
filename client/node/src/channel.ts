import { lookup } from "node:dns/promises";
import { connect as connectHttp2, constants, type ClientHttp2Session, type IncomingHttpHeaders, type OutgoingHttpHeaders } from "node:http2";
import { connect as connectTcp, isIP, type Socket } from "node:net";
import { connect as connectTls } from "node:tls";

import { addressOf } from "./address.js";
import { Exchange, openCalls, otherPort, type Receiver } from "./call.js";
import { ServiceError } from "./errors.js";

/** ChannelOptions say how the services are reached. */
export interface ChannelOptions {
  /** Bearer token, or a function that returns the current one. It is called for each call. */
  readonly token?: string | (() => string | Promise<string>) | undefined;
  /** Certificate authorities in PEM, instead of the system's. */
  readonly ca?: string | Buffer | readonly (string | Buffer)[] | undefined;
  /** Client certificate in PEM. */
  readonly cert?: string | Buffer | undefined;
  /** Private key of the client certificate in PEM. */
  readonly key?: string | Buffer | undefined;
  /** Further headers of each call, in lower case. Headers that the client sets itself are not allowed. */
  readonly metadata?: Readonly<Record<string, string>> | undefined;
}

const connectTimeout = 10_000;
const pingInterval = 30_000; // fetchd rejects pings more often than every 10 s
const pingTimeout = 20_000;
const window = 1 << 20; // what may wait unread, for each stream
const maxTries = 4; // of one call, as in the published service config
const throttle = { tokens: 1000, ratio: 0.1 }; // the same

/** CallOptions describe one call. */
export interface CallOptions {
  readonly method: "Fetch" | "FetchMany" | "Explain";
  /** The only message, framed. If it is missing, the caller writes messages with Call.write. */
  readonly request?: Buffer | undefined;
  /** Seconds. */
  readonly deadline?: number | undefined;
  readonly receiver: { message(bytes: Buffer): void; end(error: ServiceError | undefined): void };
}

/** Channel keeps connections to all replicas of a service and spreads calls over them. */
export class Channel {
  readonly #targets: readonly URL[];
  readonly #options: ChannelOptions;
  readonly #connections = new Map<string, Connection>(); // by address
  readonly #waiting = new Set<() => void>(); // calls that need a connection
  readonly #calls = new Set<Call>(); // that are not over
  #ready: Connection[] = [];
  #next = 0;
  #tokens = throttle.tokens;
  #resolving = false;
  #resolved = false;
  #lastError = "no address was tried";
  #closed = false;

  constructor(targets: string | URL | readonly (string | URL)[], options: ChannelOptions) {
    const list = Array.isArray(targets) ? (targets as readonly (string | URL)[]) : [targets as string | URL];
    const { ca, cert, key } = options;
    this.#targets = list.map((t) => addressOf(t, (ca ?? cert ?? key) !== undefined));
    this.#options = options;
    if (typeof options.token === "string") bearer(options.token);
    for (const [name, value] of Object.entries(options.metadata ?? {})) {
      if (!/^[a-z0-9._-]+$/.test(name) || !/^[\x20-\x7e]*$/.test(value)) throw new TypeError(`metadata ${JSON.stringify(name)}: the name is not in lower case, or the value is not ASCII`);
      const reserved = /^grpc-|^(connection|content-length|content-type|host|http2-settings|keep-alive|proxy-connection|te|transfer-encoding|upgrade)$/.test(name);
      if (reserved) throw new TypeError(`metadata "${name}": the client sets this header itself${name === "grpc-timeout" ? ": use the option deadline of fetch" : ""}`);
    }
    if (list.length === 0) throw new TypeError("there is no address of a service");
  }

  /** replicas is the number of connections that can take a call. */
  get replicas(): number {
    return this.#ready.length;
  }

  get closed(): boolean {
    return this.#closed;
  }

  call(options: CallOptions): Call {
    const call = new Call(this, options, () => this.#calls.delete(call));
    this.#calls.add(call);
    queueMicrotask(() => call.start()); // a call that fails at once must not end before the caller has it
    return call;
  }

  /** headers returns the request headers of a call. until is its deadline by performance.now. */
  headers(options: CallOptions, until: number | undefined): OutgoingHttpHeaders | Promise<OutgoingHttpHeaders> {
    const { token, metadata } = this.#options;
    const headers: OutgoingHttpHeaders = {
      ":method": "POST",
      ":path": `/fetchd.v1.FetchService/${options.method}`,
      "content-type": "application/grpc",
      te: "trailers",
    };
    if (until !== undefined) headers["grpc-timeout"] = `${Math.min(99_999_999, Math.max(1, Math.round(until - performance.now())))}m`;
    if (metadata) Object.assign(headers, metadata);
    if (token === undefined) return headers;
    const value = typeof token === "string" ? token : token();
    if (typeof value === "string") {
      headers.authorization = bearer(value);
      return headers;
    }
    return Promise.resolve(value).then((v) => ((headers.authorization = bearer(v)), headers));
  }

  /** pick returns the connection with the fewest calls. Connections with equally many take turns. */
  pick(): Connection | undefined {
    const { length } = this.#ready;
    let best: Connection | undefined;
    for (let i = 0; i < length; i++) {
      const c = this.#ready[(this.#next + i) % length] as Connection;
      if (!best || c.calls < best.calls) best = c;
    }
    this.#next++;
    return best;
  }

  /**
   * connection calls use when a connection is ready, or with an error when each address has failed once more. It
   * returns a function that withdraws the wish.
   */
  connection(use: (error?: ServiceError) => void): () => void {
    const waiting = (): void => {
      if (this.#closed) use(closed(false));
      else if (this.#ready.length > 0) use();
      else if (this.#resolving || [...this.#connections.values()].some((c) => c.connecting)) return;
      else use(new ServiceError("UNAVAILABLE", `the service cannot be reached: ${this.#lastError}`));
      this.#waiting.delete(waiting);
    };
    this.#waiting.add(waiting);
    if (!this.#closed) {
      for (const c of this.#connections.values()) c.connect();
      if (!this.#resolved || this.#connections.size === 0) void this.#resolve();
    }
    queueMicrotask(() => this.#waiting.has(waiting) && waiting());
    return () => this.#waiting.delete(waiting);
  }

  #wake(): void {
    for (const waiting of [...this.#waiting]) waiting();
  }

  /** resolve looks up the addresses of all targets, and adds and removes connections. */
  async #resolve(): Promise<void> {
    if (this.#resolving || this.#closed) return;
    this.#resolving = this.#resolved = true;
    const found = new Map<string, { target: URL; host: string; port: number }>();
    let complete = true;
    for (const target of this.#targets) {
      const name = target.hostname.replace(/^\[|\]$/g, "");
      const port = Number(target.port) || (target.protocol === "https:" ? 443 : 80);
      try {
        const hosts = isIP(name) ? [name] : (await lookup(name, { all: true })).map((a) => a.address);
        for (const host of hosts) found.set(`${target.origin} ${host}`, { target, host, port });
      } catch (e) {
        complete = false; // the addresses that are known may still be right
        this.#lastError = (e as Error).message;
      }
    }
    this.#resolving = false;
    if (this.#closed) return;
    for (const [key, c] of this.#connections) {
      if (complete && !found.has(key)) {
        this.#connections.delete(key);
        c.leave();
      }
    }
    this.#ready = this.#ready.filter((c) => c.ready);
    for (const [key, { target, host, port }] of found) {
      if (this.#connections.has(key)) continue;
      const c = new Connection(target, host, port, this.#options, (error) => this.#changed(c, error));
      this.#connections.set(key, c);
      c.connect();
    }
    this.#wake();
  }

  /** changed is called when a connection became ready, or is no longer ready. */
  #changed(c: Connection, error: string | undefined): void {
    this.#ready = [...this.#connections.values()].filter((c) => c.ready);
    if (error !== undefined) {
      this.#lastError = error;
      if (isIP(c.target.hostname) === 0) void this.#resolve(); // the replica may have another address now
    }
    this.#wake();
  }

  /** mayRetry takes a token for a failure, and reports whether a retry is allowed. */
  mayRetry(): boolean {
    this.#tokens = Math.max(0, this.#tokens - 1);
    return this.#tokens > throttle.tokens / 2;
  }

  succeeded(): void {
    this.#tokens = Math.min(throttle.tokens, this.#tokens + throttle.ratio);
  }

  /** close ends all calls. */
  async close(): Promise<void> {
    this.#closed = true;
    for (const call of [...this.#calls]) call.close();
    this.#wake();
    const all = [...this.#connections.values()];
    this.#connections.clear();
    this.#ready = [];
    await Promise.all(all.map((c) => c.destroy()));
  }
}

/** closed returns the error of a call that the client ended, or did not start. */
function closed(sent: boolean): ServiceError {
  return new ServiceError("CANCELLED", "the client is closed", sent);
}

/** bearer returns the value of Authorization for a token, which it never quotes. */
function bearer(token: string): string {
  if (typeof token !== "string" || !/^[\x21-\x7e]+$/.test(token)) throw new TypeError("the token is empty or has a character that a header cannot have");
  return `Bearer ${token}`;
}

/** Call is a call with its retries. Only calls that were certainly not processed are repeated. */
export class Call {
  readonly #channel: Channel;
  readonly #options: CallOptions;
  readonly #until: number | undefined;
  readonly #forget: () => void;
  readonly #limit: NodeJS.Timeout | undefined;
  #exchange: Exchange | undefined;
  #early: Buffer[] = []; // written before there is a stream
  #halfClosed = false;
  #paused = false;
  #over = false;
  #answered = false;
  #tries = 0;
  #withdraw: (() => void) | undefined;
  #timer: NodeJS.Timeout | undefined;

  /** forget is called when the call is over. */
  constructor(channel: Channel, options: CallOptions, forget: () => void) {
    this.#channel = channel;
    this.#options = options;
    this.#forget = forget;
    if (options.deadline === undefined) return;
    const ms = options.deadline * 1000;
    this.#until = performance.now() + ms;
    // A timer cannot be longer. The service keeps the deadline too, but it may be silent or not be reached.
    if (ms < 2 ** 31) this.#limit = setTimeout(() => this.#stop(new ServiceError("DEADLINE_EXCEEDED", `the call did not end within its deadline of ${options.deadline} s`, this.#sent)), ms);
  }

  /** start is called again for each retry. */
  start(): void {
    if (this.#over) return;
    const connection = this.#channel.closed ? undefined : this.#channel.pick();
    if (!connection) {
      this.#withdraw = this.#channel.connection((error) => (error ? this.#ended(error, {}) : this.start()));
      return;
    }
    let headers: OutgoingHttpHeaders | Promise<OutgoingHttpHeaders>;
    try {
      headers = this.#channel.headers(this.#options, this.#until);
    } catch (e) {
      this.#noToken(e);
      return;
    }
    if (headers instanceof Promise) headers.then((h) => this.#open(connection, h), (e: unknown) => this.#noToken(e));
    else this.#open(connection, headers);
  }

  #noToken(e: unknown): void {
    this.#settle(new ServiceError("UNAUTHENTICATED", `the function token failed: ${e instanceof Error ? e.message : String(e)}`));
  }

  #open(connection: Connection, headers: OutgoingHttpHeaders): void {
    if (this.#over) return;
    let exchange: Exchange | undefined;
    try {
      exchange = connection.open(headers, {
        message: (bytes) => {
          this.#answered = true;
          this.#options.receiver.message(bytes);
        },
        end: (error, trailers) => this.#ended(error, trailers),
      });
    } catch (e) {
      this.#settle(new ServiceError("INTERNAL", `the call cannot be sent: ${(e as NodeJS.ErrnoException).code ?? "invalid headers"}`));
      return;
    }
    if (!exchange) {
      this.#ended(new ServiceError("UNAVAILABLE", "the connection is closing"), {});
      return;
    }
    this.#exchange = exchange;
    if (this.#paused) exchange.pause();
    if (this.#options.request) exchange.finish(this.#options.request);
    else {
      for (const frames of this.#early) exchange.write(frames);
      this.#early = [];
      if (this.#halfClosed) exchange.finish();
    }
  }

  #ended(error: ServiceError | undefined, trailers: IncomingHttpHeaders): void {
    if (this.#over) return;
    if (!error) this.#channel.succeeded();
    else {
      const wait = this.#wait(error, trailers);
      if (wait !== undefined) {
        this.#exchange = undefined;
        this.#timer = setTimeout(() => this.start(), wait);
        return;
      }
    }
    this.#settle(error);
  }

  /** wait returns the milliseconds until the next try, or undefined if there is none. */
  #wait(error: ServiceError, trailers: IncomingHttpHeaders): number | undefined {
    const unsent = !error.sent && !this.#answered;
    if (unsent && error.code === "RESOURCE_EXHAUSTED" && error.reason === "QUOTA" && error.retryIn && this.#options.request && !this.#channel.closed) {
      const wait = error.retryIn * 1000; // it counts as no try
      return wait < 2 ** 31 && (this.#until === undefined || performance.now() + wait < this.#until) ? wait : undefined;
    }
    this.#tries++;
    const retried =
      (unsent && error.code === "UNAVAILABLE") ||
      (unsent && error.code === "RESOURCE_EXHAUSTED") ||
      (this.#options.method === "Explain" && error.code === "UNAVAILABLE"); // it fetches nothing
    if (!retried || this.#tries >= maxTries || this.#channel.closed) return undefined;
    if (this.#exchange && !this.#options.request) return undefined; // what was written is gone
    if (!this.#channel.mayRetry()) return undefined;
    const pushback = trailers["grpc-retry-pushback-ms"];
    if (pushback !== undefined) return /^\d{1,7}$/.test(String(pushback)) ? Number(pushback) : undefined;
    return Math.random() * Math.min(1000, 100 * 2 ** (this.#tries - 1));
  }

  /** sent reports whether the service may have the request. */
  get #sent(): boolean {
    return this.#exchange !== undefined;
  }

  #settle(error: ServiceError | undefined): void {
    if (this.#over) return;
    this.#finish();
    this.#options.receiver.end(error);
  }

  #finish(): void {
    this.#over = true;
    clearTimeout(this.#limit);
    this.#forget();
  }

  /** stop cancels the call and tells the receiver why. */
  #stop(error: ServiceError): void {
    if (this.#over) return;
    this.cancel();
    this.#options.receiver.end(error);
  }

  /** close ends the call because its client is closed. */
  close(): void {
    this.#stop(closed(this.#sent));
  }

  /** write sends messages that are already framed. */
  write(frames: Buffer): void {
    if (this.#exchange) this.#exchange.write(frames);
    else this.#early.push(frames);
  }

  /** halfClose says that no message follows. */
  halfClose(): void {
    this.#halfClosed = true;
    this.#exchange?.finish();
  }

  pause(): void {
    this.#paused = true;
    this.#exchange?.pause();
  }

  resume(): void {
    this.#paused = false;
    this.#exchange?.resume();
  }

  /** cancel ends the call. The receiver is not called again. */
  cancel(): void {
    this.#finish();
    this.#withdraw?.();
    clearTimeout(this.#timer);
    this.#exchange?.cancel();
  }
}

// What to do about errors with which a connection starts, by the scheme of the address.
const remedies: Readonly<Partial<Record<string, string>>> = {
  "http: Protocol error": `: the server does not speak HTTP/2; ${otherPort}`,
  "http: the connection was closed": "; if the port uses TLS, give https://HOST:PORT",
  "https: wrong version number": ": the port does not use TLS; give http://HOST:PORT",
};

/** Connection is the connection to one address. It connects again, with growing waits, until it is left. */
export class Connection {
  readonly target: URL;
  readonly #host: string;
  readonly #port: number;
  readonly #options: ChannelOptions;
  readonly #changed: (error?: string) => void;
  #session: ClientHttp2Session | undefined; // the one for new calls
  readonly #sessions = new Map<ClientHttp2Session, Socket>(); // those that drain too
  #left = false;
  #failures = 0;
  #since = 0; // when the connection became ready, by performance.now
  #retry: NodeJS.Timeout | undefined;
  ready = false;
  connecting = false;

  constructor(target: URL, host: string, port: number, options: ChannelOptions, changed: (error?: string) => void) {
    this.target = target;
    this.#host = host;
    this.#port = port;
    this.#options = options;
    this.#changed = changed;
  }

  /** connect starts to connect, unless that is already in progress or done. */
  connect(): void {
    if (this.ready || this.connecting || this.#left) return;
    clearTimeout(this.#retry);
    this.connecting = true;
    const socket = this.#socket();
    const session = connectHttp2(this.target, {
      createConnection: () => socket,
      settings: { enablePush: false, initialWindowSize: window },
      maxSessionMemory: 1000, // MB; each stream is limited by its window
    });
    this.#session = session;
    this.#sessions.set(session, socket);
    let failure: (Error & { reason?: string }) | undefined; // OpenSSL's errors have a reason that can be read
    let alive: NodeJS.Timeout | undefined;
    const gone = (): void => {
      clearTimeout(limit);
      clearInterval(alive);
      this.#sessions.delete(session);
      const why = failure?.reason ?? failure?.message ?? "the connection was closed";
      const remedy = this.connecting ? remedies[`${this.target.protocol} ${why}`] : undefined;
      this.#lost(session, `${this.#host} port ${this.#port}: ${why}${remedy ?? ""}`);
    };
    // After some errors of TLS neither the session nor the socket is closed, so each event ends the connection.
    const failed = (e: Error): void => {
      failure ??= e;
      session.destroy();
      socket.destroy();
      gone();
    };
    const limit = setTimeout(() => failed(new Error(`no answer within ${connectTimeout / 1000} s`)), connectTimeout);
    session.once("remoteSettings", () => {
      clearTimeout(limit);
      if (session !== this.#session || session.destroyed || session.closed) return;
      this.#since = performance.now();
      this.connecting = false;
      this.ready = true;
      session.setLocalWindowSize(16 * window);
      session.unref(); // until a call uses it
      alive = setInterval(() => ping(session, failed), pingInterval);
      alive.unref();
      this.#changed();
    });
    session.on("goaway", () => this.#lost(session, "the service closes the connection"));
    session.on("error", failed);
    socket.on("error", failed);
    socket.once("close", gone);
  }

  #socket(): Socket {
    const { ca, cert, key } = this.#options;
    const at = { host: this.#host, port: this.#port, noDelay: true };
    if (this.target.protocol === "http:") return connectTcp(at);
    const name = this.target.hostname.replace(/^\[|\]$/g, "");
    return connectTls({
      ...at, ALPNProtocols: ["h2"], ...(isIP(name) ? {} : { servername: name }), ...(ca !== undefined && { ca: ca as string }), ...(cert !== undefined && { cert }),
      ...(key !== undefined && { key }),
    });
  }

  /** lost sends no more calls to a session. Those that it has may end. */
  #lost(session: ClientHttp2Session, why: string): void {
    if (session !== this.#session) return;
    const wasReady = this.ready;
    this.#session = undefined;
    this.ready = this.connecting = false;
    if (this.#left) return;
    const lasted = wasReady && performance.now() - this.#since > 1000; // one that is closed at once is a failure
    if (lasted) this.#failures = 0;
    const wait = lasted ? 0 : Math.min(10_000, 100 * 1.6 ** this.#failures++) * (0.8 + 0.4 * Math.random());
    this.#retry = setTimeout(() => this.connect(), wait);
    this.#retry.unref();
    this.#changed(why);
  }

  /** calls is the number of calls that are open. */
  get calls(): number {
    return this.#session ? openCalls(this.#session) : 0;
  }

  /** open starts a call. It returns undefined if the connection is closing. */
  open(headers: OutgoingHttpHeaders, receiver: Receiver): Exchange | undefined {
    const session = this.#session;
    if (!session || session.closed || session.destroyed) return undefined;
    try {
      return new Exchange(session, headers, receiver);
    } catch (e) {
      const { code } = e as NodeJS.ErrnoException;
      if (code === "ERR_HTTP2_INVALID_SESSION" || code === "ERR_HTTP2_GOAWAY_SESSION" || code === "ERR_HTTP2_OUT_OF_STREAMS") return undefined;
      throw e; // such as an invalid header
    }
  }

  /** leave drains the connection: its address is no longer one of the service. */
  leave(): void {
    this.#left = true;
    this.ready = false;
    clearTimeout(this.#retry);
    for (const s of this.#sessions.keys()) s.close();
  }

  async destroy(): Promise<void> {
    this.#left = true;
    this.ready = this.connecting = false;
    clearTimeout(this.#retry);
    // A caller may close the client while Node reads a frame. Node 20 then uses memory of the session that it has freed.
    await new Promise(setImmediate);
    const sockets = [...this.#sessions].map(([session, socket]) => {
      const closed = new Promise((resolve) => socket.once("close", resolve));
      session.destroy(undefined, constants.NGHTTP2_CANCEL);
      socket.destroy();
      return closed;
    });
    await Promise.all(sockets);
  }
}

/** ping calls failed if a session does not answer. */
function ping(session: ClientHttp2Session, failed: (e: Error) => void): void {
  const limit = setTimeout(() => failed(new Error(`no answer to a ping within ${pingTimeout / 1000} s`)), pingTimeout);
  limit.unref();
  if (!session.ping(() => clearTimeout(limit))) clearTimeout(limit);
}
