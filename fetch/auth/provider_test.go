package auth_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"

	"fetchd/fetch/auth"
	"fetchd/test/must"
	"fetchd/test/need"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// endpoint is a token endpoint that issues numbered tokens.
type endpoint struct {
	*httptest.Server
	asked atomic.Int64
	wait  chan struct{} // answers once closed
	fail  atomic.Bool
	ttl   int // seconds; zero: omitted
}

func newEndpoint(t *testing.T) *endpoint {
	t.Helper()
	e := &endpoint{wait: make(chan struct{})}
	e.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		n := e.asked.Add(1)
		<-e.wait
		id, secret, _ := r.BasicAuth()
		if r.FormValue("grant_type") != "client_credentials" || id != "me" || secret != "hush" || e.fail.Load() {
			http.Error(w, `{"error":"invalid_client","error_description":"hush is wrong"}`, http.StatusUnauthorized)
			return
		}
		w.Header().Set("Content-Type", "application/json")
		expires := ""
		if e.ttl > 0 {
			expires = fmt.Sprintf(`,"expires_in":%d`, e.ttl)
		}
		_, _ = fmt.Fprintf(w, `{"access_token":"t%d","token_type":"Bearer"%s}`, n, expires)
	}))
	t.Cleanup(e.Close)
	return e
}

// client returns a provider that uses the endpoint.
func (e *endpoint) client(t *testing.T) auth.Provider {
	t.Helper()
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	return mustNew(t, auth.Config{Origins: []string{"https://api.example"},
		Client: &auth.ClientCredentials{TokenURL: e.URL, ID: "me", Secret: "hush", HTTP: client}})
}

func mustNew(t *testing.T, cfg auth.Config) auth.Provider {
	t.Helper()
	p, err := auth.New(cfg)
	must.Succeed(t, err)
	return p
}

func value(t *testing.T, p auth.Provider) string {
	t.Helper()
	_, v, err := p.Field(t.Context())
	must.Succeed(t, err)
	return v
}

// TestCovers checks that Covers depends on the origin only.
func TestCovers(t *testing.T) {
	t.Parallel()
	p := mustNew(t, auth.Config{Static: "x", Origins: []string{"https://api.example", "HTTPS://Upper.Example:8443/", "http://plain.example:80"}})
	for raw, want := range map[string]bool{
		"https://api.example/":             true,
		"https://api.example:443/a?b#c":    true,
		"https://upper.example:8443/":      true,
		"http://plain.example/":            true,
		"http://api.example/":              false,
		"https://api.example:444/":         false,
		"https://api.example.evil/":        false,
		"https://evil.example/api.example": false,
		"https://sub.api.example/":         false,
		"https://upper.example/":           false,
	} {
		u, err := url.Parse(raw)
		must.Succeed(t, err)
		if got := p.Covers(u); got != want {
			t.Errorf("Covers(%s) = %t, want %t", raw, got, want)
		}
	}
}

// TestField checks the header field for each header and scheme.
func TestField(t *testing.T) {
	t.Parallel()
	for _, row := range []struct {
		name        string
		cfg         auth.Config
		field, sent string
	}{
		{"the default", auth.Config{}, "Authorization", "Bearer x"},
		{"another scheme", auth.Config{Scheme: "Token"}, "Authorization", "Token x"},
		{"another header", auth.Config{Header: "x-api-key"}, "X-Api-Key", "x"},
		{"another header with a scheme", auth.Config{Header: "X-Api-Key", Scheme: "Key"}, "X-Api-Key", "Key x"},
	} {
		row.cfg.Static, row.cfg.Origins = "x", []string{"https://api.example"}
		if name, sent, err := mustNew(t, row.cfg).Field(t.Context()); name != row.field || sent != row.sent || err != nil {
			t.Errorf("%s: %s: %s, %v; want %s: %s", row.name, name, sent, err, row.field, row.sent)
		}
	}
}

// TestNewRefuses checks that errors name the invalid field and contain no secret.
func TestNewRefuses(t *testing.T) {
	t.Parallel()
	long := filepath.Join(t.TempDir(), "long")
	must.Succeed(t, os.WriteFile(long, make([]byte, 20<<10), 0o600))
	client := func(change func(*auth.ClientCredentials)) *auth.ClientCredentials {
		c := &auth.ClientCredentials{TokenURL: "https://t.example/", ID: "me", Secret: "hush"}
		change(c)
		return c
	}
	some := []string{"https://api.example"}
	for _, row := range []struct {
		name string
		cfg  auth.Config
		text string
	}{
		{"no origins", auth.Config{Static: "hush"}, "origins"},
		{"an origin with a path", auth.Config{Static: "hush", Origins: []string{"https://api.example/v1"}}, "/v1"},
		{"an origin without a scheme", auth.Config{Static: "hush", Origins: []string{"api.example"}}, "api.example"},
		{"an origin with userinfo", auth.Config{Static: "hush", Origins: []string{"https://a@api.example"}}, "origin"},
		{"another scheme's origin", auth.Config{Static: "hush", Origins: []string{"ftp://api.example"}}, "ftp"},
		{"nothing to send", auth.Config{Origins: some}, "give exactly one of"},
		{"two things to send", auth.Config{Origins: some, Static: "hush", File: "x"}, "give exactly one of"},
		{"a token of two lines", auth.Config{Origins: some, Static: "hush\nhush"}, "control character"},
		{"no such file", auth.Config{Origins: some, File: filepath.Join(t.TempDir(), "nothing")}, "nothing"},
		{"a device", auth.Config{Origins: some, File: "/dev/zero"}, "is no regular file"},
		{"a file that is no token", auth.Config{Origins: some, File: long}, "20480"},
		{"a header that is none", auth.Config{Origins: some, Static: "hush", Header: "a b"}, "header"},
		{"a token URL in plaintext", auth.Config{Origins: some, Client: client(func(c *auth.ClientCredentials) { c.TokenURL = "http://t.example/" })}, "https"},
		{"no token URL", auth.Config{Origins: some, Client: client(func(c *auth.ClientCredentials) { c.TokenURL = "" })}, "https"},
		{"no secret", auth.Config{Origins: some, Client: client(func(c *auth.ClientCredentials) { c.Secret = "" })}, "secret"},
	} {
		p, err := auth.New(row.cfg)
		if err == nil || p != nil || !strings.Contains(fmt.Sprint(err), row.text) || strings.Contains(fmt.Sprint(err), "hush") {
			t.Errorf("%s: %v, %v; want an error with %q and without the secret", row.name, p, err, row.text)
		}
	}
}

// TestKernelFile reads a regular file that says it is empty, and is not.
func TestKernelFile(t *testing.T) {
	t.Parallel()
	need.Linux(t, "/proc/kallsyms is a file of Linux")
	_, err := auth.New(auth.Config{Origins: []string{"https://api.example"}, File: "/proc/kallsyms"})
	if want := "has more than 16384 bytes"; !strings.Contains(fmt.Sprint(err), want) {
		t.Errorf("%v; want an error with %q", err, want)
	}
}

// TestOneRefresh has a hundred fetches rejected at once. The endpoint gets one
// request, and later callers with the old token get the new one.
func TestOneRefresh(t *testing.T) {
	t.Parallel()
	e := newEndpoint(t)
	p := e.client(t)
	close(e.wait)
	old := value(t, p)
	if got := e.asked.Load(); old != "Bearer t1" || got != 1 {
		t.Fatalf("%s after %d questions, want Bearer t1 after 1", old, got)
	}
	var all sync.WaitGroup
	for range 100 {
		all.Go(func() {
			if err := p.Refresh(t.Context(), old); err != nil {
				t.Errorf("Refresh = %v", err)
			}
		})
	}
	all.Wait()
	if err := p.Refresh(t.Context(), old); err != nil {
		t.Errorf("a straggler: %v", err)
	}
	if got := value(t, p); got != "Bearer t2" || e.asked.Load() != 2 {
		t.Errorf("%s after %d questions, want Bearer t2 after 2", got, e.asked.Load())
	}
}

// TestRefreshThatFails checks that a failed refresh fails all waiting callers, and
// that the next caller tries again.
func TestRefreshThatFails(t *testing.T) {
	t.Parallel()
	e := newEndpoint(t)
	p := e.client(t)
	close(e.wait)
	old := value(t, p)
	e.fail.Store(true)
	for range 2 {
		err := p.Refresh(t.Context(), old)
		if err == nil || strings.Contains(fmt.Sprint(err), "hush") || !strings.Contains(fmt.Sprint(err), "401") {
			t.Errorf("Refresh = %v, want an error with the status and without what the endpoint says", err)
		}
	}
	if got := e.asked.Load(); got != 3 {
		t.Errorf("%d questions, want 3", got)
	}
	if got := value(t, p); got != old {
		t.Errorf("%s, want the old one, which may be right elsewhere", got)
	}
}

// TestRefreshOutlivesItsCaller checks that a caller whose context ends returns, and
// that the refresh still serves the others.
func TestRefreshOutlivesItsCaller(t *testing.T) {
	t.Parallel()
	e := newEndpoint(t)
	p := e.client(t)
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
	defer cancel()
	if _, _, err := p.Field(ctx); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("Field = %v, want the deadline", err)
	}
	served := make(chan string, 1)
	go func() { served <- value(t, p) }()
	close(e.wait)
	if got := <-served; got != "Bearer t1" || e.asked.Load() != 1 {
		t.Errorf("%s after %d questions, want Bearer t1 after the one that was begun", got, e.asked.Load())
	}
}

// TestTokenThatRunsOut checks that an expiring token is replaced before it is rejected.
func TestTokenThatRunsOut(t *testing.T) {
	t.Parallel()
	e := newEndpoint(t)
	e.ttl = 5 // within the library's margin, so stale immediately
	close(e.wait)
	p := e.client(t)
	if first, second := value(t, p), value(t, p); first == second {
		t.Errorf("%s twice, want another once it has run out", first)
	}
	e.fail.Store(true)
	if got := value(t, p); !strings.HasPrefix(got, "Bearer t") {
		t.Errorf("%q, want an old token where no new one can be had", got)
	}
}

// TestTokenFile checks that the file is read again when it changes and when its token
// is rejected.
func TestTokenFile(t *testing.T) {
	t.Parallel()
	synctest.Test(t, tokenFile)
}

// justNow reports whether the credential was too new to be refreshed.
func justNow(err error) bool {
	e, ok := errors.AsType[interface {
		error
		RefreshedJustNow() bool
	}](err)
	return ok && e.RefreshedJustNow()
}

func tokenFile(t *testing.T) {
	path := filepath.Join(t.TempDir(), "token")
	write := func(text string) {
		must.Succeed(t, os.WriteFile(path+".new", []byte(text), 0o600))
		must.Succeed(t, os.Rename(path+".new", path))
	}
	write("one\n")
	p := mustNew(t, auth.Config{Origins: []string{"https://api.example"}, File: path})
	first := value(t, p)
	if first != "Bearer one" {
		t.Errorf("%q, want Bearer one", first)
	}
	if err := p.Refresh(t.Context(), first); !errors.Is(err, auth.ErrRefused) || justNow(err) {
		t.Errorf("Refresh of the value that the file still has = %v, want ErrRefused", err)
	}
	write("two")
	if err := p.Refresh(t.Context(), first); err != nil {
		t.Errorf("Refresh = %v", err)
	}
	if got := value(t, p); got != "Bearer two" {
		t.Errorf("%q, want Bearer two", got)
	}
	write("three")
	if err := p.Refresh(t.Context(), "Bearer two"); !errors.Is(err, auth.ErrRefused) || !justNow(err) {
		t.Errorf("Refresh within a second = %v, want ErrRefused with RefreshedJustNow", err)
	}
	<-time.After(2 * time.Second) // a token is kept for a second, and the file is checked once a second
	if got := value(t, p); got != "Bearer three" {
		t.Errorf("%q, want Bearer three: a changed file is read again", got)
	}
	<-time.After(2 * time.Second) // as above
	write("")
	if err := p.Refresh(t.Context(), "Bearer three"); err == nil {
		t.Error("an empty file is a token")
	}
	if got := value(t, p); got != "Bearer three" {
		t.Errorf("%q, want the last good one", got)
	}
}

// TestTokenEndpointThatFails checks which failures of a token endpoint may pass: not those that are about the client.
func TestTokenEndpointThatFails(t *testing.T) {
	t.Parallel()
	for status, want := range map[int]bool{0: true, 101: true, 302: true, 400: false, 401: false, 403: false, 404: true, 408: true, 429: true, 500: true, 503: true} {
		t.Run(fmt.Sprint(status), func(t *testing.T) {
			t.Parallel()
			e := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
				if status == 0 {
					panic(http.ErrAbortHandler)
				}
				w.WriteHeader(status)
			}))
			t.Cleanup(e.Close)
			p := mustNew(t, auth.Config{Name: "main", Origins: []string{"https://api.example"}, Client: &auth.ClientCredentials{TokenURL: e.URL, ID: "me", Secret: "hush"}})
			_, _, err := p.Field(t.Context())
			passing, ok := errors.AsType[interface {
				error
				MayPass() bool
			}](err)
			if err == nil || !strings.Contains(fmt.Sprint(err), `auth provider "main"`) || (ok && passing.MayPass()) != want {
				t.Errorf("%v, want an error of the provider that may pass: %t", err, want)
			}
		})
	}
}

// TestStaticToken checks that a rejected static token gives ErrRefused.
func TestStaticToken(t *testing.T) {
	t.Parallel()
	p := mustNew(t, auth.Config{Origins: []string{"https://api.example"}, Static: "x"})
	if err := p.Refresh(t.Context(), value(t, p)); !errors.Is(err, auth.ErrRefused) {
		t.Errorf("Refresh = %v, want ErrRefused", err)
	}
	if err := p.Refresh(t.Context(), "Bearer older"); err != nil {
		t.Errorf("Refresh of another = %v, want nil", err)
	}
}

// TestSecret checks that no formatting shows a secret.
func TestSecret(t *testing.T) {
	t.Parallel()
	s := auth.Secret("hush")
	var log strings.Builder
	slog.New(slog.NewTextHandler(&log, nil)).Info("x", "s", s)
	if text := fmt.Sprintf("%s %v %+v %#v %q", s, s, s, s, s) + log.String(); strings.Contains(text, "hush") {
		t.Error(text)
	}
}

// TestOriginThatRefusesEverything checks that there is one refresh a second and not one
// per fetch. Each refresh could invalidate the token that other fetches use.
func TestOriginThatRefusesEverything(t *testing.T) {
	t.Parallel()
	e := newEndpoint(t)
	close(e.wait)
	p := e.client(t)
	began := time.Now()
	for range 50 {
		if err := p.Refresh(t.Context(), value(t, p)); err != nil && !errors.Is(err, auth.ErrRefused) {
			t.Errorf("Refresh = %v", err)
		}
	}
	if got, most := e.asked.Load(), 3+int64(time.Since(began)/time.Second); got > most {
		t.Errorf("%d tokens were asked for in %s, want %d at most", got, time.Since(began), most)
	}
}

// TestEndpointSwitches has the token endpoint switch to another protocol and say nothing in it: the refresh
// ends with an error, and does not keep others waiting.
func TestEndpointSwitches(t *testing.T) {
	t.Parallel()
	e := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		conn, _, err := http.NewResponseController(w).Hijack()
		if err != nil {
			t.Error(err)
			return
		}
		_, _ = io.WriteString(conn, "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: none\r\n\r\n")
		_, _ = io.Copy(io.Discard, conn) // the client closes it
		_ = conn.Close()
	}))
	t.Cleanup(e.Close)
	p := mustNew(t, auth.Config{Origins: []string{"https://api.example"}, Client: &auth.ClientCredentials{TokenURL: e.URL, ID: "me", Secret: "hush"}})
	for range 2 {
		if _, _, err := p.Field(t.Context()); err == nil || !strings.Contains(fmt.Sprint(err), "the request to the token endpoint failed") {
			t.Errorf("Field = %v, want that the request failed", err)
		}
	}
}

// TestNewRefusesOrigins checks that New rejects origins that no fetch can have.
func TestNewRefusesOrigins(t *testing.T) {
	t.Parallel()
	for _, origin := range []string{"https://:443", "https://a.example:0443", "https://a.example:123456", "https://ünï.example", "https://u:hush@a.example"} {
		_, err := auth.New(auth.Config{Static: "x", Origins: []string{origin}})
		if err == nil || strings.Contains(fmt.Sprint(err), "hush") {
			t.Errorf("%s: %v, want an error without the password", origin, err)
		}
	}
	for _, u := range []string{"http://127.evil.example/token", "http://localhost.evil.example/", "https://me:hush@t.example/"} {
		_, err := auth.New(auth.Config{Origins: []string{"https://a.example"}, Client: &auth.ClientCredentials{TokenURL: u, ID: "me", Secret: "x"}})
		if err == nil || strings.Contains(fmt.Sprint(err), "hush") {
			t.Errorf("token URL %s: %v, want an error without the password", u, err)
		}
	}
}
