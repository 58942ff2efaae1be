package fetch

import (
	"net/netip"
	"net/url"
	"strconv"
	"strings"
	"unicode/utf8"

	"golang.org/x/net/idna"
)

// URLError is the error of [ParseURL]. It describes why a URL cannot be fetched.
type URLError struct {
	// Reason is the cause in lower_snake_case, such as "userinfo".
	Reason string
	// Remedy tells people what is wrong and how to fix it. It contains no byte of the
	// URL.
	Remedy string
}

// Error returns the remedy.
func (e *URLError) Error() string { return e.Remedy }

var (
	errURLEmpty    = &URLError{"missing", "is missing: give an absolute http or https URL"}
	errURLLong     = &URLError{"too_long", "is longer than " + strconv.Itoa(MaxURLBytes) + " bytes"}
	errURLControl  = &URLError{"control_character", "has a space or a control character: percent-encode it"}
	errURLSyntax   = &URLError{"malformed", "is not a URL: see RFC 3986"}
	errURLScheme   = &URLError{"scheme", "must begin with http:// or https://"}
	errURLRelative = &URLError{"relative", "has no host: give an absolute http or https URL"}
	errURLUserinfo = &URLError{"userinfo", "has a user name or password: send an Authorization header instead"}
	errURLZone     = &URLError{"zone", "has an IPv6 zone: remove it"}
	errURLPort     = &URLError{"port", "has a port that is not 1 to 65535"}
	errURLHost     = &URLError{"host", "has a host that is neither a name nor an address"}
	errURLNumber   = &URLError{"number_like_host", "has a host that looks like a number but is not an address: write it as four decimals or in brackets"}
)

// ParseURL parses the URL of a request. It must be absolute, with scheme http or https,
// and have at most [MaxURLBytes]. It must not have userinfo, an IPv6 zone, spaces or
// control characters. Its host must be a name or an address in its usual form. ParseURL
// converts names to lower case and ASCII (IDNA), and the query to ASCII. The error is a
// *[URLError].
//
// # Source
//
// Spec §12; RFC 3986; the WHATWG URL standard for hosts that look like numbers.
func ParseURL(raw string) (*url.URL, error) {
	if strings.ContainsFunc(raw, func(r rune) bool { return r <= ' ' || r == 0x7f }) {
		return nil, errURLControl
	}
	return parseAbsolute(raw)
}

// parseAbsolute is ParseURL without the refusal of spaces, which in a Location
// are encoded instead. Where userinfo is all that is wrong it returns the URL
// too, so that the egress policy can be asked first (spec §3: P1 before R3).
func parseAbsolute(raw string) (*url.URL, error) {
	if raw == "" {
		return nil, errURLEmpty
	}
	if len(raw) > MaxURLBytes {
		return nil, errURLLong
	}
	u, err := parse(raw)
	if err != nil {
		return nil, err
	}
	if err := canonicalise(u); err != nil {
		return u, err
	}
	return u, nil
}

// parse is url.Parse, save that the path keeps its escapes: url.URL forgets
// them where another byte has to be escaped too, and "é%2F" would go out as
// "%C3%A9/".
func parse(raw string) (*url.URL, *URLError) {
	u, err := url.Parse(raw)
	if err != nil {
		return nil, errURLSyntax
	}
	u.RawPath = escape(u.RawPath, "\"<>\\^`{|}")
	return u, nil
}

// canonicalise checks u and brings it into the form that is sent. It returns
// nil where nothing is wrong; what is not userinfo is found first.
func canonicalise(u *url.URL) *URLError {
	switch {
	case u.Scheme == "":
		return errURLRelative
	case u.Scheme != "http" && u.Scheme != "https": // url.Parse lowers it
		return errURLScheme
	case u.Opaque != "" || u.Host == "":
		return errURLRelative
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
	if mayBeLong(u) && len(u.String()) > MaxURLBytes {
		return errURLLong
	}
	if u.User != nil {
		return errURLUserinfo
	}
	return nil
}

// mayBeLong spares most URLs that they are written out to be measured: escaping makes
// of a byte three.
func mayBeLong(u *url.URL) bool {
	const marks = len("://?#")
	escaped := len(u.Path) + len(u.RawPath) + len(u.Fragment) + len(u.RawFragment)
	return u.User != nil || marks+len(u.Scheme)+len(u.Host)+len(u.RawQuery)+3*escaped > MaxURLBytes
}

func canonicalPort(u *url.URL) (string, *URLError) {
	digits := u.Port()
	if digits == "" {
		return "", nil // "host:" is "host" (RFC 3986 §6.2.3)
	}
	n, err := strconv.ParseUint(digits, 10, 16)
	if err != nil || n == 0 {
		return "", errURLPort
	}
	if digits[0] == '0' {
		return ":" + strings.TrimLeft(digits, "0"), nil
	}
	return u.Host[len(u.Host)-len(digits)-len(":"):], nil
}

// hostProfile maps names as a lookup does, but leaves the letters to
// [isHostName], for names with an underscore exist.
var hostProfile = idna.New(idna.MapForLookup(), idna.BidiRule(), idna.Transitional(false),
	idna.StrictDomainName(false), idna.CheckHyphens(false))

func canonicalHost(u *url.URL) (string, *URLError) {
	host := u.Hostname()
	if strings.HasPrefix(u.Host, "[") {
		if strings.Contains(host, "%") {
			return "", errURLZone
		}
		addr, err := netip.ParseAddr(host)
		if err != nil || !addr.Is6() {
			return "", errURLHost
		}
		return "[" + addr.String() + "]", nil
	}
	if !utf8.ValidString(host) {
		return "", errURLHost // idna would take such a byte for U+FFFD
	}
	name := host
	if !isPlain(host) {
		var err error
		if name, err = hostProfile.ToASCII(host); err != nil {
			return "", errURLHost
		}
	}
	if !isHostName(name) {
		return "", errURLHost
	}
	if endsInNumber(name) {
		addr, err := netip.ParseAddr(name)
		if err != nil || !addr.Is4() {
			return "", errURLNumber
		}
	}
	return name, nil
}

// isPlain tells hosts that [hostProfile] leaves as they are.
func isPlain(host string) bool {
	for i := range len(host) {
		if c := host[i]; c != '.' && notHostRune(rune(c)) {
			return false
		}
	}
	return !strings.Contains(host, "xn--")
}

// isHostName tells names that DNS can hold: letters, digits, hyphens and
// underscores in labels of at most 63, at most 253 in all, one trailing dot.
func isHostName(name string) bool {
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

// endsInNumber is the "ends in a number" check of the WHATWG URL standard: such
// a host would be taken for an address by some resolver, in some notation.
func endsInNumber(name string) bool {
	name = strings.TrimSuffix(name, ".")
	last := name[strings.LastIndexByte(name, '.')+1:]
	if digits := strings.TrimPrefix(last, "0x"); digits != last {
		return strings.Trim(digits, "0123456789abcdef") == ""
	}
	return strings.Trim(last, "0123456789") == ""
}

// escape encodes the bytes that may not stand in a request target, those of
// also among them.
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

// portOf returns the port that u is asked on.
func portOf(u *url.URL) string {
	if p := u.Port(); p != "" {
		return p
	}
	if u.Scheme == "https" {
		return "443"
	}
	return "80"
}

// sameOrigin compares scheme, host and port (RFC 6454 §5).
func sameOrigin(a, b *url.URL) bool {
	return a.Scheme == b.Scheme && sameHost(a, b) && portOf(a) == portOf(b)
}

func sameHost(a, b *url.URL) bool {
	return strings.TrimSuffix(a.Hostname(), ".") == strings.TrimSuffix(b.Hostname(), ".")
}

// withoutFragment is u as it is sent.
func withoutFragment(u *url.URL) *url.URL {
	if u.Fragment == "" && u.RawFragment == "" {
		return u
	}
	sent := *u
	sent.Fragment, sent.RawFragment = "", ""
	return &sent
}

// withoutUserinfo is u as it is told: a Location may hold a password.
func withoutUserinfo(u *url.URL) string {
	if u == nil {
		return ""
	}
	if u.User == nil {
		return u.String()
	}
	told := *u
	told.User = nil
	return told.String()
}

// RedactURL formats u for a log, without userinfo, query and fragment.
func RedactURL(u *url.URL) string {
	if u == nil {
		return ""
	}
	short := url.URL{Scheme: u.Scheme, Host: u.Host, Path: u.Path, RawPath: u.RawPath}
	return short.String()
}
