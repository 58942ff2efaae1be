package main

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"math/rand/v2"
	"net/http"
	"strings"
	"time"

	"fetchd/conformance/origin"
)

// deadTLS is the listener whose certificate no client accepts.
const deadTLS = "tls-unknown-ca"

// whole is the number of URLs that the counts of kinds are given for.
const whole = 500

// kind is a kind of URL: what the origin does, and what is right.
type kind struct {
	name  string
	count int    // of the whole
	path  string // KEY, N and HALF stand for the key, the size of the body and half of it
	why   string

	method   string // GET by default
	listener string // http by default
	fails    bool   // no client can get a body
	single   bool   // each request after the first one is for nothing
	// notBefore returns the earliest time for the request after one that arrived at a time. It is nil if the origin
	// does not say when to come back.
	notBefore func(time.Time) time.Time
}

// after is the rule of a Retry-After in seconds.
func after(d time.Duration) func(time.Time) time.Time {
	return func(t time.Time) time.Time { return t.Add(d) }
}

// onDate is the rule of a Retry-After with a date, which has whole seconds.
func onDate(d time.Duration) func(time.Time) time.Time {
	return func(t time.Time) time.Time { return t.Add(d).Truncate(time.Second) }
}

// kinds lists the kinds. The first one gets the URLs that the others leave.
var kinds = []kind{
	{name: "200", count: 150, path: "/s/KEY/200:size=N", why: "nothing is wrong"},
	{name: "200, gzip", count: 40, path: "/s/KEY/200:size=N,coding=gzip", why: "nothing is wrong"},
	{name: "three redirects, 200", count: 25, path: "/r/KEY/302/3/200:size=N", why: "followed"},
	{name: "200 after 0.3 s", count: 20, path: "/s/KEY/200:size=N,delay=300ms", why: "slow, but within every time limit"},
	{name: "200, slow body", count: 5, path: "/s/KEY/200:size=N,drip=4000@100ms", why: "slow, but within every time limit"},

	{name: "503, 200", count: 40, path: "/s/KEY/503/200:size=N", why: "a retry fetches it (H1)"},
	{name: "503, 503, 200", count: 15, path: "/s/KEY/503/503/200:size=N", why: "two retries fetch it (H1)"},
	{name: "500, 200", count: 15, path: "/s/KEY/500/200:size=N", why: "a retry fetches it (H1)"},
	{name: "502, 504, 200", count: 10, path: "/s/KEY/502/504/200:size=N", why: "two retries fetch it (H1)"},
	{name: "429 with Retry-After: 1, 200", count: 20, path: "/s/KEY/429:retry-after=1/200:size=N",
		why: "a retry fetches it, not before the second is over (H2, W2)", notBefore: after(time.Second)},
	{name: "503 with Retry-After: a date, 200", count: 10, path: "/s/KEY/503:retry-after-date=3/200:size=N",
		why: "a retry fetches it, not before that date (W2)", notBefore: onDate(3 * time.Second)},
	{name: "reset, 200", count: 20, path: "/s/KEY/reset/200:size=N", why: "a retry fetches it (N4)"},
	{name: "closed without an answer, 200", count: 10, path: "/s/KEY/fin/200:size=N", why: "a retry fetches it (N4)"},
	{name: "half of the body, 200", count: 20, path: "/s/KEY/200:size=N,cut=HALF/200:size=N", why: "a retry fetches it, because Content-Length says that half is missing (N8, B1)"},
	{name: "half of a chunked body, 200", count: 10, path: "/s/KEY/200:size=N,chunked,cut=HALF/200:size=N", why: "a retry fetches it, because the last chunk is missing (N8, B1)"},
	{name: "reset in the body, 200", count: 5, path: "/s/KEY/200:size=N,cut=HALF,how=rst/200:size=N", why: "a retry fetches it (N8, B1)"},
	{name: "silence in the body, 200", count: 5, path: "/s/KEY/200:size=N,stall=HALF/200:size=N", why: "a retry after the time limit fetches it (N9, B1)"},
	{name: "no answer, 200", count: 5, path: "/s/KEY/silent/200:size=N", why: "a retry after the time limit fetches it (N7)"},

	{name: "404", count: 20, path: "/s/KEY/404", fails: true, single: true, why: "an error, because a second request gets the same (H6)"},
	{name: "410", count: 8, path: "/s/KEY/410", fails: true, single: true, why: "an error, because a second request gets the same (H6)"},
	{name: "403", count: 5, path: "/s/KEY/403", fails: true, single: true, why: "an error, because a second request gets the same (H4)"},
	{name: "400", count: 5, path: "/s/KEY/400", fails: true, single: true, why: "an error, because a second request gets the same (H6)"},
	{name: "redirect loop", count: 6, path: "/loop/KEY/302", fails: true, single: true, why: "an error, because the first Location is the URL itself (R2)"},
	{name: "500 always", count: 5, path: "/s/KEY/500", fails: true, why: "four attempts, then an error (H1)"},
	{name: "gzip that ends early, always", count: 5, path: "/s/KEY/200:size=N,coding=gzip,coding-cut=HALF", fails: true, single: true,
		why: "an error, because the coding is incomplete, although Content-Length is right (C3)"},
	{name: "no status in the status line", count: 4, path: "/s/KEY/bad-status-line", fails: true, single: true, why: "an error (N10)"},
	{name: "certificate of an unknown authority", count: 4, path: "/s/KEY/200", listener: deadTLS, fails: true, single: true, why: "an error (N6)"},
	{name: "connection refused", count: 3, path: "/s/KEY/200", listener: "refused", fails: true, why: "four attempts, then an error (N2)"},
	{name: "429 with Retry-After: 3600", count: 2, path: "/s/KEY/429:retry-after=3600", fails: true,
		why: "an error that says when to come back, and no wait of an hour (W3)", notBefore: after(time.Hour)},
	{name: "POST: 503, 200", count: 4, method: http.MethodPost, path: "/s/KEY/503/200:size=N", fails: true,
		why: "an error, because the first POST may have taken effect (I2)"},
	{name: "POST: reset, 200", count: 4, method: http.MethodPost, path: "/s/KEY/reset/200:size=N", fails: true,
		why: "an error, because the first POST may have taken effect (I2)"},
}

// share returns how many of n URLs are of this kind: at least one.
func (k *kind) share(n int) int {
	if k != &kinds[0] {
		return max(1, k.count*n/whole)
	}
	rest := n
	for i := range kinds[1:] {
		rest -= kinds[i+1].share(n)
	}
	return rest
}

// job is one URL of the list.
type job struct {
	*kind
	key    string
	path   string
	size   int64
	method string
}

// newMix returns n URLs. The seed decides their order and the sizes of their bodies.
func newMix(n int, seed uint64) []*job {
	random := rand.New(rand.NewPCG(seed, 0))
	var mix []*job
	for i := range kinds {
		k := &kinds[i]
		for range k.share(n) {
			j := &job{kind: k, key: fmt.Sprintf("u%d", len(mix)), size: 8000 + random.Int64N(24000), method: http.MethodGet}
			if k.method != "" {
				j.method = k.method
			}
			half := j.size / 2
			if strings.Contains(k.path, "coding-cut") {
				half = j.size / 4 // of the coded bytes, which are fewer
			}
			j.path = strings.NewReplacer("KEY", j.key, "HALF", fmt.Sprint(half), "N", fmt.Sprint(j.size)).Replace(k.path)
			mix = append(mix, j)
		}
	}
	random.Shuffle(len(mix), func(i, j int) { mix[i], mix[j] = mix[j], mix[i] })
	return mix
}

// url returns the URL of a job on an origin.
func (j *job) url(o *origin.Origin) string {
	name := j.listener
	switch name {
	case "":
		name = "http"
	case deadTLS:
		return o.URL(name, j.path)
	}
	return "http://" + o.Addr(name) + j.path
}

// digest returns the digest of the right body, in hex.
func (j *job) digest(o *origin.Origin) string {
	sum := sha256.Sum256(o.Body(j.size))
	return hex.EncodeToString(sum[:])
}
