// What every client gets, and where its results go. Its lines are not counted.
import { createHash } from "node:crypto";
import { readFileSync, writeSync } from "node:fs";

// jobs yields the method and the URL of each request.
export function* jobs() {
  for (const line of readFileSync(process.argv[2], "utf8").split("\n")) {
    if (line) yield line.split(" ");
  }
}

// done records a body that the client takes for right.
export function done(url, body) {
  write({ url, sha256: createHash("sha256").update(body).digest("hex") });
}

// failed records that the client could not fetch a URL.
export function failed(url, error) {
  write({ url, error: String(error).slice(0, 200) });
}

function write(result) {
  writeSync(1, JSON.stringify(result) + "\n");
}
