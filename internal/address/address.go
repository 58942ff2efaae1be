// Package address parses the address of a fetchd, in the forms that every client of fetchd takes.
package address

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"regexp"
	"strconv"
	"strings"
)

// Security is what an address says about TLS.
type Security int

// The values of Security.
const (
	Unsaid Security = iota
	Plaintext
	TLS
)

// Address is an address that was parsed.
type Address struct {
	Target   string // for gRPC
	Security Security
}

const forms = "give HOST:PORT, http://HOST:PORT, https://HOST:PORT for TLS, or dns:///HOST:PORT"

// schemes are the schemes of addresses, with the port that a URL may leave out.
var schemes = map[string]struct {
	security Security
	port     string
}{"": {}, "http": {Plaintext, "80"}, "https": {TLS, "443"}, "dns": {}}

var (
	// passed matches names of gRPC that gRPC parses itself: lists of addresses, sockets, control planes.
	passed = regexp.MustCompile(`^(ipv4|ipv6|unix|unix-abstract|xds|passthrough):`)
	host   = regexp.MustCompile(`^[^\s:\[\]]+$`)
)

// Parse parses an address. Its error says what is wrong and what to give. It does not quote a password.
func Parse(text string) (Address, error) {
	if passed.MatchString(text) {
		return Address{Target: text}, nil
	}
	if strings.Contains(text, "@") {
		return Address{}, errors.New("has a user name or a password: leave them out. A token is a separate setting")
	}
	scheme, rest, found := strings.Cut(text, "://")
	if !found {
		scheme, rest = "", text
	}
	if dns, ok := strings.CutPrefix(text, "dns:"); ok {
		scheme, rest = "dns", dns[strings.LastIndexByte(dns, '/')+1:]
	}
	scheme = strings.ToLower(scheme)
	kind, known := schemes[scheme]
	if !known {
		return Address{}, wrong(text, fmt.Sprintf("%.20s:// is not a scheme of fetchd", scheme))
	}
	if kind.port != "" {
		rest = strings.TrimSuffix(rest, "/")
	}
	if i := strings.IndexAny(rest, "/?#"); i >= 0 {
		return Address{}, wrong(text, fmt.Sprintf("%.40q follows the host and the port", rest[i:]))
	}
	name, port, fault := split(rest, kind.port)
	switch {
	case fault != "":
		return Address{}, wrong(text, fault)
	case scheme == "dns":
		return Address{Target: text}, nil
	}
	return Address{Target: net.JoinHostPort(name, port), Security: kind.security}, nil
}

// split splits a host and a port, and says what is wrong with them.
func split(text, defaultPort string) (name, port, fault string) {
	if ip, err := netip.ParseAddr(text); err == nil && ip.Is6() {
		return "", "", "an IPv6 address needs brackets"
	}
	name, port, hasPort := text, defaultPort, false
	if i := strings.LastIndexByte(text, ':'); i > strings.LastIndexByte(text, ']') {
		name, port, hasPort = text[:i], text[i+1:], true
	}
	bare := strings.TrimSuffix(strings.TrimPrefix(name, "["), "]")
	ip, err := netip.ParseAddr(bare)
	switch n, numberErr := strconv.ParseUint(port, 10, 16); {
	case name == "":
		return "", "", "the host is missing"
	case strings.Contains(name, ":") && !strings.HasPrefix(name, "["):
		return "", "", "an IPv6 address needs brackets"
	case strings.HasPrefix(name, "[") && (err != nil || !ip.Is6() || !strings.HasSuffix(name, "]")), !strings.HasPrefix(name, "[") && !host.MatchString(name):
		return "", "", "the host is not valid"
	case port == "" && !hasPort:
		return "", "", "the port is missing"
	case numberErr != nil || n == 0:
		return "", "", fmt.Sprintf("the port is %.20q, not a number from 1 to 65535", port)
	}
	return bare, port, ""
}

// wrong is the error of an address.
func wrong(text, fault string) error {
	return fmt.Errorf("is %.80q, and %s: %s", text, fault, forms)
}

const otherPort = "if this is the HTTP port of fetchd (--http-addr, by default 8081), give the gRPC port (--grpc-addr, by default 8080)"

const (
	proxyAnswered = "a proxy in front of fetchd answered: it cannot reach fetchd, or permits less silence than the call had (docs/operating.md)"
	proxyCut      = "a proxy in front of fetchd may have ended the call, because it permits less silence or shorter requests (docs/operating.md)"
)

// remedies says what to do about the words in which gRPC reports a port that is not the one for gRPC, or a proxy.
var remedies = []struct{ words, remedy string }{
	{"looked like an HTTP/1.1 header", "the server does not speak HTTP/2: " + otherPort},
	{"unexpected HTTP status code received from server: 502", proxyAnswered},
	{"unexpected HTTP status code received from server: 503", proxyAnswered},
	{"unexpected HTTP status code received from server: 504", proxyAnswered},
	{"stream terminated by RST_STREAM with error code: INTERNAL_ERROR", proxyCut},
	{"unexpected HTTP status code received from server", "the server does not speak gRPC: " + otherPort},
	{"first record does not look like a TLS handshake", "the port does not use TLS: give http://HOST:PORT"},
	{"error reading server preface: EOF", "if the port uses TLS, give https://HOST:PORT"},
}

// Remedy says what to do about the message of a gRPC status, if it is that of a wrong port or of a proxy. It is
// empty otherwise.
func Remedy(message string) string {
	for _, r := range remedies {
		if strings.Contains(message, r.words) {
			return r.remedy
		}
	}
	return ""
}
