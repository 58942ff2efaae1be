package hostile

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math/big"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/metadata"
	"google.golang.org/protobuf/types/known/durationpb"

	"fetchd/conformance/space"
	"fetchd/fetch"
	pb "fetchd/gen/fetchd/v1"
	"fetchd/internal/policies"
	"fetchd/server"
	"fetchd/server/fetchdtest"
	"fetchd/test/need"
)

// TestPolicies runs two callers at once on one service, for each of five policies: one with that policy, and one
// that may reach everything that the settings permit. No connection and no request of the first may arrive where
// its policy forbids it, also when the other has left connections to all targets in the pool. If the first has a
// route, its connections use that, and carry no request of the other. A proxy looks up names itself: over one, the
// policy judges URLs, and connections arrive wherever a permitted name leads.
func TestPolicies(t *testing.T) {
	if os.Getenv(insideVariable) == "" {
		runInside(t)
		return
	}
	s, err := newSites(t)
	if err != nil {
		need.Missing(t, "run it as root", "this network namespace cannot own every address: %v", err)
	}
	for _, protocol := range []string{"HTTP/1.1", "HTTP/2"} {
		for _, policy := range []string{"partners", "crawler", "inside", "secure", "trial"} {
			for _, route := range routes {
				if !slices.Contains(strings.Fields(route.policies), policy) {
					continue
				}
				t.Run(protocol+", "+policy+", "+route.name, func(t *testing.T) {
					s.http2.Store(protocol == "HTTP/2")
					s.testPolicy(t, policy, &route)
				})
			}
		}
	}
}

// wide is the policy and the name of the caller that may reach everything.
const wide = "wide"

const policiesText = `ROUTES
policies:
  partners: {egress: {ROUTE allow-names: [api.partner.test, "*.shop.test"]}}
  crawler: {egress: {ROUTE deny-names: ["domain:ads.test", "*.tracker.test"], deny-addresses: [8.8.4.0/24, "2a00:ad::/32"], allow-addresses: ["64:ff9b::/96"]}}
  inside: {egress: {ROUTE allow-addresses: [10.20.0.0/16, "64:ff9b::/96"], ports: [443, 8443]}}
  secure: {egress: {ROUTE allow-names: [start.test, "domain:next.test"], schemes: [https], redirects: allowed-names}}
  trial: {mode: report, report-to-caller: true, egress: {ROUTE allow-names: [api.partner.test, "*.shop.test"]}}
  wide: {egress: {allow-addresses: [0.0.0.0/0, "::/0"], ports: [22, 80, 443, 8080, 8443]}}
callers:
- {caller: partners, policy: partners}
- {caller: crawler, policy: crawler}
- {caller: inside, policy: inside}
- {caller: secure, policy: secure}
- {caller: trial, policy: trial}
default: wide
`

// routeRow is a way to the targets.
type routeRow struct {
	name, text string // of the file
	sources    string // the addresses from which its connections come; empty: any
	policies   string // those that are tested over it
}

// routes are the ways to the targets. A connection of one serves no request of another.
var routes = []routeRow{
	{"no route", "", "", "partners crawler inside secure trial"},
	{"from an address", "source-address: 198.51.100.7, ip-family: ipv4", "198.51.100.7", "partners inside"},
	{"with a resolver", `resolver: "` + otherNames + `"`, "", "partners crawler"},
	{"by an HTTP proxy", `proxy: "http://192.0.2.53:3128", credentials-file: "SECRET"`, proxySources, "partners secure"},
	{"by an HTTPS proxy", `proxy: "https://192.0.2.53:3129", credentials-file: "SECRET"`, proxySources, "crawler trial"},
	{"by a SOCKS5 proxy", `proxy: "socks5://192.0.2.53:1080", credentials-file: "SECRET"`, proxySources, "partners inside"},
}

// serves reports whether a route has the IP family of a site.
func (r *routeRow) serves(s *site) bool {
	at := s.at
	if at == "" {
		at = s.dns.Turns[0][0]
	}
	return !strings.Contains(r.text, "ipv4") || netip.MustParseAddr(at).Is4()
}

// proxied reports whether a proxy looks up the names, so that only URLs are judged.
func (r *routeRow) proxied() bool { return strings.HasPrefix(r.text, "proxy") }

// otherNames is a name server at which every name has another address of the same network.
const otherNames = "127.0.0.54:53"

// elsewhere returns the address that otherNames has instead of another one.
func elsewhere(at string) string {
	addr := netip.MustParseAddr(at)
	b := addr.As16()
	b[15] += 100
	if addr.Is4() {
		return netip.AddrFrom16(b).Unmap().String()
	}
	return netip.AddrFrom16(b).String()
}

// settingsEgress is what the settings permit. Nothing that they forbid is open to any policy.
var settingsEgress = fetch.Egress{
	AllowCIDRs: []netip.Prefix{netip.MustParsePrefix("10.20.0.0/16"), netip.MustParsePrefix("10.30.0.0/16"), netip.MustParsePrefix("64:ff9b::/96")},
	AllowPorts: []uint16{22, 8080, 8443},
}

// site is a target of TestPolicies.
type site struct {
	name, url string // without a path
	dns       space.Host
	at        string // of a URL without a name
	may       string // the policies that permit it, in mode enforce; +POLICY only over a proxy. noPolicy: the settings forbid it
}

const noPolicy = "forbidden by the settings"

// sites are in the order in which they are fetched. Each has an address for itself, except where its name says so.
var sites = []site{
	{"a partner", "https://api.partner.test", is("93.184.0.1"), "", "partners crawler inside"},
	{"a partner without TLS", "http://api.partner.test", is("93.184.0.1"), "", "partners crawler"},
	{"a partner in capitals and with a dot", "https://API.Partner.test.", is("93.184.0.1"), "", "partners crawler inside"},
	{"a partner by its address", "https://93.184.0.1", space.Host{}, "93.184.0.1", "crawler inside"},
	{"a name with the certificate and the address of a partner", "https://beside.test", is("93.184.0.1"), "", "crawler inside"},
	{"a partner on another port of TLS", "https://api.partner.test:8443", is("93.184.0.1"), "", "inside"},
	{"a partner on another port", "http://api.partner.test:8080", is("93.184.0.1"), "", ""},
	{"a partner on the port of SSH", "http://api.partner.test:22", is("93.184.0.1"), "", ""},
	{"below a partner", "https://below.api.partner.test", is("93.184.0.2"), "", "crawler inside"},
	{"above a partner", "https://partner.test", is("93.184.0.3"), "", "crawler inside"},
	{"a name that starts like a partner", "https://api.partner.test.evil.test", is("93.184.0.4"), "", "crawler inside"},
	{"a shop", "https://www.shop.test", is("93.184.0.5"), "", "partners crawler inside"},
	{"a shop, two labels", "https://a.b.shop.test", is("93.184.0.6"), "", "partners crawler inside"},
	{"above the shops", "https://shop.test", is("93.184.0.7"), "", "crawler inside"},
	{"a name that ends like a shop", "https://wwwshop.test", is("93.184.0.8"), "", "crawler inside"},
	{"a shop, IPv6", "https://six.shop.test", is("2606:4700::5"), "", "partners crawler inside"},
	{"another public address, IPv6", "https://[2606:4700::6]", space.Host{}, "2606:4700::6", "crawler inside"},

	{"the start", "https://start.test", is("93.184.1.1"), "", "secure crawler inside"},
	{"the start without TLS", "http://start.test", is("93.184.1.1"), "", "crawler"},
	{"what is next", "https://next.test", is("93.184.1.2"), "", "secure crawler inside"},
	{"below what is next", "https://www.next.test", is("93.184.1.3"), "", "secure crawler inside"},
	{"the start on another port", "https://start.test:8443", is("93.184.1.1"), "", "inside"},

	{"an ad network", "https://ads.test", is("8.8.4.1"), "", "inside"},
	{"below an ad network", "http://pixel.ads.test", is("93.184.2.1"), "", ""},
	{"below an ad network, with TLS", "https://pixel.ads.test", is("93.184.2.1"), "", "inside"},
	{"a tracker", "https://x.tracker.test.", is("93.184.2.2"), "", "inside"},
	{"above the trackers", "https://tracker.test", is("93.184.2.3"), "", "crawler inside"},
	{"a name that ends like an ad network", "https://notads.test", is("93.184.2.4"), "", "crawler inside"},
	{"an ad network by its address", "https://8.8.4.2", space.Host{}, "8.8.4.2", "inside"},
	{"an ad network by its mapped address", "https://[::ffff:8.8.4.3]", space.Host{}, "8.8.4.3", "inside"},
	{"an ad network by its address, IPv6", "https://[2a00:ad::1]", space.Host{}, "2a00:ad::1", "inside"},
	{"a name at the address of an ad network", "https://cdn.test", is("8.8.4.4"), "", "inside +crawler"},
	{"a name at its mapped address", "https://cdn4in6.test", is("::ffff:8.8.4.5"), "", "inside +crawler"},
	{"a shop at the address of an ad network", "https://ad.shop.test", is("8.8.4.6"), "", "partners inside +crawler"},
	{"a name with an address of an ad network and another", "https://mixed.test", is("8.8.4.1", "93.184.2.5"), "", "crawler inside"},

	{"the inside network", "https://10.20.0.1", space.Host{}, "10.20.0.1", "inside"},
	{"the inside network without TLS", "http://10.20.0.1", space.Host{}, "10.20.0.1", ""},
	{"the inside network on another port", "https://10.20.0.2:8443", space.Host{}, "10.20.0.2", "inside"},
	{"a single label", "https://intranet", is("10.20.0.3"), "", "inside +crawler"},
	{"an internal name", "https://wiki.corp", is("10.20.0.4"), "", "inside +crawler"},
	{"a shop inside", "https://inner.shop.test", is("10.20.0.5"), "", "inside +partners +crawler"},
	{"the network of another team", "https://10.30.0.1", space.Host{}, "10.30.0.1", ""},
	{"a shop in the network of another team", "https://db.shop.test", is("10.30.0.2"), "", "+partners +crawler +inside"},
	{"a name in the network of another team", "https://db.corp", is("10.30.0.3"), "", "+crawler +inside"},
	{"the start in the network of another team", "https://db.next.test", is("10.30.0.4"), "", "+secure +crawler +inside"},

	{"NAT64 of an ad network", "https://[64:ff9b::8.8.4.7]", space.Host{}, "64:ff9b::8.8.4.7", "inside"},
	{"NAT64 of an ad network, by a name", "https://nat-ad.test", is("64:ff9b::8.8.4.8"), "", "inside +crawler"},
	{"NAT64 of a public address", "https://[64:ff9b::93.184.3.1]", space.Host{}, "64:ff9b::93.184.3.1", "crawler inside"},
	{"NAT64 of the inside network", "https://[64:ff9b::10.20.0.6]", space.Host{}, "64:ff9b::10.20.0.6", "inside"},
	{"NAT64 of the inside network, by the name of a shop", "https://nat.shop.test", is("64:ff9b::10.20.0.7"), "", "inside +partners +crawler"},
	{"NAT64 of the network of another team", "https://[64:ff9b::10.30.0.5]", space.Host{}, "64:ff9b::10.30.0.5", ""},
	{"NAT64 of the network of another team, by the name of a shop", "https://nat-db.shop.test", is("64:ff9b::10.30.0.6"), "", "+partners +crawler +inside"},
	{"NAT64 of the metadata service", "https://[64:ff9b::169.254.169.254]", space.Host{}, "64:ff9b::169.254.169.254", noPolicy},

	{"a shop whose CNAME leads to another team", "https://cname-db.shop.test", space.Host{CNAME: "edge.test. db.inner.test.", Turns: [][]string{{"10.30.0.7"}}}, "", "+partners +crawler +inside"},
	{"a shop whose CNAME leads inside", "https://cname-inner.shop.test", space.Host{CNAME: "wiki.corp.", Turns: [][]string{{"10.20.0.8"}}}, "", "inside +partners +crawler"},
	{"a name whose CNAME leads to an ad network", "https://cname-ad.test", space.Host{CNAME: "edge.test. pixel.ads.test.", Turns: [][]string{{"8.8.4.9"}}}, "", "inside +crawler"},
	{"a name whose CNAME is denied and whose address is not", "https://cname-tracker.test", space.Host{CNAME: "x.tracker.test.", Turns: [][]string{{"93.184.4.1"}}}, "", "crawler inside"},
	{"a shop whose CNAME leads to the metadata service", "https://cname-meta.shop.test", space.Host{CNAME: "metadata.google.internal.", Turns: [][]string{{"169.254.169.254"}}}, "", noPolicy + " +partners +crawler +inside +trial"},

	{"the metadata service", "http://169.254.169.254", space.Host{}, "169.254.169.254", noPolicy},
	{"localhost", "https://localhost", is("127.0.0.1"), "", noPolicy + " +crawler +inside +trial"},
	{"a private network of nobody", "https://10.40.0.1", space.Host{}, "10.40.0.1", noPolicy},
	{"a shop in a private network of nobody", "https://nobody.shop.test", is("10.40.0.2"), "", noPolicy + " +partners +crawler +inside +trial"},
	{"a 6to4 address of an ad network", "https://[2002:808:401::1]", space.Host{}, "2002:808:401::1", noPolicy},
}

// permits reports whether the callers of a policy reach the site by a route.
func (s *site) permits(policy string, r *routeRow) bool {
	all := strings.Fields(s.may)
	return slices.Contains(all, policy) || r.proxied() && slices.Contains(all, "+"+policy) ||
		!strings.HasPrefix(s.may, noPolicy) && (policy == wide || policy == "trial")
}

func (s *site) parse(t *testing.T) *url.URL {
	t.Helper()
	return mustParse(t, s.url+"/")
}

// addresses returns those of the site by a route. The last one is permitted to the callers that reach the site.
func (s *site) addresses(t *testing.T, r *routeRow) []string {
	t.Helper()
	all := []string{s.at}
	if s.dns.Turns != nil {
		all = slices.Clone(s.dns.Turns[0])
	}
	for i, at := range all {
		if s.dns.Turns != nil && strings.HasPrefix(r.text, "resolver") {
			at = elsewhere(at)
		}
		all[i] = hostOf(at, port(s.parse(t)))
	}
	return all
}

// reach returns the addresses that the callers of a policy reach by a route, and each host with its addresses.
func reach(t *testing.T, policy string, r *routeRow) map[string]bool {
	t.Helper()
	may := make(map[string]bool)
	for _, s := range slices.Concat(sites, []site{movedFrom, movedTo}) {
		if !s.permits(policy, r) {
			continue
		}
		all := s.addresses(t, r)
		may[all[len(all)-1]] = true
		for _, at := range all {
			may[s.host(t)+" at "+at] = true
		}
	}
	return may
}

// host is the name and the port of a site.
func (s *site) host(t *testing.T) string {
	t.Helper()
	u := s.parse(t)
	return hostOf(u.Hostname(), port(u))
}

// hostOf returns one spelling of a host.
func hostOf(name, port string) string {
	if addr, err := netip.ParseAddr(name); err == nil {
		name = addr.Unmap().String()
	}
	return net.JoinHostPort(strings.ToLower(strings.TrimSuffix(name, ".")), port)
}

func port(u *url.URL) string {
	switch {
	case u.Port() != "":
		return u.Port()
	case u.Scheme == "https":
		return "443"
	}
	return "80"
}

// network answers on every address. It records each connection with the callers whose requests it carried.
type network struct {
	*rig
	http2 atomic.Bool // over TLS
	roots *x509.CertPool
	other *space.Names                     // otherNames
	ports map[int]func(net.Listener) error // those that answer on every address, and how

	mu     sync.Mutex
	more   sync.Cond
	visits []*visit
	asked  []string                   // what is wrong with requests
	may    map[string]map[string]bool // by caller; see reach
}

// visit is a connection that was accepted.
type visit struct {
	at      string
	from    string // without its port
	callers map[string]bool
}

func newSites(t *testing.T) (*network, error) {
	t.Helper()
	if err := space.OwnEverything(); err != nil {
		return nil, err
	}
	n := &network{rig: new(rig)}
	n.more.L = &n.mu
	var err error
	if n.dns, err = serveNames(t, nameServer); err != nil {
		return nil, err
	}
	if n.other, err = serveNames(t, otherNames); err != nil {
		return nil, err
	}
	for _, s := range sites {
		n.setNames(t, &s)
	}
	return n, n.listen(t)
}

// setNames gives both name servers the addresses of a site.
func (n *network) setNames(t *testing.T, s *site) {
	t.Helper()
	if s.dns.Turns == nil {
		return
	}
	name, other := strings.TrimSuffix(s.parse(t).Hostname(), "."), s.dns
	n.dns.Set(name, s.dns)
	other.Turns = [][]string{nil}
	for _, at := range s.dns.Turns[0] {
		other.Turns[0] = append(other.Turns[0], elsewhere(at))
	}
	n.other.Set(name, other)
}

// listen starts the listeners.
func (n *network) listen(t *testing.T) error {
	t.Helper()
	config, err := n.certificate(t)
	if err != nil {
		return err
	}
	server := &http.Server{
		Handler: n, TLSConfig: config, ErrorLog: slog.NewLogLogger(slog.DiscardHandler, slog.LevelError),
		ConnContext: func(ctx context.Context, c net.Conn) context.Context {
			if secure, ok := c.(*tls.Conn); ok {
				c = secure.NetConn()
			}
			v, _ := c.(*visited)
			return context.WithValue(ctx, visitKey{}, v)
		},
	}
	proxy := &http.Server{Handler: http.HandlerFunc(n.proxy), TLSConfig: &tls.Config{Certificates: config.Certificates}, ErrorLog: server.ErrorLog}
	secure := func(l net.Listener) error { return server.ServeTLS(l, "", "") }
	n.ports = map[int]func(net.Listener) error{
		22: server.Serve, 80: server.Serve, 443: secure, 8080: server.Serve, 8443: secure,
		3128: proxy.Serve, 3129: func(l net.Listener) error { return proxy.ServeTLS(l, "", "") }, 1080: n.serveSocks,
	}
	var running sync.WaitGroup
	var listeners []net.Listener
	t.Cleanup(func() {
		_, _ = server.Close(), proxy.Close()
		for _, l := range listeners {
			_ = l.Close()
		}
		running.Wait()
	})
	var listen net.ListenConfig
	for port, serve := range n.ports {
		for network, any := range map[string]string{"tcp4": "0.0.0.0", "tcp6": "::"} {
			l, err := listen.Listen(t.Context(), network, net.JoinHostPort(any, strconv.Itoa(port)))
			if err != nil {
				return err
			}
			listeners = append(listeners, l)
			running.Go(func() { _ = serve(listener{l, n}) })
		}
	}
	return nil
}

// certificate returns the TLS settings of all sites. They share one certificate, so a client that coalesces
// connections would do so.
func (n *network) certificate(t *testing.T) (*tls.Config, error) {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, err
	}
	template := &x509.Certificate{SerialNumber: big.NewInt(1), NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
		IsCA: true, BasicConstraintsValid: true, DNSNames: []string{movedFrom.parse(t).Hostname()}, IPAddresses: []net.IP{net.IPv4(192, 0, 2, 53)}}
	for _, s := range sites {
		name := strings.TrimSuffix(s.parse(t).Hostname(), ".")
		if ip := net.ParseIP(name); ip != nil {
			template.IPAddresses = append(template.IPAddresses, ip)
			continue
		}
		template.DNSNames = append(template.DNSNames, name)
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		return nil, err
	}
	leaf, err := x509.ParseCertificate(der)
	if err != nil {
		return nil, err
	}
	n.roots = x509.NewCertPool()
	n.roots.AddCert(leaf)
	certificates := []tls.Certificate{{Certificate: [][]byte{der}, PrivateKey: key}}
	return &tls.Config{Certificates: certificates, NextProtos: []string{"h2", "http/1.1"}, GetConfigForClient: func(*tls.ClientHelloInfo) (*tls.Config, error) {
		protocols := []string{"http/1.1"}
		if n.http2.Load() {
			protocols = []string{"h2"}
		}
		return &tls.Config{Certificates: certificates, NextProtos: protocols}, nil
	}}, nil
}

type visitKey struct{}

// visited is a connection with its record.
type visited struct {
	net.Conn
	*visit
}

// listener records the connections of a net.Listener.
type listener struct {
	net.Listener
	network *network
}

// Accept implements net.Listener.
func (l listener) Accept() (net.Conn, error) {
	conn, err := l.Listener.Accept()
	if err != nil {
		return nil, err
	}
	from, _, _ := net.SplitHostPort(conn.RemoteAddr().String())
	v := &visit{conn.LocalAddr().String(), from, make(map[string]bool)}
	l.network.mu.Lock()
	defer l.network.mu.Unlock()
	l.network.visits = append(l.network.visits, v)
	l.network.more.Broadcast()
	return &visited{conn, v}, nil
}

// ServeHTTP answers every request. The first element of the path is the caller. A query redirects.
func (n *network) ServeHTTP(w http.ResponseWriter, q *http.Request) {
	v, _ := q.Context().Value(visitKey{}).(*visited)
	_, arrived, _ := net.SplitHostPort(v.at)
	name := q.Host
	if u, err := url.Parse("//" + q.Host); err == nil {
		name = u.Hostname()
	}
	caller, _, _ := strings.Cut(strings.TrimPrefix(q.URL.Path, "/"), "/")
	n.mu.Lock()
	v.callers[caller] = true
	if asked := hostOf(name, arrived); !n.may[caller][asked+" at "+v.at] {
		n.asked = append(n.asked, fmt.Sprintf("a request of %q for %s at %s", caller, asked, v.at))
	}
	if secure := q.TLS != nil; secure && (q.ProtoMajor == 2) != n.http2.Load() {
		n.asked = append(n.asked, "a request over "+q.Proto)
	}
	n.mu.Unlock()
	if to := q.URL.Query().Get("to"); to != "" {
		w.Header().Set("Location", to)
		w.WriteHeader(http.StatusFound)
		return
	}
	w.Header().Set("Content-Type", "text/plain")
	_, _ = w.Write([]byte("a site\n"))
}

// sentinels are addresses that only await dials.
var sentinels = []string{"198.18.255.254", "fd00:ec2::ffff"}

// await waits until every connection that the kernel made has been accepted, and returns them.
func (n *network) await(t *testing.T) []*visit {
	t.Helper()
	for port := range n.ports {
		for _, ip := range sentinels {
			if err := dial(t.Context(), net.JoinHostPort(ip, strconv.Itoa(port))); err != nil {
				t.Fatal(err)
			}
		}
	}
	sentinel := func(v *visit) bool {
		at, _, _ := net.SplitHostPort(v.at)
		return slices.Contains(sentinels, at)
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	for {
		found := 0
		for _, v := range n.visits {
			if sentinel(v) {
				found++
			}
		}
		if found == len(n.ports)*len(sentinels) {
			all := slices.DeleteFunc(n.visits, sentinel)
			n.visits = nil
			return all
		}
		n.more.Wait()
	}
}

// callers are two callers of one service.
type callers struct {
	*testing.T
	*network
	*fetchdtest.Server
	policy string
	route  *routeRow     // of the policy
	serial *atomic.Int64 // of fetches
}

// testPolicy fetches all sites as a caller with a policy, next to a caller that may reach them all.
func (n *network) testPolicy(t *testing.T, policy string, route *routeRow) {
	text := strings.NewReplacer("ROUTES", "", "ROUTE", "").Replace(policiesText)
	if route.text != "" {
		secret := filepath.Join(t.TempDir(), "secret")
		if err := os.WriteFile(secret, []byte(proxyUser+":"+proxyPassword+"\n"), 0o600); err != nil {
			t.Fatal(err)
		}
		way := strings.ReplaceAll(route.text, "SECRET", secret)
		text = strings.NewReplacer("ROUTES", "routes: {r: {"+way+"}}", "ROUTE", "route: r,").Replace(policiesText)
	}
	n.mu.Lock()
	n.may = map[string]map[string]bool{policy: reach(t, policy, route), wide: reach(t, wide, &routes[0])}
	n.mu.Unlock()
	set, faults := policies.Parse([]byte(text))
	if len(faults) > 0 {
		t.Fatal(faults)
	}
	began := opened(t)
	var service *fetchdtest.Server
	var dialled atomic.Int64 // connections to the service
	service = fetchdtest.Start(t, fetchdtest.Options{NoOrigin: true,
		Configure: func(cfg *server.Config) {
			cfg.Policies = set
			cfg.Authenticate = func(shown server.Credentials) (string, error) { return shown.Token, nil }
			cfg.Fetch = fetch.Config{Egress: settingsEgress, Resolver: fetch.Resolver(nameServer), RootCAs: n.roots}
		},
		DialOptions: []grpc.DialOption{grpc.WithContextDialer(func(ctx context.Context, _ string) (net.Conn, error) {
			dialled.Add(1)
			return service.DialGRPC(ctx)
		})},
	})
	service.HTTPClient = &http.Client{Transport: &http.Transport{DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		dialled.Add(1)
		return service.DialHTTP(ctx)
	}}}
	t.Cleanup(service.HTTPClient.CloseIdleConnections)
	c := &callers{T: t, network: n, Server: service, policy: policy, route: route, serial: new(atomic.Int64)}
	for _, phase := range []struct {
		name string
		wide bool // the other caller fetches at the same time
		from string
	}{
		{"the pool is cold", true, ""},
		{"the pool is warm", false, ""},
		{"redirects", false, c.start(t)},
	} {
		t.Run(phase.name, func(t *testing.T) {
			c := c.in(t)
			c.run(phase.wide, phase.from)
		})
	}
	t.Run("a name that has moved", func(t *testing.T) {
		c := c.in(t)
		c.testMoved()
	})
	visits := n.await(t)
	if sent := opened(t) - began - len(n.ports)*len(sentinels) - int(dialled.Load()); sent != len(visits) {
		t.Errorf("the kernel opened %d connections, and %d were accepted", sent, len(visits))
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	for _, v := range visits {
		owner := wide // of a connection
		switch by := slices.Contains(strings.Fields(route.sources), v.from); {
		case strings.Contains(route.text, "//"+v.at): // to the proxy
			continue
		case by, route.sources == "" && !(len(v.callers) == 1 && v.callers[wide]):
			owner = policy
		}
		if !n.may[owner][v.at] {
			t.Errorf("a connection from %s to %s with the requests of %v, forbidden to %s", v.from, v.at, v.callers, owner)
		}
		// One that lost a race to another of HTTP/2 has carried no request.
		if route.text != "" && len(v.callers) > 0 && (len(v.callers) > 1 || !v.callers[owner]) {
			t.Errorf("a connection from %s to %s with the requests of %v, want only those of %s", v.from, v.at, v.callers, owner)
		}
	}
	for _, wrong := range n.asked {
		t.Error(wrong)
	}
	n.asked = nil
}

// in returns c for a subtest.
func (c *callers) in(t *testing.T) *callers {
	one := *c
	one.T = t
	return &one
}

// start returns a site that the policy permits and that redirects.
func (c *callers) start(t *testing.T) string {
	t.Helper()
	i := slices.IndexFunc(sites, func(s site) bool {
		return s.permits(c.policy, c.route) && strings.HasPrefix(s.url, "https:") && c.route.serves(&s)
	})
	return sites[i].url
}

// run fetches all sites through each API. from redirects to them; empty: they are fetched directly.
func (c *callers) run(other bool, from string) {
	c.Helper()
	var running sync.WaitGroup
	if other {
		running.Go(func() { c.walk(wide, 0, "", c.unary) })
	}
	for i, api := range []func(context.Context, string) end{c.unary, c.many, c.raw} {
		running.Go(func() { c.walk(c.policy, i*len(sites)/3, from, api) })
	}
	running.Wait()
}

// walk fetches the sites one after the other, from one of them on.
func (c *callers) walk(caller string, first int, from string, api func(context.Context, string) end) {
	route := &routes[0]
	if caller == c.policy {
		route = c.route
	}
	for i := range sites {
		s := &sites[(first+i)%len(sites)]
		if !route.serves(s) {
			continue
		}
		permits := s.permits(caller, route)
		target := fmt.Sprintf("%s/%s/%d", s.url, caller, c.serial.Add(1))
		if from != "" {
			target = from + "/" + caller + "/start?to=" + url.QueryEscape(target)
		}
		got := api(metadata.AppendToOutgoingContext(c.Context(), "authorization", "Bearer "+caller), target)
		switch {
		case got.err != nil:
			c.Errorf("%s: %s: %v", caller, s.name, got.err)
		case got.success != permits || !got.success && got.rule != "P1" && (route.proxied() || !got.hides(s)):
			c.Errorf("%s: %s: success %t with rule %s, want %t: %v", caller, s.name, got.success, got.rule, permits, got.outcome)
		case got.outcome != nil && caller == "trial" && got.success && (len(got.outcome.GetPolicyReports()) > 0) == s.permits("partners", route):
			c.Errorf("%s: reports %v, want some unless the policy permits it", s.name, got.outcome.GetPolicyReports())
		}
	}
}

// end is how a fetch ended. outcome is nil if the API does not return it.
type end struct {
	success bool
	rule    string
	outcome *pb.FetchOutcome
	err     error
}

// hides reports whether a fetch ended as if the name did not exist, and may have: its address is not public.
func (e *end) hides(s *site) bool {
	if s.dns.Turns == nil || e.rule != "I4" || e.outcome != nil && e.outcome.GetError().GetErrorClass() != pb.ErrorClass_ERROR_CLASS_DNS_NOT_FOUND {
		return false
	}
	at := netip.MustParseAddr(s.dns.Turns[0][0])
	return at.IsPrivate() || at.IsLoopback() || at.IsLinkLocalUnicast() || settingsEgress.AllowCIDRs[2].Contains(at)
}

func endOf(o *pb.FetchOutcome, err error) end {
	return end{o.GetKind() == pb.OutcomeKind_OUTCOME_KIND_SUCCESS, o.GetDecisionRule(), o, err}
}

func (c *callers) request(url string) *pb.FetchRequest {
	return &pb.FetchRequest{Url: url, RetryPolicy: &pb.RetryPolicy{MaxAttempts: new(int32(1)), BaseDelay: durationpb.New(0)}}
}

func (c *callers) unary(ctx context.Context, url string) end {
	resp, err := c.Client.FetchUnary(ctx, c.request(url))
	return endOf(resp.GetOutcome(), err)
}

func (c *callers) many(ctx context.Context, url string) end {
	stream, err := c.Client.FetchMany(ctx)
	if err != nil {
		return end{err: err}
	}
	task := &pb.Task{Tag: "t", Request: c.request(url)}
	if err := errors.Join(stream.Send(&pb.FetchManyRequest{Tasks: []*pb.Task{task}}), stream.CloseSend()); err != nil {
		return end{err: err}
	}
	var o *pb.FetchOutcome
	for {
		in, err := stream.Recv()
		if errors.Is(err, io.EOF) {
			return endOf(o, nil)
		}
		if err != nil {
			return end{err: err}
		}
		for _, e := range in.GetEvents() {
			if last := e.GetEvent().GetOutcome(); last != nil {
				o = last
			}
		}
	}
}

func (c *callers) raw(ctx context.Context, target string) end {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, c.URL+"/v1/raw?url="+url.QueryEscape(target), nil)
	if err != nil {
		return end{err: err}
	}
	shown, _ := metadata.FromOutgoingContext(ctx)
	req.Header.Set("Authorization", shown.Get("authorization")[0])
	req.Header.Set("Fetchd-Request", `{"retry_policy":{"max_attempts":1}}`)
	resp, err := c.HTTPClient.Do(req)
	if err != nil {
		return end{err: err}
	}
	defer func() { _ = resp.Body.Close() }()
	body, err := io.ReadAll(resp.Body)
	field := func(name string) string { return resp.Header.Get(name) + resp.Trailer.Get(name) }
	if field("Fetchd-Outcome") == "" && err == nil {
		err = fmt.Errorf("%s: %s", resp.Status, body)
	}
	return end{field("Fetchd-Outcome") == "success", field("Fetchd-Decision-Rule"), nil, err}
}

// movedFrom and movedTo are the addresses of a name that changes them. Only the wide caller may reach the first.
var (
	movedFrom = site{"a shop that moves", "https://moved.shop.test", is("10.30.0.100"), "", "+partners +crawler +inside"}
	movedTo   = site{"a shop that has moved", "https://moved.shop.test", is("93.184.5.1"), "", "partners crawler inside"}
)

// testMoved checks that a connection that another caller opened to a forbidden address serves no request for the
// same name, also when the name has a permitted address by now.
func (c *callers) testMoved() {
	permitted := movedTo.permits(c.policy, c.route)
	for _, step := range []struct {
		name, caller string
		site         *site
		success      bool
	}{
		{"the other caller opens a connection", wide, &movedFrom, true},
		{"the address is forbidden", c.policy, &movedFrom, movedFrom.permits(c.policy, c.route)},
		{"the address is permitted", c.policy, &movedTo, permitted},
		{"the other caller", wide, &movedFrom, true},
		{"the address is permitted, and forbidden now", c.policy, &movedFrom, permitted},
	} {
		c.setNames(c.T, step.site)
		got := c.unary(metadata.AppendToOutgoingContext(c.Context(), "authorization", "Bearer "+step.caller), step.site.url+"/"+step.caller+"/")
		if got.err != nil || got.success != step.success {
			c.Errorf("%s: %v, %v, want success %t", step.name, got.outcome, got.err, step.success)
		}
	}
}
