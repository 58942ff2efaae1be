package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/encoding/protojson"

	"fetchd/conformance/origin"
	pb "fetchd/gen/fetchd/v1"
	"fetchd/internal/cli"
	"fetchd/test/rig"
)

// drainMargin is how long after the drain time the process may be there. The goal is
// 1 s; a busy machine gets more.
const drainMargin = 10 * time.Second

// drainWay makes fetches of a script of the origin, under the keys k0, k1, ..., and sends
// their ends to ends.
type drainWay func(p *process, o *origin.Origin, script string, ends chan<- drained)

// drained is the end of a fetch, as its caller saw it.
type drained struct {
	outcome *pb.FetchOutcome
	err     error
	at      time.Time
}

var drainWays = map[string]drainWay{
	"Fetch":      eachFetch(drainFetch),
	"FetchUnary": eachFetch(drainUnary),
	"FetchMany":  drainMany,
	"HTTP stream": eachFetch(func(p *process, _ pb.FetchServiceClient, in *pb.FetchRequest) (*pb.FetchOutcome, error) {
		return p.overHTTP("/v1/fetch", in)
	}),
	"HTTP unary": eachFetch(func(p *process, _ pb.FetchServiceClient, in *pb.FetchRequest) (*pb.FetchOutcome, error) {
		return p.overHTTP("/v1/fetch:unary", in)
	}),
}

// drainFetches are the fetches of a row.
const drainFetches = 32

// TestDrain: fetches that outlast --drain-time end as SHUTDOWN, and the process is gone
// soon after. Those that wait for a token, or for a slot, end at once.
func TestDrain(t *testing.T) {
	const drain = time.Second
	for _, row := range []struct {
		name     string
		args     []string
		script   string
		token    bool // the fetches wait for a token that does not come
		inFlight int
		code     int
		least    time.Duration // after SIGTERM
		only     string        // way
	}{
		{name: "no answer comes", script: "silent", inFlight: drainFetches, code: cli.ExitFailed, least: drain / 2},
		{name: "the body does not end", script: "200:size=100000,drip=1@100ms", inFlight: drainFetches, code: cli.ExitFailed, least: drain / 2},
		{name: "no token comes", script: "200", token: true, inFlight: drainFetches, code: cli.ExitOK},
		{name: "no slot is free", args: []string{"--max-fetches", "1"}, script: "silent", inFlight: 1, code: cli.ExitFailed, only: "FetchMany"},
	} {
		for name, way := range drainWays {
			if row.only != "" && row.only != name {
				continue
			}
			t.Run(row.name+", "+name, func(t *testing.T) {
				t.Parallel()
				o := rig.Origin(t)
				args := append(open(o), "--drain-time", drain.String())
				provider := ""
				if row.token {
					args, provider = append(args, "--origins-file", stuckTokens(t, o)), "stuck"
				}
				p := startProcess(t, append(args, row.args...)...)
				p.provider = provider
				ends := make(chan drained, drainFetches)
				go func() {
					defer close(ends)
					way(p, o, row.script, ends)
				}()
				p.awaitMetric("fetchd_fetches_in_flight", fmt.Sprint(row.inFlight))
				for i := range row.inFlight {
					if row.token {
						break // nothing is sent
					}
					if _, err := o.Await(t.Context(), fmt.Sprintf("k%d", i), 1); err != nil {
						t.Fatal(err)
					}
				}
				clock, asked := rig.StartClock(t), time.Now()
				p.signal(syscall.SIGTERM)
				state := p.end()
				gone := time.Since(asked)
				first, last := p.wantShutdown(clock, asked, ends)
				t.Logf("outcomes came %v to %v after SIGTERM, the process was gone after %v, with --drain-time %v",
					first.Round(time.Millisecond), last.Round(time.Millisecond), gone.Round(time.Millisecond), drain)
				if state.ExitCode() != row.code {
					t.Errorf("%v, want exit code %d", state, row.code)
				}
				if first < row.least && last > 0 || gone > drain+drainMargin {
					t.Errorf("outcomes from %s on, gone after %s; want them after %s, and %s at most", first, gone, row.least, drain+drainMargin)
				}
			})
		}
	}
}

// wantShutdown expects outcomes SHUTDOWN, and returns how long after asked the first and
// the last came. On a machine without CPU time left, the callers may read theirs too late: they are
// disconnected 250 ms after the drain time.
func (p *process) wantShutdown(clock *rig.Clock, asked time.Time, ends <-chan drained) (first, last time.Duration) {
	p.Helper()
	outcomes, late := 0, 0
	for d := range ends {
		e := d.outcome.GetError()
		if d.err != nil && clock.Busy() {
			late++
			continue
		}
		if d.err != nil || e.GetErrorClass() != pb.ErrorClass_ERROR_CLASS_SHUTDOWN || !e.GetRetryable() || e.GetRule() != "P5" {
			p.Errorf("a fetch ended with %v, %v; want SHUTDOWN, retryable, by P5", d.err, d.outcome)
			continue
		}
		took := d.at.Sub(asked)
		if last = max(last, took); outcomes == 0 || took < first {
			first = took
		}
		outcomes++
	}
	if outcomes+late != drainFetches {
		p.Errorf("%d outcomes and %d that were read too late, want %d", outcomes, late, drainFetches)
	}
	return first, last
}

// stuckTokens writes an --origins-file whose provider "stuck" waits for a token.
func stuckTokens(t *testing.T, o *origin.Origin) string {
	t.Helper()
	left := make(chan struct{})
	endpoint := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		select {
		case <-r.Context().Done():
		case <-left:
		}
	}))
	t.Cleanup(endpoint.Close)
	t.Cleanup(func() { close(left) })
	return newFolder(t).write("origins.yaml", fmt.Appendf(nil, "providers: {stuck: {origins: ['%s'], client: {token-url: '%s', id: a, secret: b}}}\n",
		strings.TrimSuffix(o.URL("http", "/"), "/"), endpoint.URL))
}

// eachFetch makes a call for each fetch.
func eachFetch(call func(*process, pb.FetchServiceClient, *pb.FetchRequest) (*pb.FetchOutcome, error)) drainWay {
	return func(p *process, o *origin.Origin, script string, ends chan<- drained) {
		client := p.dial()
		var all sync.WaitGroup
		defer all.Wait()
		for i := range drainFetches {
			all.Go(func() {
				outcome, err := call(p, client, p.request(o, i, script))
				ends <- drained{outcome, err, time.Now()}
			})
		}
	}
}

func (p *process) request(o *origin.Origin, i int, script string) *pb.FetchRequest {
	return &pb.FetchRequest{Url: o.URL("http", fmt.Sprintf("/s/k%d/%s", i, script)), AuthProvider: p.provider}
}

func (p *process) dial() pb.FetchServiceClient {
	return pb.NewFetchServiceClient(rig.Dial(p, p.grpc))
}

func drainFetch(p *process, client pb.FetchServiceClient, in *pb.FetchRequest) (*pb.FetchOutcome, error) {
	stream, err := client.Fetch(p.Context(), in)
	var outcome *pb.FetchOutcome
	for err == nil {
		var m *pb.FetchResponse
		if m, err = stream.Recv(); err == nil {
			outcome = m.GetOutcome()
		}
	}
	if errors.Is(err, io.EOF) {
		err = nil
	}
	return outcome, err
}

func drainUnary(p *process, client pb.FetchServiceClient, in *pb.FetchRequest) (*pb.FetchOutcome, error) {
	out, err := client.FetchUnary(p.Context(), &pb.FetchUnaryRequest{Request: in})
	return out.GetOutcome(), err
}

// drainMany makes all fetches on one stream, which it does not half-close.
func drainMany(p *process, o *origin.Origin, script string, ends chan<- drained) {
	stream, err := p.dial().FetchMany(p.Context())
	if err == nil {
		in := new(pb.FetchManyRequest)
		for i := range drainFetches {
			in.Tasks = append(in.Tasks, &pb.Task{Tag: fmt.Sprint(i), Request: p.request(o, i, script)})
		}
		err = stream.Send(in)
	}
	for err == nil {
		var m *pb.FetchManyResponse
		if m, err = stream.Recv(); err != nil {
			break
		}
		for _, r := range m.GetResponses() {
			if outcome := r.GetResponse().GetOutcome(); outcome != nil {
				ends <- drained{outcome, nil, time.Now()}
			}
		}
	}
	if status.Code(err) != codes.Unavailable {
		p.Errorf("the stream ended with %v, want UNAVAILABLE", err)
	}
}

// overHTTP reads a JSON answer to its end; the outcome is in its last line.
func (p *process) overHTTP(path string, in *pb.FetchRequest) (*pb.FetchOutcome, error) {
	text, err := protojson.Marshal(in)
	if err != nil {
		return nil, err
	}
	_, answer, err := ask(p.Context(), nil, p.http, path, string(text))
	if err != nil {
		return nil, err
	}
	if path == "/v1/fetch:unary" {
		out := new(pb.FetchUnaryResponse)
		err := protojson.Unmarshal([]byte(answer), out)
		return out.GetOutcome(), err
	}
	var last *pb.FetchOutcome
	for line := range strings.Lines(answer) {
		m := new(pb.FetchResponse)
		if err := protojson.Unmarshal([]byte(line), m); err != nil {
			return nil, fmt.Errorf("line %q: %w", line, err)
		}
		last = m.GetOutcome()
	}
	return last, nil
}

// TestDrainOfIdleConnections: connections without a call do not hold the process, which
// is gone after half a second. It fails after ten times that.
func TestDrainOfIdleConnections(t *testing.T) {
	for _, row := range []string{"", "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\x00\x00\x00\x04\x00\x00\x00\x00\x00", "POST /v1/fetch"} {
		t.Run(fmt.Sprintf("%.8q is sent", row), func(t *testing.T) {
			t.Parallel()
			p := startProcess(t, "--drain-time", "1h")
			for _, address := range []string{p.grpc, p.http} {
				conn, err := new(net.Dialer).DialContext(t.Context(), "tcp", address)
				if err != nil {
					t.Fatal(err)
				}
				defer func() { _ = conn.Close() }()
				if _, err := io.WriteString(conn, row); err != nil {
					t.Fatal(err)
				}
			}
			p.ask("/healthz", "") // the connections before it are taken
			asked := time.Now()
			p.signal(syscall.SIGTERM)
			ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
			defer cancel()
			defer context.AfterFunc(ctx, func() { p.signal(syscall.SIGKILL) })()
			if state := p.end(); state.ExitCode() != cli.ExitOK {
				t.Errorf("%v, want exit code 0", state)
			}
			t.Logf("gone %s after SIGTERM", time.Since(asked).Round(time.Millisecond))
		})
	}
}
