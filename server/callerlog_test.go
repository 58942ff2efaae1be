package server_test

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/grpc/codes"

	pb "fetchd/gen/fetchd/v1"
	"fetchd/server"
)

// TestLogNamesCallers checks that the line of each fetch, and of each call over gRPC and HTTP, has the
// name of its caller.
func TestLogNamesCallers(t *testing.T) {
	t.Parallel()
	bubble(t, func(r *rig) {
		ctx := as(r.Context(), "a")
		r.fetch(ctx, r.request("/s/k/200"))
		if _, err := r.Client.FetchUnary(ctx, &pb.FetchUnaryRequest{Request: r.request("/s/k/200")}); err != nil {
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
// for each caller and reason.
func TestLogSumsUpRejections(t *testing.T) {
	t.Parallel()
	bubble(t, func(r *rig) {
		held := r.beginBy(func(r *rig, ctx context.Context, in *pb.FetchRequest) *answer { return r.fetch(as(ctx, "a"), in) }, r.request("/s/held/200:delay=5s"))
		r.awaitRequest("held")
		for range 100 {
			for _, token := range []string{"a", "b"} {
				_, err := r.Client.FetchUnary(as(r.Context(), token), &pb.FetchUnaryRequest{Request: r.request("/s/k/200")})
				wantCode(r.T, "over the limit", err, codes.ResourceExhausted)
				resp := r.post(r.Context(), "/v1/fetch:unary", r.json(r.request("/s/k/200")), bearer(token))
				r.wantStatus(resp, http.StatusTooManyRequests, codes.ResourceExhausted, "")
			}
			_, err := r.Client.FetchUnary(as(r.Context(), "a"), &pb.FetchUnaryRequest{})
			wantCode(r.T, "invalid", err, codes.InvalidArgument)
			_, err = r.Client.FetchUnary(r.Context(), &pb.FetchUnaryRequest{}) // a stranger
			wantCode(r.T, "no token", err, codes.Unauthenticated)
		}
		<-held.ended
		var got []string
		for _, line := range r.logs.all(r.T) {
			if line["level"] != "DEBUG" {
				got = append(got, fmt.Sprintln(line["msg"], line["caller"], line["reason"], line["count"]))
			}
		}
		if diff := cmp.Diff([]string{"calls rejected alice InvalidArgument 100\n", "calls rejected alice TOO_MANY_FETCHES 200\n",
			"calls rejected bob TOO_MANY_FETCHES 200\n", "fetch finished alice <nil> <nil>\n"}, got); diff != "" {
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
		_, err := r.Client.FetchUnary(r.Context(), &pb.FetchUnaryRequest{})
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
