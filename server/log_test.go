package server_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/grpc/codes"

	pb "fetchd/gen/fetchd/v1"
	"fetchd/server"
)

// The keys of each line (docs/operating.md), in addition to time, level and msg.
var (
	retryKeys  = []string{"attempt", "delay_seconds", "error", "error_address", "error_url", "fetch_id", "max_attempts", "reason", "url"}
	waitKeys   = []string{"delay_seconds", "fetch_id"}
	stopKeys   = []string{"attempt", "fetch_id", "decision_rule", "stop_reason"}
	endKeys    = []string{"attempt_count", "body_bytes", "caller", "duration_seconds", "exchange_count", "fetch_id", "method", "outcome", "decision_rule", "url"}
	statusKeys = []string{"status"}
	failKeys   = []string{"error_class", "error", "error_address", "error_url", "failure_type", "reason", "retryable", "stop_reason"}
)

// TestLogs checks the log lines of whole fetches (S4).
func TestLogs(t *testing.T) {
	t.Parallel()
	retrying := func(attempt, delay float64) map[string]any {
		return map[string]any{"level": "INFO", "msg": "retrying fetch", "attempt": attempt, "max_attempts": 3.0, "delay_seconds": delay, "reason": "http_server_error", "error": "status 503 Service Unavailable", "error_status": 503.0}
	}
	waiting := func(delay float64) map[string]any {
		return map[string]any{"level": "DEBUG", "msg": "waiting before retry", "delay_seconds": delay}
	}
	const ms = 1e-3
	for _, row := range []struct {
		name, script string
		change       func(*pb.FetchRequest)
		want         []map[string]any
	}{
		{"success", "200:size=100", nil, []map[string]any{
			{"level": "INFO", "msg": "fetch finished", "method": "GET", "outcome": "success", "decision_rule": "H0", "attempt_count": 1.0, "exchange_count": 1.0, "body_bytes": 100.0, "status": 200.0, "duration_seconds": 0.0},
		}},
		{"success after a retry", "503/200:size=100", nil, []map[string]any{
			retrying(1, 200*ms), waiting(200 * ms),
			{"level": "INFO", "msg": "fetch finished", "method": "GET", "outcome": "success", "decision_rule": "H0", "attempt_count": 2.0, "exchange_count": 2.0, "body_bytes": 100.0, "status": 200.0, "duration_seconds": 200 * ms},
		}},
		{"attempts exhausted", "503", nil, []map[string]any{
			retrying(1, 200*ms), waiting(200 * ms), retrying(2, 400*ms), waiting(400 * ms),
			{"level": "DEBUG", "msg": "not retrying", "attempt": 3.0, "stop_reason": "attempts_exhausted", "decision_rule": "I4"},
			{"level": "INFO", "msg": "fetch finished", "method": "GET", "outcome": "failed", "decision_rule": "I4", "attempt_count": 3.0, "exchange_count": 3.0, "body_bytes": 0.0, "status": 503.0, "duration_seconds": 600 * ms,
				"error": "status 503 Service Unavailable", "error_status": 503.0, "error_class": "http_server_error", "failure_type": "transient", "reason": "", "stop_reason": "attempts_exhausted", "retryable": true},
		}},
		{"not retried", "404:size=5", nil, []map[string]any{
			{"level": "DEBUG", "msg": "not retrying", "attempt": 1.0, "stop_reason": "not_retried", "decision_rule": "H6"},
			{"level": "INFO", "msg": "fetch finished", "method": "GET", "outcome": "failed", "decision_rule": "H6", "attempt_count": 1.0, "exchange_count": 1.0, "body_bytes": 0.0, "status": 404.0, "duration_seconds": 0.0,
				"error": "status 404 Not Found", "error_status": 404.0, "error_class": "http_client_error", "failure_type": "permanent", "reason": "", "stop_reason": "not_retried", "retryable": false},
		}},
		{"nothing was read", "silent", func(in *pb.FetchRequest) { in.RetryPolicy = &pb.RetryPolicy{MaxAttempts: new(int32(1))} }, []map[string]any{
			{"level": "DEBUG", "msg": "not retrying", "attempt": 1.0, "stop_reason": "attempts_exhausted", "decision_rule": "I4"},
			{"level": "INFO", "msg": "fetch finished", "method": "GET", "outcome": "failed", "decision_rule": "I4", "attempt_count": 1.0, "exchange_count": 1.0, "body_bytes": 0.0, "duration_seconds": 15.0,
				"error": "response_timeout after 15s", "error_class": "response_timeout", "failure_type": "transient", "reason": "", "stop_reason": "attempts_exhausted", "retryable": true},
		}},
		{"labels and another method", "204", func(in *pb.FetchRequest) {
			in.Method, in.Body, in.Labels = "PUT", []byte(marker), map[string]string{"job": "nightly"}
		}, []map[string]any{
			{"level": "INFO", "msg": "fetch finished", "method": "PUT", "outcome": "success", "decision_rule": "H0", "attempt_count": 1.0, "exchange_count": 1.0, "body_bytes": 0.0, "status": 204.0, "duration_seconds": 0.0,
				"labels": map[string]any{"job": "nightly"}},
		}},
	} {
		t.Run(row.name, func(t *testing.T) {
			t.Parallel()
			bubble(t, func(r *rig) {
				in := r.request("/s/k/" + row.script)
				in.RetryPolicy = nil
				if row.change != nil {
					row.change(in)
				}
				a := r.mustFetch(in)
				lines := r.fetchLines(a.outcome.GetFetchId(), in.GetUrl())
				if diff := cmp.Diff(row.want, lines); diff != "" {
					r.Errorf("lines (-want +got)\n%s", diff)
				}
			})
		})
	}
}

// fetchLines returns the lines of a fetch in order, and checks their keys against the
// specification. It removes time, fetch_id and url after checking them.
func (r *rig) fetchLines(id, url string) []map[string]any {
	r.Helper()
	keys := map[string][]string{"retrying fetch": retryKeys, "waiting before retry": waitKeys, "not retrying": stopKeys, "fetch finished": endKeys}
	var lines []map[string]any
	for _, line := range r.logs.all(r.T) {
		want, ours := keys[fmt.Sprint(line["msg"])]
		if !ours {
			continue // the call's own line
		}
		if line["fetch_id"] != id {
			r.Errorf("line %v, want fetch_id %q", line, id)
		}
		if line["url"] != nil && line["url"] != url {
			r.Errorf("line %v, want url %q", line, url)
		}
		if line["msg"] == "fetch finished" {
			want = slices.Clone(want)
			for _, more := range [][]string{statusKeys, failKeys, {"labels"}} {
				if line[more[0]] != nil {
					want = append(want, more...)
				}
			}
		}
		if line["error_status"] != nil {
			want = append(slices.Clone(want), "error_status")
		}
		want = slices.Sorted(slices.Values(append([]string{"level", "msg", "time"}, want...)))
		if diff := cmp.Diff(want, slices.Sorted(maps.Keys(line))); diff != "" {
			r.Errorf("keys of %q (-want +got)\n%s", line["msg"], diff)
		}
		if failed := line["error_url"]; failed != nil && failed != url {
			r.Errorf("line %v, want error_url %q", line, url)
		}
		for _, known := range []string{"time", "fetch_id", "url", "error_url", "error_address", "caller"} {
			delete(line, known)
		}
		lines = append(lines, line)
	}
	return lines
}

// TestLogsKeepSecrets puts a marker into queries, headers and bodies of both directions. It must
// not appear in the log, at any level or kind of end.
func TestLogsKeepSecrets(t *testing.T) {
	t.Parallel()
	// Encoded, for the path itself is logged.
	hidden := "%" + "73" + marker[1:]
	for _, row := range []struct{ name, script string }{
		{"success", "200:header=X-A=" + hidden + ",body=" + hidden},
		{"retries", "503:header=X-A=" + hidden + ",body=" + hidden},
		{"not retried", "404:header=X-A=" + hidden + ",body=" + hidden},
		{"redirect", "302:to=http:%2F%2Fhttp.origin.test%2Fs%2Fl%2F200%3F" + hidden},
		{"userinfo in Location", "302:to=http:%2F%2F" + hidden + "@http.origin.test%2F"},
		{"userinfo in Location, not followed", "300:to=http:%2F%2F" + hidden + "@http.origin.test%2F"},
		{"garbage", "garbage"},
		{"bad header", "bad-header"},
	} {
		t.Run(row.name, func(t *testing.T) {
			t.Parallel()
			bubble(t, func(r *rig) {
				in := r.full("/s/k/" + row.script)
				in.Url += "?" + marker + "#" + marker
				in.Integrity, in.RetryPolicy.IdempotencyKey, in.RetryPolicy.AllowNonIdempotent = nil, marker, true
				in.Precondition.Etags = []string{`"` + marker + `"`}
				if seen := r.mustFetch(in); seen.outcome.GetExchangeCount() == 0 {
					r.Error("nothing was sent")
				}
				r.mustUnary(in)
				if sent := r.Origin.Requests("k")[0]; !strings.Contains(sent.Query, marker) || sent.Header.Get("X-B") != marker {
					r.Errorf("the origin saw %v: the marker was not sent", sent)
				}
				if log := r.logs.String(); strings.Contains(log, marker) {
					r.Errorf("the log contains %q:\n%s", marker, log)
				}
			})
		})
	}
}

// logs collects what a JSON handler writes.
type logs struct {
	mu   sync.Mutex
	text []byte
	more chan struct{}
}

// Write implements io.Writer.
func (l *logs) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.text = append(l.text, p...)
	select {
	case l.more <- struct{}{}:
	default:
	}
	return len(p), nil
}

func (l *logs) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return string(l.text)
}

// all returns every line.
func (l *logs) all(t *testing.T) []map[string]any {
	t.Helper()
	var found []map[string]any
	for raw := range bytes.Lines([]byte(l.String())) {
		var line map[string]any
		if err := json.Unmarshal(raw, &line); err != nil {
			t.Fatalf("log line %q: %v", raw, err)
		}
		found = append(found, line)
	}
	return found
}

// lines returns the lines with that message.
func (l *logs) lines(t *testing.T, msg string) []map[string]any {
	t.Helper()
	return slices.DeleteFunc(l.all(t), func(line map[string]any) bool { return line["msg"] != msg })
}

// await returns the lines with that message once there are n.
func (l *logs) await(t *testing.T, msg string, n int) []map[string]any {
	t.Helper()
	for {
		if found := l.lines(t, msg); len(found) >= n {
			return found
		}
		select {
		case <-l.more:
		case <-t.Context().Done():
			t.Fatalf("no %d log lines %q", n, msg)
		}
	}
}

// TestLogNamesCallers checks that the line of each fetch, and of each call over gRPC and HTTP, has the
// name of its caller.
func TestLogNamesCallers(t *testing.T) {
	t.Parallel()
	bubble(t, func(r *rig) {
		ctx := as(r.Context(), "a")
		r.fetch(ctx, r.request("/s/k/200"))
		if _, err := r.Client.FetchUnary(ctx, r.request("/s/k/200")); err != nil {
			r.Error(err)
		}
		m := r.many(ctx)
		invalid := r.task("2", "/s/k/200")
		invalid.Request.Url = "x"
		m.start(r.task("1", "/s/k/200"), invalid)
		m.finish("1", "2")
		resp := r.post(r.Context(), "/v1/fetch:unary", r.json(r.request("/s/k/200")), bearer("a"))
		_, _ = io.Copy(io.Discard, resp.Body) // the status is enough
		synctest.Wait()
		for _, want := range []struct {
			msg   string
			lines int
		}{{"fetch finished", 5}, {"finished call", 4}} {
			lines := r.logs.lines(r.T, want.msg)
			if len(lines) != want.lines {
				r.Errorf("%d lines %q, want %d", len(lines), want.msg, want.lines)
			}
			for _, line := range lines {
				if line["caller"] != "alice" {
					r.Errorf("line %v, want the caller alice", line)
				}
			}
		}
	}, newRoster().change)
}

// TestLogSumsUpRejections checks that calls over a limit, and invalid ones, have one line a second
// for each caller and reason, and those of strangers one together.
func TestLogSumsUpRejections(t *testing.T) {
	t.Parallel()
	bubble(t, func(r *rig) {
		held := r.beginBy(func(r *rig, ctx context.Context, in *pb.FetchRequest) *answer { return r.fetch(as(ctx, "a"), in) }, r.request("/s/held/200:delay=5s"))
		r.awaitRequest("held")
		for range 100 {
			for _, token := range []string{"a", "b"} {
				_, err := r.Client.FetchUnary(as(r.Context(), token), r.request("/s/k/200"))
				wantCode(r.T, "over the limit", err, codes.ResourceExhausted)
				resp := r.post(r.Context(), "/v1/fetch:unary", r.json(r.request("/s/k/200")), bearer(token))
				r.wantStatus(resp, http.StatusTooManyRequests, codes.ResourceExhausted, "")
			}
			_, err := r.Client.FetchUnary(as(r.Context(), "a"), &pb.FetchRequest{})
			wantCode(r.T, "invalid", err, codes.InvalidArgument)
			r.wantStatus(r.post(r.Context(), "/v1/fetch:unary", "{", bearer("b")), http.StatusBadRequest, codes.InvalidArgument, "")
			_, err = r.Client.FetchUnary(r.Context(), &pb.FetchRequest{}) // a stranger
			wantCode(r.T, "no token", err, codes.Unauthenticated)
		}
		<-held.ended
		var got []string
		for _, line := range r.logs.all(r.T) {
			if line["msg"] == "calls rejected" && line["error"] == nil {
				r.Errorf("no error in %v", line)
			}
			if line["level"] != "DEBUG" {
				got = append(got, fmt.Sprintln(line["msg"], line["caller"], line["reason"], line["count"]))
			}
		}
		if diff := cmp.Diff([]string{"calls rejected alice InvalidArgument 100\n", "calls rejected alice TOO_MANY_FETCHES 200\n",
			"calls rejected bob InvalidArgument 100\n", "calls rejected bob TOO_MANY_FETCHES 200\n", "calls rejected other UNAUTHENTICATED 100\n", "fetch finished alice <nil> <nil>\n"}, got); diff != "" {
			r.Errorf("lines at INFO (-want +got)\n%s", diff)
		}
	}, func(c *server.Config) { c.MaxFetches = 1 }, newRoster().change)
}

// bearer sets the token of a request.
func bearer(token string) func(*http.Request) {
	return func(r *http.Request) { r.Header.Set("Authorization", "Bearer "+token) }
}

// TestLogOfLastRejections checks that a shutdown does not wait for the lines of rejected calls, and
// writes them.
func TestLogOfLastRejections(t *testing.T) {
	t.Parallel()
	bubble(t, func(r *rig) {
		_, err := r.Client.FetchUnary(r.Context(), &pb.FetchRequest{})
		wantCode(r.T, "invalid", err, codes.InvalidArgument)
		began := time.Now()
		if err := r.Service.Shutdown(r.Context()); err != nil {
			r.Error(err)
		}
		if lines := r.logs.lines(r.T, "calls rejected"); len(lines) != 1 || time.Since(began) >= time.Second {
			r.Errorf("after %s: %v", time.Since(began), lines)
		}
	})
}
