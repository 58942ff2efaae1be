package peers

import (
	"crypto/x509"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"fetchd/conformance/kit"
	"fetchd/conformance/origin"
	pb "fetchd/gen/fetchd/v1"
	"fetchd/server"
	"fetchd/server/fetchdtest"
)

// peer is a third-party server as an origin of the kit. Scenarios run one after the
// other, so its log between two marks belongs to one scenario.
type peer struct {
	bases map[string]string               // by listener
	body  func(n int64) []byte            // returns the first n bytes that it serves
	since func(mark int) []origin.Request // returns the requests after the first mark
	mark  int                             // number of requests before the scenario
	count func() int                      // returns the number of requests so far
	roots *x509.CertPool                  // that verify its certificate
}

var _ kit.Origin = (*peer)(nil)

func (p *peer) URL(listener, path string) string { return p.bases[listener] + path }

func (p *peer) Requests(string) []origin.Request { return p.since(p.mark) }

func (p *peer) Body(n int64) []byte { return p.body(n) }

// row is a scenario and the path on which a peer serves it.
type row struct {
	scenario string
	path     string
	final    string // path of the final URL if it differs
	anyTag   bool   // the peer chooses the validator, so the test does not compare what the service sends
}

// play runs the rows through a new service.
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
				t.Fatalf("there is no scenario %q", r.scenario)
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

// serve starts a service that can reach the peer and nothing else.
func serve(t *testing.T, p *peer) pb.FetchServiceClient {
	t.Helper()
	return fetchdtest.Start(t, fetchdtest.Options{NoOrigin: true, Configure: func(c *server.Config) {
		c.Fetch.RootCAs = p.roots
		for _, base := range p.bases {
			_, address, _ := strings.Cut(base, "://")
			c.Fetch.Egress.AllowPorts = append(c.Fetch.Egress.AllowPorts, netip.MustParseAddrPort(address).Port())
		}
	}}).Client
}
