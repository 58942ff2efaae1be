import { constants, type ClientHttp2Session, type ClientHttp2Stream, type IncomingHttpHeaders, type OutgoingHttpHeaders } from "node:http2";

import { ServiceError, statusOf, type Code } from "./errors.js";

/** maxMessage is the limit of a message from the service, as in other gRPC clients. */
const maxMessage = 4 << 20;

/** otherPort says what to do if a server answers as the HTTP port of fetchd does. */
export const otherPort = "if this is the HTTP port of fetchd (--http-addr, by default 8081), give the gRPC port (--grpc-addr, by default 8080)";

/** Framer splits a stream of bytes into the messages of gRPC: a flag, a length of four bytes, the message. */
export class Framer {
  #rest: Buffer[] = [];
  #length = 0; // of the rest
  #needed = 5; // the rest is parsed again when it has this length

  /** push calls deliver for each message that is now complete. It throws if the framing is invalid. */
  push(chunk: Buffer, deliver: (message: Buffer) => void): void {
    if (this.#length > 0) {
      this.#rest.push(chunk);
      this.#length += chunk.length;
      if (this.#length < this.#needed) return;
      chunk = Buffer.concat(this.#rest, this.#length);
      this.#rest = [];
      this.#length = 0;
    }
    let at = 0;
    this.#needed = 5;
    while (chunk.length - at >= 5) {
      if (chunk[at] !== 0) throw new ServiceError("INTERNAL", "the service sent a compressed message, which was not offered", true);
      const length = chunk.readUInt32BE(at + 1);
      if (length > maxMessage) throw new ServiceError("RESOURCE_EXHAUSTED", `the service sent a message of ${length} bytes, the limit is ${maxMessage}`, true);
      if (chunk.length - at - 5 < length) {
        this.#needed = 5 + length;
        break;
      }
      deliver(chunk.subarray(at + 5, at + 5 + length));
      at += 5 + length;
    }
    if (at < chunk.length) {
      this.#rest.push(at === 0 ? chunk : chunk.subarray(at));
      this.#length = chunk.length - at;
    }
  }

  /** complete reports whether no message is incomplete. */
  get complete(): boolean {
    return this.#length === 0;
  }
}

/** framed returns a message in gRPC's framing. */
export function framed(message: Uint8Array): Buffer {
  const frame = Buffer.allocUnsafe(5 + message.length);
  frame[0] = 0;
  frame.writeUInt32BE(message.length, 1);
  frame.set(message, 5);
  return frame;
}

/** Receiver receives what the service sends on an [Exchange]. */
export interface Receiver {
  /** Called for each message. */
  message(bytes: Buffer): void;
  /** Called once, after the last message. It is not called after cancel. */
  end(error: ServiceError | undefined, trailers: IncomingHttpHeaders): void;
}

const calls = new WeakMap<ClientHttp2Session, number>(); // streams that are open

/** openCalls returns the number of streams of a session that are open. */
export function openCalls(session: ClientHttp2Session): number {
  return calls.get(session) ?? 0;
}

/** hold counts the streams of a session. A session without any does not keep the process alive. */
function hold(session: ClientHttp2Session, change: 1 | -1): void {
  const before = openCalls(session);
  calls.set(session, before + change);
  if (session.destroyed) return;
  if (before === 0) session.ref();
  else if (before + change === 0) session.unref();
}

/** Exchange is one try of a call: a stream of a connection. */
export class Exchange {
  readonly #stream: ClientHttp2Stream;
  readonly #receiver: Receiver;
  readonly #framer = new Framer();
  #head: IncomingHttpHeaders | undefined;
  #trailers: IncomingHttpHeaders | undefined;
  #answered = false; // a message came
  #over = false;
  #failure: Error | undefined;

  constructor(session: ClientHttp2Session, headers: OutgoingHttpHeaders, receiver: Receiver) {
    this.#receiver = receiver;
    const stream = (this.#stream = session.request(headers));
    stream.on("response", (h) => this.#response(h));
    stream.on("trailers", (t) => (this.#trailers = t));
    stream.on("data", (chunk: Buffer) => this.#data(chunk));
    stream.on("end", () => this.#end());
    stream.on("error", (e) => (this.#failure = e));
    stream.on("close", () => {
      hold(session, -1);
      this.#close();
    });
    hold(session, 1);
  }

  /** write sends bytes that are already framed. */
  write(frames: Buffer): void {
    if (!this.#stream.writableEnded && !this.#stream.destroyed) this.#stream.write(frames);
  }

  /** finish sends the last message, if there is one, and half-closes the call. */
  finish(frames?: Buffer): void {
    if (!this.#stream.destroyed) this.#stream.end(frames);
  }

  pause(): void {
    this.#stream.pause();
  }

  resume(): void {
    if (!this.#stream.destroyed) this.#stream.resume();
  }

  /** cancel ends the call. The service cancels the request to the target. */
  cancel(): void {
    this.#over = true;
    if (!this.#stream.destroyed) this.#stream.close(constants.NGHTTP2_CANCEL);
    this.#stream.resume(); // a paused stream does not close
  }

  #settle(error: ServiceError | undefined, trailers: IncomingHttpHeaders = {}): void {
    if (this.#over) return;
    this.#over = true;
    this.#receiver.end(error, trailers);
  }

  #response(head: IncomingHttpHeaders): void {
    this.#head = head;
    const status = head[":status"] as number | undefined;
    if (status === 200 && String(head["content-type"]).startsWith("application/grpc")) return;
    if (head["grpc-status"] !== undefined) return; // an error in the form of headers alone
    if (status !== undefined && status >= 502 && status <= 504) {
      this.#settle(new ServiceError(codeOf(status), `a proxy in front of fetchd answered with HTTP status ${status}: it cannot reach fetchd, or permits less silence than the call had (docs/operating.md)`, true));
    } else {
      this.#settle(new ServiceError(codeOf(status), `the server does not speak gRPC: HTTP status ${status}, Content-Type ${String(head["content-type"] ?? "none").slice(0, 64)}; ${otherPort}`, status !== 404));
    }
    this.cancel();
  }

  #data(chunk: Buffer): void {
    if (this.#over) return;
    try {
      this.#framer.push(chunk, (message) => {
        if (this.#over) return;
        this.#answered = true;
        this.#receiver.message(message);
      });
    } catch (e) {
      const error = e instanceof ServiceError ? e : new ServiceError("INTERNAL", `the service sent a message that is not protobuf: ${(e as Error).message}`, true);
      this.#settle(error);
      this.cancel();
    }
  }

  #end(): void {
    const trailers = this.#trailers ?? this.#head;
    if (trailers?.["grpc-status"] === undefined) return; // the stream was reset, or close reports it
    const error = statusOf(trailers, this.#answered);
    if (error === undefined && !this.#framer.complete) this.#settle(new ServiceError("INTERNAL", "the call ended inside a message", true));
    else this.#settle(error, trailers);
  }

  #close(): void {
    if (this.#over) return;
    const reset = this.#stream.rstCode;
    const refused = reset === constants.NGHTTP2_REFUSED_STREAM && !this.#answered;
    if (refused) this.#settle(new ServiceError("UNAVAILABLE", "the service refused the call before it started", false));
    else if (this.#failure === undefined && reset === constants.NGHTTP2_NO_ERROR) this.#settle(new ServiceError("INTERNAL", "the call ended without a status", true));
    else {
      const why = this.#failure?.message ?? `HTTP/2 error code ${reset}`;
      this.#settle(new ServiceError(resetCodes[reset] ?? "UNAVAILABLE", `the connection to the service broke: ${why}`, true));
    }
  }
}

// Codes of RST_STREAM that do not mean UNAVAILABLE.
const resetCodes: Partial<Record<number, Code>> = {
  [constants.NGHTTP2_ENHANCE_YOUR_CALM]: "RESOURCE_EXHAUSTED",
  [constants.NGHTTP2_INADEQUATE_SECURITY]: "PERMISSION_DENIED",
};

function codeOf(status: number | undefined): Code {
  switch (status) {
    case 401:
      return "UNAUTHENTICATED";
    case 403:
      return "PERMISSION_DENIED";
    case 404:
      return "UNIMPLEMENTED";
    case 429: case 502: case 503: case 504:
      return "UNAVAILABLE";
    default:
      return "UNKNOWN";
  }
}
