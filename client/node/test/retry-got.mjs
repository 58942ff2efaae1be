// A program that survives bad origins, with got. client/node/README.md has the same with fetchd.
import { setTimeout as sleep } from "node:timers/promises";

import got from "got";

const retried = [408, 429, 500, 502, 503, 504];
const broken = ["ECONNRESET", "ECONNREFUSED", "ETIMEDOUT", "EPIPE", "ERR_READING_RESPONSE_STREAM", "ECONNABORTED"];

async function load(url) {
  const started = Date.now();
  for (let attempt = 1; ; attempt++) {
    let wait = 100 * 2 ** attempt;
    try {
      const response = await got(url, { throwHttpErrors: false, retry: { limit: 0 }, timeout: { request: 30_000 } });
      if (!retried.includes(response.statusCode) || attempt === 3) return [response.statusCode, response.body];
      const after = Number(response.headers["retry-after"]);
      if (after > 30) return [response.statusCode, response.body];
      if (after >= 0) wait = after * 1000;
    } catch (error) {
      if (!broken.includes(error.code) || attempt === 3) throw error;
    }
    if (Date.now() - started + wait > 60_000) throw new Error("no time is left");
    await sleep(wait);
  }
}

for (const path of ["1/503/200:body=one", "2/reset/200:body=two", "3/429:retry-after=0/200:body=three", "4/404:body=four"]) {
  console.log(...(await load(`http://127.0.0.1:9080/cycle/got${path}`)));
}
