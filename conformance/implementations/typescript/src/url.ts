// URLs of redirects (D8): references are resolved as RFC 3986 §5 says, and fragments are inherited as
// RFC 9110 §10.2.2 says.

/** HttpUrl is an http or https URL with a host. */
export interface HttpUrl {
  text: string;
  scheme: "http" | "https";
  /** Everything before the "@" of the authority. */
  userinfo: string | undefined;
  /** Host in lower case. */
  host: string;
  port: number;
  authority: string;
  path: string;
  query: string | undefined;
  fragment: string | undefined;
}

/** Unusable is the reason that a Location cannot be used (R3, D8). */
export type Unusable =
  | "location_malformed" | "location_relative" | "location_scheme" | "location_host" | "location_number_like_host"
  | "location_zone" | "location_port" | "location_too_long";

/** MAX_URL is the limit of section 12, in characters: all of them are ASCII. */
const MAX_URL = 8 << 10;

interface Reference {
  scheme: string | undefined;
  authority: string | undefined;
  path: string;
  query: string | undefined;
  fragment: string | undefined;
}

/** parseUrl returns an absolute http or https URL, or undefined if the text is none. */
export function parseUrl(text: string): HttpUrl | undefined {
  const reference = split(text);
  const url = reference && compose(reference);
  return typeof url === "string" ? undefined : url;
}

/** resolve returns the URL that a Location leads to, or why the Location is unusable. */
export function resolve(base: HttpUrl, location: string): HttpUrl | Unusable {
  const r = split(location);
  if (!r) return "location_malformed";
  let { scheme, authority, path, query } = r;
  if (scheme === undefined) { // RFC 3986 §5.2.2
    scheme = base.scheme;
    if (authority === undefined) {
      authority = base.authority;
      if (path === "") {
        path = base.path;
        query ??= base.query;
      } else if (!path.startsWith("/")) {
        path = base.path.slice(0, base.path.lastIndexOf("/") + 1) + path;
        if (!path.startsWith("/")) path = `/${path}`; // the base has an authority and an empty path
      }
    }
  }
  return compose({ scheme, authority, path: removeDotSegments(path), query, fragment: r.fragment ?? base.fragment });
}

/** sameOrigin reports whether scheme, host and port are equal. */
export function sameOrigin(a: HttpUrl, b: HttpUrl): boolean {
  return a.scheme === b.scheme && sameHost(a, b) && a.port === b.port;
}

/** sameHost reports whether the hosts are equal. A dot at the end makes no difference (D4). */
export function sameHost(a: HttpUrl, b: HttpUrl): boolean {
  return withoutDot(a.host) === withoutDot(b.host);
}

function withoutDot(host: string): string {
  return host.replace(/\.$/, "");
}

/** sameRequestUrl reports whether both URLs lead to the same request. Fragments are not sent. */
export function sameRequestUrl(a: HttpUrl, b: HttpUrl): boolean {
  return sameOrigin(a, b) && (a.path || "/") === (b.path || "/") && a.query === b.query;
}

/** split returns the parts of a URI reference (RFC 3986 Appendix B), or undefined if it is malformed. */
function split(text: string): Reference | undefined {
  if (/[\u0000-\u001f\u007f]/.test(text)) return undefined;
  const m = /^(?:([^:/?#]+):)?(?:\/\/([^/?#]*))?([^?#]*)(?:\?([^#]*))?(?:#(.*))?$/s.exec(text);
  if (!m) return undefined;
  if ([m[1], m[2], m[3], m[5]].some((part) => /%(?![0-9A-Fa-f]{2})/.test(part ?? ""))) return undefined;
  return {
    scheme: m[1]?.toLowerCase(),
    authority: m[2],
    path: encode(m[3] ?? ""),
    query: m[4] === undefined ? undefined : encode(m[4], ENCODED_IN_QUERY),
    fragment: m[5] === undefined ? undefined : encode(m[5]),
  };
}

/** ENCODED and ENCODED_IN_QUERY are the characters that D8 has encoded. */
const ENCODED = /[ "#<>\\^`{|}\u0080-\u{10ffff}]/gu;
const ENCODED_IN_QUERY = /[ "<>\u0080-\u{10ffff}]/gu;

function encode(text: string, these = ENCODED): string {
  return text.replace(these, (character) =>
    Array.from(new TextEncoder().encode(character), (byte) => `%${byte.toString(16).toUpperCase().padStart(2, "0")}`)
      .join(""));
}

/** compose returns the URL with these parts (RFC 3986 §5.3), or why there is none. */
function compose(r: Reference): HttpUrl | Unusable {
  if (r.scheme !== undefined && r.scheme !== "http" && r.scheme !== "https") return "location_scheme";
  if (r.scheme === undefined || r.authority === undefined) return "location_relative";
  const at = r.authority.lastIndexOf("@");
  const userinfo = at < 0 ? undefined : r.authority.slice(0, at);
  const m = /^(\[[^\]]*\]|[^:[\]]*)(?::(.*))?$/.exec(r.authority.slice(at + 1));
  if (!m) return "location_host";
  if (m[1] === "") return "location_relative";
  if (m[1]?.startsWith("[") && m[1].includes("%")) return "location_zone";
  const host = asciiHost(m[1] ?? "");
  if (host === undefined) return "location_host";
  if (isNumberLike(host)) return "location_number_like_host";
  const port = m[2] ? Number(m[2]) : r.scheme === "https" ? 443 : 80;
  if (!/^[0-9]*$/.test(m[2] ?? "") || port < 1 || port > 65535) return "location_port";
  const authority = (userinfo === undefined ? "" : `${userinfo}@`) + host + (m[2] ? `:${port}` : "");
  const text = `${r.scheme}://${authority}${r.path}`
    + (r.query === undefined ? "" : `?${r.query}`)
    + (r.fragment ? `#${r.fragment}` : ""); // D8: an empty one is not written
  if (text.length > MAX_URL) return "location_too_long";
  return { text, scheme: r.scheme, userinfo, host, port, authority, path: r.path, query: r.query, fragment: r.fragment };
}

/** asciiHost returns a host in lower case and in ASCII, or undefined if it is none (D8). */
function asciiHost(host: string): string | undefined {
  if (host.startsWith("[")) return addressV6(host);
  const name = /^[\u0000-\u007f]*$/.test(host) ? host.toLowerCase() : hostname(host);
  const label = "[a-z0-9_-]{1,63}";
  const isName = name !== undefined && new RegExp(`^${label}(?:\\.${label})*\\.?$`).test(name);
  return isName && name.replace(/\.$/, "").length <= 253 ? name : undefined;
}

/** addressV6 returns an address in brackets as RFC 5952 writes it. URL writes the IPv4 address in it as two numbers. */
function addressV6(host: string): string | undefined {
  const mapped = /^\[::ffff:([0-9a-f]+):([0-9a-f]+)\]$/.exec(hostname(host) ?? "");
  if (!mapped) return hostname(host);
  const bytes = mapped.slice(1).map((text) => parseInt(text, 16)).flatMap((n) => [n >> 8, n & 255]);
  return `[::ffff:${bytes.join(".")}]`;
}

function hostname(host: string): string | undefined {
  return URL.canParse(`http://${host}/`) ? new URL(`http://${host}/`).hostname : undefined;
}

/** isNumberLike reports whether a host ends like an address of IPv4 without being one, such as 127.1. */
function isNumberLike(host: string): boolean {
  const byte = "(?:25[0-5]|2[0-4][0-9]|1[0-9]{2}|[1-9]?[0-9])";
  return /(?:^|\.)(?:[0-9]+|0x[0-9a-f]*)\.?$/.test(host) && !new RegExp(`^${byte}(?:\\.${byte}){3}$`).test(host);
}

/** removeDotSegments is the algorithm of RFC 3986 §5.2.4. */
function removeDotSegments(path: string): string {
  const output: string[] = [];
  const segments = path.split("/");
  segments.forEach((segment, index) => {
    const last = index === segments.length - 1;
    if (segment === "." || segment === "..") {
      if (segment === ".." && output.length > 1) output.pop();
      if (last) output.push("");
    } else {
      output.push(segment);
    }
  });
  return output.join("/");
}
