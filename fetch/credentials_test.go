package fetch_test

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/url"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"fetchd/classify"
	"fetchd/fetch"
	"fetchd/fetch/auth"
)

// tokens is an endpoint that issues t1, t2, ... to a provider for the listeners of an origin.
type tokens struct {
	asked  atomic.Int64
	fail   atomic.Bool
	status int    // of a failure; zero: 400
	before func() // an answer
}

func (w *wire) provider(tk *tokens, listeners ...string) auth.Provider {
	w.Helper()
	server := httptest.NewServer(http.HandlerFunc(func(rw http.ResponseWriter, _ *http.Request) {
		n := tk.asked.Add(1)
		if tk.before != nil {
			tk.before()
		}
		if tk.fail.Load() {
			http.Error(rw, "{}", cmp.Or(tk.status, http.StatusBadRequest))
			return
		}
		rw.Header().Set("Content-Type", "application/json")
		_, _ = fmt.Fprintf(rw, `{"access_token":"t%d","token_type":"Bearer"}`, n)
	}))
	w.Cleanup(server.Close)
	var origins []string
	for _, l := range listeners {
		u, err := url.Parse(w.origin.URL(l, "/"))
		must(w, err)
		origins = append(origins, u.Scheme+"://"+u.Host)
	}
	p, err := auth.New(auth.Config{Origins: origins, Client: &auth.ClientCredentials{TokenURL: server.URL, ID: "me", Secret: "hush",
		HTTP: &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}}})
	must(w, err)
	return p
}

// tooNew are credentials that were refreshed within the last second.
type tooNew struct{ fetch.Credentials }

// Refresh implements fetch.Credentials.
func (tooNew) Refresh(context.Context, string) error {
	return fmt.Errorf("auth: %w", justNow{errors.New("not yet")})
}

// justNow is an error of credentials that are too new to be refreshed.
type justNow struct{ error }

// RefreshedJustNow reports that a later fetch may succeed.
func (justNow) RefreshedJustNow() bool { return true }

// TestCredentials checks that the provider is asked after a 401 and after no other status (A1, A2).
func TestCredentials(t *testing.T) {
	t.Parallel()
	const wantsT2 = "200:require=Authorization=Bearer%20t2"
	for _, row := range []struct {
		name, path string
		change     func(*fetch.Request, *tokens)
		want       string // "ok", or class, stop reason and rule
		retryable  bool
		attempts   int
		asked      int64
	}{
		{"the right token at once", "/s/k/200:require=Authorization=Bearer%20t1", nil, "ok", false, 1, 1},
		{"a refresh", "/s/k/" + wantsT2, nil, "ok", false, 2, 2},
		{"a second 401", "/s/k/401", nil, "auth_required auth_failed A2", false, 2, 2},
		{"a refresh that fails", "/s/k/" + wantsT2, func(_ *fetch.Request, tk *tokens) {
			tk.before = func() { tk.fail.Store(tk.asked.Load() > 1) }
		}, "auth_required auth_failed A2", false, 1, 2},
		{"a refresh that fails for now", "/s/k/" + wantsT2, func(_ *fetch.Request, tk *tokens) {
			tk.status, tk.before = 500, func() { tk.fail.Store(tk.asked.Load() > 1) }
		}, "auth_required auth_failed A2 refresh_failed", true, 1, 2},
		{"no token at all for now", "/s/k/200", func(_ *fetch.Request, tk *tokens) { tk.status = 429; tk.fail.Store(true) },
			"auth_required auth_failed A2 no_credential", true, 1, 1},
		{"a second refresh within a second", "/s/k/" + wantsT2, func(r *fetch.Request, _ *tokens) { r.Credentials = tooNew{r.Credentials} },
			"auth_required auth_failed A2 refreshed_just_now", true, 1, 1},
		{"a second refresh within a second, of a POST", "/s/k/" + wantsT2, func(r *fetch.Request, _ *tokens) {
			r.Method, r.Credentials = "POST", tooNew{r.Credentials}
		}, "auth_required auth_failed A2 refreshed_just_now", false, 1, 1},
		{"no token at all", "/s/k/200", func(_ *fetch.Request, tk *tokens) { tk.fail.Store(true) }, "auth_required auth_failed A2 no_credential", false, 1, 1},
		{"no attempt left", "/s/k/" + wantsT2, func(r *fetch.Request, _ *tokens) { r.Policy.MaxAttempts = 1 }, "auth_required attempts_exhausted I4", true, 1, 1},
		{"a POST that was not processed", "/s/k/" + wantsT2, func(r *fetch.Request, _ *tokens) { r.Method = "POST" }, "ok", false, 2, 2},
		{"a 403 refreshes nothing", "/s/k/403", nil, "forbidden not_retried H4", false, 1, 1},
		{"a 503 between", "/s/k/503/" + wantsT2, nil, "ok", false, 3, 2},
		{"a 401 from another origin", "/cross/k/302/http-other/401", nil, "auth_required not_retried H3", false, 1, 1},
		{"no credentials", "/s/k/401", func(r *fetch.Request, _ *tokens) { r.Credentials = nil }, "auth_required not_retried H3", false, 1, 0},
	} {
		t.Run(row.name, func(t *testing.T) {
			t.Parallel()
			w, tk := newWire(t), new(tokens)
			r := w.request("http", row.path)
			r.Credentials = w.provider(tk, "http")
			if row.change != nil {
				row.change(r, tk)
			}
			began := time.Now()
			out := w.client.Fetch(t.Context(), r, nil)
			got, retryable := "ok", false
			if f := out.Failure; f != nil {
				got, retryable = strings.TrimSpace(fmt.Sprintf("%s %s %s %s", f.Class, out.StopReason, out.Rule, f.Reason)), f.Retryable
				if strings.Contains(fmt.Sprintf("%+v", *f), "t1") || strings.Contains(fmt.Sprintf("%+v", *f), "hush") {
					t.Errorf("a secret is reported: %+v", *f)
				}
			}
			if got != row.want || retryable != row.retryable || out.Attempts != row.attempts || tk.asked.Load() != row.asked {
				t.Errorf("%s, retryable %t, %d attempts, %d tokens after %s; want %s, %t, %d, %d", got, retryable, out.Attempts, tk.asked.Load(),
					time.Since(began), row.want, row.retryable, row.attempts, row.asked)
			}
		})
	}
}

// TestCredentialsStayAtTheirOrigin follows a redirect to another origin and back. All headers are
// forwarded, but the credential is not.
func TestCredentialsStayAtTheirOrigin(t *testing.T) {
	t.Parallel()
	w, tk := newWire(t), new(tokens)
	back := url.QueryEscape(w.origin.URL("http", "/s/back/200"))
	away := url.QueryEscape(w.origin.URL("http-other", "/s/away/302:to="+back))
	r := w.request("http", "/s/k/302:to="+away)
	r.Credentials, r.ForwardCredentials = w.provider(tk, "http"), true
	if out := w.client.Fetch(t.Context(), r, nil); out.Kind != classify.Success {
		t.Fatalf("%+v", out.Failure)
	}
	for key, want := range map[string]string{"k": "Bearer t1", "away": "", "back": "Bearer t1"} {
		for _, q := range w.origin.Requests(key) {
			if got := q.Header.Get("Authorization"); got != want {
				t.Errorf("%s is sent Authorization %q, want %q", key, got, want)
			}
		}
	}
}

// TestCredentialsOfMany checks that 100 fetches with a 401 each request one token in total, and
// that the origin receives 200 requests.
func TestCredentialsOfMany(t *testing.T) {
	t.Parallel()
	w, tk := newWire(t), new(tokens)
	tk.before = func() { // the second token is there once all have been refused the first
		for tk.asked.Load() > 1 && len(w.origin.AllRequests()) < 100 {
			<-time.After(time.Millisecond)
		}
	}
	p := w.provider(tk, "http")
	var all sync.WaitGroup
	for n := range 100 {
		r := w.request("http", fmt.Sprintf("/s/m%d/200:require=Authorization=Bearer%%20t2", n))
		r.Credentials = p
		all.Go(func() {
			if out := w.client.Fetch(t.Context(), r, nil); out.Kind != classify.Success || out.Attempts != 2 {
				t.Errorf("%+v after %d attempts, want success after 2", out.Failure, out.Attempts)
			}
		})
	}
	all.Wait()
	if got, seen := tk.asked.Load(), len(w.origin.AllRequests()); got != 2 || seen != 200 {
		t.Errorf("%d tokens and %d requests, want 2 and 200", got, seen)
	}
}

// TestRefreshSlowerThanADeadline checks that a fetch whose time ends during a refresh ends as
// DEADLINE, and that the refresh serves the others.
func TestRefreshSlowerThanADeadline(t *testing.T) {
	t.Parallel()
	w, tk := newWire(t), new(tokens)
	release := make(chan struct{})
	tk.before = func() {
		if tk.asked.Load() > 1 {
			<-release
		}
	}
	p := w.provider(tk, "http")
	request := func(key string) *fetch.Request {
		r := w.request("http", "/s/"+key+"/200:require=Authorization=Bearer%20t2")
		r.Credentials = p
		return r
	}
	hasty := request("hasty")
	hasty.TotalTimeout = 300 * time.Millisecond
	patient := make(chan *fetch.Outcome, 1)
	patientRequest := request("patient")
	go func() { patient <- w.client.Fetch(context.Background(), patientRequest, nil) }()
	if out := w.client.Fetch(t.Context(), hasty, nil); out.Failure == nil || out.Failure.Class != classify.Deadline {
		t.Errorf("the fetch with the short limit: %+v, want deadline", out.Failure)
	}
	close(release)
	if out := <-patient; out.Kind != classify.Success {
		t.Errorf("the fetch with the long limit: %+v, want success", out.Failure)
	}
	if got := tk.asked.Load(); got != 2 {
		t.Errorf("%d tokens, want 2", got)
	}
}

// TestShutdownDuringAWaitForAToken checks that a shutdown ends the wait. A token that is available
// is still sent.
func TestShutdownDuringAWaitForAToken(t *testing.T) {
	t.Parallel()
	for _, row := range []struct {
		name, path string
		stuck      stuck
		early      bool // the shutdown comes before the fetch
		class      classify.Class
		exchanges  int
	}{
		{"the first token", "/s/k/200", stuck{first: true}, false, classify.Shutdown, 0},
		{"a token to replace a stale one", "/s/k/200", stuck{first: true, stale: true}, false, classify.Shutdown, 0},
		{"a refresh", "/s/k/401", stuck{}, false, classify.Shutdown, 1},
		{"the first token, after the shutdown", "/s/k/200", stuck{first: true}, true, classify.Shutdown, 0},
		{"a token at hand, after the shutdown", "/s/k/200", stuck{}, true, classify.NoClass, 1},
		{"a stale token at hand, after the shutdown", "/s/k/200", stuck{first: true, stale: true}, true, classify.NoClass, 1},
	} {
		t.Run(row.name, func(t *testing.T) {
			t.Parallel()
			w := newWire(t)
			shutdown, stop := context.WithCancel(t.Context())
			defer stop()
			c := newClient(t, fetch.Config{Egress: unrestricted, Shutdown: shutdown})
			if row.early {
				stop()
			}
			row.stuck.waits = stop
			r := w.request("http", row.path)
			r.Credentials = row.stuck
			out := c.Fetch(t.Context(), r, nil)
			class, retryable := classify.NoClass, false
			if out.Failure != nil {
				class, retryable = out.Failure.Class, out.Failure.Retryable
			}
			if class != row.class || retryable != (row.class == classify.Shutdown) || out.Exchanges != row.exchanges {
				t.Errorf("%+v after %d exchanges, want %s after %d", out.Failure, out.Exchanges, row.class, row.exchanges)
			}
		})
	}
}

// stuck is a source that never returns a new token. It has a first one, unless first is set: then
// the wait for that never ends either. stale means that it has an old one.
type stuck struct {
	waits        func() // is called when a wait starts
	first, stale bool
}

func (stuck) Covers(*url.URL) bool { return true }

func (s stuck) Field(ctx context.Context) (string, string, error) {
	if s.first {
		s.waits()
		<-ctx.Done()
		if !s.stale {
			return "", "", errors.New("no token came")
		}
	}
	return "Authorization", "Bearer x", nil
}

func (s stuck) Refresh(ctx context.Context, _ string) error {
	s.waits()
	<-ctx.Done()
	return errors.New("no token came")
}

// TestStalledRefresh checks that equal fetches whose time ends during a refresh end equally, and
// that no attempt reports a retry that does not follow (A2).
func TestStalledRefresh(t *testing.T) {
	t.Parallel()
	const limit = 400 * time.Millisecond
	total := func(r *fetch.Request) { r.TotalTimeout = limit }
	for _, row := range []struct {
		name, path string
		change     func(*fetch.Request) // nil: none
		caller     bool                 // the limit is the caller's deadline
		refresh    time.Duration        // how long a refresh takes; zero: it never ends
		attempts   []string             // class and verdict of each, as reported
		end        string               // class, stop reason, rule, retryable
		exchanges  int
		took       time.Duration
	}{
		{"stalled until total_timeout", "/s/k/401", total, false, 0,
			[]string{"deadline deadline"}, "deadline deadline P3 true", 1, limit},
		{"stalled until the caller's deadline", "/s/k/401", nil, true, 0,
			[]string{"deadline deadline"}, "deadline deadline P3 true", 1, limit},
		{"stalled, of a POST", "/s/k/401", func(r *fetch.Request) { total(r); r.Method = "POST" }, false, 0,
			[]string{"deadline deadline"}, "deadline deadline P3 false", 1, limit},
		{"over exactly at the deadline", "/s/k/401", total, false, limit,
			[]string{"deadline deadline"}, "deadline deadline P3 true", 1, limit},
		{"over just before the deadline", "/s/k/401", total, false, limit - time.Millisecond,
			[]string{"auth_required retry", "auth_required auth_failed"}, "auth_required auth_failed A2 false", 2, limit - time.Millisecond},
		{"no time left to start one", "/s/k/401:size=9,stall=3", total, false, 0,
			[]string{"auth_required no_time"}, "auth_required no_time W4 true", 1, limit},
		{"stalled after a 503", "/s/k/503/401", total, false, 0,
			[]string{"http_server_error retry", "deadline deadline"}, "deadline deadline P3 true", 2, limit},
	} {
		t.Run(row.name, func(t *testing.T) {
			t.Parallel()
			for range 10 {
				synctest.Test(t, func(t *testing.T) {
					w := newBubble(t, nil)
					r := w.standard(1, row.path)
					r.Credentials = slow{row.refresh}
					if row.change != nil {
						row.change(r)
					}
					ctx := t.Context()
					if row.caller {
						var cancel context.CancelFunc
						ctx, cancel = context.WithTimeout(ctx, limit)
						defer cancel()
					}
					var attempts []string
					out := w.client.Fetch(ctx, r, func(e fetch.Event) error {
						if f, ok := e.(fetch.AttemptFinished); ok {
							attempts = append(attempts, fmt.Sprintf("%s %s", f.Failure.Class, f.Decision.Verdict))
						}
						return nil
					})
					f := out.Failure
					end := fmt.Sprintf("%s %s %s %t", f.Class, out.StopReason, out.Rule, f.Retryable)
					if end != row.end || out.Attempts != len(row.attempts) || out.Exchanges != row.exchanges || out.Total != row.took {
						t.Errorf("%s after %d attempts, %d exchanges and %v; want %s after %d, %d and %v", end, out.Attempts, out.Exchanges, out.Total,
							row.end, len(row.attempts), row.exchanges, row.took)
					}
					if !slices.Equal(attempts, row.attempts) {
						t.Errorf("attempts %q, want %q", attempts, row.attempts)
					}
				})
			}
		})
	}
}

// slow is how long a refresh takes; zero means that it never ends.
type slow struct{ takes time.Duration }

func (slow) Covers(*url.URL) bool { return true }

func (slow) Field(context.Context) (string, string, error) { return "Authorization", "Bearer x", nil }

func (s slow) Refresh(ctx context.Context, _ string) error {
	if s.takes > 0 {
		<-time.After(s.takes)
		return nil
	}
	<-ctx.Done()
	return ctx.Err()
}
