// Package urls parses, resolves, compares and writes the URLs of fetches.
package urls

import (
	"errors"
	"net/netip"
	"net/url"
	"strconv"
	"strings"
	"unicode/utf8"

	"golang.org/x/net/idna"
)

// MaxBytes is the maximum length of a URL (spec §12).
const MaxBytes = 8 << 10

// Error is the error of [Parse] and [Resolve]. It describes why a URL cannot be fetched.
type Error struct {
	// Reason is the cause in lower_snake_case, such as "userinfo".
	Reason string
	// Remedy tells people what is wrong and how to fix it. It contains no byte of the
	// URL.
	Remedy string
}

// Error returns the remedy.
func (e *Error) Error() string { return e.Remedy }

var (
	errEmpty    = &Error{"missing", "is missing: give an absolute http or https URL"}
	errLong     = &Error{"too_long", "is longer than " + strconv.Itoa(MaxBytes) + " bytes"}
	errControl  = &Error{"control_character", "has a space or a control character: percent-encode it"}
	errSyntax   = &Error{"malformed", "is not a URL: see RFC 3986"}
	errScheme   = &Error{"scheme", "must begin with http:// or https://"}
	errRelative = &Error{"relative", "has no host: give an absolute http or https URL"}
	errUserinfo = &Error{"userinfo", "has a user name or password: send an Authorization header instead"}
	errZone     = &Error{"zone", "has an IPv6 zone: remove it"}
	errPort     = &Error{"port", "has a port that is not 1 to 65535"}
	errHost     = &Error{"host", "has a host that is neither a name nor an address"}
	errNumber   = &Error{"number_like_host", "has a host that looks like a number but is not an address: write it as four decimals or in brackets"}
)

// Parse parses the URL of a request. It must be absolute, with scheme http or https,
// and have at most [MaxBytes]. It must not have userinfo, an IPv6 zone, spaces or
// control characters. Its host must be a name or an address in its usual form. Parse
// converts names to lower case and ASCII (IDNA), and the query to ASCII. A lone "%" in the path
// or fragment becomes "%25". The error is a *[Error].
//
// # Source
//
// Spec §12; RFC 3986; the WHATWG URL standard for hosts that look like numbers.
func Parse(raw string) (*url.URL, error) {
	if strings.ContainsFunc(raw, func(r rune) bool { return r <= ' ' || r == 0x7f }) {
		return nil, errControl
	}
	if raw == "" {
		return nil, errEmpty
	}
	if len(raw) > MaxBytes {
		return nil, errLong
	}
	u, err := parse(raw)
	if err != nil {
		return nil, err
	}
	if err := canonicalise(u); err != nil {
		return nil, err
	}
	return u, nil
}

// Resolve makes a Location absolute. Spaces and control characters in it are encoded. If
// userinfo is all that is wrong, Resolve returns the URL next to the error, so that the egress
// policy can be asked first (spec §3: P1 before R3).
func Resolve(from *url.URL, location string) (*url.URL, *Error) {
	if len(location) > MaxBytes {
		return nil, errLong
	}
	ref, err := parse(location)
	if err != nil {
		return nil, err
	}
	u := from.ResolveReference(ref)
	if !strings.Contains(location, "#") { // an empty fragment is a fragment too
		u.Fragment, u.RawFragment = from.Fragment, from.RawFragment // RFC 9110 §10.2.2
	}
	err = canonicalise(u)
	if err != nil && err != errUserinfo {
		return nil, err
	}
	return u, err
}

// parse is url.Parse, but the path keeps its escapes. url.URL drops them if another byte
// needs escaping too, and would send "é%2F" as "%C3%A9/".
func parse(raw string) (*url.URL, *Error) {
	u, err := url.Parse(raw)
	if _, ok := errors.AsType[url.EscapeError](err); ok {
		u, err = url.Parse(escapePercents(raw))
	}
	if err != nil {
		return nil, errSyntax
	}
	u.RawPath = escape(u.RawPath, "\"<>\\^`{|}")
	return u, nil
}

// escapePercents encodes each "%" in a path or fragment that two hexadecimal digits do not follow (spec D8).
func escapePercents(raw string) string {
	path := 0
	if i := strings.Index(raw, "//"); i >= 0 && !strings.ContainsAny(raw[:i], "/?#") { // an authority follows
		path = len(raw)
		if n := strings.IndexAny(raw[i+2:], "/?#"); n >= 0 {
			path = i + 2 + n
		}
	}
	out, part := []byte(raw[:path]), byte('/')
	for i := path; i < len(raw); i++ {
		out = append(out, raw[i])
		switch c := raw[i]; {
		case c == '#' || c == '?' && part == '/':
			part = c
		case c == '%' && part != '?' && (i+2 >= len(raw) || !isHex(raw[i+1]) || !isHex(raw[i+2])):
			out = append(out, "25"...)
		}
	}
	return string(out)
}

func isHex(c byte) bool {
	return '0' <= c && c <= '9' || 'a' <= c|0x20 && c|0x20 <= 'f'
}

// canonicalise checks u and converts it to the form that is sent. It reports userinfo only
// if nothing else is wrong.
func canonicalise(u *url.URL) *Error {
	switch {
	case u.Scheme == "":
		return errRelative
	case u.Scheme != "http" && u.Scheme != "https": // url.Parse lowers it
		return errScheme
	case u.Opaque != "" || u.Host == "":
		return errRelative
	}
	host, err := canonicalHost(u)
	if err != nil {
		return err
	}
	port, err := canonicalPort(u)
	if err != nil {
		return err
	}
	if strings.TrimSuffix(u.Host, port) != host {
		u.Host = host + port
	}
	u.RawQuery = escape(u.RawQuery, `"<>`) // url.URL sends it as it is
	if mayBeLong(u) && len(u.String()) > MaxBytes {
		return errLong
	}
	if u.User != nil {
		return errUserinfo
	}
	return nil
}

// mayBeLong reports whether the text of u may exceed the limit. Escaping makes a byte three
// bytes. Most URLs are so short that their text need not be built.
func mayBeLong(u *url.URL) bool {
	const marks = len("://?#")
	escaped := len(u.Path) + len(u.RawPath) + len(u.Fragment) + len(u.RawFragment)
	return u.User != nil || marks+len(u.Scheme)+len(u.Host)+len(u.RawQuery)+3*escaped > MaxBytes
}

func canonicalPort(u *url.URL) (string, *Error) {
	digits := u.Port()
	if digits == "" {
		return "", nil // "host:" is "host" (RFC 3986 §6.2.3)
	}
	n, err := strconv.ParseUint(digits, 10, 16)
	if err != nil || n == 0 {
		return "", errPort
	}
	if digits[0] == '0' {
		return ":" + strings.TrimLeft(digits, "0"), nil
	}
	return u.Host[len(u.Host)-len(digits)-len(":"):], nil
}

// hostProfile maps names as a lookup does. [IsHostName] checks the letters, because names
// with an underscore exist.
var hostProfile = idna.New(idna.MapForLookup(), idna.BidiRule(), idna.Transitional(false),
	idna.StrictDomainName(false), idna.CheckHyphens(false))

func canonicalHost(u *url.URL) (string, *Error) {
	host := u.Hostname()
	if strings.HasPrefix(u.Host, "[") {
		if strings.Contains(host, "%") {
			return "", errZone
		}
		addr, err := netip.ParseAddr(host)
		if err != nil || !addr.Is6() {
			return "", errHost
		}
		return "[" + addr.String() + "]", nil
	}
	if !utf8.ValidString(host) {
		return "", errHost // idna would map such a byte to U+FFFD
	}
	name := host
	if !isPlain(host) {
		var err error
		if name, err = hostProfile.ToASCII(strings.ReplaceAll(host, "ẞ", "ß")); err != nil { // idna has ss for ẞ before Go 1.27
			return "", errHost
		}
	}
	if !IsHostName(name) {
		return "", errHost
	}
	if EndsInNumber(name) {
		addr, err := netip.ParseAddr(name)
		if err != nil || !addr.Is4() {
			return "", errNumber
		}
	}
	return name, nil
}

// isPlain reports whether [hostProfile] would not change host.
func isPlain(host string) bool {
	for i := range len(host) {
		if c := host[i]; c != '.' && notHostRune(rune(c)) {
			return false
		}
	}
	return !strings.Contains(host, "xn--")
}

// IsHostName reports whether DNS can have the name: labels of at most 63 lower case letters,
// digits, hyphens and underscores, at most 253 bytes in total, and at most one trailing dot.
func IsHostName(name string) bool {
	name = strings.TrimSuffix(name, ".")
	if name == "" || len(name) > 253 {
		return false
	}
	for label := range strings.SplitSeq(name, ".") {
		if label == "" || len(label) > 63 || strings.ContainsFunc(label, notHostRune) {
			return false
		}
	}
	return true
}

func notHostRune(r rune) bool {
	return (r < 'a' || r > 'z') && (r < '0' || r > '9') && r != '-' && r != '_'
}

// EndsInNumber is the "ends in a number" check of the WHATWG URL standard. Some resolvers
// take such a host for an address in some notation.
func EndsInNumber(name string) bool {
	name = strings.TrimSuffix(name, ".")
	last := name[strings.LastIndexByte(name, '.')+1:]
	if digits := strings.TrimPrefix(last, "0x"); digits != last {
		return strings.Trim(digits, "0123456789abcdef") == ""
	}
	return strings.Trim(last, "0123456789") == ""
}

// escape encodes the bytes that a request target must not have, and the bytes of also.
func escape(s, also string) string {
	bad := func(c byte) bool { return c <= ' ' || c >= 0x7f || strings.IndexByte(also, c) >= 0 }
	n := 0
	for i := range len(s) {
		if bad(s[i]) {
			n++
		}
	}
	if n == 0 {
		return s
	}
	const hex = "0123456789ABCDEF"
	out := make([]byte, 0, len(s)+2*n)
	for i := range len(s) {
		if c := s[i]; bad(c) {
			out = append(out, '%', hex[c>>4], hex[c&15])
		} else {
			out = append(out, c)
		}
	}
	return string(out)
}

// Port returns the port that requests of u are sent to.
func Port(u *url.URL) string {
	if p := u.Port(); p != "" {
		return p
	}
	if u.Scheme == "https" {
		return "443"
	}
	return "80"
}

// SameOrigin reports whether scheme, host and port are equal (RFC 6454 §5).
func SameOrigin(a, b *url.URL) bool {
	return a.Scheme == b.Scheme && SameHost(a, b) && Port(a) == Port(b)
}

// SameHost reports whether the hosts are equal. A trailing dot makes no difference.
func SameHost(a, b *url.URL) bool {
	return strings.TrimSuffix(a.Hostname(), ".") == strings.TrimSuffix(b.Hostname(), ".")
}

// WithoutFragment returns u as it is sent. It does not change u.
func WithoutFragment(u *url.URL) *url.URL {
	if u.Fragment == "" && u.RawFragment == "" {
		return u
	}
	sent := *u
	sent.Fragment, sent.RawFragment = "", ""
	return &sent
}

// WithoutUserinfo returns the text of u for results. A Location may contain a password.
func WithoutUserinfo(u *url.URL) string {
	if u == nil {
		return ""
	}
	if u.User == nil {
		return u.String()
	}
	public := *u
	public.User = nil
	return public.String()
}

// Redact formats u for a log, without userinfo, query and fragment.
func Redact(u *url.URL) string {
	if u == nil {
		return ""
	}
	short := url.URL{Scheme: u.Scheme, Host: u.Host, Path: u.Path, RawPath: u.RawPath}
	return short.String()
}
