/**
 * elsewhere has options of undici, of other clients and of browsers that would have no effect here, and what to use
 * instead. Names that begin with "fetchd." are fields of the option fetchd.
 */
export const elsewhere: Readonly<Record<string, string>> = {
  agent: "fetchd makes the connections to origins; for those to fetchd, new Client has ca, cert and key",
  dispatcher: "fetchd makes the connections to origins; for those to fetchd, new Client has ca, cert and key",
  connect: "use ca, cert and key for fetchd, and fetchd.timeout_policy.connect_timeout for origins, in seconds",
  connections: "fetchd keeps the connections to origins: leave the option out",
  keepAliveTimeout: "fetchd keeps the connections to origins: leave the option out",
  pipelining: "fetchd keeps the connections to origins: leave the option out",
  allowH2: "fetchd uses HTTP/2 where an origin offers it: leave the option out",
  keepAliveMaxTimeout: "fetchd keeps the connections to origins: leave the option out",
  keepAliveTimeoutThreshold: "fetchd keeps the connections to origins: leave the option out",
  reset: "fetchd keeps the connections to origins: leave the option out",
  blocking: "fetchd keeps the connections to origins: leave the option out",
  maxConcurrentStreams: "fetchd keeps the connections to origins: leave the option out",
  autoSelectFamily: "fetchd tries addresses of both families: leave the option out",
  localAddress: "the addresses are those of fetchd: leave the option out",
  socketPath: "fetchd connects to hosts and ports only",
  tls: "use ca, cert and key of new Client for fetchd; for origins its operator sets them, with --origins-file",
  requestTls: "use ca, cert and key of new Client for fetchd; for origins its operator sets them, with --origins-file",
  rejectUnauthorized: "fetchd verifies certificates: its operator gives it the authority of an origin, with --origins-file",
  uri: "a proxy is set by the operator of fetchd, with --egress-proxy",
  proxy: "a proxy is set by the operator of fetchd, with --egress-proxy",
  proxyTls: "a proxy is set by the operator of fetchd, with --egress-proxy",
  timeout: "use deadline or fetchd.timeout_policy.total_timeout, in seconds, or signal: AbortSignal.timeout(milliseconds)",
  headersTimeout: "use fetchd.timeout_policy.header_timeout, in seconds",
  bodyTimeout: "use fetchd.timeout_policy.idle_timeout, in seconds",
  retry: "fetchd retries: use fetchd.retry_policy, such as { max_attempts: 5 }",
  maxRetries: "use fetchd.retry_policy.max_attempts, which counts the first attempt too",
  minTimeout: "use fetchd.retry_policy.base_delay, in seconds",
  maxTimeout: "use fetchd.retry_policy.max_delay, in seconds",
  timeoutFactor: "use fetchd.retry_policy.multiplier",
  retryAfter: "use fetchd.retry_policy.max_retry_after, in seconds: the longest wait that is accepted",
  retries: "use fetchd.retry_policy.max_attempts, which counts the first attempt too",
  errorCodes: "the rules of fetchd say what is retried: leave the option out",
  statusCodes: "use additional_status_codes and excluded_status_codes of fetchd.retry_policy",
  methods: "use fetchd.retry_policy.allow_non_idempotent, with an idempotency_key, to retry POST and PATCH",
  idempotent: "use fetchd.retry_policy.allow_non_idempotent, with an idempotency_key, to retry POST and PATCH",
  maxRedirections: "use fetchd.redirect_policy.max_redirects",
  maxRedirects: "use fetchd.redirect_policy.max_redirects",
  follow: 'use fetchd.redirect_policy.max_redirects, or redirect: "manual"',
  maxHeaderSize: "fetchd accepts at most 64 KiB: leave the option out",
  maxResponseSize: "use fetchd.body_policy.max_size_bytes",
  throwOnError: "look at response.ok: a failed status is a response",
  query: "put the parameters into the URL, with new URLSearchParams(query)",
  params: "put the parameters into the URL, with new URLSearchParams(params)",
  searchParams: "put the parameters into the URL, with new URLSearchParams(searchParams)",
  baseURL: "pass new URL(path, base)",
  origin: "pass new URL(path, origin)",
  path: "pass new URL(path, origin)",
  url: "pass it as the first argument",
  auth: 'use headers: { authorization: "Basic " + btoa("user:password") }',
  data: "use body",
  form: "use body: new URLSearchParams(form)",
  json: 'use body: JSON.stringify(value), and headers: { "content-type": "application/json" }',
  referrer: "use headers: { referer: url }",
  responseType: "use response.json(), text() or arrayBuffer()",
  compress: "fetchd decodes bodies: leave the option out, or use fetchd.body_policy.keep_encoding",
  decompress: "fetchd decodes bodies: leave the option out, or use fetchd.body_policy.keep_encoding",
  hooks: "use client.events, which yields what happens",
  interceptors: "use client.events, which yields what happens",
  onInfo: "fetchd waits for the final response: leave the option out",
  expectContinue: "fetchd sends the whole request: leave the option out",
  upgrade: "fetchd fetches responses, and opens no WebSocket",
  strictContentLength: "the length of a body is always checked: leave the option out",
  opaque: "keep the value in a variable",
};

/**
 * only throws a TypeError for an option that is not one of known. Undefined and null count as not given. A Request that
 * is used as options has no properties of its own.
 */
export function only(options: object | null | undefined, known: ReadonlySet<string>, others: Readonly<Record<string, string>>, hint: string): void {
  for (const [name, value] of Object.entries(options ?? {})) {
    if (known.has(name) || value === undefined || value === null) continue;
    throw new TypeError(`${name}: ${Object.hasOwn(others, name) ? others[name] : `there is no such option; the options are ${[...known].join(", ")}${hint}`}`);
  }
}
