// Package normal has the rules by which two URLs are one: a URL is stored,
// hashed and compared in its normal form alone.
//
// The parser is that of the WHATWG URL standard, so a URL means what it means
// to a browser. On top of it:
//
//   - http and https only; fragment, user information and an empty query go;
//   - one dot at the end of the host goes, and so does the scheme's own port;
//   - a host of more than 253 bytes or with a label of more than 63 is refused,
//     for the DNS has none (RFC 1035 §2.3.4);
//   - escapes are upper-case, and those of unreserved characters (RFC 3986
//     §2.3) are decoded, all others stay; a % that begins no escape is %25;
//   - ^ and | in a path are escaped, for net/url writes the path anew when it
//     meets one, and a %2F in it becomes a slash;
//   - a byte that is not UTF-8 is escaped as it is;
//   - the outcome is normalised again, is then its own normal form, and
//     net/url reads and writes it unchanged.
//
// The package does not resolve references, and does not ask whether a host
// exists or may be fetched.
//
// [NormalizeURL] comes first; [URLHash] and [ExtractHost] take what it returns.
package normal
