package fetch

import (
	"context"
	"errors"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"strconv"

	"fetchd/classify"
)

// Judgement is what the egress policy says of one target.
type Judgement struct {
	// Target is a URL's host and port, or an address that the host has.
	Target string
	// Reason is why it is closed, in lower_snake_case; empty where it is open.
	Reason string
	// Remedy says so for people.
	Remedy string
	// Note says for people who connects to an open target where that is not this
	// client; empty where it is.
	Note string
}

// Open tells whether the target may be reached.
func (j *Judgement) Open() bool { return j.Reason == "" }

// CheckTarget says what the egress policy would make of u: first of the URL
// itself, and where that is open and its host is a name, of each address that
// the name has now. A fetch dials the open ones only. Nothing is sent to the
// target. Where a proxy carries the requests, nothing is looked up either: the
// addresses are its own to judge. The error is that of the lookup.
func (c *Client) CheckTarget(ctx context.Context, u *url.URL) ([]Judgement, error) {
	judged := []Judgement{judgement(u.Host, c.guard.checkURL(u))}
	_, err := netip.ParseAddr(u.Hostname())
	literal := err == nil
	if !judged[0].Open() {
		return judged, nil
	}
	if c.proxied(u) {
		judged[0].Note = "through the proxy; its addresses are the proxy's to judge"
		if literal {
			judged[0].Note = "through the proxy"
		}
		return judged, nil
	}
	if literal {
		return judged, nil
	}
	addrs, err := c.resolver.LookupNetIP(ctx, "ip", rooted(u.Hostname()))
	if err != nil {
		if failed, ok := errors.AsType[*net.DNSError](err); ok {
			failed.Name = u.Hostname() // as it was given
		}
		return judged, err
	}
	port, _ := strconv.ParseUint(portOf(u), 10, 16) // checkURL has read it
	for _, a := range addrs {
		target := netip.AddrPortFrom(plain(a), uint16(port))
		judged = append(judged, judgement(target.String(), c.guard.checkAddr(target)))
	}
	return judged, nil
}

// proxied asks the transport, as a fetch does.
func (c *Client) proxied(u *url.URL) bool {
	proxy, err := c.pooled.Proxy(&http.Request{URL: u})
	return proxy != nil || err != nil
}

func judgement(target string, err error) Judgement {
	reason := reasonOf(err)
	if err == nil {
		return Judgement{Target: target}
	}
	return Judgement{Target: target, Reason: reason, Remedy: message(classify.TargetBlocked, reason)}
}
