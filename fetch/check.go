package fetch

import (
	"context"
	"errors"
	"net"
	"net/netip"
	"net/url"
	"strconv"

	"fetchd/classify"
	"fetchd/fetch/egress"
	"fetchd/fetch/fault"
	"fetchd/fetch/urls"
)

// Judgement is the egress policy's decision about one target.
type Judgement struct {
	// Target is a URL's host and port, or an address of the host.
	Target string
	// Reason is why the target is blocked, in lower_snake_case. It is empty if the
	// target is allowed.
	Reason string
	// Policy is the policy of the fetch that blocks the target. It is empty if that of the client does.
	Policy string
	// Remedy explains Reason to people.
	Remedy string
	// Note says which proxy connects to an allowed target. It is empty if this client
	// connects itself.
	Note string
}

// Open reports whether the target is allowed.
func (j *Judgement) Open() bool { return j.Reason == "" }

// CheckTarget returns the egress policy's decisions about u. The first is about the URL
// itself. If that is allowed and the host is a name, one follows for each address of
// the name; a fetch dials only the allowed ones. CheckTarget looks up the name and sends
// nothing to the target. narrow and route are those of a fetch, or nil. With a proxy it does not look up the name
// either, because the proxy chooses the address. The error is that of the lookup.
func (c *Client) CheckTarget(ctx context.Context, u *url.URL, narrow Narrower, route *Route) ([]Judgement, error) {
	judged := []Judgement{judgement(u.Host, c.checkURL(u, false, narrow))}
	_, err := netip.ParseAddr(u.Hostname())
	literal := err == nil
	if !judged[0].Open() {
		return judged, nil
	}
	if c.proxyFor(u, route) != nil {
		judged[0].Note = "through the proxy; its addresses are the proxy's to judge"
		if literal {
			judged[0].Note = "through the proxy"
		}
		return judged, nil
	}
	if literal {
		return judged, nil
	}
	addrs, err := c.pool.Lookup(ctx, egress.Rooted(u.Hostname()), route)
	if err != nil {
		if failed, ok := errors.AsType[*net.DNSError](err); ok {
			own := *failed // lookups of the same name at once share it
			own.Name = u.Hostname()
			err = &own
		}
		return judged, err
	}
	port, _ := strconv.ParseUint(urls.Port(u), 10, 16) // CheckURL has parsed it
	for _, a := range addrs {
		target := netip.AddrPortFrom(a.WithZone("").Unmap(), uint16(port))
		judged = append(judged, judgement(target.String(), c.checkAddr(target, narrow)))
	}
	return judged, nil
}

func judgement(target string, err error) Judgement {
	reason := fault.ReasonOf(err)
	if err == nil {
		return Judgement{Target: target}
	}
	j := Judgement{Target: target, Reason: reason, Remedy: classMessage(classify.TargetBlocked, reason)}
	if own, ok := errors.AsType[*fault.Error](err); ok && own.Policy != "" {
		j.Policy, j.Remedy = own.Policy, policyMessage(reason, denial{own.Policy, own.Rule, own.Permitted})
	}
	return j
}

// checkURL applies the egress policies of the client and of a fetch to a URL (P1).
func (c *Client) checkURL(u *url.URL, redirected bool, narrow Narrower) error {
	if err := c.guard.CheckURL(u, redirected); err != nil || narrow == nil {
		return err
	}
	return narrow.CheckURL(u, redirected)
}

func (c *Client) checkAddr(target netip.AddrPort, narrow Narrower) error {
	if err := c.guard.CheckAddr(target); err != nil || narrow == nil {
		return err
	}
	return narrow.CheckAddr(target)
}
