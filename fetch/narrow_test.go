package fetch_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"net"
	"net/netip"
	"net/url"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"fetchd/classify"
	"fetchd/fetch"
	"fetchd/fetch/fault"
)

// only is a narrower that permits all names, and one address.
type only netip.Addr

func (o only) CheckURL(u *url.URL, _ bool) error {
	if addr, err := netip.ParseAddr(u.Hostname()); err == nil {
		return o.CheckAddr(netip.AddrPortFrom(addr, 0))
	}
	return nil
}

func (o only) CheckAddr(target netip.AddrPort) error {
	if o.Permits(target) {
		return nil
	}
	return fault.New(classify.TargetBlocked, classify.PhasePolicy, "address_not_allowed")
}

func (o only) Permits(target netip.AddrPort) bool { return target.Addr() == netip.Addr(o) }

// TestDetailOfNarrowed checks that a failure does not name the address that was tried last if the policy of the fetch
// forbids it, although that of the client permits it.
func TestDetailOfNarrowed(t *testing.T) {
	t.Parallel()
	c := newClient(t, fetch.Config{
		Resolver: newNames(map[string][][]string{"all.test": {{"127.0.0.3", "127.0.0.2", "127.0.0.4"}}}).resolver(t),
		Egress:   fetch.Egress{AllowCIDRs: []netip.Prefix{netip.MustParsePrefix("127.0.0.0/8")}, AllowPorts: []uint16{9}},
	})
	r := get(t, "http://all.test:9/")
	r.Policy.MaxAttempts, r.Egress = 1, only(netip.MustParseAddr("127.0.0.2"))
	out := c.Fetch(t.Context(), r, nil)
	if f := out.Failure; f == nil || f.Class != classify.ConnectFailure || f.Detail != "all.test:9" {
		t.Errorf("%+v, want CONNECT_FAILURE of all.test:9", f)
	}
}

// TestHiddenNames checks that a caller from whom forbidden names are hidden sees the same whether a name exists with
// forbidden addresses, has no addresses, or does not exist.
func TestHiddenNames(t *testing.T) {
	t.Parallel()
	var logs bytes.Buffer
	c := newClient(t, fetch.Config{
		Logger: slog.New(slog.NewTextHandler(&logs, nil)),
		Resolver: newNames(map[string][][]string{
			"empty.test": {{}}, "private.test": {{"10.0.0.1"}}, "narrow.test": {{"127.0.0.3"}},
			"several.test": {{"127.0.0.3", "10.0.0.1", "fd00::1"}}, "six.test": {{"::1"}}, "public.test": {{"8.8.8.8"}}, "both.test": {{"8.8.8.8", "10.0.0.1"}}, "mixed.test": {{"127.0.0.2", "127.0.0.3"}},
		}).resolver(t),
		Egress: fetch.Egress{AllowCIDRs: []netip.Prefix{netip.MustParsePrefix("127.0.0.0/8")}, AllowPorts: []uint16{9}},
	})
	see := func(t *testing.T, host string, hide bool) (classify.Class, string) {
		t.Helper()
		return seeHidden(t, c, host, hide)
	}
	class, absent := see(t, "absent.test", true)
	if class != classify.DNSNotFound || !strings.Contains(absent, "or has no address that this caller may reach") {
		t.Fatalf("a name that does not exist: %s", absent)
	}
	for _, row := range []struct {
		name, host string
		hide       bool
		class      classify.Class
		same       bool
	}{
		{"no addresses", "empty.test", true, classify.DNSNotFound, true},
		{"an address that the client forbids", "private.test", true, classify.DNSNotFound, true},
		{"an address that the policy of the fetch forbids", "narrow.test", true, classify.DNSNotFound, true},
		{"several addresses", "several.test", true, classify.DNSNotFound, true},
		{"an IPv6 address", "six.test", true, classify.DNSNotFound, true},
		{"a public address and another one", "both.test", true, classify.DNSNotFound, true},
		{"a public address", "public.test", true, classify.TargetBlocked, false},
		{"another one that is permitted", "mixed.test", true, classify.ConnectRefused, false},
		{"no name", "127.0.0.3", true, classify.TargetBlocked, false},
		{"nothing is hidden", "narrow.test", false, classify.TargetBlocked, false},
		{"nothing is hidden, and it does not exist", "absent.test", false, classify.DNSNotFound, false},
	} {
		t.Run(row.name, func(t *testing.T) {
			logs.Reset()
			class, seen := see(t, row.host, row.hide)
			if class != row.class || (seen == absent) != row.same {
				t.Errorf("%s, want %s, the same as of a name that does not exist: %t\n%s\n%s", class, row.class, row.same, absent, seen)
			}
			if logged := strings.Contains(logs.String(), "target_blocked: address_not_allowed"); row.same && row.host != "empty.test" && !logged {
				t.Errorf("the log does not say why: %s", logs.String())
			}
		})
	}
}

// seeHidden returns everything that a caller sees of a fetch that fails, without the name.
func seeHidden(t *testing.T, c *fetch.Client, host string, hide bool) (class classify.Class, seen string) {
	t.Helper()
	r := get(t, "http://"+host+":9/")
	r.Policy.MaxAttempts, r.Policy.BaseDelay, r.Egress, r.HideForbidden = 2, 0, only(netip.MustParseAddr("127.0.0.2")), hide
	r.Events = fetch.All
	var all []any
	out := c.Fetch(t.Context(), r, func(e fetch.Event) error {
		if finished, ok := e.(fetch.AttemptFinished); ok {
			finished.Hops = timeless(finished.Hops)
			e = finished
		}
		all = append(all, fmt.Sprintf("%T", e), e)
		return nil
	})
	out.Total, out.Hops = 0, timeless(out.Hops)
	text, err := json.Marshal(append(all, out))
	must(t, err)
	return out.Failure.Class, strings.ReplaceAll(string(text), host, "HOST")
}

// halfResolver has addresses of one family. Lookups of the other one fail, or get no answer.
type halfResolver struct {
	answers map[string]string
	failed  error // nil: no answer
}

// LookupNetIP implements the Resolver of a client.
func (h *halfResolver) LookupNetIP(ctx context.Context, network, host string) ([]netip.Addr, error) {
	switch addr, ok := h.answers[host]; {
	case network == "ip6" && h.failed != nil:
		return nil, h.failed
	case network == "ip6":
		<-ctx.Done()
		return nil, &net.DNSError{Err: "operation was canceled", UnwrapErr: ctx.Err(), Name: host}
	case ok:
		return []netip.Addr{netip.MustParseAddr(addr)}, nil
	}
	return nil, &net.DNSError{Err: "no such host", IsNotFound: true, Name: host}
}

// TestHiddenNamesOfOneFamily checks that hidden names are like names that do not exist, if the lookup of the other
// family fails.
func TestHiddenNamesOfOneFamily(t *testing.T) {
	t.Parallel()
	for _, row := range []struct {
		name   string
		failed error
	}{
		{"no answer", nil},
		{"SERVFAIL", &net.DNSError{Err: "server misbehaving", IsTemporary: true}},
		{"no address", &net.DNSError{Err: "no such host", IsNotFound: true}},
	} {
		t.Run(row.name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				c := newClient(t, fetch.Config{Resolver: &halfResolver{map[string]string{"private.test.": "10.0.0.1"}, row.failed}, Egress: fetch.Egress{AllowPorts: []uint16{9}}})
				class, hidden := seeHidden(t, c, "private.test", true)
				if _, absent := seeHidden(t, c, "absent.test", true); class != classify.DNSNotFound || hidden != absent {
					t.Errorf("%s, want DNS_NOT_FOUND, the same as of a name that does not exist\n%s\n%s", class, absent, hidden)
				}
			})
		})
	}
}

// timeless returns hops whose times only say whether a phase occurred.
func timeless(hops []fetch.Hop) []fetch.Hop {
	all := make([]fetch.Hop, 0, len(hops))
	for _, h := range hops {
		h.Start = 0
		for _, d := range []*time.Duration{&h.Exchange.Resolve, &h.Exchange.Connect, &h.Exchange.TLS, &h.Exchange.Processing, &h.Exchange.Transfer} {
			*d = min(*d, 1)
		}
		all = append(all, h)
	}
	return all
}
