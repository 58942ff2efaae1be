package normal

import (
	"errors"
	"fmt"
	"net/netip"
	"net/url"
	"regexp"
	"strconv"
	"strings"
	"unicode/utf8"

	whatwg "github.com/nlnwa/whatwg-url/url"
	"golang.org/x/net/publicsuffix"
	"golang.org/x/text/unicode/norm"
)

// parser reads hosts. It has only options, so it is safe for concurrent use. Its time for a path grows
// with the square of the segments, and that for user information with the square of its length, so it
// gets neither.
var parser = whatwg.NewParser(whatwg.WithPreParseHostFunc(func(_ *whatwg.Url, host string) string { return capitalSharpS.ReplaceAllString(host, "ß") }))

// capitalSharpS is ẞ, which UTS 46 has mapped to ß since its version 15.1. The tables of idna have ss
// before Go 1.27.
var capitalSharpS = regexp.MustCompile(`ẞ|%[Ee]1%[Bb][Aa]%9[Ee]`)

const (
	// maxUserBytes limits user information with its @. It is dropped.
	maxUserBytes = 256
	// maxHostText limits a host before it is decoded. The time of IDNA grows with it. The longest name
	// of three bytes for each letter that DNS allows has 759 bytes.
	maxHostText = 1 << 10
	// maxHostBytes is the maximum length of a host name without the trailing dot, and maxLabelBytes
	// that of a label: RFC 1035 §2.3.4. Addresses are shorter.
	maxHostBytes  = 253
	maxLabelBytes = 63
)

// hostMemo is a host that was read.
type hostMemo struct {
	scheme, raw, host string
	err               error
}

// readAuthority returns the normal form of what is between the slashes and the path of a URL, without
// user information. b remembers the last host, unless it is nil: most links of a page have one host.
func (b *Base) readAuthority(scheme, authority string) (string, error) {
	user := strings.LastIndexByte(authority, '@') + 1
	if user > maxUserBytes {
		return "", fmt.Errorf("%w: its user information has %d bytes, the limit is %d", ErrTooLong, user-1, maxUserBytes-1)
	}
	raw := authority[user:]
	if host, ok := plainHost(scheme, raw); ok {
		return host, checkLengths(host)
	}
	if tooLong(raw) {
		return "", fmt.Errorf("%w: it has %d bytes, the limit is %d", ErrHost, len(raw), maxHostBytes)
	}
	if m := b.memo(scheme, raw); m != nil {
		return m.host, m.err
	}
	host, err := readOddHost(scheme, raw)
	if b != nil {
		b.last.Store(&hostMemo{scheme, raw, host, err})
	}
	return host, err
}

// memo returns the last host if it is the given one, or nil.
func (b *Base) memo(scheme, raw string) *hostMemo {
	if b == nil {
		return nil
	}
	if m := b.last.Load(); m != nil && m.raw == raw && m.scheme == scheme {
		return m
	}
	return nil
}

// tooLong reports whether a host is too long to be decoded. What is not escaped does not become
// shorter; a port and a last dot may follow it.
func tooLong(raw string) bool {
	isEscaped := strings.IndexFunc(raw, func(r rune) bool { return r == '%' || r >= utf8.RuneSelf }) >= 0
	return len(raw) > maxHostText || !isEscaped && len(raw) > maxHostBytes+len(".:65535")
}

// readOddHost returns the normal form of a host that is not plain.
func readOddHost(scheme, raw string) (string, error) {
	host, last, err := "", raw, error(nil)
	for range 3 { // a pass reads what the one before it has decoded
		if host, err = readHost(scheme, last); err != nil {
			return "", err
		}
		if host == last {
			return host, readsUnchanged(scheme, host)
		}
		last = host
	}
	return "", fmt.Errorf("%w: the normal form of its normal form is different", ErrAmbiguous)
}

// readsUnchanged checks that net/url, which fetches the URL, reads the host and writes it unchanged.
// It does so for every path and query that this package writes.
func readsUnchanged(scheme, host string) error {
	root := scheme + "://" + host + "/"
	u, err := url.Parse(root)
	if err != nil {
		if _, ok := errors.AsType[url.InvalidHostError](err); ok {
			return fmt.Errorf("%w: it has a character that is not allowed in a host name", ErrHost)
		}
		return fmt.Errorf("%w: net/url cannot parse it", ErrAmbiguous)
	}
	if u.String() != root {
		return fmt.Errorf("%w: net/url writes it differently", ErrAmbiguous)
	}
	return nil
}

// plainHost returns the normal form of a host that IDNA does not change: names of letters, digits and
// hyphens in ASCII that are not Punycode, and IPv4 addresses of four decimal numbers. It may have a port. The top
// label of a name must start with a letter. ok is false for all other hosts, of which most are valid.
func plainHost(scheme, raw string) (host string, ok bool) {
	name, port, _ := strings.Cut(raw, ":")
	dot, upper := 0, false
	for i := range len(name) {
		switch c := name[i]; {
		case 'a' <= c && c <= 'z', '0' <= c && c <= '9', c == '-':
		case 'A' <= c && c <= 'Z':
			upper = true
		case c == '.' && i > dot: // a label is not empty
			dot = i + 1
		default:
			return "", false
		}
	}
	if len(name) == dot || len(name) > maxHostBytes || !isLetter(name[dot]) && !isIPv4(name) {
		return "", false
	}
	if upper {
		name = strings.ToLower(name)
	}
	if strings.Contains(name, "xn--") {
		return "", false
	}
	if port == "" {
		return name, true
	}
	n, err := strconv.ParseUint(port, 10, 16)
	switch {
	case err != nil:
		return "", false
	case scheme == "http" && n == 80, scheme == "https" && n == 443:
		return name, true
	}
	return name + ":" + strconv.FormatUint(n, 10), true
}

// isIPv4 reports whether a host is an IPv4 address in its only normal form.
func isIPv4(host string) bool {
	address, err := netip.ParseAddr(host) // it takes no octal, hexadecimal or short numbers
	return err == nil && address.Is4()
}

// readHost applies every rule about hosts once. raw may have a port.
func readHost(scheme, raw string) (string, error) {
	if strings.Count(raw, "[") > 1 || strings.Count(raw, "]") > 1 { // the parser accepts [[::1]] for [::1]
		return "", fmt.Errorf("%w: it has more brackets than an IPv6 address", ErrHost)
	}
	u, err := parser.Parse(scheme + "://" + escapeInvalidUTF8(raw) + "/")
	if err != nil {
		return "", syntaxError(err)
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
	return host, nil
}

// ignored are characters that the parser drops in a host, as far as they can follow a label.
var ignored = strings.NewReplacer("\u00ad", "", "\u200b", "", "\u2060", "", "\ufeff", "")

// checkReading rejects hosts that the parser accepts by mistake. It reads a sign in a number, such as
// 127.0.0.1 in +127.0.0.1, and drops a label xn-- at the end. read is what it made of the host.
func checkReading(host, read string) error {
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

// Domain returns the registrable domain of a host in its normal form, without its port, by the public suffix list. An
// address, as in [Address], and a name that has no such domain, stay whole.
func Domain(host string) string {
	name := Name(host)
	if a, err := netip.ParseAddr(strings.Trim(name, "[]")); err == nil {
		return Address(a)
	}
	domain, err := publicsuffix.EffectiveTLDPlusOne(name)
	if err != nil {
		return name
	}
	return domain
}

// Name returns a host without its port. An IPv6 address keeps its brackets.
func Name(host string) string {
	if at := strings.LastIndexByte(host, ':'); at >= 0 && !strings.HasSuffix(host, "]") {
		return host[:at]
	}
	return host
}

// IsAddress reports whether the name of a host is an IP address.
func IsAddress(name string) bool {
	_, err := netip.ParseAddr(strings.Trim(name, "[]"))
	return err == nil
}

// Address returns an address as it is in a host. One of IPv4 in IPv6 is of IPv4.
func Address(a netip.Addr) string {
	if a = a.Unmap().WithZone(""); a.Is6() {
		return "[" + a.String() + "]"
	}
	return a.String()
}
