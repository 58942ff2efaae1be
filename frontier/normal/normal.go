package normal

import (
	"crypto/sha256"
	"errors"
	"fmt"
	"net/url"
	"strings"

	whatwgerrors "github.com/nlnwa/whatwg-url/errors"
)

// Version is the version of the rules. It is stored with normal forms. Increase it when a normal form
// of the rules before is not one any more, or is that of another URL. Rules that only reject more, or
// read some text as another URL, leave the rows of a database valid.
const Version = 1

// MaxURLBytes is the maximum length of a URL and of its normal form.
const MaxURLBytes = 8 << 10

// NormalizeURL returns the normal form of raw. An error wraps one of the errors of this package, and
// does not contain raw. Its time is linear, see [Cost].
func NormalizeURL(raw string) (string, error) {
	if err := checkLength(raw); err != nil {
		return "", err
	}
	scheme, rest, ok := cutScheme(strip(raw))
	switch {
	case !ok:
		return "", fmt.Errorf("%w: it has none", ErrScheme)
	case !isWeb(scheme):
		return "", fmt.Errorf("%w: it is neither http nor https", ErrScheme)
	}
	return normalize(scheme, rest, nil)
}

func isWeb(scheme string) bool { return scheme == "http" || scheme == "https" }

// Costs, in bytes. A byte is read and written in a few nanoseconds.
const (
	perURL = 256
	// A host that IDNA has to read costs perOddHost and oddHostFactor times its length.
	perOddHost    = 2 << 10
	oddHostFactor = 32
)

// Cost returns what [NormalizeURL] costs, in bytes that are read and written, about. Most of it is
// the length of the URL. A host that is not plain ASCII costs more.
func Cost(raw string) int {
	if len(raw) > MaxURLBytes {
		return perURL
	}
	cost := perURL + 2*len(raw)
	scheme, rest, ok := cutScheme(strip(raw))
	if !ok || !isWeb(scheme) {
		return cost
	}
	authority, _ := splitAuthority(rest)
	return cost + (*Base)(nil).hostCost(scheme, authority)
}

func (b *Base) hostCost(scheme, authority string) int {
	raw := authority[strings.LastIndexByte(authority, '@')+1:]
	if _, plain := plainHost(scheme, raw); plain || tooLong(raw) || b.memo(scheme, raw) != nil {
		return 0
	}
	return perOddHost + oddHostFactor*len(raw)
}

func checkLength(raw string) error {
	if len(raw) > MaxURLBytes {
		return fmt.Errorf("%w: %d bytes, the limit is %d", ErrTooLong, len(raw), MaxURLBytes)
	}
	return nil
}

// normalize returns the normal form of a URL. rest is what follows the colon of its scheme, without
// what strip removes. base may be nil; it may know the host.
func normalize(scheme, rest string, base *Base) (string, error) {
	if err := checkSegments(rest); err != nil {
		return "", err
	}
	authority, rest := splitAuthority(rest)
	host, err := base.readAuthority(scheme, authority)
	if err != nil {
		return "", err
	}
	rest, _, _ = strings.Cut(rest, "#")
	path, query, _ := strings.Cut(rest, "?")
	out := make([]byte, 0, len(scheme)+len("://")+len(host)+len("/")+len(rest))
	out = append(append(append(out, scheme...), "://"...), host...)
	out = appendPath(out, len(out), path)
	return finish(out, query)
}

// finish appends a query to a URL without one, and checks the result.
func finish(out []byte, query string) (string, error) {
	if query != "" {
		out = appendQuery(append(out, '?'), query)
	}
	if len(out) > MaxURLBytes {
		return "", fmt.Errorf("%w: %d bytes once escaped, the limit is %d", ErrTooLong, len(out), MaxURLBytes)
	}
	normal := string(out)
	if err := checkSegments(normal); err != nil {
		return "", err
	}
	return normal, nil
}

// splitAuthority splits what follows the colon of a scheme: URL standard, special authority ignore
// slashes state and authority state.
func splitAuthority(rest string) (authority, path string) {
	return cutAny(strings.TrimLeft(rest, `/\`), `/\?#`)
}

// cutAny splits s before the first of some characters.
func cutAny(s, characters string) (before, after string) {
	if i := strings.IndexAny(s, characters); i >= 0 {
		return s[:i], s[i:]
	}
	return s, ""
}

// maxSegments limits the slashes before the query, with those before the host.
const maxSegments = 512

// checkSegments rejects a reference or URL with too many segments.
func checkSegments(reference string) error {
	path, _ := cutAny(reference, "?#")
	if n := strings.Count(path, "/") + strings.Count(path, `\`); n > maxSegments {
		return fmt.Errorf("%w: it has %d slashes, the limit is %d", ErrTooLong, n, maxSegments)
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

// HostOf returns the host of a URL as politeness counts it, or an empty string if the URL is not
// valid.
func HostOf(raw string) string {
	u, err := NormalizeURL(raw)
	if err != nil {
		return ""
	}
	host, err := ExtractHost(u)
	if err != nil {
		return ""
	}
	return host
}

// OriginOf returns scheme, host and port of a URL in its normal form, and its path with the query,
// as robots.txt uses them.
func OriginOf(normalised string) (origin, pathAndQuery string) {
	u, err := url.Parse(normalised)
	if err != nil {
		return "", ""
	}
	return u.Scheme + "://" + u.Host, u.RequestURI()
}

// Errors about a URL. Each error of this package wraps one of them.
var (
	// ErrTooLong means that a URL or its normal form is longer than MaxURLBytes, its user
	// information is 256 bytes or more, or it has more than 512 slashes before its query.
	ErrTooLong = errors.New("URL is too long")
	// ErrScheme means that the scheme is missing, or is not http or https.
	ErrScheme = errors.New("URL has the wrong scheme")
	// ErrHost means that the host is missing or not valid, such as a name of more than 253 bytes,
	// or with a label of more than 63.
	ErrHost = errors.New("URL has a bad host")
	// ErrPort means that the port is not a number up to 65535.
	ErrPort = errors.New("URL has a bad port")
	// ErrAmbiguous means that two parsers would understand the URL differently.
	ErrAmbiguous = errors.New("URL is ambiguous")
)

// syntaxError translates an error of the parser, whose text contains the URL with its user
// information.
func syntaxError(err error) error {
	switch whatwgerrors.Type(err) {
	case whatwgerrors.MissingSchemeNonRelativeURL:
		return fmt.Errorf("%w: it has none", ErrScheme)
	case whatwgerrors.PortOutOfRange:
		return fmt.Errorf("%w: it is greater than 65535", ErrPort)
	case whatwgerrors.PortInvalid:
		return fmt.Errorf("%w: it is not a number", ErrPort)
	case whatwgerrors.HostMissing, whatwgerrors.InvalidCredentials:
		return fmt.Errorf("%w: it has none", ErrHost)
	case whatwgerrors.DomainToASCII:
		return fmt.Errorf("%w: it is not a domain name by IDNA", ErrHost)
	case whatwgerrors.DomainInvalidCodePoint, whatwgerrors.HostInvalidCodePoint:
		return fmt.Errorf("%w: it has a character that is not allowed in a host name", ErrHost)
	case whatwgerrors.IPv4TooManyParts, whatwgerrors.IPv4NonNumericPart, whatwgerrors.IPv4OutOfRangePart, whatwgerrors.IPv4EmptyPart:
		return fmt.Errorf("%w: it ends in a number but is not an IPv4 address", ErrHost)
	default: // Without a base URL, the other errors are about IPv6.
		return fmt.Errorf("%w: it is not an IPv6 address", ErrHost)
	}
}
