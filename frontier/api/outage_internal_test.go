package api

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"fetchd/frontier/outage"
	"fetchd/frontier/store"
	pb "fetchd/gen/frontier/v1"
	"fetchd/test/must"
)

// awayStore is a store whose database may be away.
type awayStore struct {
	store.Store
	away atomic.Bool
}

func (s *awayStore) err() error {
	if s.away.Load() {
		return errors.New("connection refused")
	}
	return nil
}

func (s *awayStore) Reap(context.Context) (int64, error)    { return 0, s.err() }
func (s *awayStore) Recrawl(context.Context) (int64, error) { return 0, s.err() }
func (s *awayStore) Pause(context.Context, string) error    { return s.err() }

// TestOutage checks that a database that is away for a minute has two lines in the log, and that each call gets
// its error.
func TestOutage(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var log bytes.Buffer
		s := new(awayStore)
		server, err := New(Config{Store: s, Logger: slog.New(slog.NewTextHandler(&log, nil))})
		must.Succeed(t, err)
		call := func() int {
			rec := httptest.NewRecorder()
			req := httptest.NewRequestWithContext(t.Context(), http.MethodPost, "http://127.0.0.1/v1/pause", strings.NewReader("{}"))
			req.Header.Set("Content-Type", "application/json")
			server.web.Handler.ServeHTTP(rec, req)
			<-time.After(time.Second)
			return rec.Code
		}
		wants := func(n, code int) {
			t.Helper()
			for range n {
				if got := call(); got != code {
					t.Fatalf("a call got %d, want %d", got, code)
				}
			}
		}
		wants(1, http.StatusOK)
		s.away.Store(true)
		wants(60, http.StatusServiceUnavailable)
		server.CannotCount(s.err())
		s.away.Store(false)
		wants(int((outage.Calm+reapEvery)/time.Second), http.StatusOK)
		if err := server.Shutdown(t.Context()); err != nil {
			t.Error(err)
		}
		var lines []string
		for line := range strings.Lines(log.String()) {
			_, line, _ = strings.Cut(line, " ") // the time
			line, _, _ = strings.Cut(line, " duration_seconds")
			lines = append(lines, strings.TrimSpace(line))
		}
		want := `level=ERROR msg="cannot use the database" error="connection refused"
level=INFO msg="the database works again" errors=73`
		if got := strings.Join(lines, "\n"); got != want {
			t.Errorf("the log is\n%s\nwant\n%s", got, want)
		}
	})
}

// partStore is a store that claims and records only a part.
type partStore struct{ *awayStore }

func (partStore) Claim(context.Context, store.ClaimParams) ([]store.Claim, error) {
	return []store.Claim{{Lease: store.Lease{ID: 1, Token: 2}, URL: "http://a.test/"}}, errors.New("the others")
}

func (partStore) RecordFetch(context.Context, []store.Fetch) ([]error, error) {
	return []error{nil, store.ErrStale, errors.New("no normal form")}, nil
}

// TestRecordWithError checks that a caller sees which outcomes were recorded.
func TestRecordWithError(t *testing.T) {
	t.Parallel()
	server, err := New(Config{Store: partStore{new(awayStore)}, Logger: slog.New(slog.DiscardHandler)})
	must.Succeed(t, err)
	in := &pb.RecordRequest{}
	for i := range 3 {
		in.Outcomes = append(in.Outcomes, &pb.Outcome{Lease: &pb.Lease{Id: int64(i + 1), Token: 1}, Status: pb.Status_STATUS_FETCHED, AttemptCount: 1})
	}
	out, err := server.service.record(t.Context(), in)
	want := []pb.RecordResult{pb.RecordResult_RECORD_RESULT_RECORDED, pb.RecordResult_RECORD_RESULT_STALE, pb.RecordResult_RECORD_RESULT_INVALID}
	if err != nil || !slices.Equal(out.GetResults(), want) {
		t.Errorf("record = %v, %v, want %v", out.GetResults(), err, want)
	}
	if err := server.Shutdown(t.Context()); err != nil {
		t.Error(err)
	}
}

// TestClaimWithError checks that a caller gets the URLs that were claimed before an error.
func TestClaimWithError(t *testing.T) {
	t.Parallel()
	var log bytes.Buffer
	server, err := New(Config{Store: partStore{new(awayStore)}, Logger: slog.New(slog.NewTextHandler(&log, nil))})
	must.Succeed(t, err)
	claims, done, err := server.service.claimNow(t.Context(), claimParams{})
	if err != nil || done || len(claims) != 1 {
		t.Errorf("claimNow = %v, %v, %v, want one claim", claims, done, err)
	}
	if err := server.Shutdown(t.Context()); err != nil { // nothing writes to the log any more
		t.Error(err)
	}
	if !strings.Contains(log.String(), `error="the others"`) {
		t.Errorf("the log has no error: %s", log.String())
	}
}
