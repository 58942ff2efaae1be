package fetch

import (
	"context"
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
}

// Open tells whether the target may be reached.
func (j *Judgement) Open() bool { return j.Reason == "" }

// CheckTarget says what the egress policy would make of u: first of the URL
// itself, and where that is open and its host is a name, of each address that
// the name has now. A fetch dials the open ones only. Nothing is sent to the
// target. The error is that of the lookup.
func (c *Client) CheckTarget(ctx context.Context, u *url.URL) ([]Judgement, error) {
	judged := []Judgement{judgement(u.Host, c.guard.checkURL(u))}
	if _, err := netip.ParseAddr(u.Hostname()); err == nil || !judged[0].Open() {
		return judged, nil
	}
	addrs, err := c.resolver.LookupNetIP(ctx, "ip", u.Hostname())
	if err != nil {
		return judged, err
	}
	port, _ := strconv.ParseUint(portOf(u), 10, 16) // checkURL has read it
	for _, a := range addrs {
		target := netip.AddrPortFrom(plain(a), uint16(port))
		judged = append(judged, judgement(target.String(), c.guard.checkAddr(target)))
	}
	return judged, nil
}

func judgement(target string, err error) Judgement {
	reason := reasonOf(err)
	if err == nil {
		return Judgement{Target: target}
	}
	return Judgement{Target: target, Reason: reason, Remedy: message(classify.TargetBlocked, reason)}
}
