// The parts of Node's modules that this implementation uses. They are declared here so that
// TypeScript is the only dependency.

declare module "node:process" {
  interface Process {
    argv: string[];
    execArgv: string[];
    execPath: string;
    env: Record<string, string | undefined>;
    exitCode: number | undefined;
    stdin: AsyncIterable<Uint8Array>;
    stdout: { write(data: string | Uint8Array, done?: () => void): boolean };
    stderr: { write(data: string): boolean };
    on(event: string, listener: () => void): void;
    exit(code: number): never;
  }
  const process: Process;
  export default process;
}

declare module "node:readline" {
  export function createInterface(options: {
    input: AsyncIterable<Uint8Array>;
    crlfDelay: number;
  }): AsyncIterable<string>;
}

declare module "node:child_process" {
  interface Stream {
    on(event: "data", listener: (chunk: Uint8Array) => void): void;
  }
  interface Child {
    stdout: Stream | null;
    stderr: Stream | null;
    on(event: "close", listener: (code: number | null, signal: string | null) => void): void;
    kill(signal: string): boolean;
  }
  export function spawn(
    command: string,
    args: string[],
    options: { stdio: "inherit" | "pipe"; env: Record<string, string | undefined> },
  ): Child;
  export function spawnSync(
    command: string,
    args: string[],
    options: { input: string; encoding: "utf8" },
  ): { status: number | null; stdout: string; stderr: string };
}

declare module "node:diagnostics_channel" {
  export function subscribe(name: string, listener: (message: unknown) => void): void;
}

declare module "node:net" {
  interface Socket {
    on(event: "error", listener: () => void): void;
    once(event: "data", listener: () => void): void;
    end(data: string): void;
  }
  interface Server {
    listen(port: number, host: string, done: () => void): void;
    address(): { port: number };
    close(): void;
  }
  export function createServer(listener: (socket: Socket) => void): Server;
}

declare module "node:fs" {
  export function readdirSync(path: string): string[];
  export function readFileSync(path: string, encoding: "utf8"): string;
}

declare module "node:test" {
  export function test(name: string, body: () => void | Promise<void>): void;
}

declare module "node:assert/strict" {
  const assert: {
    (value: unknown, message?: string): asserts value;
    equal(actual: unknown, expected: unknown, message?: string): void;
    deepEqual(actual: unknown, expected: unknown, message?: string): void;
  };
  export default assert;
}

declare module "node:url" {
  export function fileURLToPath(url: string | URL): string;
}
