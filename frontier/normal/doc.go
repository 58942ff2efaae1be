// Package normal defines when two URLs are the same: URLs are stored, hashed and compared in their
// normal form.
//
// URLs are read as the WHATWG URL standard says, so a URL means the same as in a browser. The package
// reads paths and queries itself, in linear time. A library reads hosts that are not plain ASCII. In
// addition:
//
//   - Only http and https are allowed. The fragment, user information and an empty query are
//     removed.
//   - One dot at the end of the host and the scheme's default port are removed.
//   - A host of more than 253 bytes, or with a label of more than 63, is rejected, because DNS does
//     not allow it (RFC 1035 §2.3.4).
//   - A host is rejected if its last label is xn--, or if it is an IPv4 address only when a sign in it,
//     as in +127.0.0.1 or -1, is part of a number.
//   - Escapes are in upper case. Those of unreserved characters (RFC 3986 §2.3) are decoded, all
//     others stay. A % that starts no escape becomes %25.
//   - ^ and | in a path are escaped. Otherwise net/url would rewrite the path, and turn a %2F in it
//     into a slash.
//   - Bytes that are not UTF-8 are escaped.
//   - The normal form of a normal form is the same, and net/url parses and writes it unchanged.
//
// The package does not check whether a host exists or may be fetched from.
//
// Call [NormalizeURL] first. [URLHash], [ExtractHost] and [OriginOf] take its result. [Base] resolves the
// references of a document. Callers that read what strangers wrote add up [Cost] or [Base.Cost], and
// stop at a limit.
package normal
