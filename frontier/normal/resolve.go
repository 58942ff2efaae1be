package normal

import (
	"fmt"
	"strings"

	whatwg "github.com/nlnwa/whatwg-url/url"
)

// Base is the URL that the references of a document are relative to. It is immutable and safe for
// concurrent use.
type Base struct {
	url    *whatwg.Url
	scheme string
}

// NewBase returns the base for references in the document at a URL, which need not be in its normal
// form.
func NewBase(raw string) (*Base, error) {
	normal, err := NormalizeURL(raw)
	if err != nil {
		return nil, err
	}
	u, err := parser.Parse(normal)
	if err != nil {
		return nil, syntaxError(err)
	}
	return &Base{url: u, scheme: u.Scheme()}, nil
}

// String returns the URL in its normal form.
func (b *Base) String() string { return b.url.Href(true) }

// Resolve returns the normal form of a reference, as the URL standard resolves it. An error wraps
// one of the errors of this package, and does not contain the reference.
func (b *Base) Resolve(reference string) (string, error) {
	if len(reference) > MaxURLBytes {
		return "", fmt.Errorf("%w: %d bytes, the limit is %d", ErrTooLong, len(reference), MaxURLBytes)
	}
	ref := strip(reference)
	if scheme, rest, ok := cutScheme(ref); ok {
		if scheme != b.scheme || startsAuthority(rest) {
			return NormalizeURL(ref)
		}
		ref = rest // "http:page" is relative to a base with the same scheme
	}
	if startsAuthority(ref) {
		return NormalizeURL(b.scheme + ":" + ref)
	}
	if err := checkSegments(ref); err != nil {
		return "", err
	}
	u, err := b.url.Parse(escapeInvalidUTF8(ref))
	if err != nil {
		return "", syntaxError(err)
	}
	return NormalizeURL(u.Href(true))
}

// strip removes what the URL standard removes before it parses: controls and spaces around a
// reference, and tabs and line ends in it.
func strip(s string) string {
	s = strings.TrimFunc(s, func(r rune) bool { return r <= ' ' })
	if strings.ContainsAny(s, "\t\r\n") {
		s = strings.NewReplacer("\t", "", "\r", "", "\n", "").Replace(s)
	}
	return s
}

// cutScheme splits a reference after its scheme, in lower case. ok is false if it has none.
func cutScheme(s string) (scheme, rest string, ok bool) {
	scheme, rest, ok = strings.Cut(s, ":")
	if !ok || scheme == "" || !isLetter(scheme[0]) {
		return "", s, false
	}
	for i := 1; i < len(scheme); i++ {
		if c := scheme[i]; !isLetter(c) && (c < '0' || c > '9') && c != '+' && c != '-' && c != '.' {
			return "", s, false
		}
	}
	return strings.ToLower(scheme), rest, true
}

func isLetter(c byte) bool { return 'a' <= c && c <= 'z' || 'A' <= c && c <= 'Z' }

// startsAuthority reports whether s starts with two slashes. A backslash is one too.
func startsAuthority(s string) bool {
	return len(s) > 1 && (s[0] == '/' || s[0] == '\\') && (s[1] == '/' || s[1] == '\\')
}
