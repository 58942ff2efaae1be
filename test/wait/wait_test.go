package wait

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"
)

func TestFor(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name     string
		d, limit time.Duration // of the wait, of the context
		want     bool
		took     time.Duration
	}{
		{"the whole time", time.Minute, time.Hour, true, time.Minute},
		{"till the context ends", time.Hour, time.Minute, false, time.Minute},
		{"no time", 0, time.Minute, true, 0},
		{"less than no time", -1, time.Minute, true, 0},
		{"no time, and the context has ended", 0, 0, false, 0},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				ctx, cancel := context.WithTimeout(t.Context(), tt.limit)
				defer cancel()
				begun := time.Now()
				if got := For(ctx, tt.d); got != tt.want || time.Since(begun) != tt.took {
					t.Errorf("For(%v) = %v after %v, want %v after %v", tt.d, got, time.Since(begun), tt.want, tt.took)
				}
			})
		})
	}
}

func TestPoll(t *testing.T) {
	t.Parallel()
	failed, ended := errors.New("failed"), errors.New("ended")
	for _, tt := range []struct {
		name string
		done func(call int) (bool, error)
		want error
		took time.Duration
	}{
		{"at once", func(int) (bool, error) { return true, nil }, nil, 0},
		{"the third time", func(call int) (bool, error) { return call == 3, nil }, nil, 2 * time.Second},
		{"an error", func(call int) (bool, error) {
			if call == 2 {
				return false, failed
			}
			return false, nil
		}, failed, time.Second},
		{"never", func(int) (bool, error) { return false, nil }, ended, 90*time.Second + time.Second/2},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				ctx, cancel := context.WithTimeoutCause(t.Context(), 90*time.Second+time.Second/2, ended)
				defer cancel()
				begun, calls := time.Now(), 0
				err := Poll(ctx, time.Second, func() (bool, error) { calls++; return tt.done(calls) })
				if !errors.Is(err, tt.want) || time.Since(begun) != tt.took {
					t.Errorf("Poll = %v after %v, want %v after %v", err, time.Since(begun), tt.want, tt.took)
				}
			})
		})
	}
}

func TestUntil(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		calls := 0
		if err := Until(ctx, time.Second, func() bool { calls++; return calls == 3 }); err != nil || calls != 3 {
			t.Errorf("Until = %v after %d calls, want nil after 3", err, calls)
		}
		if err := Until(ctx, time.Second, func() bool { return false }); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("Until = %v, want that the context ended", err)
		}
	})
}
