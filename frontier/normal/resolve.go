package normal

import (
	"fmt"
	"strings"
	"sync/atomic"
)

// Base is the URL that the references of a document are relative to. It is safe for concurrent use. The
// zero Base is a URL that is neither http nor https: relative references to it have no normal form.
type Base struct {
	url    string // normal form
	scheme string
	host   int // end of the host in url
	folder int // end of the path without its last segment and the slash before it
	path   int // end of the path
	last   atomic.Pointer[hostMemo]
}

// NewBase returns the base for references in the document at a URL, which need not be in its normal
// form.
func NewBase(raw string) (*Base, error) {
	u, err := NormalizeURL(raw)
	if err != nil {
		return nil, err
	}
	b := &Base{url: u, path: len(u)}
	var rest string
	b.scheme, rest, _ = strings.Cut(u, "://") // every normal form has these, and a path
	b.host = len(u) - len(rest) + strings.IndexByte(rest, '/')
	if i := strings.IndexByte(u, '?'); i >= 0 {
		b.path = i
	}
	b.folder = strings.LastIndexByte(u[:b.path], '/')
	return b, nil
}

// String returns the URL in its normal form.
func (b *Base) String() string { return b.url }

// Cost returns what [Base.Resolve] costs, in bytes that are read and written, about: see [Cost].
func (b *Base) Cost(reference string) int {
	if len(reference) > MaxURLBytes {
		return perURL
	}
	cost := perURL + 2*len(reference) + len(b.url)
	scheme, rest := b.scheme, strip(reference)
	if s, after, ok := cutScheme(rest); ok {
		scheme, rest = s, after
	}
	if !isWeb(scheme) || scheme == b.scheme && !startsAuthority(rest) {
		return cost
	}
	authority, _ := splitAuthority(rest)
	return cost + b.hostCost(scheme, authority)
}

// Resolve returns the normal form of a reference, as the URL standard resolves it. An error wraps
// one of the errors of this package, and does not contain the reference. Its time is linear, see
// [Base.Cost].
func (b *Base) Resolve(reference string) (string, error) {
	if err := checkLength(reference); err != nil {
		return "", err
	}
	ref := strip(reference)
	if scheme, rest, ok := cutScheme(ref); ok {
		if scheme != b.scheme || startsAuthority(rest) {
			if !isWeb(scheme) {
				return "", fmt.Errorf("%w: it is neither http nor https", ErrScheme)
			}
			return normalize(scheme, rest, b)
		}
		ref = rest // "http:page" is relative to a base with the same scheme
	}
	if b.scheme == "" {
		return "", fmt.Errorf("%w: that of the base is neither http nor https", ErrScheme)
	}
	if startsAuthority(ref) {
		return normalize(b.scheme, ref, b)
	}
	ref, _, _ = strings.Cut(ref, "#")
	path, query, hasQuery := strings.Cut(ref, "?")
	out := make([]byte, 0, len(b.url)+len(ref)+1)
	switch {
	case ref == "":
		return b.url, nil
	case path == "" && hasQuery:
		return finish(append(out, b.url[:b.path]...), query)
	case isSlash(path[0]):
		out = append(out, b.url[:b.host]...)
	default:
		out = append(out, b.url[:b.folder]...)
	}
	if err := checkSegments(path); err != nil {
		return "", err
	}
	return finish(appendPath(out, b.host, path), query)
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

// Scheme returns the scheme of a reference, in lower case. It is empty if the reference has none.
func Scheme(reference string) string {
	scheme, _, ok := cutScheme(strip(reference))
	if !ok {
		return ""
	}
	return scheme
}

func isLetter(c byte) bool { return 'a' <= c && c <= 'z' || 'A' <= c && c <= 'Z' }

// startsAuthority reports whether s starts with two slashes. A backslash is one too.
func startsAuthority(s string) bool {
	return len(s) > 1 && isSlash(s[0]) && isSlash(s[1])
}
