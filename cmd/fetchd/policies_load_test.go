package main

import (
	"context"
	"crypto/tls"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/durationpb"

	"fetchd/client"
	pb "fetchd/gen/fetchd/v1"
)

// The load of TestPoliciesUnderLoad.
const (
	openFetches = 1000
	workers     = 8
	changeEvery = 100 * time.Millisecond
	changes     = 30
	// A slow machine makes fewer changes.
	fewChanges = 10
	enoughTime = 10 * time.Second
)

// TestPoliciesUnderLoad replaces the file of policies again and again, while fetches are open and others come all the
// time. One version permits a method and a port, the other permits another method and another port. So a call that saw
// half of each would do what neither permits, or fail for a reason that neither gives.
func TestPoliciesUnderLoad(t *testing.T) {
	t.Parallel()
	f, ca := newFolder(t), newAuthority(t)
	o := newSlowOrigin(t, ca)
	l := &loaded{T: t, origin: o, folder: f}
	l.replace("a")
	l.service = start(t, "--egress-allow-cidr", "127.0.0.0/8", "--egress-allow-port", o.ports["a"]+","+o.ports["b"], "--egress-ca-file", f.write("ca.pem", ca.pem),
		"--max-fetches", "3000", "--policies-file", f.path("policies.yaml"))
	l.client = l.service.dial(nil)
	l.checkCurrent()
	var running sync.WaitGroup
	ended := make(chan *slowFetch, openFetches)
	for i := range 4 {
		running.Go(func() { l.open(i, ended) })
	}
	for range openFetches {
		<-o.arrived
	}
	stop := make(chan struct{})
	began := time.Now()
	for i := range workers {
		running.Go(func() { l.call(i, stop) })
	}
	changed := l.change()
	took := time.Since(began)
	close(stop)
	t.Logf("%d fetches open, %d changes of the file, %.0f calls a second", openFetches, changed, float64(l.calls.Load())/took.Seconds())
	for _, version := range []string{"a", "b"} {
		if l.version != version {
			l.replace(version)
			l.reloadTo(version)
		}
		close(o.release[version])
		for range openFetches / 2 {
			l.checkOpen(<-ended)
		}
	}
	running.Wait()
	for _, wrong := range o.takeWrong() {
		t.Error(wrong)
	}
}

// slowOrigin has two ports, and requests that wait. It records requests that no version of the policies permits.
type slowOrigin struct {
	ports   map[string]string
	arrived chan struct{}
	release map[string]chan struct{} // by the version that is in force then

	mu    sync.Mutex
	wrong []string
}

// permittedMethods are those that the versions permit.
var permittedMethods = map[string]string{"a": http.MethodGet, "b": http.MethodHead}

func newSlowOrigin(t *testing.T, ca *authority) *slowOrigin {
	t.Helper()
	pair, err := tls.X509KeyPair(ca.sign(wish{}))
	must(t, err)
	o := &slowOrigin{ports: make(map[string]string), arrived: make(chan struct{}, openFetches), release: map[string]chan struct{}{"a": make(chan struct{}), "b": make(chan struct{})}}
	for _, version := range []string{"a", "b"} {
		// Over HTTP/2, all fetches share a connection: the process may have few files.
		site := &http.Server{Handler: o.handler(version), ErrorLog: slog.NewLogLogger(slog.DiscardHandler, slog.LevelError), HTTP2: &http.HTTP2Config{MaxConcurrentStreams: 2 * openFetches},
			TLSConfig: &tls.Config{Certificates: []tls.Certificate{pair}, NextProtos: []string{"h2"}}}
		var listen net.ListenConfig
		l, err := listen.Listen(t.Context(), "tcp4", "127.0.0.1:0")
		must(t, err)
		_, o.ports[version], err = net.SplitHostPort(l.Addr().String())
		must(t, err)
		served := make(chan struct{})
		go func() {
			defer close(served)
			_ = site.ServeTLS(l, "", "")
		}()
		t.Cleanup(func() {
			_ = site.Close()
			<-served
		})
	}
	return o
}

// handler answers at the port of a version. A request for /slow/RELEASE/TO waits, and is redirected to a port.
func (o *slowOrigin) handler(version string) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		if r.Method != permittedMethods[version] {
			o.mu.Lock()
			o.wrong = append(o.wrong, fmt.Sprintf("the origin saw %s %s at the port of version %s", r.Method, r.URL, version))
			o.mu.Unlock()
		}
		path := strings.Split(r.URL.Path, "/")
		if path[1] != "slow" {
			return
		}
		o.arrived <- struct{}{}
		select {
		case <-o.release[path[2]]:
			http.Redirect(w, r, o.url(path[3], "/end"), http.StatusFound)
		case <-r.Context().Done():
		}
	}
}

func (o *slowOrigin) url(version, path string) string {
	return "https://127.0.0.1:" + o.ports[version] + path
}

func (o *slowOrigin) takeWrong() []string {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.wrong
}

// loaded is a service under load, and the version of its policies.
type loaded struct {
	*testing.T
	service *service
	folder  *folder
	origin  *slowOrigin
	client  pb.FetchServiceClient
	version string
	calls   atomic.Int64
}

// text returns a version of the file. Its limits show too which version a call has seen.
func (l *loaded) text(version string) string {
	limits := map[string]int{"a": 2, "b": 3}[version]
	return fmt.Sprintf("policies:\n  %s:\n    egress: {allow-addresses: [127.0.0.1], ports: [%s]}\n    request: {methods: [%s], max-attempts: %d, max-redirects: %d}\ndefault: %s\n",
		version, l.origin.ports[version], permittedMethods[version], limits, limits, version)
}

// replace writes a version.
func (l *loaded) replace(version string) {
	l.Helper()
	l.folder.write("policies.yaml", []byte(l.text(version)))
	l.version = version
}

// reloadTo lets the service find a version, and checks that it is in force.
func (l *loaded) reloadTo(version string) {
	l.Helper()
	l.service.look <- time.Time{}
	if line := l.service.await("reloaded"); !strings.Contains(line, `"changed":["policies-file"]`) {
		l.Errorf("version %s: log line %s", version, line)
	}
	l.checkCurrent()
}

// change replaces the file, sometimes by a broken one. It returns how often.
func (l *loaded) change() (changed int) {
	l.Helper()
	a := l.text("a")
	broken := []struct{ text, fault string }{
		{"policies:\n  a:\n    egres: {}\ndefault: a\n", `policies.yaml:3: unknown key`},
		{a[:strings.Index(a, "default")], `policies.yaml:1: default: is missing`},
		{strings.Replace(a, "default: a", "default: b", 1), `policies.yaml:5: default: is \"b\"`},
		{a[:strings.Index(a, "]}")], `policies.yaml:`},
		{"", `policies.yaml:1: is empty`},
	}
	tick := time.NewTicker(changeEvery)
	defer tick.Stop()
	began := time.Now()
	for i := 0; i < fewChanges || i < changes && time.Since(began) < enoughTime; i++ {
		<-tick.C
		changed++
		if i%3 == 2 {
			one := broken[i/3%len(broken)]
			l.folder.write("policies.yaml", []byte(one.text))
			l.service.look <- time.Time{}
			if line := l.service.await("reloaded"); !strings.Contains(line, "not reloaded: everything stays as it was") || !strings.Contains(line, one.fault) {
				l.Errorf("a broken file: log line %s, want %s", line, one.fault)
			}
			l.checkCurrent()
			continue
		}
		next := map[string]string{"a": "b", "b": "a"}[l.version]
		l.replace(next)
		l.reloadTo(next)
	}
	return changed
}

// probe is a short fetch: a method and the version whose port it is for. ends are how it may end, for each version
// that the call may have seen at its start.
type probe struct {
	method, port string
	ends         map[string][]string
}

// probes are all methods and ports. A call that began under version a may have been judged by b too, and so the other
// way round.
var probes = []probe{
	{http.MethodGet, "a", map[string][]string{"a": {"success 2 2", "blocked b port_not_allowed"}, "b": {"denied b method"}}},
	{http.MethodGet, "b", map[string][]string{"a": {"blocked a port_not_allowed"}, "b": {"denied b method"}}},
	{http.MethodHead, "a", map[string][]string{"a": {"denied a method"}, "b": {"blocked b port_not_allowed"}}},
	{http.MethodHead, "b", map[string][]string{"a": {"denied a method"}, "b": {"success 3 3", "blocked a port_not_allowed"}}},
}

// fetch runs a probe, and returns how it ended.
func (l *loaded) fetch(p *probe) string {
	resp, err := l.client.FetchUnary(l.Context(), &pb.FetchRequest{Method: p.method, Url: l.origin.url(p.port, "/")})
	if err != nil {
		var policy, field string
		for _, detail := range status.Convert(err).Details() {
			switch d := detail.(type) {
			case *errdetails.ErrorInfo:
				policy = d.GetMetadata()["policy"]
			case *errdetails.BadRequest:
				for _, v := range d.GetFieldViolations() {
					field += " " + v.GetField()
				}
			}
		}
		if codeOf(err) != codes.PermissionDenied {
			return fmt.Sprint(err)
		}
		return "denied " + policy + field
	}
	return endOf(resp.GetOutcome(), resp.GetEffectiveRequest())
}

// endOf returns how a fetch ended. in may be nil.
func endOf(o *pb.FetchOutcome, in *pb.FetchRequest) string {
	failed := o.GetError()
	switch {
	case failed.GetErrorClass() == pb.ErrorClass_ERROR_CLASS_TARGET_BLOCKED:
		return "blocked " + failed.GetPolicy() + " " + failed.GetReason()
	case failed != nil:
		return failed.String()
	case in == nil:
		return "success"
	}
	return fmt.Sprintf("success %d %d", in.GetRetryPolicy().GetMaxAttempts(), in.GetRedirectPolicy().GetMaxRedirects())
}

// checkCurrent runs the probes while nothing changes.
func (l *loaded) checkCurrent() {
	l.Helper()
	for i := range probes {
		p := &probes[i]
		if got, want := l.fetch(p), p.ends[l.version][0]; got != want {
			l.Errorf("version %s, %s to port %s: %s, want %s", l.version, p.method, p.port, got, want)
		}
	}
}

// call runs probes until stop.
func (l *loaded) call(first int, stop <-chan struct{}) {
	for i := first; ; i++ {
		select {
		case <-stop:
			return
		default:
		}
		p := &probes[i%len(probes)]
		l.calls.Add(1)
		if got := l.fetch(p); !slices.Contains(slices.Concat(p.ends["a"], p.ends["b"]), got) {
			l.Errorf("%s to port %s: %s, want one of %v", p.method, p.port, got, p.ends)
		}
	}
}

// slowFetch is one of the open fetches: when it is released, and the port that it is redirected to.
type slowFetch struct {
	release, to string
	end         string
}

// open runs a quarter of the open fetches, which begin under version a.
func (l *loaded) open(part int, ended chan<- *slowFetch) {
	long := durationpb.New(10 * time.Minute)
	byRequest := make(map[*pb.FetchRequest]*slowFetch)
	var all []*pb.FetchRequest
	for i := range openFetches / 4 {
		one := &slowFetch{release: []string{"a", "b"}[i%2], to: []string{"a", "b"}[i/2%2]}
		in := &pb.FetchRequest{Url: l.origin.url("a", fmt.Sprintf("/slow/%s/%s/%d", one.release, one.to, part)),
			TimeoutPolicy: &pb.TimeoutPolicy{TotalTimeout: long, AttemptTimeout: long, HeaderTimeout: long}}
		all, byRequest[in] = append(all, in), one
	}
	for result, err := range client.Wrap(l.client).Many(context.WithoutCancel(l.Context()), slices.Values(all), client.ManyOptions{Open: len(all)}) {
		if result == nil {
			l.Error(err)
			return
		}
		one := byRequest[result.Request]
		one.end = endOf(result.Outcome, nil)
		ended <- one
	}
}

// checkOpen checks the end of an open fetch: its old policy a permits one port, and the policy at its release must
// permit it too.
func (l *loaded) checkOpen(one *slowFetch) {
	l.Helper()
	want := "success"
	switch {
	case one.to == "b":
		want = "blocked a port_not_allowed"
	case one.release == "b":
		want = "blocked b port_not_allowed"
	}
	if one.end != want {
		l.Errorf("a fetch that began under a, and was redirected to the port of %s under %s: %s, want %s", one.to, one.release, one.end, want)
	}
}
