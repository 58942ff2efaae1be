const forms = "give HOST:PORT, such as 127.0.0.1:8080, or http://HOST:PORT, https://HOST:PORT or dns:///HOST:PORT";

/**
 * addressOf returns the URL of a service. HOST:PORT and dns:///HOST:PORT use TLS if tls is set. Its errors do not quote
 * the address, which may have a password.
 */
export function addressOf(given: string | URL, tls: boolean): URL {
  const text = String(given);
  const [, prefix = "", rest] = /^([a-z][a-z0-9+.-]*:\/\/+)?(.*?)\/?$/is.exec(text) as unknown as [string, string | undefined, string];
  const start = prefix.toLowerCase();
  const scheme = { "": tls ? "https://" : "http://", "dns:///": tls ? "https://" : "http://", "http://": start, "https://": start }[start];
  const faults: readonly (readonly [boolean, string])[] = [
    [text === "", `is empty: ${forms}`],
    [text.includes("@"), "has a user name or a password: give the option token instead"],
    [scheme === undefined, `starts with ${start}: ${forms}`],
    [/[/?#]/.test(rest), `has a path, a query or a fragment: ${forms}`],
    [/^[0-9a-f.]*:[0-9a-f.]*:[0-9a-f:.]*$/i.test(rest), "is an IPv6 address without brackets: give [ADDRESS]:PORT, such as [::1]:8080"],
    [scheme !== start && /^([^:[]*|\[.*\]):?$/.test(rest), `has no port: ${forms}`],
  ];
  const [, fault] = faults.find(([found]) => found) ?? [];
  try {
    if (!fault) return new URL(`${scheme}${rest}`);
  } catch {
    // It is refused below.
  }
  throw new TypeError(`the address of the service ${fault ?? `is not valid: ${forms}`}`);
}
