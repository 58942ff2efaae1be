package fetch

import (
	"bytes"
	"context"
	"crypto/ed25519"
	"crypto/sha256"
	"net/http"
	"net/url"
	"os"
	"slices"
	"testing"
	"time"

	"fetchd/fetch/auth/httpsig"
	"fetchd/fetch/conns"
	"fetchd/fetch/signing"
	"fetchd/test/bench/process"
	"fetchd/test/signatures"
)

// signerOfAll signs for every origin.
type signerOfAll struct{ *httpsig.Signer }

func (signerOfAll) Covers(*url.URL) bool { return true }

func (signerOfAll) Field(context.Context) (name, value string, err error) { return "", "", nil }

func (signerOfAll) Refresh(context.Context, string) error { return nil }

func (s signerOfAll) Sign(_ context.Context, m *signing.Message) ([]signing.Field, error) {
	return s.Signer.Sign(m, httpsig.Choice{})
}

// exchangeToSign returns an attempt, its exchange and its request, with a body of n bytes, as they are when they are
// signed.
func exchangeToSign(t testing.TB, credentials Credentials, n int) (*attempt, *conns.Exchange, func() *http.Request) {
	t.Helper()
	c, err := New(Config{Egress: Egress{Unrestricted: true}})
	must(t, err)
	t.Cleanup(c.Close)
	r := &run{client: c, caller: t.Context(), req: &Request{ID: "the-id", Credentials: credentials}}
	x := new(conns.Exchange)
	c.pool.Begin(x, r.caller, &r.clock, conns.Settings{})
	t.Cleanup(x.End)
	u := &url.URL{Scheme: "https", Host: "api.example", Path: "/v1/items", RawQuery: "page=2"}
	header := http.Header{"Accept": {"*/*"}, "Accept-Encoding": {"gzip"}, "User-Agent": {"fetchd/1"}, "Content-Type": {"application/json"}, "Fetchd-Hops": {"1"}}
	made := http.Request{Method: http.MethodPut, URL: u, Host: u.Host, ContentLength: int64(n)}
	return &attempt{run: r, hop: &hopRequest{url: u, body: make([]byte, n)}}, x, func() *http.Request {
		made.Header = header
		return &made
	}
}

// TestNoProviderAllocatesNothing checks that a fetch without a provider allocates nothing for signatures, whatever
// the origin asks for.
func TestNoProviderAllocatesNothing(t *testing.T) { //nolint:paralleltest // AllocsPerRun counts what all goroutines allocate
	for _, status := range []int{http.StatusOK, http.StatusUnauthorized, http.StatusForbidden, http.StatusTooManyRequests} {
		a, x, request := exchangeToSign(t, nil, 0)
		a.resp = &http.Response{StatusCode: status, Header: http.Header{"Accept-Signature": {`a=("@authority")`}, "Date": {"Fri, 24 May 2013 00:00:00 GMT"}}}
		if n := testing.AllocsPerRun(100, func() {
			req := request()
			signer, err := a.authorize(x, req)
			if err == nil {
				err = a.sign(x, req, signer)
			}
			must(t, err)
			a.checkClock(a.resp)
			a.readChallenge()
		}); n != 0 || a.challenged {
			t.Errorf("%d: %v allocations; challenged: %t", status, n, a.challenged)
		}
	}
}

// BenchmarkSign signs requests. "times-arithmetic" is the CPU time divided by that of Ed25519 and SHA-256 of the
// body, the median of turns. The goal is at most 1.3.
func BenchmarkSign(b *testing.B) {
	k, err := httpsig.ParseKey([]byte(signatures.PEMEd25519))
	must(b, err)
	private := ed25519.NewKeyFromSeed(make([]byte, ed25519.SeedSize))
	text := bytes.Repeat([]byte("x"), 300) // the size of a signature base
	for _, row := range []struct {
		name string
		cfg  httpsig.Config
		size int
	}{
		{"no body", httpsig.Config{}, 0},
		{"1 KiB", httpsig.Config{}, 1 << 10},
		{"16 KiB", httpsig.Config{}, 16 << 10},
		{"web-bot-auth", httpsig.Config{Profile: httpsig.WebBotAuth, Agent: "https://bot.example"}, 0},
	} {
		b.Run(row.name, func(b *testing.B) {
			row.cfg.Keys = []*httpsig.Key{k}
			s, err := httpsig.New(row.cfg)
			must(b, err)
			a, x, request := exchangeToSign(b, signerOfAll{s}, row.size)
			signed := func() {
				req := request()
				signer, err := a.authorize(x, req)
				must(b, err)
				must(b, a.sign(x, req, signer))
			}
			b.ReportAllocs()
			for b.Loop() {
				signed()
			}
			ratios := make([]float64, 200)
			for i := range ratios { // in turns, because the machine may become slower
				all := cpuOf(b, signed)
				ratios[i] = float64(all) / float64(cpuOf(b, func() {
					sum := sha256.Sum256(a.hop.body)
					text[0] = sum[0]
					ed25519.Sign(private, text)
				}))
			}
			slices.Sort(ratios)
			b.ReportMetric(ratios[len(ratios)/2], "times-arithmetic")
		})
	}
}

// cpuOf returns the CPU time of 20 calls.
func cpuOf(b *testing.B, call func()) time.Duration {
	b.Helper()
	before, err := process.CPU(os.Getpid())
	must(b, err)
	for range 20 {
		call()
	}
	after, err := process.CPU(os.Getpid())
	must(b, err)
	return after - before
}
