package fetch

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
)

// TestTurns checks that callers take turns, whatever each of them waits for, and that who leaves holds nothing.
func TestTurns(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var turns turns
		atOnce := max(1, runtime.GOMAXPROCS(0)/2)
		for i := range atOnce {
			if err := turns.take(t.Context(), fmt.Sprint("busy ", i)); err != nil {
				t.Fatal(err)
			}
		}
		var mu sync.Mutex
		var order []string
		add := func(what string) {
			mu.Lock()
			defer mu.Unlock()
			order = append(order, what)
		}
		wait := func(ctx context.Context, caller string) {
			go func() {
				if err := turns.take(ctx, caller); err != nil {
					add(caller + " left")
					return
				}
				add(caller)
				turns.give()
			}()
			synctest.Wait()
		}
		leaving, leave := context.WithCancelCause(t.Context())
		for range 3 {
			wait(t.Context(), "a")
		}
		wait(leaving, "c")
		wait(t.Context(), "b")
		wait(leaving, "b")
		leave(errors.New("cancelled"))
		synctest.Wait()
		mu.Lock()
		slices.Sort(order)
		mu.Unlock()
		turns.give()
		synctest.Wait()
		mu.Lock()
		defer mu.Unlock()
		const want = "b left c left a b a a"
		if got := strings.Join(order, " "); got != want {
			t.Errorf("%q, want %q", got, want)
		}
		for range atOnce - 1 {
			turns.give()
		}
		if turns.busy != 0 || len(turns.waiting) > 0 {
			t.Errorf("%d are busy and %d callers wait, want none", turns.busy, len(turns.waiting))
		}
	})
}
