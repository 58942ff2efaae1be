// Command wrong is an HTTP client with an egress guard that has one fault. The rows of conformance/guard must find
// exactly that fault. Its first argument is the fault, and the second the URL. The fault "none" is a guard that is
// right, and "everything" a client without a guard. With "proxy HOST:PORT" in place of the URL it is a proxy with the
// same guard, and with "mcp" an MCP server.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"os"
	"regexp"
	"slices"
	"strings"
	"time"

	whatwg "github.com/nlnwa/whatwg-url/url"
)

// client is an HTTP client with a fault.
type client struct{ fault string }

// faults are what a guard can do wrong:
//
//   - none: nothing
//   - everything: it refuses nothing
//   - refuses: it refuses everything
//   - names: it judges addresses in URLs, and not those of names
//   - rebinding: it looks a name up to judge it, and again to connect
//   - redirects: it judges only the first URL
//   - mapped: it does not know IPv4-mapped addresses
//   - ranges: it knows only the addresses of RFC 1918
//   - numbers: it takes every host that is not written as an address for a name
//   - parser: it finds the host to judge with a pattern, not with the parser of the client
//   - proxies: it connects to the proxies that the environment names
//   - tunnels: as a proxy it does not judge CONNECT
var faults = []string{"none", "everything", "refuses", "names", "rebinding", "redirects", "mapped", "ranges", "numbers", "parser", "proxies", "tunnels"}

func main() {
	if len(os.Args) < 3 || !slices.Contains(faults, os.Args[1]) {
		fmt.Fprintf(os.Stderr, "usage: wrong FAULT URL, wrong FAULT proxy HOST:PORT, or wrong FAULT mcp [twice], with a fault of %s\n", strings.Join(faults, ", "))
		os.Exit(2)
	}
	c := &client{os.Args[1]}
	if err := c.run(os.Args[2:]); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func (c *client) run(args []string) error {
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	if len(args) == 2 && args[0] == "proxy" {
		return c.serve(ctx, args[1])
	}
	if args[0] == "mcp" {
		return c.serveMCP(ctx, len(args) == 2)
	}
	return c.fetch(ctx, args[0], os.Stdout)
}

var errRefused = errors.New("refused")

// maxHops is the maximum number of requests.
const maxHops = 10

// fetch fetches a URL, follows redirects, and writes the body.
func (c *client) fetch(ctx context.Context, raw string, to io.Writer) error {
	var at *url.URL
	for hop := range maxHops {
		next, err := parse(at, raw)
		if err != nil {
			return err
		}
		location, err := c.request(ctx, next, raw, hop, to)
		if err != nil || location == "" {
			return err
		}
		at, raw = next, location
	}
	return errors.New("too many redirects")
}

// parse parses a reference as browsers do, or else as RFC 3986 says, which knows zones.
func parse(at *url.URL, raw string) (*url.URL, error) {
	var parsed *whatwg.Url
	var err error
	if at == nil {
		parsed, err = whatwg.Parse(raw)
	} else {
		parsed, err = whatwg.ParseRef(at.String(), raw)
	}
	if err != nil {
		return url.Parse(raw)
	}
	return url.Parse(parsed.Href(false))
}

// request sends one request. It returns the Location if there is one, and else writes the body.
func (c *client) request(ctx context.Context, u *url.URL, raw string, hop int, to io.Writer) (location string, err error) {
	trusted := c.fault == "everything" || c.fault == "redirects" && hop > 0
	addrs, err := c.addresses(ctx, u, raw, trusted)
	if err != nil {
		return "", err
	}
	if trusted && u.Scheme != "http" && u.Scheme != "https" { // the protocol does not matter, only where the client connects
		conn, err := dial(ctx, addrs, port(u))
		if err == nil {
			err = conn.Close()
		}
		return "", err
	}
	transport := &http.Transport{DisableKeepAlives: true, DialContext: func(ctx context.Context, _, address string) (net.Conn, error) {
		_, port, err := net.SplitHostPort(address)
		if err != nil {
			return nil, err
		}
		return dial(ctx, addrs, port)
	}}
	if proxy := c.proxy(u); proxy != nil {
		transport.Proxy = http.ProxyURL(proxy)
		transport.DialContext = (&net.Dialer{}).DialContext
	}
	q, err := http.NewRequestWithContext(ctx, http.MethodGet, u.String(), nil)
	if err != nil {
		return "", err
	}
	a, err := transport.RoundTrip(q)
	if err != nil {
		return "", err
	}
	defer func() { _ = a.Body.Close() }() // it was only read
	if a.StatusCode/100 == 3 {
		return a.Header.Get("Location"), nil
	}
	_, err = io.Copy(to, a.Body)
	return "", err
}

// ownPattern finds the host of a URL, wrongly if the URL has the name of a user.
var ownPattern = regexp.MustCompile(`(?i)^(?:https?:)?//(\[[^\]]*\]|[^/:@?#\\]+)`)

// asWritten finds the host of a URL as it is written.
var asWritten = regexp.MustCompile(`(?i)^(?:https?:)?//(?:[^/?#\\]*@)?(\[[^\]]*\]|[^/:?#\\]+)`)

// addresses returns the addresses to connect to, of which the guard has refused none.
func (c *client) addresses(ctx context.Context, u *url.URL, raw string, trusted bool) ([]netip.Addr, error) {
	if c.fault == "refuses" {
		return nil, errRefused
	}
	if trusted {
		return lookUp(ctx, u.Hostname())
	}
	if u.Scheme != "http" && u.Scheme != "https" {
		return nil, errRefused
	}
	_, notAddress := netip.ParseAddr(u.Hostname())
	if c.fault == "names" && notAddress != nil {
		return lookUp(ctx, u.Hostname())
	}
	if found := asWritten.FindStringSubmatch(raw); c.fault == "numbers" && found != nil && notAddress == nil {
		if _, err := netip.ParseAddr(strings.ReplaceAll(strings.Trim(found[1], "[]"), "%25", "%")); err != nil {
			return lookUp(ctx, u.Hostname())
		}
	}
	if found := ownPattern.FindStringSubmatch(raw); c.fault == "parser" && found != nil {
		if other, err := parse(nil, "http://"+found[1]+"/"); err == nil && other.Hostname() != u.Hostname() {
			if _, err := c.judged(ctx, other.Hostname()); err != nil {
				return nil, err
			}
			return lookUp(ctx, u.Hostname())
		}
	}
	addrs, err := c.judged(ctx, u.Hostname())
	if err == nil && c.fault == "rebinding" {
		return lookUp(ctx, u.Hostname())
	}
	return addrs, err
}

// judged returns the addresses of a host, or an error if the guard refuses one of them.
func (c *client) judged(ctx context.Context, host string) ([]netip.Addr, error) {
	addrs, err := lookUp(ctx, host)
	if err != nil {
		return nil, err
	}
	if slices.ContainsFunc(addrs, c.forbids) {
		return nil, errRefused
	}
	return addrs, nil
}

// lookUp returns the addresses of a host, IPv6 first.
func lookUp(ctx context.Context, host string) (addrs []netip.Addr, err error) {
	if addr, err := netip.ParseAddr(host); err == nil {
		return []netip.Addr{addr}, nil
	}
	found, err := net.DefaultResolver.LookupNetIP(ctx, "ip", host)
	for _, addr := range found {
		addrs = append(addrs, addr.Unmap()) // IPv4 addresses may be in either form
	}
	slices.SortStableFunc(addrs, func(a, b netip.Addr) int { return b.BitLen() - a.BitLen() })
	return addrs, err
}

// dial connects to the first address that can be reached.
func dial(ctx context.Context, addrs []netip.Addr, port string) (conn net.Conn, err error) {
	var d net.Dialer
	for _, addr := range addrs {
		if conn, err = d.DialContext(ctx, "tcp", net.JoinHostPort(addr.String(), port)); err == nil {
			return conn, nil
		}
	}
	return nil, err
}

func port(u *url.URL) string {
	if u.Port() != "" {
		return u.Port()
	}
	return map[string]string{"ftp": "21", "gopher": "70", "https": "443"}[u.Scheme]
}

// proxy returns the proxy that the environment names, or nil.
func (c *client) proxy(u *url.URL) *url.URL {
	if c.fault != "proxies" && c.fault != "everything" {
		return nil
	}
	for _, name := range []string{u.Scheme + "_proxy", strings.ToUpper(u.Scheme) + "_PROXY", "all_proxy", "ALL_PROXY"} {
		if text := os.Getenv(name); text != "" {
			if proxy, err := url.Parse(text); err == nil {
				return proxy
			}
		}
	}
	return nil
}

// private are the addresses of RFC 1918, and special those of the registries of IANA that are not global.
var (
	private = prefixes("10.0.0.0/8 172.16.0.0/12 192.168.0.0/16")
	special = prefixes("0.0.0.0/8 100.64.0.0/10 127.0.0.0/8 169.254.0.0/16 192.0.0.0/24 192.0.2.0/24 192.88.99.0/24 198.18.0.0/15 " +
		"198.51.100.0/24 203.0.113.0/24 224.0.0.0/3 2001::/23 2001:db8::/32 2002::/16 3fff::/20")
	global6 = netip.MustParsePrefix("2000::/3")
)

func prefixes(text string) (all []netip.Prefix) {
	for word := range strings.FieldsSeq(text) {
		all = append(all, netip.MustParsePrefix(word))
	}
	return all
}

// forbids reports whether the guard refuses an address.
func (c *client) forbids(addr netip.Addr) bool {
	if addr.Is4In6() && c.fault == "mapped" {
		return false
	}
	addr = addr.Unmap().WithZone("")
	in := func(p netip.Prefix) bool { return p.Contains(addr) }
	if slices.ContainsFunc(private, in) {
		return true
	}
	return c.fault != "ranges" && (slices.ContainsFunc(special, in) || addr.Is6() && !global6.Contains(addr))
}
