package frontier

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	"fetchd/client"
	"fetchd/cmd/frontier/site"
	"fetchd/frontier/store"
)

// awaitVisits waits until the site has received n requests.
func (r *rig) awaitVisits(n int) {
	r.Helper()
	r.await(fmt.Sprintf("%d requests", n), func() bool { return r.site.Count() >= n })
}

// await waits until a condition holds.
func (r *rig) await(what string, happened func() bool) {
	r.Helper()
	tick := time.NewTicker(time.Millisecond)
	defer tick.Stop()
	for !happened() {
		select {
		case <-tick.C:
		case <-r.Context().Done():
			r.Fatalf("%s: never", what)
		}
	}
}

// run starts a worker. The channel receives the error of Run.
func (r *rig) run(ctx context.Context, w *Worker) <-chan error {
	ended := make(chan error, 1)
	go func() { ended <- w.Run(ctx) }()
	return ended
}

// start starts a worker. stop ends it, and checks that Run returns what ended it. It calls its functions
// between the two.
func (r *rig) start(w *Worker) (stop func(between ...func())) {
	r.Helper()
	ctx, cancel := context.WithCancelCause(r.Context())
	ended := r.run(ctx, w)
	return func(between ...func()) {
		r.Helper()
		cancel(errEnough)
		for _, f := range between {
			f()
		}
		if err := <-ended; !errors.Is(err, errEnough) {
			r.Errorf("Run = %v, want what ended it", err)
		}
	}
}

// TestServiceKilled kills one of two services with fetches in flight. All URLs must be fetched, the
// lost ones after the delay of their host.
func TestServiceKilled(t *testing.T) {
	t.Parallel()
	const delay, hosts = time.Second, 20
	page, release := heldPage()
	defer release()
	r := newRig(t, delay, site.Config{Page: page})
	other := newFetchd(t, r.site)
	var urls []string
	for h := range hosts {
		urls = append(urls, r.site.URL(fmt.Sprintf("h%d", h), "/x/1"))
	}
	r.add(urls...)
	if err := r.store.Pause(t.Context(), ""); err != nil { // until both services are reached
		t.Fatal(err)
	}
	w := r.worker(r.service.as("inside"), other.as("other"))
	ended := r.run(t.Context(), w)
	awaitCapacity(w, 2*client.StreamTasks)
	must(t, r.store.Resume(t.Context(), ""))
	r.awaitVisits(hosts) // of both services
	other.Kill()
	release() // well within the delay, so that a second request of a host does not overlap the first
	must(t, <-ended)
	lost := 0
	for _, u := range urls {
		got := r.row(u)
		if got.Status != store.Fetched || got.FailureCount != 0 {
			t.Errorf("%+v, want it fetched and no failure counted", got)
		}
		lost += got.CrashCount
		if requests := r.count(strings.TrimPrefix(strings.Split(u, ".")[0], "http://"), "/x/1"); requests != got.CrashCount+1 {
			t.Errorf("%d requests for %s, which was lost %d times", requests, u, got.CrashCount)
		}
	}
	if stats := w.Stats(); stats.Lost != int64(lost) || lost == 0 || lost == hosts || stats.Completed != hosts || stats.Open != 0 {
		t.Errorf("%+v, %d crashes counted; want some lost, not all, and all fetched", stats, lost)
	}
	// The site notices later than the client that the client has left, so the delay in the journal
	// is a little shorter. But it would show two overlapping requests of a host.
	if early := site.Early(r.site.Visits(), 0, nil); len(early) > 0 {
		t.Errorf("too early: %v", early)
	}
	for h := range hosts {
		visits := r.visitsOf(fmt.Sprintf("h%d.demo.test", h))
		for i := 1; i < len(visits); i++ {
			if visits[i].Start-visits[i-1].Start < delay {
				t.Errorf("%+v came within %v of the start of %+v", visits[i], delay, visits[i-1])
			}
		}
	}
}

func (r *rig) visitsOf(host string) []site.Visit {
	var visits []site.Visit
	for _, v := range r.site.Visits() {
		if v.Host == host {
			visits = append(visits, v)
		}
	}
	return visits
}

// TestServiceDrains drains one of two services. Nothing may be lost.
func TestServiceDrains(t *testing.T) {
	t.Parallel()
	const hosts = 20
	r := newRig(t, time.Millisecond, site.Config{})
	other := newFetchd(t, r.site)
	for h := range hosts {
		r.add(r.site.URL(fmt.Sprintf("h%d", h), "/slow/500/1"), r.site.URL(fmt.Sprintf("h%d", h), "/p/2"))
	}
	w := r.worker(r.service.as("inside"), other.as("other"))
	ended := r.run(t.Context(), w)
	r.awaitVisits(hosts)
	if err := other.Service.Shutdown(t.Context()); err != nil {
		t.Errorf("Shutdown = %v", err)
	}
	must(t, <-ended)
	if stats := w.Stats(); stats.Lost != 0 || stats.Completed != 2*hosts || r.site.Count() != 2*hosts {
		t.Errorf("%+v and %d requests, want nothing lost and each of %d URLs asked for once", stats, r.site.Count(), 2*hosts)
	}
}

// TestNoService checks that Run says for each service why it cannot be used.
func TestNoService(t *testing.T) {
	t.Parallel()
	r := newRig(t, time.Millisecond, site.Config{})
	u := r.site.URL("a", "/p/1")
	r.add(u)
	other := newFetchd(t, r.site)
	r.service.Kill()
	other.Kill()
	err := r.worker(r.service.as("one:50051"), other.as("two:50051")).Run(t.Context())
	for _, part := range []string{"no service answers", "one:50051", "two:50051"} {
		wantFault(t, err, []string{part})
	}
	if got := r.row(u); got.Status != store.Pending || got.CrashCount != 0 {
		t.Errorf("%+v, want it untouched", got)
	}
}

// hanging accepts connections and never answers.
func hanging(t *testing.T) Service {
	t.Helper()
	l, err := net.Listen("tcp4", "127.0.0.1:0")
	must(t, err)
	conn, err := grpc.NewClient("passthrough:///"+l.Addr().String(), grpc.WithTransportCredentials(insecure.NewCredentials()))
	must(t, err)
	t.Cleanup(func() {
		conn.Close()
		l.Close() // this ends connections that were not accepted
	})
	return Service{Name: "hanging", Client: client.New(conn)}
}

// TestServiceHangs checks that a service that accepts connections and never answers gets no
// fetches, and does not keep Run from ending.
func TestServiceHangs(t *testing.T) {
	t.Parallel()
	r := newRig(t, time.Millisecond, site.Config{})
	for n := range 5 {
		r.add(r.site.URL(fmt.Sprintf("h%d", n), "/p/1"))
	}
	w := r.worker(hanging(t), r.service.as("inside"))
	if err := w.Run(t.Context()); err != nil {
		t.Errorf("Run = %v", err)
	}
	if stats := w.Stats(); stats.Completed != 5 || stats.Lost != 0 {
		t.Errorf("%+v, want five fetched and nothing lost", stats)
	}
}

// TestPingEnds checks that Run returns if its context ends while it waits for services.
func TestPingEnds(t *testing.T) {
	t.Parallel()
	r := newRig(t, time.Millisecond, site.Config{})
	enough := fmt.Errorf("enough")
	ctx, cancel := context.WithCancelCause(t.Context())
	ended := r.run(ctx, r.worker(hanging(t)))
	cancel(enough)
	if err := <-ended; err != enough { //nolint:errorlint // the very error, and no text about services
		t.Errorf("Run = %v, want %v", err, enough)
	}
}
