import type { FetchOutcome, StoredObject } from "./contract.js";
import { FetchError, type ServiceError } from "./errors.js";
import { headersOf } from "./response.js";

const empty = new Uint8Array(0);
const decoder = new TextDecoder();

/** Result is the result of one fetch of fetchMany. */
export class Result<R = unknown> {
  /** What the iterable yielded. */
  readonly request: R;
  /** How the fetch ended. It is missing if the request could not be sent, or if the service was lost. */
  readonly outcome: FetchOutcome | undefined;
  /**
   * Why there is no usable response: a FetchError for the target, a TypeError for a request that cannot be encoded,
   * a ServiceError if the stream broke. Then requests to the target may have been made. Its failureType is "not_idempotent"
   * if that matters.
   */
  readonly error: FetchError | ServiceError | TypeError | undefined;
  #headers: Headers | undefined;

  private constructor(request: R, outcome: FetchOutcome | undefined, error: Result["error"]) {
    this.request = request;
    this.outcome = outcome;
    this.error = error;
  }

  /** @internal */
  static of<R>(request: R, outcome: FetchOutcome): Result<R> {
    return new Result(request, outcome, outcome.kind === "failed" ? new FetchError(outcome) : undefined);
  }

  /** @internal */
  static invalid<R>(request: R, error: TypeError): Result<R> {
    return new Result(request, undefined, error);
  }

  /** @internal */
  static lost<R>(request: R, error: ServiceError): Result<R> {
    return new Result(request, undefined, error);
  }

  /** Whether the fetch succeeded: a 2xx response that is complete. */
  get ok(): boolean {
    return this.outcome?.kind === "success";
  }
  /** The status of the response, or 0 if there is none. */
  get status(): number {
    return this.outcome?.response?.status_code ?? 0;
  }
  /** The URL of the response, after redirects. */
  get url(): string {
    return this.outcome?.final_url ?? "";
  }
  get headers(): Headers {
    return (this.#headers ??= headersOf(this.outcome?.response));
  }
  /** The body. That of a failed response is truncated after 16 KiB, unless body_policy.max_error_body_bytes says otherwise. */
  get body(): Uint8Array {
    const o = this.outcome;
    return (o?.kind === "success" ? o.inline_body : o?.error_body) ?? empty;
  }
  /** Where the body is, if the service wrote it to a store. */
  get stored(): StoredObject | undefined {
    return this.outcome?.stored_object;
  }
  text(): string {
    return decoder.decode(this.body);
  }
  json(): unknown {
    return JSON.parse(this.text());
  }
}
