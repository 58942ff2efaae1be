package frontier

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"fetchd/cmd/frontier/site"
)

// TestQueues checks that one visit has the turn and the others get it in order of arrival, except
// one that stops waiting. In the end the queue of the host is removed.
func TestQueues(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		q := newQueues()
		if !q.try("a") || q.try("a") || !q.try("b") {
			t.Fatal("the turn at a is one visit's, and b is another host")
		}
		var order []int
		brief, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		for n := range 5 {
			ctx := t.Context()
			if n == 2 {
				ctx = brief
			}
			go func() {
				err := q.wait(ctx, "a")
				if n == 2 {
					if !errors.Is(err, context.DeadlineExceeded) {
						t.Errorf("wait = %v, want it given up", err)
					}
					return
				}
				order = append(order, n)
				q.leave("a")
			}()
			synctest.Wait()
		}
		<-brief.Done()
		synctest.Wait()
		q.leave("a")
		synctest.Wait()
		q.leave("b")
		if !slices.Equal(order, []int{0, 1, 3, 4}) || len(q.hosts) != 0 {
			t.Errorf("order %v, %d hosts left", order, len(q.hosts))
		}
	})
}

// TestManyRedirectsToOneHost checks that redirects take turns at their host, and that none is added
// to the frontier because it waits too long.
func TestManyRedirectsToOneHost(t *testing.T) {
	t.Parallel()
	const delay, hosts = 10 * time.Millisecond, 60
	r := newRig(t, delay, site.Config{})
	for n := range hosts {
		r.add(r.site.URL(fmt.Sprintf("h%d", n), redirectTo(302, r.site.URL("one", fmt.Sprintf("/p/%d", n)))))
	}
	if stats := r.crawl(); stats.Completed != hosts || r.site.Count() != 2*hosts {
		t.Errorf("%+v and %d requests, want %d completed by two each", stats, r.site.Count(), hosts)
	}
	if early := site.Early(r.site.Visits(), delay, nil); len(early) > 0 {
		t.Errorf("too early: %v", early)
	}
}
