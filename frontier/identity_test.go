package frontier

import (
	"context"
	"crypto/x509"
	"errors"
	"fmt"
	"log/slog"
	"net/netip"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"fetchd/cmd/frontier/site"
	"fetchd/fetch"
	"fetchd/fetch/auth"
	"fetchd/fetch/auth/httpsig"
	"fetchd/fetch/signing"
	"fetchd/frontier/store"
	"fetchd/internal/policies"
	"fetchd/server"
	"fetchd/server/fetchdtest"
	witness "fetchd/test/rig"
	"fetchd/test/signatures"
)

// signer returns a provider that signs for origins.
func signer(t *testing.T, key string, origins ...string) server.AuthProvider {
	t.Helper()
	k, err := httpsig.ParseKey([]byte(key))
	must(t, err)
	s, err := httpsig.New(httpsig.Config{Keys: []*httpsig.Key{k}, Profile: httpsig.WebBotAuth, Agent: "https://bot.example"})
	must(t, err)
	p, err := auth.NewHTTPSignature(origins, s, nil)
	must(t, err)
	return server.AuthProvider{Provider: p}
}

// newSignedRig returns a rig whose service reaches a witness, with pages, and has auth providers.
func newSignedRig(t *testing.T, pages map[string]witness.WitnessPage, providers map[string]server.AuthProvider) (*rigOfWitness, *witness.Witness) {
	t.Helper()
	keys, err := signatures.Keys()
	must(t, err)
	w := witness.NewWitness(t, keys["test-key-ed25519"], pages)
	r := &rigOfWitness{rig: newRig(t, time.Millisecond, site.Config{})}
	r.service = &fetchd{fetchdtest.Start(t, fetchdtest.Options{NoOrigin: true, InMemory: true, Configure: func(c *server.Config) {
		c.Fetch.Egress = fetch.Egress{AllowCIDRs: []netip.Prefix{netip.MustParsePrefix("127.0.0.0/8")}, AllowPorts: w.Ports()}
		c.Fetch.RootCAs = x509.NewCertPool()
		c.Fetch.RootCAs.AppendCertsFromPEM(w.CAPEM())
		c.AuthProviders = providers
	}})}
	r.config.IgnoreRobots, r.config.Identity = false, "bot"
	r.lines = make(chan string, 1000)
	r.config.Logger = slog.New(logged{slog.DiscardHandler, slog.LevelWarn, r.lines})
	return r, w
}

// rigOfWitness is a rig with the lines of the worker's log.
type rigOfWitness struct {
	*rig
	lines chan string
}

// logLines returns the lines so far.
func (r *rigOfWitness) logLines() (lines []string) {
	for len(r.lines) > 0 {
		lines = append(lines, <-r.lines)
	}
	return lines
}

// TestIdentity checks that all requests of a crawl are signed, also for robots.txt, sitemaps and the targets of redirects, if
// the auth provider covers their origin. All others are made without it, and the log has one line about them (F57).
func TestIdentity(t *testing.T) {
	t.Parallel()
	pages := map[string]witness.WitnessPage{
		"/robots.txt":  {Type: "text/plain", Body: "User-agent: *\nDisallow: /private\n"},
		"/sitemap.xml": {Type: "application/xml", Body: `<urlset xmlns="http://www.sitemaps.org/schemas/sitemap/0.9"><url><loc>ONE/listed</loc></url><url><loc>PLAIN/listed</loc></url></urlset>`},
		"/listed":      {Body: "listed"}, "/page": {Body: "page"}, "/private": {Body: "private"},
		"/moved": {To: "/page"}, "/other": {To: "TWO/page"}, "/down": {To: "PLAIN/page"}, "/up": {To: "ONE/page"},
	}
	for _, row := range []struct {
		name    string
		origins []string // ONE and PLAIN are the first and the third origin
		signed  []string // origins whose requests are signed
	}{
		{"every https origin", []string{"https://*"}, []string{"one", "two"}},
		{"one origin", []string{"ONE"}, []string{"one"}},
		{"the origin in plaintext", []string{"PLAIN"}, []string{"plain"}},
		{"no origin of the crawl", []string{"https://elsewhere.example"}, nil},
	} {
		t.Run(row.name, func(t *testing.T) {
			t.Parallel()
			r, w := newSignedRig(t, pages, nil)
			origins := strings.NewReplacer("ONE", w.One.URL, "PLAIN", w.Plain.URL)
			for i, o := range row.origins {
				row.origins[i] = origins.Replace(o)
			}
			must(t, r.service.Service.SetOrigins(nil, map[string]server.AuthProvider{"bot": signer(t, signatures.PEMEd25519, row.origins...)}))
			r.config.From, r.config.UserAgent = "crawler@bot.example", "bot/1.0 (+https://bot.example/)"
			for _, s := range []string{w.One.URL, w.Plain.URL} {
				r.add(s+"/page", s+"/private", s+"/missing")
			}
			r.add(w.One.URL+"/moved", w.One.URL+"/other", w.One.URL+"/down", w.Plain.URL+"/up")
			got, err := r.store.Put(t.Context(), []store.Entry{{URL: w.One.URL + "/sitemap.xml", Kind: store.Sitemap}}, store.Limits{})
			if err != nil || len(got.Bad) > 0 {
				t.Fatal(got, err)
			}
			stats := r.crawl()
			var want []string
			for line, n := range map[string]int{"one /robots.txt": 1, "two /robots.txt": 1, "plain /robots.txt": 1, "one /page": 3, "plain /page": 2, "two /page": 1, "one /missing": 1, "plain /missing": 1,
				"one /moved": 1, "one /other": 1, "one /down": 1, "plain /up": 1, "one /sitemap.xml": 1, "one /listed": 1, "plain /listed": 1} {
				state := " unsigned"
				if name, _, _ := strings.Cut(line, " "); slices.Contains(row.signed, name) {
					state = " signed"
				}
				want = append(want, slices.Repeat([]string{line + state}, n)...)
			}
			slices.Sort(want)
			if diff := cmp.Diff(want, w.Lines()); diff != "" {
				t.Errorf("requests (-want +got):\n%s", diff)
			}
			if diff := cmp.Diff([]string{"crawler@bot.example bot/1.0 (+https://bot.example/)"}, w.Senders()); diff != "" {
				t.Errorf("From and User-Agent (-want +got):\n%s", diff)
			}
			if stats.Completed != 9 || stats.Dead != 4 {
				t.Errorf("%+v, want 9 fetched, and 4 missing or forbidden", stats)
			}
			if lines := r.logLines(); len(lines) != 1 || !strings.HasPrefix(lines[0], "some origins are not covered by the auth provider, and get requests without it bot ") {
				t.Errorf("the log has %q, want one line", lines)
			}
			r.wantNoSecret(w.Signatures())
		})
	}
}

// wantNoSecret checks that the files of the database have no signature and no key.
func (r *rigOfWitness) wantNoSecret(secrets []string) {
	r.Helper()
	files, err := filepath.Glob(filepath.Join(filepath.Dir(r.db), "*"))
	must(r, err)
	for _, name := range files {
		raw, err := os.ReadFile(name)
		must(r, err)
		for _, secret := range append(secrets, "sig1=", "web-bot-auth", "n4Ni-HpI", "MC4CAQAw") {
			if strings.Contains(string(raw), secret) {
				r.Errorf("%s has %q", name, secret)
			}
		}
	}
	if len(files) == 0 {
		r.Error("the database has no file")
	}
}

// stranger is a provider that cannot sign requests for a path.
type stranger struct {
	auth.Provider
	path string
}

func (stranger) Headers() []string { return []string{"X-Signature"} }

func (s stranger) Sign(_ context.Context, m *signing.Message) ([]signing.Field, error) {
	if m.URL.Path == s.path || s.path == "" {
		return nil, errors.New("no")
	}
	return []signing.Field{{Name: "X-Signature", Value: "x"}}, nil
}

func (stranger) Covers(*url.URL) bool { return true }

func (stranger) Field(context.Context) (name, value string, err error) { return "", "", nil }

func (stranger) Refresh(context.Context, string) error { return auth.ErrRefused }

// TestIdentityIsMissing checks that a worker whose requests cannot be signed loses no URL: it makes no requests, says why,
// and continues when they can be signed.
func TestIdentityIsMissing(t *testing.T) {
	t.Parallel()
	others := signer(t, signatures.PEMEd25519, "https://*")
	others.Callers = []string{"nobody"}
	for _, row := range []struct {
		name      string
		providers map[string]server.AuthProvider
		line      string // of the log
		policy    string // of the service
	}{
		{"no provider", nil, `request.auth_provider is "bot", which is not configured on this server`, ""},
		{"a provider of another name", map[string]server.AuthProvider{"other": signer(t, signatures.PEMEd25519, "https://*")}, `request.auth_provider is "bot", which is not configured on this server`, ""},
		{"a provider for others", map[string]server.AuthProvider{"bot": others}, `this caller may not use the auth provider "bot"`, ""},
		{"a key that has expired", map[string]server.AuthProvider{"bot": signer(t, strings.Replace(signatures.JWKEd25519, "{", `{"exp":1000,`, 1), "https://*")}, "the auth provider could not sign the request", ""},
		{"a provider that cannot sign", map[string]server.AuthProvider{"bot": {Provider: stranger{}}}, "the auth provider could not sign the request", ""},
		{"a policy", map[string]server.AuthProvider{"bot": signer(t, signatures.PEMEd25519, "https://*")}, "give another --identity, or permit it in the policy",
			"policies: {p: {egress: {allow-addresses: [127.0.0.0/8], ports: [PORT]}, request: {auth-providers: []}}}\ndefault: p\n"},
	} {
		t.Run(row.name, func(t *testing.T) {
			t.Parallel()
			r, w := newSignedRig(t, map[string]witness.WitnessPage{"/page": {Body: "page"}}, row.providers)
			r.config.IgnoreRobots, r.config.Policy.MaxURLRetries = true, 0
			if row.policy != "" {
				set, faults := policies.Parse([]byte(strings.Replace(row.policy, "PORT", fmt.Sprint(w.Ports()[0]), 1)))
				if len(faults) > 0 {
					t.Fatal(faults)
				}
				r.service.Service.SetPolicies(set)
			}
			for n := range 20 {
				r.add(fmt.Sprintf("%s/page?%d", w.One.URL, n))
			}
			done := make(chan error)
			worker := r.worker()
			go func() { done <- worker.Run(t.Context()) }()
			if got := <-r.lines; !strings.HasPrefix(got, "cannot fetch ") || !strings.Contains(got, row.line) {
				t.Errorf("the log has %q, want %q", got, row.line)
			}
			if c, err := r.store.Counts(t.Context()); err != nil || c.Dead+c.Fetched != 0 || len(w.Lines()) > 0 {
				t.Errorf("%+v, %v, %q; want no URL dead and no request", c, err, w.Lines())
			}
			must(t, r.service.Service.SetOrigins(nil, map[string]server.AuthProvider{"bot": signer(t, signatures.PEMEd25519, "https://*")}))
			r.service.Service.SetPolicies(nil)
			must(t, <-done)
			if stats := worker.Stats(); stats.Completed != 20 || stats.Dead != 0 || len(w.Signatures()) != 20 {
				t.Errorf("%+v, %d signed, want 20", stats, len(w.Signatures()))
			}
		})
	}
}

// expired is a provider whose credential is rejected, and which gets no other for now.
type expired struct{ stranger }

func (expired) Field(context.Context) (name, value string, err error) {
	return "Authorization", "Bearer x", nil
}

func (expired) Sign(context.Context, *signing.Message) ([]signing.Field, error) { return nil, nil }

func (expired) Refresh(context.Context, string) error { return passingError{} }

// passingError is the error of a token endpoint that is down.
type passingError struct{}

func (passingError) Error() string { return "the token endpoint is down" }

func (passingError) MayPass() bool { return true }

// TestIdentityIsRejected checks that no URL is dead because a token endpoint is down.
func TestIdentityIsRejected(t *testing.T) {
	t.Parallel()
	r, w := newSignedRig(t, map[string]witness.WitnessPage{"/page": {Status: 401}}, map[string]server.AuthProvider{"bot": {Provider: expired{}}})
	r.config.IgnoreRobots, r.config.MaxAttempts, r.config.Policy.MaxURLRetries = true, 2, 0
	page := w.One.URL + "/page"
	r.add(page)
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error)
	go func() { done <- r.worker().Run(ctx) }()
	if got := <-r.lines; !strings.HasPrefix(got, "cannot fetch ") || !strings.Contains(got, "the auth provider has no other now") {
		t.Errorf("the log has %q", got)
	}
	cancel()
	if err := <-done; !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
	if got := r.row(page); got.Status == store.Dead {
		t.Errorf("%+v, want a URL that is tried again", got)
	}
}

// TestIdentityPoison checks that a URL whose request cannot be signed does not stop the crawl: it fails alone.
func TestIdentityPoison(t *testing.T) {
	t.Parallel()
	r, w := newSignedRig(t, map[string]witness.WitnessPage{"/page": {Body: "page"}}, map[string]server.AuthProvider{"bot": {Provider: stranger{path: "/poison"}}})
	r.config.IgnoreRobots, r.config.Policy.MaxURLRetries = true, 1
	poison := w.One.URL + "/poison"
	r.add(poison)
	for n := range 5 {
		r.add(fmt.Sprintf("%s/page?%d", w.One.URL, n))
	}
	stats := r.crawl()
	if got := r.row(poison); stats.Completed != 5 || stats.Dead != 1 || got.Status != store.Dead || got.ErrorClass != "auth_required" || len(w.Lines()) != 5 {
		t.Errorf("%+v; %s %s; requests %q; want 5 pages, and the other URL dead as auth_required without a request", stats, got.Status, got.ErrorClass, w.Lines())
	}
}

// TestIdentityCoversLater checks that an origin which the provider did not cover is not without it for ever.
func TestIdentityCoversLater(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var i identity
		for _, step := range []struct {
			name   string
			after  time.Duration
			covers bool
		}{
			{"at first", 0, true},
			{"not covered", 0, false},
			{"soon after", leftOutFor - time.Second, false},
			{"later", time.Second, true},
		} {
			sleep(t.Context(), step.after)
			if got := i.covers("https://one.example"); got != step.covers {
				t.Errorf("%s: covered: %t, want %t", step.name, got, step.covers)
			}
			if !i.covers("https://two.example") {
				t.Errorf("%s: another origin is not covered", step.name)
			}
			if step.name == "at first" && !i.leaveOut("https://one.example") {
				t.Error("the first one is not said")
			}
		}
		if i.leaveOut("https://one.example") {
			t.Error("it is said again")
		}
	})
}

// TestIdentityFault checks whose fault it is that a request cannot be signed.
func TestIdentityFault(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var i identity
		for _, step := range []struct {
			name, url string
			signed    bool
			ofURL     bool
		}{
			{"the first failure", "a", false, false},
			{"again, and nothing was signed", "a", false, false},
			{"another", "b", false, false},
			{"one is signed", "c", true, false},
			{"a URL that failed before", "a", false, true},
			{"a URL that is new", "d", false, false},
			{"one that failed is signed", "b", true, false},
			{"and fails again", "b", false, false},
		} {
			sleep(t.Context(), time.Second)
			if step.signed {
				i.succeeded(step.url)
			} else if got := i.cannotSign(step.url); got != step.ofURL {
				t.Errorf("%s: the fault of the URL: %t, want %t", step.name, got, step.ofURL)
			}
		}
		for n := range 3 * maxRemembered {
			i.cannotSign(fmt.Sprint(n))
			i.leaveOut(fmt.Sprint(n))
		}
		if len(i.failed) > maxRemembered || len(i.unsigned) > maxRemembered {
			t.Errorf("%d URLs and %d origins are remembered, want at most %d", len(i.failed), len(i.unsigned), maxRemembered)
		}
	})
}
