import type { Call, Channel } from "./channel.js";
import { framed } from "./call.js";
import { decodeFetchManyResponse, type FetchEvent, type FetchOutcome, type FetchRequestInit } from "./contract.js";
import { ServiceError } from "./errors.js";
import { broken, Sequence } from "./response.js";
import { Reader, Writer } from "./wire.js";

const maxOpen = 256; // tasks in flight on one stream: the service reads no more
const maxTasks = 16; // in one message
const maxMessage = 1 << 20; // of tasks; a single task may be larger
/** defaultBodyBytes is the largest body that is kept in memory, unless the request has max_size_bytes. */
export const defaultBodyBytes = 16 << 20;
/** maxSends is how often a fetch is sent that services return because they shut down. */
export const maxSends = 3;
const idleTime = 1000; // ms after which a stream without tasks is closed

/** returned reports whether a service that shuts down returned a fetch before any request was made. */
export function returned({ error, exchange_count }: FetchOutcome): boolean {
  return error?.error_class === "shutdown" && exchange_count === 0;
}

type Policy = FetchRequestInit["body_policy"];

/** Task is one fetch of FetchMany. */
export class Task {
  /** Called once. */
  readonly done: (outcome: FetchOutcome | undefined, error: ServiceError | undefined) => void;
  readonly request: Buffer;
  stream: Stream | undefined;
  tag = "";
  sends = 0;
  over = false;
  #again: NodeJS.Timeout | undefined;
  readonly #policy: Policy;
  #sequence: Sequence;
  readonly #limit: number; // of a body that is streamed
  #pieces: Uint8Array[] = [];
  #size = 0;

  constructor(request: Buffer, limit: number, done: Task["done"], policy?: Policy) {
    this.#policy = policy;
    this.#sequence = new Sequence(policy);
    this.request = request;
    this.#limit = limit;
    this.done = done;
  }

  /** event adds a piece to the body. The outcome gets it in inline_body, as if it had been small. */
  event(m: FetchEvent): void {
    this.#sequence.check(m);
    if (m.body_chunk) {
      const { offset_bytes, data } = m.body_chunk;
      if (offset_bytes < this.#size) {
        this.#pieces = [Buffer.concat(this.#pieces).subarray(0, offset_bytes)]; // the body started again
        this.#size = offset_bytes;
      }
      this.#size += data.length;
      if (this.#size > this.#limit) {
        this.#pieces = [];
        throw broken(`the body has more than ${this.#limit} bytes, the limit of the request`);
      }
      this.#pieces.push(data);
    } else if (m.outcome?.kind === "success" && this.#size > 0) m.outcome.inline_body = Buffer.concat(this.#pieces, this.#size);
  }

  /** restart forgets the events of a fetch that is sent again. */
  restart(): void {
    this.#sequence = new Sequence(this.#policy);
  }

  /** later calls send after a time, unless the task is over by then. */
  later(send: (task: Task) => void, milliseconds: number): void {
    this.#again = setTimeout(() => this.over || send(this), milliseconds);
  }

  /** end ends the task without an answer. */
  end(): void {
    this.over = true;
    clearTimeout(this.#again); // a process does not stay for it
  }

  settle(outcome: FetchOutcome | undefined, error: ServiceError | undefined): void {
    if (this.over) return;
    this.end();
    this.done(outcome, error);
  }
}

/**
 * Many sends tasks over a few shared streams of FetchMany. The tasks of one turn of the event loop are packed into one
 * message, which costs a fraction of a call for each.
 */
export class Many {
  readonly channel: Channel;
  readonly #streams = new Set<Stream>(); // that take tasks
  #queue: Task[] = [];
  #flushing = false;
  #tag = 0;

  constructor(channel: Channel) {
    this.channel = channel;
  }

  send(task: Task): void {
    this.#queue.push(task);
    if (this.#flushing) return;
    this.#flushing = true;
    setImmediate(() => this.#flush());
  }

  /** cancel ends a task, which is not settled by this. */
  cancel(task: Task): void {
    if (task.over) return;
    task.end();
    task.stream?.cancel(task);
  }

  #flush(): void {
    this.#flushing = false;
    const queue = this.#queue.filter((t) => !t.over);
    this.#queue = [];
    for (let at = 0; at < queue.length; ) {
      const stream = this.#stream();
      let size = 0;
      const batch: Task[] = [];
      for (const most = Math.min(maxTasks, maxOpen - stream.open); batch.length < most && at < queue.length; at++) {
        const task = queue[at]!;
        if (batch.length > 0 && size + task.request.length > maxMessage) break;
        size += task.request.length;
        task.tag = String(++this.#tag);
        batch.push(task);
      }
      stream.send(batch);
    }
  }

  /** stream returns the stream with the fewest tasks. There is one for each replica, and more if they are full. */
  #stream(): Stream {
    let best: Stream | undefined;
    for (const s of this.#streams) if (!best || s.open < best.open) best = s;
    if (!best || best.open >= maxOpen || this.#streams.size < this.channel.replicas) best = new Stream(this);
    this.#streams.delete(best); // the next of several that are equal is another one
    this.#streams.add(best);
    return best;
  }

  /** leave sends no more tasks to a stream. */
  leave(stream: Stream): void {
    this.#streams.delete(stream);
  }
}

const writer = new Writer();

/** Stream is one call of FetchMany. */
class Stream {
  readonly #many: Many;
  readonly #call: Call;
  readonly #tasks = new Map<string, Task>(); // in flight, by tag
  #answered = false;
  #draining = false;
  #idle: NodeJS.Timeout | undefined;

  constructor(many: Many) {
    this.#many = many;
    this.#call = many.channel.call({
      method: "FetchMany",
      receiver: { message: (bytes) => this.#message(bytes), end: (error) => this.#end(error) },
    });
  }

  get open(): number {
    return this.#tasks.size;
  }

  send(batch: readonly Task[]): void {
    clearTimeout(this.#idle);
    for (const task of batch) {
      task.stream = this;
      task.sends++;
      this.#tasks.set(task.tag, task);
      writer.varint(10);
      const start = writer.begin();
      writer.varint(10);
      writer.string(task.tag);
      writer.varint(18);
      writer.bytes(task.request);
      writer.end(start);
    }
    this.#call.write(framed(writer.finish()));
  }

  cancel(task: Task): void {
    if (!this.#tasks.has(task.tag)) return;
    writer.varint(18);
    writer.string(task.tag);
    this.#call.write(framed(writer.finish()));
  }

  #message(bytes: Buffer): void {
    this.#answered = true;
    const m = decodeFetchManyResponse(new Reader(bytes), bytes.length);
    if (m.draining) this.#drain();
    for (const { tag, event } of m.events) {
      const task = this.#tasks.get(tag);
      if (!event || !task) continue;
      if (!task.over) this.#event(task, event);
      const { outcome } = event;
      if (!outcome) continue;
      this.#tasks.delete(tag);
      if (returned(outcome) && task.sends < maxSends && !task.over) {
        this.#drain(); // it may not have said so yet
        task.restart();
        this.#many.send(task);
      } else task.settle(outcome, undefined);
    }
    if (this.#tasks.size === 0) this.#rest();
  }

  /** event ends a task whose events break the contract. The other tasks go on. */
  #event(task: Task, event: FetchEvent): void {
    try {
      task.event(event);
    } catch (error) {
      this.cancel(task);
      task.settle(undefined, error as ServiceError);
    }
  }

  /** drain sends no more tasks. The tasks in flight end. */
  #drain(): void {
    this.#many.leave(this);
    if (this.#draining) return;
    this.#draining = true;
    this.#call.halfClose();
  }

  /** rest closes the stream if no task follows for a while. */
  #rest(): void {
    if (this.#draining) return;
    clearTimeout(this.#idle);
    this.#idle = setTimeout(() => this.#drain(), idleTime);
    this.#idle.unref();
  }

  #end(error: ServiceError | undefined): void {
    this.#many.leave(this);
    clearTimeout(this.#idle);
    const unsent = error !== undefined && !error.sent && !this.#answered;
    const asked = unsent && error.code === "RESOURCE_EXHAUSTED" && error.retryIn ? Math.min(error.retryIn * 1000, 2 ** 31 - 1) : 0;
    for (const task of this.#tasks.values()) {
      if (asked && !task.over) {
        task.sends--; // the service has not read it
        task.later((t) => this.#many.send(t), asked);
        continue;
      }
      if (unsent && (error.code === "RESOURCE_EXHAUSTED" || error.code === "UNAVAILABLE") && task.sends < maxSends && !task.over) {
        task.later((t) => this.#many.send(t), 100 * 2 ** task.sends * (0.5 + Math.random()));
      } else task.settle(undefined, lost(error, unsent));
    }
    this.#tasks.clear();
  }
}

/** lost returns the error of a task whose stream ended without its outcome. */
function lost(error: ServiceError | undefined, unsent: boolean): ServiceError {
  if (!error) return broken("FetchMany ended without the outcome of a task");
  if (unsent) return error;
  const text = error.message.slice(error.code.length + 2);
  return new ServiceError(error.code, `${text}; the fetch may have been made, its outcome is lost`, true, error);
}
