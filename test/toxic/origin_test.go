package toxic

import (
	"crypto/sha256"
	"encoding/hex"
	"net/netip"
	"testing"
	"time"

	"fetchd/classify"
	"fetchd/conformance/origin"
	"fetchd/fetch"
	"fetchd/fetch/urls"
	"fetchd/test/rig"
	"fetchd/test/rig/linktest"
)

// bodyBytes is the size of the bodies. It exceeds one chunk of a proxy.
const bodyBytes = 40000

// The paths of the origin.
const (
	whole   = "/s/k/200:size=40000"
	bigHead = "/s/k/200:size=40000,head-size=20000" // much longer than a handshake
	later   = "/s/k/200:size=40000,delay=1s"        // time to add a toxic before the head
	drips   = "/s/k/200:size=40000,drip=500@20ms"   // time to add one in the body
	stalls  = "/s/k/200:size=40000,stall=100"       // silent after 100 bytes
	open    = "/s/k/200:size=40000,no-length"       // ended by closing
	short   = "/s/k/200:size=100"                   // the body is in the same chunk as the head
)

// end is how a fetch ends. The zero value means that the row does not apply.
type end struct {
	kind  classify.Kind
	class classify.Class
	phase classify.Phase // anyPhase: the outcome may name any
}

const anyPhase classify.Phase = 255

func success() end { return end{kind: classify.Success} }

func failed(class classify.Class, phase classify.Phase) end {
	return end{classify.Failed, class, phase}
}

// Ends that many rows share.
func handshake() end    { return failed(classify.TLSHandshake, classify.PhaseTLS) }
func connectLate() end  { return failed(classify.ConnectTimeout, classify.PhaseTLS) }
func headLate() end     { return failed(classify.ResponseTimeout, classify.PhaseProcessing) }
func headReset() end    { return failed(classify.ConnectionReset, classify.PhaseProcessing) }
func bodyLate() end     { return failed(classify.BodyTimeout, classify.PhaseTransfer) }
func bodyCut() end      { return failed(classify.BodyInterrupted, classify.PhaseTransfer) }
func attemptLate() end  { return failed(classify.AttemptTimeout, anyPhase) }
func deadline() end     { return failed(classify.Deadline, anyPhase) }
func requestReset() end { return failed(classify.ConnectionReset, anyPhase) }
func requestLate() end  { return failed(classify.WriteTimeout, classify.PhaseRequest) }

// Changes to a request. Each shortens only the limits that its row tests.
func connectSoon(r *fetch.Request) { r.ConnectTimeout = 300 * time.Millisecond }
func headSoon(r *fetch.Request)    { r.HeaderTimeout = 300 * time.Millisecond }
func idleSoon(r *fetch.Request)    { r.IdleTimeout = 300 * time.Millisecond }
func firstSoon(r *fetch.Request) {
	r.ConnectTimeout, r.HeaderTimeout = time.Second, 500*time.Millisecond
}
func attemptSoon(r *fetch.Request) { r.AttemptTimeout = 600 * time.Millisecond }
func totalSoon(r *fetch.Request)   { r.TotalTimeout = 600 * time.Millisecond }
func upload(r *fetch.Request)      { r.Method, r.Body = "PUT", make([]byte, 1<<20) }
func uploadSoon(r *fetch.Request) {
	headSoon(r)
	r.Method, r.Body = "PUT", make([]byte, 16<<20)
}

// originRow is one toxic between the origin and the service, and how a fetch ends over
// plain HTTP/1.1, over HTTP/1.1 with TLS, and over HTTP/2.
type originRow struct {
	name           string
	toxic          toxic
	path           string
	change         func(*fetch.Request)
	plain, tls, h2 end
}

func ms(name string, n int) map[string]int { return map[string]int{name: n} }

func originRows() []originRow {
	jitter := map[string]int{"latency": 60, "jitter": 50}
	jitterLong := map[string]int{"latency": 900, "jitter": 100}
	slices := map[string]int{"average_size": 300, "size_variation": 200, "delay": 10}
	slicesUp := map[string]int{"average_size": 3, "size_variation": 2, "delay": 10}
	return []originRow{
		{"latency within the limits", toxic{"latency", down, ms("latency", 100), atOnce}, whole, nil, success(), success(), success()},
		{"latency upstream within the limits", toxic{"latency", up, ms("latency", 100), atOnce}, whole, nil, success(), success(), success()},
		{"latency over header_timeout", toxic{"latency", down, ms("latency", 800), atOnce}, short, headSoon, headLate(), headLate(), headLate()},
		{"latency upstream over header_timeout", toxic{"latency", up, ms("latency", 800), atOnce}, short, headSoon, headLate(), headLate(), headLate()},
		{"latency over connect_timeout", toxic{"latency", down, ms("latency", 800), atOnce}, short, connectSoon, end{}, connectLate(), connectLate()},
		{"latency upstream over connect_timeout", toxic{"latency", up, ms("latency", 800), atOnce}, short, connectSoon, end{}, connectLate(), connectLate()},
		{"latency over idle_timeout", toxic{"latency", down, ms("latency", 900), inBody}, drips, idleSoon, bodyLate(), bodyLate(), bodyLate()},
		{"latency over attempt_timeout", toxic{"latency", down, ms("latency", 900), atOnce}, short, attemptSoon, attemptLate(), attemptLate(), attemptLate()},
		{"latency over total_timeout", toxic{"latency", down, ms("latency", 900), atOnce}, short, totalSoon, deadline(), deadline(), deadline()},

		{"jitter within the limits", toxic{"latency", down, jitter, atOnce}, whole, nil, success(), success(), success()},
		{"jitter upstream within the limits", toxic{"latency", up, jitter, atOnce}, whole, nil, success(), success(), success()},
		{"jitter over header_timeout", toxic{"latency", down, jitterLong, atOnce}, short, headSoon, headLate(), headLate(), headLate()},

		{"bandwidth", toxic{"bandwidth", down, ms("rate", 200), atOnce}, whole, nil, success(), success(), success()},
		{"bandwidth upstream", toxic{"bandwidth", up, ms("rate", 20), atOnce}, whole, nil, success(), success(), success()},
		{"bandwidth over attempt_timeout", toxic{"bandwidth", down, ms("rate", 1), inBody}, drips, attemptSoon, attemptLate(), attemptLate(), attemptLate()},
		{"bandwidth over total_timeout", toxic{"bandwidth", down, ms("rate", 1), inBody}, drips, totalSoon, deadline(), deadline(), deadline()},
		{"bandwidth too small for the request", toxic{"bandwidth", up, ms("rate", 10), atOnce}, whole, uploadSoon, requestLate(), requestLate(), requestLate()},
		{"bandwidth too small for the handshake", toxic{"bandwidth", up, ms("rate", 1), atOnce}, short, connectSoon, end{}, connectLate(), connectLate()},

		{"slow_close", toxic{"slow_close", down, ms("delay", 200), atOnce}, whole, nil, success(), success(), success()},
		{"slow_close upstream", toxic{"slow_close", up, ms("delay", 200), atOnce}, whole, nil, success(), success(), success()},
		{"slow_close ends the body", toxic{"slow_close", down, ms("delay", 200), atOnce}, open, nil, success(), success(), success()},
		{"slow_close ends the body over idle_timeout", toxic{"slow_close", down, ms("delay", 900), atOnce}, open, idleSoon, bodyLate(), end{}, end{}},

		{"timeout for ever", toxic{"timeout", down, ms("timeout", 0), atOnce}, whole, firstSoon, headLate(), connectLate(), connectLate()},
		{"timeout upstream for ever", toxic{"timeout", up, ms("timeout", 0), atOnce}, whole, firstSoon, headLate(), connectLate(), connectLate()},
		{"timeout for ever before the head", toxic{"timeout", down, ms("timeout", 0), afterRequest}, later,
			func(r *fetch.Request) { r.HeaderTimeout = 1300 * time.Millisecond }, headLate(), headLate(), headLate()},
		{"timeout for ever in the body", toxic{"timeout", down, ms("timeout", 0), inBody}, drips, idleSoon, bodyLate(), bodyLate(), bodyLate()},
		{"timeout, then closed", toxic{"timeout", down, ms("timeout", 200), atOnce}, whole, nil, headReset(), handshake(), handshake()},
		{"timeout upstream, then closed", toxic{"timeout", up, ms("timeout", 200), atOnce}, whole, nil, headReset(), handshake(), handshake()},
		{"timeout closes later than the limits", toxic{"timeout", down, ms("timeout", 3000), atOnce}, whole, firstSoon, headLate(), connectLate(), connectLate()},
		{"timeout, then closed before the head", toxic{"timeout", down, ms("timeout", 200), afterRequest}, later, nil, headReset(), headReset(), headReset()},
		{"timeout, then closed in the body", toxic{"timeout", down, ms("timeout", 200), inBody}, stalls, nil, bodyCut(), bodyCut(), bodyCut()},

		{"reset_peer", toxic{"reset_peer", down, ms("timeout", 0), atOnce}, whole, nil, headReset(), handshake(), handshake()},
		{"reset_peer upstream", toxic{"reset_peer", up, ms("timeout", 0), atOnce}, whole, nil, requestReset(), handshake(), handshake()},
		{"reset_peer after a while", toxic{"reset_peer", down, ms("timeout", 200), atOnce}, whole, nil, headReset(), handshake(), handshake()},
		{"reset_peer upstream after a while", toxic{"reset_peer", up, ms("timeout", 200), atOnce}, whole, nil, headReset(), handshake(), handshake()},
		{"reset_peer later than the limits", toxic{"reset_peer", down, ms("timeout", 3000), atOnce}, whole, firstSoon, headLate(), connectLate(), connectLate()},
		{"reset_peer before the head", toxic{"reset_peer", down, ms("timeout", 0), afterRequest}, later, nil, headReset(), headReset(), headReset()},
		{"reset_peer in the body", toxic{"reset_peer", down, ms("timeout", 0), inBody}, drips, nil, bodyCut(), bodyCut(), bodyCut()},
		{"reset_peer in the body after a while", toxic{"reset_peer", down, ms("timeout", 200), inBody}, drips, nil, bodyCut(), bodyCut(), bodyCut()},

		{"slicer", toxic{"slicer", down, slices, atOnce}, whole, nil, success(), success(), success()},
		{"slicer upstream", toxic{"slicer", up, slicesUp, atOnce}, whole, nil, success(), success(), success()},

		{"limit_data before anything", toxic{"limit_data", down, ms("bytes", 0), atOnce}, whole, nil, headReset(), handshake(), handshake()},
		{"limit_data in the first bytes", toxic{"limit_data", down, ms("bytes", 20), atOnce}, whole, nil, headReset(), handshake(), handshake()},
		{"limit_data in the head", toxic{"limit_data", down, ms("bytes", 8000), atOnce}, bigHead, nil, headReset(), headReset(), headReset()},
		{"limit_data before the head", toxic{"limit_data", down, ms("bytes", 0), afterRequest}, later, nil, headReset(), headReset(), headReset()},
		{"limit_data in the body", toxic{"limit_data", down, ms("bytes", 30000), atOnce}, whole, nil, bodyCut(), bodyCut(), bodyCut()},
		{"limit_data beyond the body", toxic{"limit_data", down, ms("bytes", 1000000), atOnce}, whole, nil, success(), success(), success()},
		{"limit_data upstream in the first bytes", toxic{"limit_data", up, ms("bytes", 10), atOnce}, whole, nil, headReset(), handshake(), handshake()},
		{"limit_data upstream in the request's body", toxic{"limit_data", up, ms("bytes", 30000), atOnce}, whole, upload, requestReset(), requestReset(), requestReset()},
	}
}

// protocol is a listener of the origin and the expected end of a row there.
type protocol struct {
	name, listener, version string
	end                     end
}

func (row *originRow) protocols() []protocol {
	return []protocol{
		{"HTTP1", "http", "HTTP/1.1", row.plain},
		{"TLS", "https1", "HTTP/1.1", row.tls},
		{"HTTP2", "https", "HTTP/2.0", row.h2},
	}
}

// TestOriginSide checks the class of every toxic between the service and the origin.
func TestOriginSide(t *testing.T) {
	t.Parallel()
	for _, row := range originRows() {
		for _, p := range row.protocols() {
			if p.end.kind == classify.NoKind {
				continue
			}
			t.Run(row.name+"/"+p.name, func(t *testing.T) {
				t.Parallel()
				l := newLink(t, p.listener)
				r := l.request(row.path)
				r.Policy.MaxAttempts = 1
				if row.toxic.when == inBody {
					r.HoldBackBytes = 0 // the head is reported as soon as it is read
				}
				if row.change != nil {
					row.change(r)
				}
				row.toxic.prepare(l.Link)
				l.addAfterRequest(row.toxic)
				out := l.client.Fetch(t.Context(), r, func(e fetch.Event) error {
					if _, ok := e.(fetch.ResponseStarted); ok && row.toxic.when == inBody {
						l.Add(row.toxic.asLink())
					}
					return nil
				})
				l.check(out, p)
				if out.Attempts != 1 {
					t.Errorf("%d attempts, want 1", out.Attempts)
				}
			})
		}
	}
}

// link is a client, an origin, and a proxy between them.
type link struct {
	*linktest.Link
	origin *origin.Origin
	client *fetch.Client
	scheme string
}

func newLink(t *testing.T, listener string) *link {
	t.Helper()
	o := rig.Origin(t)
	l := &link{Link: linktest.New(t, o.Addr(listener)), origin: o, scheme: "https://"}
	if listener == "http" {
		l.scheme = "http://"
	}
	c, err := fetch.New(fetch.Config{RootCAs: o.CA(),
		Egress: fetch.Egress{AllowCIDRs: []netip.Prefix{netip.MustParsePrefix("127.0.0.0/8")}, AllowPorts: []uint16{l.Addr().Port()}}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Close)
	l.client = c
	return l
}

// request returns a GET of path through the proxy, with retries that do not wait.
func (l *link) request(path string) *fetch.Request {
	l.Helper()
	u, err := urls.Parse(l.scheme + l.Addr().String() + path)
	if err != nil {
		l.Fatal(err)
	}
	r := fetch.NewRequest(classify.Standard)
	r.URL, r.Policy.BaseDelay, r.Policy.MaxJitter = u, 0, 0
	return r
}

// addAfterRequest adds an afterRequest toxic once the origin has read the request.
func (l *link) addAfterRequest(x toxic) {
	if x.when != afterRequest {
		return
	}
	added := make(chan struct{})
	ctx := l.Context()
	go func() {
		defer close(added)
		if _, err := l.origin.Await(ctx, "k", 1); err == nil {
			l.Add(x.asLink())
		}
	}()
	l.Cleanup(func() { <-added })
}

// check compares an outcome with the expected end.
func (l *link) check(out *fetch.Outcome, p protocol) {
	l.Helper()
	got := end{kind: out.Kind, phase: p.end.phase}
	reason := ""
	if f := out.Failure; f != nil {
		got.class, reason = f.Class, f.Reason+" "+f.Message
		if p.end.phase != anyPhase {
			got.phase = f.Phase
		}
	}
	if got != p.end {
		l.Errorf("%s: got %s %s in phase %s (%s), want %s %s in phase %s",
			p.name, got.kind, got.class, got.phase, reason, p.end.kind, p.end.class, p.end.phase)
	}
	if out.Kind == classify.Success {
		l.checkBody(out, p)
	}
}

func (l *link) checkBody(out *fetch.Outcome, p protocol) {
	l.Helper()
	sum := sha256.Sum256(l.origin.Body(out.Body.Size))
	if want := hex.EncodeToString(sum[:]); out.Body.SHA256 != want {
		l.Errorf("%d bytes have the digest %s, want %s", out.Body.Size, out.Body.SHA256, want)
	}
	if n := out.Body.Size; n != bodyBytes && n != 100 {
		l.Errorf("the body has %d bytes, want %d or 100", n, bodyBytes)
	}
	if out.Response.Protocol != p.version {
		l.Errorf("protocol %s, want %s", out.Response.Protocol, p.version)
	}
}
