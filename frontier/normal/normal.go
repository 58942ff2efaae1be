package normal

import (
	"crypto/sha256"
	"errors"
	"fmt"
	"net/url"
	"slices"
	"strings"

	whatwg "github.com/nlnwa/whatwg-url/url"
)

// Version numbers the rules. It is stored beside normal forms, and rises when
// any URL gets another one.
const Version = 1

// MaxURLBytes is the longest URL accepted, and the longest normal form.
const MaxURLBytes = 8 << 10

// Rules are what a crawl may add to the rules of this package. The zero value
// adds nothing. A value may be used by many goroutines.
type Rules struct {
	// SortQuery orders parameters by name. Those of one name keep their order.
	SortQuery bool
	// CollapseSlashes makes one slash of several in a path.
	CollapseSlashes bool
}

// NormalizeURL is [Rules.Normalize] by the zero Rules.
func NormalizeURL(raw string) (string, error) {
	return Rules{}.Normalize(raw)
}

// Normalize returns the normal form of raw. An error wraps one of the
// sentinels of this package and says what is wrong with raw, without
// repeating it.
func (r Rules) Normalize(raw string) (string, error) {
	if len(raw) > MaxURLBytes {
		return "", fmt.Errorf("%w: %d bytes, the limit is %d", ErrTooLong, len(raw), MaxURLBytes)
	}
	if err := checkAuthority(raw); err != nil {
		return "", err
	}
	first, err := r.pass(raw)
	if err != nil {
		return "", err
	}
	normal, err := r.pass(first)
	if err != nil {
		return "", err
	}
	if normal != first {
		// What the first pass decoded was decided anew. It may not go on so.
		again, err := r.pass(normal)
		if err != nil {
			return "", err
		}
		if again != normal {
			return "", fmt.Errorf("%w: its normal form has another normal form", ErrAmbiguous)
		}
	}
	if err := readsUnchanged(normal); err != nil {
		return "", err
	}
	return normal, nil
}

// pass applies every rule once.
func (r Rules) pass(raw string) (string, error) {
	u, err := parser.Parse(escapeInvalidUTF8(raw))
	if err != nil {
		return "", syntaxError(err)
	}
	if u.Scheme() != "http" && u.Scheme() != "https" {
		return "", fmt.Errorf("%w: it is neither http nor https", ErrScheme)
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
	if r.CollapseSlashes {
		path = collapseSlashes(path)
	}
	if r.SortQuery {
		query = sortQuery(query)
	}
	if query != "" {
		query = "?" + query
	}
	normal := u.Scheme() + "://" + host + path + query
	if len(normal) > MaxURLBytes {
		return "", fmt.Errorf("%w: %d bytes once escaped, the limit is %d", ErrTooLong, len(normal), MaxURLBytes)
	}
	return normal, nil
}

// parser is safe for concurrent use: it holds options alone.
//
// net/url takes an escaped path as it stands only if it finds nothing in it
// that it would escape itself; ^ and | are what the standard leaves over.
var parser = whatwg.NewParser(whatwg.WithPathPercentEncodeSet(whatwg.PathPercentEncodeSet.Set('^', '|')))

// maxUserBytes keeps the parser, whose time grows with the square of the user
// information, below 5 ms; 8 KiB of @ take it 110.
const maxUserBytes = 1 << 10

// checkAuthority refuses what the parser is too slow for or, of brackets, too
// lenient: it takes [[::1]] for [::1]. Tabs and line ends, which the parser
// drops, make no difference to the counts.
func checkAuthority(raw string) error {
	_, rest, _ := strings.Cut(raw, ":")
	rest = strings.TrimLeft(rest, "/\\\t\r\n")
	if end := strings.IndexAny(rest, `/\?#`); end >= 0 {
		rest = rest[:end]
	}
	user := strings.LastIndexByte(rest, '@') + 1
	if user > maxUserBytes {
		return fmt.Errorf("%w: its user information has %d bytes, the limit is %d", ErrTooLong, user-1, maxUserBytes-1)
	}
	if host := rest[user:]; strings.Count(host, "[") > 1 || strings.Count(host, "]") > 1 {
		return fmt.Errorf("%w: it has more brackets than an IPv6 address", ErrHost)
	}
	return nil
}

// trimDot takes the dot of the root off. An empty label can be in no name of
// the DNS, and would be a second dot to take off in the second pass.
func trimDot(host string) (string, error) {
	host = strings.TrimSuffix(host, ".")
	if host == "" || host[0] == '.' || strings.HasSuffix(host, ".") || strings.Contains(host, "..") {
		return "", fmt.Errorf("%w: a label is empty", ErrHost)
	}
	return host, nil
}

// maxHostBytes is the longest host name accepted, without the root's dot, and
// maxLabelBytes the longest part of it: RFC 1035 §2.3.4. No address is as long.
const (
	maxHostBytes  = 253
	maxLabelBytes = 63
)

// checkLengths refuses what no resolver looks up, and no index of hosts need hold.
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

// readsUnchanged holds normal against the parser of those who will fetch it.
func readsUnchanged(normal string) error {
	u, err := url.Parse(normal)
	if err != nil {
		if _, ok := errors.AsType[url.InvalidHostError](err); ok {
			return fmt.Errorf("%w: it has a character that no host name has", ErrHost)
		}
		return fmt.Errorf("%w: net/url does not read it", ErrAmbiguous)
	}
	if u.String() != normal {
		return fmt.Errorf("%w: net/url writes it in another way", ErrAmbiguous)
	}
	return nil
}

func collapseSlashes(path string) string {
	for strings.Contains(path, "//") {
		path = strings.ReplaceAll(path, "//", "/")
	}
	return path
}

func sortQuery(query string) string {
	params := strings.Split(query, "&")
	slices.SortStableFunc(params, func(a, b string) int {
		a, _, _ = strings.Cut(a, "=")
		b, _, _ = strings.Cut(b, "=")
		return strings.Compare(a, b)
	})
	return strings.Join(params, "&")
}

// URLHash is the SHA-256 of a normal form.
func URLHash(normal string) [32]byte {
	return sha256.Sum256([]byte(normal))
}

// ExtractHost is the key of politeness: the host of a normal form, with its
// port unless that is the scheme's own. http and https of one name share it.
func ExtractHost(normal string) (string, error) {
	u, err := url.Parse(normal)
	if err != nil || u.Host == "" || (u.Scheme != "http" && u.Scheme != "https") {
		return "", fmt.Errorf("%w: this is no normal form", ErrHost)
	}
	host := strings.ToLower(u.Host)
	if u.Scheme == "http" {
		return strings.TrimSuffix(host, ":80"), nil
	}
	return strings.TrimSuffix(host, ":443"), nil
}
