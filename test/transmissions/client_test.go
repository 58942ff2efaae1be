package transmissions

import (
	"context"
	"net/http"
	"os"
	"testing"
	"time"

	"fetchd/classify"
	"fetchd/fetch"
	"fetchd/fetch/urls"
)

// long reports whether the long forms of tests run.
func long() bool { return os.Getenv("FETCHD_LONG") == "1" }

// profiles are both profiles, by name.
var profiles = []struct {
	name    string
	profile classify.Profile
}{{"STANDARD", classify.Standard}, {"DOWNLOAD", classify.Download}}

// newClient returns a client with an empty pool.
func newClient(t testing.TB, change ...func(*fetch.Config)) *fetch.Client {
	t.Helper()
	_, roots := certificate()
	cfg := fetch.Config{RootCAs: roots, Egress: fetch.Egress{Unrestricted: true}}
	for _, change := range change {
		change(&cfg)
	}
	c, err := fetch.New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Close)
	return c
}

// newRequest returns a request whose body is delivered with the outcome, and whose retries wait for
// milliseconds.
func newRequest(t testing.TB, p classify.Profile, method, url string) *fetch.Request {
	t.Helper()
	r := fetch.NewRequest(p)
	var err error
	if r.URL, err = urls.Parse(url); err != nil {
		t.Fatal(err)
	}
	r.Method, r.Delivery, r.TotalTimeout = method, fetch.Inline, time.Minute
	r.ConnectTimeout = r.TotalTimeout // a busy machine needs long for many handshakes
	if method == http.MethodPut || method == http.MethodPost {
		r.Body = []byte("hello")
	}
	if method == http.MethodPut {
		r.IdempotencyKey = "key" // for which net/http would send a request again
	}
	r.Policy.BaseDelay = time.Millisecond
	r.Policy.MaxJitter = min(r.Policy.MaxJitter, 3*time.Millisecond) // DOWNLOAD has one
	return r
}

// ending is an outcome and the attempts that led to it.
type ending struct {
	*fetch.Outcome
	attempts []fetch.AttemptFinished
}

func run(ctx context.Context, c *fetch.Client, r *fetch.Request) (e ending) {
	e.Outcome = c.Fetch(ctx, r, func(event fetch.Event) error {
		if f, ok := event.(fetch.AttemptFinished); ok {
			e.attempts = append(e.attempts, f)
		}
		return nil
	})
	return e
}

// sent returns how many requests the hops of all attempts have sent.
func (e ending) sent() (n int) {
	for _, a := range e.attempts {
		for _, h := range a.Hops {
			if h.Exchange.Sent {
				n++
			}
		}
	}
	return n
}

// class returns the class of the failure, or none.
func (e ending) class() string {
	if e.Failure == nil {
		return "none"
	}
	return e.Failure.Class.String()
}

// warm makes the client's first connection to the origin, and waits until it can carry the next fetch.
func warm(t testing.TB, c *fetch.Client, o *origin) {
	t.Helper()
	if e := run(t.Context(), c, newRequest(t, classify.Standard, http.MethodGet, o.url+"/warm")); e.Kind != classify.Success || e.sent() != 1 {
		t.Fatalf("warming: %s, %d requests: %+v", e.Kind, e.sent(), e.Failure)
	}
}
