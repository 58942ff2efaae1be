package normal

import (
	"crypto/sha256"
	"errors"
	"fmt"
	"net/netip"
	"net/url"
	"regexp"
	"strings"

	whatwg "github.com/nlnwa/whatwg-url/url"
	"golang.org/x/text/unicode/norm"
)

// Version is the version of the rules. It is stored with normal forms. Increase it when a normal form
// of the rules before is not one any more, or is that of another URL. Rules that only reject more, or
// read some text as another URL, leave the rows of a database valid.
const Version = 1

// MaxURLBytes is the maximum length of a URL and of its normal form.
const MaxURLBytes = 8 << 10

// NormalizeURL returns the normal form of raw. An error wraps one of the errors of this package, and
// does not contain raw.
func NormalizeURL(raw string) (string, error) {
	if len(raw) > MaxURLBytes {
		return "", fmt.Errorf("%w: %d bytes, the limit is %d", ErrTooLong, len(raw), MaxURLBytes)
	}
	if err := checkAuthority(raw); err != nil {
		return "", err
	}
	if err := checkSegments(raw); err != nil {
		return "", err
	}
	first, err := pass(raw)
	if err != nil {
		return "", err
	}
	normal, err := pass(first)
	if err != nil {
		return "", err
	}
	if normal != first {
		// The second pass parsed what the first one had decoded. It must not change again.
		again, err := pass(normal)
		if err != nil {
			return "", err
		}
		if again != normal {
			return "", fmt.Errorf("%w: the normal form of its normal form is different", ErrAmbiguous)
		}
	}
	if err := readsUnchanged(normal); err != nil {
		return "", err
	}
	return normal, nil
}

// pass applies every rule once.
func pass(raw string) (string, error) {
	u, err := parser.Parse(escapeInvalidUTF8(raw))
	if err != nil {
		return "", syntaxError(err)
	}
	if u.Scheme() != "http" && u.Scheme() != "https" {
		return "", fmt.Errorf("%w: it is neither http nor https", ErrScheme)
	}
	if err := checkReading(raw, u.Hostname()); err != nil {
		return "", err
	}
	host, err := trimDot(u.Hostname())
	if err != nil {
		return "", err
	}
	if err := checkLengths(host); err != nil {
		return "", err
	}
	if u.Port() != "" {
		host += ":" + u.Port()
	}
	path, query := tidyEscapes(u.Pathname()), tidyEscapes(u.Query())
	if query != "" {
		query = "?" + query
	}
	normal := u.Scheme() + "://" + host + path + query
	if len(normal) > MaxURLBytes {
		return "", fmt.Errorf("%w: %d bytes once escaped, the limit is %d", ErrTooLong, len(normal), MaxURLBytes)
	}
	return normal, nil
}

// parser has only options, so it is safe for concurrent use.
//
// net/url keeps an escaped path only if it would escape nothing in it. The standard leaves ^ and |
// unescaped, so we escape them.
var parser = whatwg.NewParser(whatwg.WithPathPercentEncodeSet(whatwg.PathPercentEncodeSet.Set('^', '|')),
	whatwg.WithPreParseHostFunc(func(_ *whatwg.Url, host string) string { return capitalSharpS.ReplaceAllString(host, "ß") }))

// capitalSharpS is ẞ, which UTS 46 has mapped to ß since its version 15.1. The tables of idna have ss
// before Go 1.27.
var capitalSharpS = regexp.MustCompile(`ẞ|%[Ee]1%[Bb][Aa]%9[Ee]`)

// The time and the memory of the parser grow with the square of these. With the limits, no URL takes
// more than 5 ms; 8 KiB of @ take 110 ms, and 8 KiB of a/ take 85 ms and 50 MiB.
const (
	maxUserBytes = 256
	maxSegments  = 512
)

// checkSegments rejects paths with too many segments. It counts them before dot segments are removed.
func checkSegments(raw string) error {
	if end := strings.IndexAny(raw, "?#"); end >= 0 {
		raw = raw[:end]
	}
	if n := strings.Count(raw, "/") + strings.Count(raw, `\`); n > maxSegments {
		return fmt.Errorf("%w: it has %d slashes, the limit is %d", ErrTooLong, n, maxSegments)
	}
	return nil
}

// checkAuthority rejects user information that is too long for the parser, and brackets that it
// accepts by mistake, such as [[::1]] for [::1]. The parser drops tabs and line ends, which does
// not affect the counts.
func checkAuthority(raw string) error {
	user, host := authority(raw)
	if user > maxUserBytes {
		return fmt.Errorf("%w: its user information has %d bytes, the limit is %d", ErrTooLong, user-1, maxUserBytes-1)
	}
	if strings.Count(host, "[") > 1 || strings.Count(host, "]") > 1 {
		return fmt.Errorf("%w: it has more brackets than an IPv6 address", ErrHost)
	}
	return nil
}

// authority returns the length of the user information with its @, and the host with its port.
func authority(raw string) (user int, host string) {
	_, rest, _ := strings.Cut(raw, ":")
	rest = strings.TrimLeft(rest, "/\\\t\r\n")
	if end := strings.IndexAny(rest, `/\?#`); end >= 0 {
		rest = rest[:end]
	}
	user = strings.LastIndexByte(rest, '@') + 1
	return user, rest[user:]
}

// ignored are characters that the parser drops in a host, as far as they can follow a label.
var ignored = strings.NewReplacer("\t", "", "\r", "", "\n", "", "\u00ad", "", "\u200b", "", "\u2060", "", "\ufeff", "")

// checkReading rejects hosts that the parser accepts by mistake. It reads a sign in a number, such as
// 127.0.0.1 in +127.0.0.1, and drops a label xn-- at the end. read is what it made of the host.
func checkReading(raw, read string) error {
	_, host := authority(raw)
	if strings.HasPrefix(read, "[") {
		return nil
	}
	host, _, _ = strings.Cut(host, ":")
	if text, err := url.PathUnescape(host); err == nil {
		host = text
	}
	host = ignored.Replace(norm.NFKC.String(host))
	if _, err := netip.ParseAddr(strings.TrimSuffix(read, ".")); err == nil && strings.ContainsAny(host, "+-") {
		return fmt.Errorf("%w: it has a sign in a number", ErrHost)
	}
	if strings.HasSuffix(read, ".") && strings.HasSuffix(host, "-") {
		return fmt.Errorf("%w: its last label is Punycode of nothing", ErrHost)
	}
	return nil
}

// trimDot removes the trailing dot. No DNS name has an empty label, and the second pass would
// remove another dot.
func trimDot(host string) (string, error) {
	host = strings.TrimSuffix(host, ".")
	if host == "" || host[0] == '.' || strings.HasSuffix(host, ".") || strings.Contains(host, "..") {
		return "", fmt.Errorf("%w: a label is empty", ErrHost)
	}
	return host, nil
}

// maxHostBytes is the maximum length of a host name without the trailing dot, and maxLabelBytes
// that of a label: RFC 1035 §2.3.4. Addresses are shorter.
const (
	maxHostBytes  = 253
	maxLabelBytes = 63
)

// checkLengths rejects names that no resolver looks up.
func checkLengths(host string) error {
	if len(host) > maxHostBytes {
		return fmt.Errorf("%w: it has %d bytes, the limit is %d", ErrHost, len(host), maxHostBytes)
	}
	for label := range strings.SplitSeq(host, ".") {
		if len(label) > maxLabelBytes {
			return fmt.Errorf("%w: a label has %d bytes, the limit is %d", ErrHost, len(label), maxLabelBytes)
		}
	}
	return nil
}

// readsUnchanged checks that net/url, which fetches the URL, parses it and writes it unchanged.
func readsUnchanged(normal string) error {
	u, err := url.Parse(normal)
	if err != nil {
		if _, ok := errors.AsType[url.InvalidHostError](err); ok {
			return fmt.Errorf("%w: it has a character that is not allowed in a host name", ErrHost)
		}
		return fmt.Errorf("%w: net/url cannot parse it", ErrAmbiguous)
	}
	if u.String() != normal {
		return fmt.Errorf("%w: net/url writes it differently", ErrAmbiguous)
	}
	return nil
}

// URLHash returns the SHA-256 of a normal form.
func URLHash(normal string) [32]byte {
	return sha256.Sum256([]byte(normal))
}

// ExtractHost returns the host of a normal form, by which politeness is counted. It has a port
// unless that is the scheme's default, so http and https of one name share it.
func ExtractHost(normal string) (string, error) {
	u, err := url.Parse(normal)
	if err != nil || u.Host == "" || (u.Scheme != "http" && u.Scheme != "https") {
		return "", fmt.Errorf("%w: this is not a normal form", ErrHost)
	}
	host := strings.ToLower(u.Host)
	if u.Scheme == "http" {
		return strings.TrimSuffix(host, ":80"), nil
	}
	return strings.TrimSuffix(host, ":443"), nil
}
