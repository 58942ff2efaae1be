package peers

import (
	"crypto/x509"
	"net/netip"
	"os"
	"slices"
	"strings"
	"testing"

	"fetchd/conformance/kit"
	"fetchd/conformance/origin"
	"fetchd/fetch"
	pb "fetchd/gen/fetchd/v1"
	"fetchd/server"
	"fetchd/server/fetchdtest"
)

// peer is somebody else's server as an origin of the kit. Scenarios run one after
// the other, so that its log is of one.
type peer struct {
	bases map[string]string               // by listener
	body  func(n int64) []byte            // the first n bytes of what it serves
	since func(mark int) []origin.Request // those after the first mark
	mark  int                             // requests before the scenario
	count func() int                      // requests so far
	roots *x509.CertPool                  // that vouch for it
}

var _ kit.Origin = (*peer)(nil)

func (p *peer) URL(listener, path string) string { return p.bases[listener] + path }

func (p *peer) Requests(string) []origin.Request { return p.since(p.mark) }

func (p *peer) Body(n int64) []byte { return p.body(n) }

// row is a scenario as a peer serves it.
type row struct {
	scenario string
	path     string
	final    string // path of the final URL where it is another
	anyTag   bool   // the validator is the peer's own, so what is sent of it is not compared
}

// long skips a test that was not asked for.
func long(t *testing.T) {
	t.Helper()
	if os.Getenv("FETCHD_LONG") != "1" {
		t.Skip("needs nginx and takes some seconds: set FETCHD_LONG=1, or .ci/run peers")
	}
}

// play runs the rows through a service of its own.
func play(t *testing.T, p *peer, rows []row) {
	t.Helper()
	service := serve(t, p)
	all, err := kit.Load()
	if err != nil {
		t.Fatal(err)
	}
	for _, r := range rows {
		t.Run(r.scenario, func(t *testing.T) {
			i := slices.IndexFunc(all, func(s *kit.Scenario) bool { return s.Name == r.scenario })
			if i < 0 {
				t.Fatalf("no scenario is called %q", r.scenario)
			}
			s := *all[i]
			s.Path, s.Want.FinalPath = r.path, r.final
			if r.anyTag {
				s.Want.Seen = nil
			}
			p.mark = p.count()
			rec := s.Perform(t.Context(), service, p, nil)
			for _, m := range s.Judge(p, rec) {
				t.Errorf("%s: got %s, want %s", m.What, m.Got, m.Want)
			}
		})
	}
}

// serve starts a service that may reach the peer and nothing else.
func serve(t *testing.T, p *peer) pb.FetchServiceClient {
	t.Helper()
	egress := fetch.Egress{AllowCIDRs: []netip.Prefix{netip.MustParsePrefix("127.0.0.0/8")}}
	for _, base := range p.bases {
		_, address, _ := strings.Cut(base, "://")
		egress.AllowPorts = append(egress.AllowPorts, netip.MustParseAddrPort(address).Port())
	}
	return fetchdtest.Start(t, fetchdtest.Options{NoOrigin: true, Configure: func(c *server.Config) {
		c.Fetch.Egress, c.Fetch.RootCAs = egress, p.roots
	}}).Client
}
