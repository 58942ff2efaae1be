// got with its own retries: github.com/sindresorhus/got, documentation/7-retry.md. It repeats only methods that
// may be repeated, obeys Retry-After, and by default does not wait for one longer than timeout.request.
import got from "got";
import { done, failed, jobs } from "./jobs.mjs";

const client = got.extend({ retry: { limit: 3 }, timeout: { request: 5000 } });
const queue = jobs();

async function worker() {
  for (const [method, url] of queue) {
    try {
      done(url, await client(url, { method }).buffer());
    } catch (error) {
      failed(url, error);
    }
  }
}

await Promise.all(Array.from({ length: 32 }, worker));
