package site_test

import (
	"errors"
	"net"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"fetchd/cmd/frontier/site"
)

func TestResolver(t *testing.T) {
	t.Parallel()
	s, domains := start(t, site.Config{}), start(t, site.Config{Suffix: "test"})
	for _, tc := range []struct {
		name, network, host string
		want                []string // nil if the host does not exist
	}{
		{"host", "ip", "h1.demo.test", []string{"127.0.0.1"}},
		{"deep", "ip4", "a.b.c.demo.test.", []string{"127.0.0.1"}},
		{"upper case", "ip4", "H1.Demo.TEST", []string{"127.0.0.1"}},
		{"no IPv6", "ip6", "h1.demo.test", nil},
		{"gone", "ip", "gone-3.demo.test", nil},
		{"gone, in upper case", "ip", "GONE-3.demo.test", nil},
		{"under gone", "ip", "a.gone.demo.test", nil},
		{"begins like gone", "ip4", "goner.demo.test", []string{"127.0.0.1"}},
		{"ends like the suffix", "ip4", "h1.xdemo.test.", nil},
		{"suffix", "ip", "demo.test.", nil},
		{"elsewhere", "ip", "h1.example.test.", nil},
		{"another suffix", "ip", "domains:h1.test", []string{"127.0.0.1"}},
		{"not below another suffix", "ip", "domains:h1.example", nil},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			asked, host := s, tc.host
			if under, ok := strings.CutPrefix(tc.host, "domains:"); ok {
				asked, host = domains, under
			}
			addrs, err := asked.Resolver().LookupNetIP(t.Context(), tc.network, host)
			var found []string
			for _, a := range addrs {
				found = append(found, a.Unmap().String())
			}
			if diff := cmp.Diff(tc.want, found); diff != "" {
				t.Errorf("LookupNetIP(%s, %s): %v (-want +got):\n%s", tc.network, tc.host, err, diff)
			}
			if dns, ok := errors.AsType[*net.DNSError](err); tc.want == nil && (!ok || !dns.IsNotFound) {
				t.Errorf("LookupNetIP(%s, %s) error = %v, want one that is not found", tc.network, tc.host, err)
			}
		})
	}
}
