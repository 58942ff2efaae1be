package server_test

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"math/big"
	mathrand "math/rand/v2"
	"net"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/durationpb"

	"fetchd/client"
	"fetchd/fetch"
	"fetchd/fetch/auth"
	pb "fetchd/gen/fetchd/v1"
	"fetchd/internal/policies"
	"fetchd/server"
	"fetchd/test/dnstest"
)

// mixedRequests is how many requests TestReportAndEnforce makes in each mode.
const mixedRequests = 10_000

// TestReportAndEnforce makes the same requests under the same policies in both modes. A model of the policies says
// what each of them denies. The mode report must block none of it and report each once, and the mode enforce must
// block the first.
func TestReportAndEnforce(t *testing.T) {
	t.Parallel()
	web := newMixedWeb(t)
	requests := web.generate()
	for _, mode := range []string{"report", "enforce"} {
		t.Run(mode, func(t *testing.T) {
			dir := t.TempDir()
			o := newObserved(t, withStoresOf(t, "  bodies: {url: \"file://"+dir+"/bodies\"}\n  pages: {url: \"warc+file://"+dir+"/pages\"}\n"), func(c *server.Config) { web.configure(t, c, mode) })
			m := &mixed{observed: o, web: web, report: mode == "report", denied: make(map[string]float64)}
			m.run(requests)
			m.checkCounts()
		})
	}
}

// mixedText is the file. MODE is the mode, and PORTS are the ports of the origin: without TLS, another, with TLS.
const mixedText = `
policies:
  names: {MODE egress: {allow-names: [www.partner.test, "*.shop.test"], deny-names: [bad.shop.test], allow-addresses: [127.0.0.0/30], ports: [PLAIN, OTHER, TLS]}}
  ads: {MODE egress: {deny-names: ["domain:ads.test"], deny-addresses: [127.0.0.4/31], allow-addresses: [127.0.0.0/8], ports: [PLAIN, OTHER, TLS]}}
  secure: {MODE egress: {schemes: [https], allow-names: ["domain:partner.test"], redirects: anywhere, allow-addresses: [127.0.0.0/30], ports: [PLAIN, TLS]}}
  limits:
    MODE
    egress: {allow-addresses: [127.0.0.0/8], ports: [PLAIN, TLS]}
    request: LIMITS
  all:
    MODE
    egress: {allow-names: [www.partner.test, "*.shop.test"], deny-names: [bad.shop.test], allow-addresses: [127.0.0.0/30], ports: [TLS]}
    request: LIMITS
callers:
- {caller: names, policy: names}
- {caller: ads, policy: ads}
- {caller: secure, policy: secure}
- {caller: limits, policy: limits}
default: all
`

const mixedLimits = `{methods: [GET, HEAD, POST], auth-providers: [first], stores: [], record-stores: [], required-labels: [team], max-total-timeout: 20s,
      max-size-bytes: 1000000, max-attempts: 3, max-redirects: 4, non-idempotent-retries: forbid}`

// model is what the test knows about a policy. It says it in another way than the file.
type model struct {
	name      string
	schemes   []string          // nil: all
	ports     []string          // kinds
	allow     []string          // names of mixedHosts; nil: all
	anywhere  bool              // of redirects
	deny      map[string]string // the entry that denies a name or an address of mixedHosts
	addresses []string          // that are open; nil: all of mixedHosts
	limits    bool              // it has mixedLimits
}

var partners = []string{"www.partner.test", "a.shop.test", "a.b.shop.test", "bad.shop.test"}

var models = []*model{
	{name: "names", ports: []string{"PLAIN", "OTHER", "TLS"}, allow: partners, deny: map[string]string{"bad.shop.test": "bad.shop.test"}, addresses: []string{"127.0.0.1", "127.0.0.2", "127.0.0.3"}},
	{name: "ads", ports: []string{"PLAIN", "OTHER", "TLS"}, deny: map[string]string{"ads.test": "domain:ads.test", "x.ads.test": "domain:ads.test", "127.0.0.4": "127.0.0.4/31", "127.0.0.5": "127.0.0.4/31"}},
	{name: "secure", schemes: []string{"https"}, ports: []string{"PLAIN", "TLS"}, allow: []string{"www.partner.test", "partner.test"}, anywhere: true, addresses: []string{"127.0.0.1", "127.0.0.2", "127.0.0.3"}},
	{name: "limits", ports: []string{"PLAIN", "TLS"}, limits: true},
	{name: "all", ports: []string{"TLS"}, allow: partners, deny: map[string]string{"bad.shop.test": "bad.shop.test"}, addresses: []string{"127.0.0.1", "127.0.0.2", "127.0.0.3"}, limits: true},
}

// mixedHosts are the hosts of requests, with their addresses.
var mixedHosts = map[string]string{
	"www.partner.test": "127.0.0.1", "partner.test": "127.0.0.5", "a.shop.test": "127.0.0.2", "a.b.shop.test": "127.0.0.4", "bad.shop.test": "127.0.0.1", "shop.test": "127.0.0.3",
	"ads.test": "127.0.0.1", "x.ads.test": "127.0.0.4", "elsewhere.test": "127.0.0.3", "other.test": "127.0.0.6", "127.0.0.1": "127.0.0.1", "127.0.0.4": "127.0.0.4", "127.0.0.6": "127.0.0.6",
}

// hop is one target of a request. kind is a port, or CLOSED for one that the settings forbid.
type hop struct{ host, kind string }

func (h hop) scheme() string {
	if h.kind == "TLS" {
		return "https"
	}
	return "http"
}

// denial is what a policy says against a request.
type denial struct{ reason, rule, host string }

// judge returns what a policy says against a target: against its URL, and then against its address.
func (m *model) judge(h hop, redirected bool) (all []denial) {
	add := func(reason, rule string) { all = append(all, denial{reason, rule, h.host}) }
	address := mixedHosts[h.host]
	byAddress := func() {
		if rule := m.deny[address]; rule != "" {
			add("address_denied", rule)
		} else if m.addresses != nil && !slices.Contains(m.addresses, address) {
			add("address_not_allowed", "")
		}
	}
	listed := m.allow == nil || slices.Contains(m.allow, h.host) || redirected && m.anywhere
	literal := h.host == address
	switch {
	case m.schemes != nil && !slices.Contains(m.schemes, h.scheme()):
		add("scheme_not_allowed", "")
	case !slices.Contains(m.ports, h.kind):
		add("port_not_allowed", "")
	case literal && (listed || slices.Contains(m.addresses, address)):
	case !literal && m.deny[h.host] != "":
		add("name_denied", m.deny[h.host])
	case !listed:
		add("name_not_allowed", "")
	}
	byAddress()
	return all
}

// mixedRequest is a request, with what its policy says against it.
type mixedRequest struct {
	policy  *model
	request *pb.FetchRequest
	id      string
	hops    []hop
	broken  bool     // the first response is a 503
	fields  []denial // of the request itself
	targets []denial // of its hops
	reaches int      // hops that mode enforce requests
}

// mixedWeb is the origin and the name server of the requests.
type mixedWeb struct {
	ports map[string]string
	hosts []string
	roots *x509.CertPool
	names string // the address of the name server

	mu   sync.Mutex
	seen map[string]int // requests, by id and hop
}

func newMixedWeb(t *testing.T) *mixedWeb {
	t.Helper()
	w := &mixedWeb{hosts: slices.Sorted(maps.Keys(mixedHosts)), seen: make(map[string]int), ports: map[string]string{"CLOSED": "9"}}
	certificate := w.certificate(t)
	var running sync.WaitGroup
	site := &http.Server{Handler: w, ErrorLog: slog.NewLogLogger(slog.DiscardHandler, slog.LevelError),
		TLSConfig: &tls.Config{Certificates: []tls.Certificate{certificate}, NextProtos: []string{"h2", "http/1.1"}}}
	var listen net.ListenConfig
	for kind, serve := range map[string]func(net.Listener) error{"PLAIN": site.Serve, "OTHER": site.Serve,
		"TLS": func(l net.Listener) error { return site.ServeTLS(l, "", "") }} {
		l, err := listen.Listen(t.Context(), "tcp4", "0.0.0.0:0")
		must(t, err)
		_, w.ports[kind], err = net.SplitHostPort(l.Addr().String())
		must(t, err)
		running.Go(func() { _ = serve(l) })
	}
	t.Cleanup(func() {
		_ = site.Close()
		running.Wait()
	})
	w.names = dnstest.Serve(t, mixedHosts)
	return w
}

// certificate returns one for all hosts.
func (w *mixedWeb) certificate(t *testing.T) tls.Certificate {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	must(t, err)
	template := &x509.Certificate{SerialNumber: big.NewInt(1), NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(24 * time.Hour), IsCA: true, BasicConstraintsValid: true}
	for _, name := range w.hosts {
		if ip := net.ParseIP(name); ip != nil {
			template.IPAddresses = append(template.IPAddresses, ip)
		} else {
			template.DNSNames = append(template.DNSNames, name)
		}
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	must(t, err)
	leaf, err := x509.ParseCertificate(der)
	must(t, err)
	w.roots = x509.NewCertPool()
	w.roots.AddCert(leaf)
	return tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key}
}

// ServeHTTP answers a request for /ID/HOP. A query redirects, or breaks the first request.
func (w *mixedWeb) ServeHTTP(out http.ResponseWriter, q *http.Request) {
	w.mu.Lock()
	w.seen[q.URL.Path]++
	first := w.seen[q.URL.Path] == 1
	w.mu.Unlock()
	query := q.URL.Query()
	switch to := query.Get("to"); {
	case query.Has("broken") && first:
		out.WriteHeader(http.StatusServiceUnavailable)
	case to != "":
		out.Header().Set("Location", to)
		out.WriteHeader(http.StatusFound)
	default:
		out.Header().Set("Content-Type", "text/plain")
		_, _ = io.WriteString(out, "hello\n")
	}
}

// configure lets a service reach the origin, under the policies in a mode.
func (w *mixedWeb) configure(t *testing.T, c *server.Config, mode string) {
	t.Helper()
	c.Fetch.MaxIdle = 32 // both ends are in this process, whose files are limited
	text := strings.ReplaceAll(mixedText, "LIMITS", mixedLimits)
	inline, block := "", ""
	if mode == "report" {
		inline, block = "mode: report, report-to-caller: true,", "mode: report\n    report-to-caller: true"
	}
	text = strings.NewReplacer("{MODE", "{"+inline, "    MODE\n", "    "+block+"\n").Replace(text)
	for kind, port := range w.ports {
		text = strings.ReplaceAll(text, kind, port)
		if kind != "CLOSED" {
			n, err := strconv.ParseUint(port, 10, 16)
			must(t, err)
			c.Fetch.Egress.AllowPorts = append(c.Fetch.Egress.AllowPorts, uint16(n))
		}
	}
	set, faults := policies.Parse([]byte(text))
	if len(faults) > 0 {
		t.Fatal(faults)
	}
	var origins []string
	for _, host := range w.hosts {
		origins = append(origins, "https://"+net.JoinHostPort(host, w.ports["TLS"]))
	}
	c.AuthProviders = make(map[string]server.AuthProvider)
	for _, name := range []string{"first", "second"} {
		provider, err := auth.New(auth.Config{Static: "a secret", Origins: origins})
		must(t, err)
		c.AuthProviders[name] = server.AuthProvider{Provider: provider}
	}
	c.Policies, c.Fetch.RootCAs = set, w.roots
	c.Authenticate = func(shown server.Credentials) (string, error) { return shown.Token, nil }
	c.Fetch.Resolver = fetch.Resolver(w.names)
}

// generate returns the requests. They are the same each time, except for the ports.
func (w *mixedWeb) generate() []*mixedRequest {
	random := mathrand.New(mathrand.NewPCG(36, 10_000))
	all := make([]*mixedRequest, mixedRequests)
	for i := range all {
		all[i] = w.one(random, fmt.Sprintf("r%d", i))
	}
	return all
}

func (w *mixedWeb) one(random *mathrand.Rand, id string) *mixedRequest {
	percent := func(n int) bool { return random.IntN(100) < n }
	m := &mixedRequest{policy: models[random.IntN(len(models))], id: id, broken: percent(5)}
	for range 1 + random.IntN(2)*random.IntN(3) {
		kind := []string{"PLAIN", "PLAIN", "OTHER", "TLS", "TLS", "TLS"}[random.IntN(6)]
		if percent(1) {
			kind = "CLOSED"
		}
		m.hops = append(m.hops, hop{w.hosts[random.IntN(len(w.hosts))], kind})
	}
	target := ""
	for i, h := range slices.Backward(m.hops) {
		query := url.Values{}
		if target != "" {
			query.Set("to", target)
		}
		if i == 0 && m.broken {
			query.Set("broken", "")
		}
		target = fmt.Sprintf("%s://%s:%s/%s/%d?%s", h.scheme(), h.host, w.ports[h.kind], id, i, query.Encode())
	}
	m.request = &pb.FetchRequest{Url: target, RetryPolicy: &pb.RetryPolicy{BaseDelay: durationpb.New(0)}, RedirectPolicy: &pb.RedirectPolicy{}}
	m.ask(percent, random)
	reaches := true
	for i, h := range m.hops {
		if h.kind == "CLOSED" {
			break
		}
		against := m.policy.judge(h, i > 0)
		m.targets = append(m.targets, against...)
		if reaches = reaches && len(against) == 0 && len(m.fields) == 0; reaches {
			m.reaches++
		}
	}
	return m
}

// ask adds the rest of a request.
func (m *mixedRequest) ask(percent func(int) bool, random *mathrand.Rand) {
	in := m.request
	if len(m.hops) == 1 && !m.broken && percent(30) {
		in.Method = []string{"HEAD", "POST", "PUT", "DELETE", "OPTIONS"}[random.IntN(5)]
		if slices.Contains([]string{"PUT", "DELETE", "OPTIONS"}, in.Method) {
			m.no("method")
		}
	}
	if m.hops[0].kind == "TLS" && percent(10) {
		in.AuthProvider = []string{"first", "second"}[random.IntN(2)]
		if in.AuthProvider == "second" {
			m.no("auth_provider")
		}
	}
	in.BodyPolicy = &pb.BodyPolicy{}
	if in.Method != http.MethodHead && percent(2) {
		in.BodyPolicy.Delivery = &pb.BodyPolicy_Store{Store: &pb.StoreDelivery{Store: "bodies", Key: m.id}}
		m.no("store")
	}
	if percent(1) {
		in.RecordPolicy = &pb.RecordPolicy{Store: "pages"}
		m.no("record_store")
	}
	if percent(70) {
		in.Labels = map[string]string{"team": "a"}
	} else {
		m.no("label")
	}
	m.askLimits(percent, random)
	if !m.policy.limits {
		m.fields = nil
	}
}

// askLimits adds limits, some of which are above those of mixedLimits.
func (m *mixedRequest) askLimits(percent func(int) bool, random *mathrand.Rand) {
	in := m.request
	if percent(20) {
		seconds := []time.Duration{20, 21}[random.IntN(2)]
		in.TimeoutPolicy = &pb.TimeoutPolicy{TotalTimeout: durationpb.New(seconds * time.Second)}
		if seconds > 20 {
			m.no("total_timeout")
		}
	}
	if percent(20) {
		in.BodyPolicy.MaxSizeBytes = new([]int64{1_000_000, 1_000_001, 1<<53 - 1}[random.IntN(3)])
		if in.BodyPolicy.GetMaxSizeBytes() == 1_000_001 {
			m.no("max_size_bytes")
		}
	}
	if percent(20) {
		in.RetryPolicy.MaxAttempts = new(int32(3 + random.IntN(2)))
		if in.RetryPolicy.GetMaxAttempts() > 3 {
			m.no("max_attempts")
		}
	}
	if percent(20) {
		in.RedirectPolicy.MaxRedirects = new(int32(4 + random.IntN(2)))
		if in.RedirectPolicy.GetMaxRedirects() > 4 {
			m.no("max_redirects")
		}
	}
	if percent(10) {
		in.RetryPolicy.AllowNonIdempotent, in.RetryPolicy.IdempotencyKey = true, m.id
		m.no("non_idempotent_retries")
	}
}

// no adds a field that mixedLimits forbid.
func (m *mixedRequest) no(reason string) {
	m.fields = append(m.fields, denial{reason: reason, host: m.hops[0].host})
}

// want returns what is reported, or what is counted in mode enforce.
func (m *mixedRequest) want(report bool) []denial {
	switch {
	case report:
		var once []denial
		for _, d := range slices.Concat(m.fields, m.targets) {
			if !slices.Contains(once, d) {
				once = append(once, d)
			}
		}
		return once
	case len(m.fields) > 0:
		return m.fields
	case len(m.targets) > 0 && !m.closedBefore():
		return m.targets[:1]
	}
	return nil
}

// closedBefore reports whether the settings forbid a hop before the policy forbids one.
func (m *mixedRequest) closedBefore() bool {
	return m.reaches < len(m.hops) && m.hops[m.reaches].kind == "CLOSED"
}

// mixed is a run of the requests in one mode.
type mixed struct {
	*observed
	web    *mixedWeb
	report bool
	denied map[string]float64 // what the metrics must count, by policy and reason
}

// run makes the requests of each caller, half of them by FetchMany. Quotas of policies belong here too: they are for
// the requests of a caller together.
func (m *mixed) run(requests []*mixedRequest) {
	m.Helper()
	m.web.mu.Lock()
	m.web.seen = make(map[string]int)
	m.web.mu.Unlock()
	var running sync.WaitGroup
	for _, policy := range models {
		ctx := as(m.Context(), policy.name)
		var many []*pb.FetchRequest
		unary := make(chan *mixedRequest, len(requests))
		byRequest := make(map[*pb.FetchRequest]*mixedRequest)
		for i, one := range requests {
			switch {
			case one.policy != policy:
			case i%2 == 0:
				many, byRequest[one.request] = append(many, one.request), one
			default:
				unary <- one
			}
			if one.policy == policy {
				for _, d := range one.want(m.report) {
					m.denied[policy.name+" "+d.reason]++
				}
			}
		}
		close(unary)
		running.Go(func() {
			for result, err := range client.New(m.Conn).Many(ctx, slices.Values(many), client.ManyOptions{Open: 8}) {
				if result == nil {
					m.Error(err)
					return
				}
				m.check(byRequest[result.Request], result.Outcome, nil)
			}
		})
		for range 4 {
			running.Go(func() { m.runUnary(ctx, unary) })
		}
	}
	running.Wait()
}

func (m *mixed) runUnary(ctx context.Context, requests <-chan *mixedRequest) {
	for one := range requests {
		resp, err := m.Client.FetchUnary(ctx, one.request)
		m.check(one, resp.GetOutcome(), err)
	}
}

// check compares the end of a request with what its policy says against it. err is that of FetchUnary.
func (m *mixed) check(one *mixedRequest, o *pb.FetchOutcome, err error) {
	name := fmt.Sprintf("%s as %s: %s %s", one.id, one.policy.name, one.request.GetMethod(), one.request.GetUrl())
	if m.report {
		m.checkReports(name, one, o)
	}
	m.checkSeen(name, one, int(o.GetAttemptCount()))
	failed, want := o.GetError(), one.want(m.report)
	blocked := failed.GetErrorClass() == pb.ErrorClass_ERROR_CLASS_TARGET_BLOCKED
	switch {
	case !m.report && len(one.fields) > 0:
		m.checkFields(name, one, failed, err)
	case err != nil:
		m.Errorf("%s: %v", name, err)
	case !m.report && len(want) > 0:
		if want[0].hides() {
			if failed.GetErrorClass() != pb.ErrorClass_ERROR_CLASS_DNS_NOT_FOUND || failed.GetPolicy() != "" {
				m.Errorf("%s: %v, want the name hidden for %v", name, failed, want[0])
			}
			return
		}
		if !blocked || failed.GetReason() != want[0].reason || failed.GetPolicyRule() != want[0].rule || failed.GetPolicy() != one.policy.name {
			m.Errorf("%s: %v, want it blocked for %v", name, failed, want[0])
		}
	case one.open() < len(one.hops):
		if !blocked || failed.GetPolicy() != "" || failed.GetReason() != "port_not_allowed" {
			m.Errorf("%s: %v, want it blocked by the settings", name, failed)
		}
	case o.GetKind() != pb.OutcomeKind_OUTCOME_KIND_SUCCESS:
		m.Errorf("%s: %v, want a success", name, o)
	}
}

// hides reports whether a denial of an address hides whether the name exists: no address of mixedHosts is public.
func (d denial) hides() bool {
	return strings.HasPrefix(d.reason, "address_") && d.host != mixedHosts[d.host]
}

// open is how many hops the settings permit.
func (m *mixedRequest) open() int {
	if i := slices.IndexFunc(m.hops, func(h hop) bool { return h.kind == "CLOSED" }); i >= 0 {
		return i
	}
	return len(m.hops)
}

// checkSeen checks which hops the origin has seen. Each attempt begins at the first.
func (m *mixed) checkSeen(name string, one *mixedRequest, attempts int) {
	reaches := one.open()
	if !m.report {
		reaches = one.reaches
	}
	broken := 0
	if one.broken {
		broken = 1
	}
	want := one.want(m.report)
	if reaches > 0 && attempts != 1+broken && (m.report || len(want) == 0 || !want[0].hides()) { // a name that is hidden is looked up again
		m.Errorf("%s: %d attempts, want %d", name, attempts, 1+broken)
	}
	m.web.mu.Lock()
	defer m.web.mu.Unlock()
	for i := range one.hops {
		sent := 0
		switch {
		case i >= reaches:
		case i == 0:
			sent = attempts
		default:
			sent = attempts - broken
		}
		if got := m.web.seen[fmt.Sprintf("/%s/%d", one.id, i)]; got != sent {
			m.Errorf("%s: the origin saw hop %d %d times, want %d", name, i, got, sent)
		}
	}
}

// checkReports checks the policy_reports of the outcome.
func (m *mixed) checkReports(name string, one *mixedRequest, o *pb.FetchOutcome) {
	var told []denial
	for _, p := range o.GetPolicyReports() {
		if p.GetPolicy() != one.policy.name {
			m.Errorf("%s: a report of the policy %s", name, p.GetPolicy())
		}
		told = append(told, denial{p.GetReason(), p.GetPolicyRule(), p.GetHost()})
	}
	if want := one.want(true); !slices.Equal(want, told) {
		m.Errorf("%s: reports %v, want %v", name, told, want)
	}
}

// checkFields checks the failure of a request whose fields are forbidden: all of them.
func (m *mixed) checkFields(name string, one *mixedRequest, failed *pb.FetchError, err error) {
	if failed != nil {
		if failed.GetErrorClass() != pb.ErrorClass_ERROR_CLASS_INVALID_REQUEST || !strings.Contains(failed.GetMessage(), strconv.Quote(one.policy.name)) {
			m.Errorf("%s: %v, want INVALID_REQUEST that names the policy", name, failed)
		}
		return
	}
	fields := 0
	for _, detail := range status.Convert(err).Details() {
		if d, ok := detail.(*errdetails.BadRequest); ok {
			fields = len(d.GetFieldViolations())
		}
	}
	if status.Code(err) != codes.PermissionDenied || fields != len(one.fields) {
		m.Errorf("%s: %v with %d fields, want PERMISSION_DENIED for %v", name, err, fields, one.fields)
	}
}

// checkCounts checks the metrics, and the log when the service has stopped.
func (m *mixed) checkCounts() {
	m.Helper()
	mode := "enforce"
	if m.report {
		mode = "report"
	}
	want, logged := make(map[string]float64), make(map[string]float64)
	total := 0.0
	for key, n := range m.denied {
		policy, reason, _ := strings.Cut(key, " ")
		want[fmt.Sprintf("fetchd_policy_denials_total{mode=%q,policy=%q,reason=%q}", mode, policy, reason)] = n
		total += n
	}
	m.want(want)
	for name := range m.series() {
		if _, ok := want[name]; !ok && strings.HasPrefix(name, "fetchd_policy_denials_total{") {
			m.Errorf("%s is counted, want nothing", name)
		}
	}
	m.shutDown()
	for _, line := range m.logs.lines(m.T, "policy would deny") {
		count, ok := line["count"].(float64)
		if !ok {
			count = 1
		}
		logged[fmt.Sprintf("%s %s", line["policy"], line["reason"])] += count
	}
	if !m.report {
		m.denied = nil
	}
	if diff := cmp.Diff(m.denied, logged, cmpopts.EquateEmpty()); diff != "" {
		m.Errorf("denials in the log (-want +got)\n%s", diff)
	}
	m.Logf("%s: %d requests, %.0f denials", mode, mixedRequests, total)
}
