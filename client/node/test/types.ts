// Compiled by the gate, not run: what a caller can write, and what the compiler rejects.

import { Client, createFetch, FetchError, outcomeOf, Result, ServiceError } from "fetchd";
import type { ClientResponse, ErrorClass, FetchOutcome, FetchRequestInit, Policies, RetryPolicyInit, StopReason, StoreInit } from "fetchd";

const policy: RetryPolicyInit = { profile: "download", max_attempts: 5, base_delay: "0.5s", max_delay: 2, jitter_seed: 1n };
const policies: Policies = { retry_policy: policy, redirect_policy: { scope: "REDIRECT_SCOPE_SAME_HOST" }, labels: { team: "a" } };

const small: Policies = { body_policy: { inline: {}, max_error_body_bytes: 0 } };
const streamed: Policies = { body_policy: { stream: { max_hold_back_bytes: 0, recovery: "none" } } };

// @ts-expect-error: a delivery that is no object
const inline: Policies = { body_policy: { inline: true } };
// @ts-expect-error: a delivery with a setting that it does not have
const digest: Policies = { body_policy: { digest: { recovery: "none" } } };
// @ts-expect-error: a misspelt field
const misspelt: RetryPolicyInit = { max_attemps: 5 };
// @ts-expect-error: a value that the enum does not have
const unknown: RetryPolicyInit = { profile: "eager" };
// @ts-expect-error: a duration without its unit
const unit: RetryPolicyInit = { base_delay: "5" };

export async function use(signal: AbortSignal): Promise<void> {
  const client = new Client(["https://a.example:8080", new URL("https://b.example:8080")], { token: async () => "t", ca: Buffer.from(""), fetchd: policies });
  const response: Response = await client.fetch("https://example.com/", { method: "POST", body: "x", headers: { a: "1" }, signal, redirect: "manual", deadline: 5, fetchd: policies });
  const outcome: FetchOutcome = await outcomeOf(response);
  const length: number = outcome.body_summary?.size_bytes ?? 0;
  const archived: ClientResponse = await client.fetch("https://example.com/", { fetchd: { store: "archive", key: "2026/a" } });
  const size: number | undefined = archived.stored?.size_bytes;
  const into: (FetchRequestInit & StoreInit)[] = [{ url: "https://example.com/", store: "archive" }];
  for await (const result of client.fetchMany(into)) console.log(size, result.stored?.key.length, result.request.store);
  const first: Response = await client.fetch(new Request("https://example.com/"), {});
  const standard: typeof fetch = createFetch(client);
  const passed: typeof fetch = client.fetch as typeof fetch;
  await client.fetch("https://example.com/", { integrity: "sha256-", mode: "cors", cache: "no-store", credentials: "omit", duplex: "half", keepalive: true, priority: "low", referrerPolicy: "origin", window: null });
  // @ts-expect-error: an option that fetch does not have
  await client.fetch("https://example.com/", { timeout: 5 });
  // @ts-expect-error: an option of fetch alone
  new Client("https://a.example:8080", { deadline: 5 });

  const requests: FetchRequestInit[] = [{ url: "https://example.com/", headers: [["a", "1"]] }];
  for await (const result of client.fetchMany(requests, { open: 5, signal })) {
    const request: FetchRequestInit = result.request;
    if (result.error instanceof FetchError) {
      const name: ErrorClass = result.error.errorClass;
      switch (result.error.failureType) {
        case "transient": case "rate_limited": case "needs_auth": case "permanent": case "not_idempotent": case "unspecified":
          break;
      }
      console.log(name, result.error.retryAfter?.toFixed());
    } else if (result.error instanceof ServiceError) console.log(result.error.violations[0]?.field, result.error.sent, result.error.failureType === "not_idempotent");
    console.log(request, result.body.length, result instanceof Result);
  }
  for await (const event of client.events({ url: "https://example.com/" }, { signal })) {
    const chunk: Uint8Array | undefined = event.body_chunk?.data;
    const decision = event.attempt_finished?.retry_decision;
    const wait: number | undefined = decision?.retry?.delay;
    const why: StopReason | undefined = decision?.stop_reason;
    console.log(chunk, wait, why);
  }
  // @ts-expect-error: a class that does not exist
  if (outcome.error?.error_class === "no_such_class") return;
  console.log(length, first, standard, passed, misspelt, unknown, unit, small, streamed, inline, digest);
  await client.close();
}
