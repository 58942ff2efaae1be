// Starts the programs that the tests use. FETCHD_BIN is the folder with fetchd and origin.

import assert from "node:assert/strict";
import { spawn } from "node:child_process";
import { once } from "node:events";
import { mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { connect, createServer } from "node:net";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { createInterface } from "node:readline";
import { after } from "node:test";
import { setTimeout as sleep } from "node:timers/promises";

const bin = process.env.FETCHD_BIN;
assert.ok(bin, "FETCHD_BIN is not set");

const children = new Set();
const homes = [];
after(() => {
  for (const child of children) child.kill("SIGKILL");
  for (const home of homes) rmSync(home, { recursive: true, force: true });
});

/** folder returns a temporary folder that is removed after the tests. */
export function folder() {
  const name = mkdtempSync(join(tmpdir(), "fetchd-node-"));
  after(() => rmSync(name, { recursive: true, force: true }));
  return name;
}

/** start starts a program, and waits for the first line that read understands. */
async function start(name, args, output, read) {
  const child = spawn(join(bin, name), args, { stdio: ["ignore", "pipe", "pipe"] });
  children.add(child);
  child.once("exit", () => children.delete(child));
  for (const stream of ["stdout", "stderr"]) if (stream !== output) child[stream].resume();
  const lines = [];
  return new Promise((resolve, reject) => {
    child.once("exit", (code) => reject(new Error(`${name} ended with ${code}: ${lines.join("\n")}`)));
    createInterface(child[output]).on("line", (line) => {
      lines.push(line);
      const found = read(line);
      if (found !== undefined) resolve({ child, found });
    });
  });
}

/** Origin is cmd/origin. */
export class Origin {
  static async start() {
    const origin = new Origin();
    origin.listeners = {};
    const { child } = await start("origin", ["--addr", "127.0.0.1:0", "--tls-addr", "127.0.0.1:0"], "stdout", (line) => {
      const [, name, url] = /^ {4}(\S+) +(https?:\/\/\S+)/.exec(line) ?? [];
      if (name) origin.listeners[name] = url;
      return name === "refused" ? true : undefined;
    });
    origin.child = child;
    return origin;
  }

  url(path, listener = "http") {
    return this.listeners[listener] + path;
  }

  /** seen returns the paths of the requests for a key. */
  async seen(key) {
    const log = await (await fetch(this.url(`/_log?key=${key}`))).json();
    return log.map((r) => r.path);
  }

  /** ends waits until all requests for a key have ended, and returns how. */
  async ends(key) {
    for (let i = 0; i < 100; i++) {
      const log = await (await fetch(this.url(`/_log?key=${key}`))).json();
      if (log.length > 0 && log.every((r) => r.end)) return log.map((r) => r.end);
      await sleep(50);
    }
    throw new Error(`requests for ${key} have not ended`);
  }
}

/** service starts a fetchd that may reach the origin. Its store "local" is the folder bodies. */
export async function service(origin, ...args) {
  const home = mkdtempSync(join(tmpdir(), "fetchd-node-"));
  homes.push(home);
  const bodies = join(home, "bodies");
  const stores = join(home, "stores.yaml");
  writeFileSync(stores, JSON.stringify({ stores: { local: { url: `file://${bodies}` } } }));
  const ports = Object.values(origin.listeners).map((url) => new URL(url).port).join(",");
  const { child, found } = await start(
    "fetchd",
    ["--grpc-addr", "127.0.0.1:0", "--http-addr", "127.0.0.1:0", "--egress-allow-cidr", "127.0.0.0/8", "--egress-allow-port", ports, "--stores-file", stores, ...args],
    "stderr",
    (line) => {
      return line.includes('"msg":"serving"') ? JSON.parse(line) : undefined;
    },
  );
  return {
    child,
    address: found.grpc_addr,
    bodies,
    url: `${found.tls ? "https" : "http"}://${found.grpc_addr}`,
    /** signal sends a signal and waits for the end of the process. */
    async signal(name) {
      child.kill(name);
      if (child.exitCode === null && child.signalCode === null) await once(child, "exit");
    },
  };
}

/**
 * freeAddress returns an address on which nothing listens. Its port is below those that the system gives to
 * connections and to listeners on port 0, so that none of them takes it while a service restarts.
 */
export async function freeAddress() {
  for (;;) {
    const port = 10000 + Math.floor(Math.random() * 22000);
    const server = createServer().listen(port, "127.0.0.1");
    try {
      await once(server, "listening");
    } catch {
      continue;
    }
    await new Promise((resolve) => server.close(resolve));
    return `127.0.0.1:${port}`;
  }
}

/** accepts waits until something listens at HOST:PORT. */
export async function accepts(address) {
  const [host, port] = address.split(":");
  for (let i = 0; i < 200; i++) {
    const socket = connect({ host, port });
    try {
      await once(socket, "connect");
      return;
    } catch {
      await sleep(25);
    } finally {
      socket.destroy();
    }
  }
  throw new Error(`nothing listens at ${address}`);
}

let keys = 0;

/** key returns a key of the origin that no other test uses. */
export const key = () => `${process.pid}-${++keys}`;

/** failure returns the error with which a promise rejects. */
export async function failure(promise) {
  try {
    await promise;
  } catch (error) {
    return error;
  }
  throw new Error("it did not fail");
}
