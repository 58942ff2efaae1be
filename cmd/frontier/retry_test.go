package main

import (
	"bytes"
	"context"
	"errors"
	"testing"

	"fetchd/frontier/store"
	"fetchd/internal/cli"
)

// endingStore ends a retry after the first chunk of 2,000 URLs.
type endingStore struct {
	store.Store
	end func() error
}

func (s endingStore) RetryFailed(_ context.Context, _, _ string, progress func(int64)) (int64, error) {
	progress(2000)
	return 2000, s.end()
}

// TestRetryEndsEarly checks that a retry that did not end says how far it came.
func TestRetryEndsEarly(t *testing.T) {
	t.Parallel()
	for _, row := range []struct {
		name string
		end  func(stop func()) error
		code int
		want string
	}{
		{"interrupted", func(stop func()) error { stop(); return context.Canceled }, cli.ExitInterrupted,
			"frontier: interrupted: 2000 URLs that had failed are pending again\n  They stay pending. Run the same command again to continue with the others.\n"},
		{"an error", func(func()) error { return errors.New("the disk is full") }, cli.ExitDatabase,
			"frontier: 2000 URLs that had failed are pending again: the disk is full\n"},
	} {
		ctx, stop := context.WithCancel(t.Context())
		var out, told bytes.Buffer
		a := &app{Program: cli.Program{Name: "frontier", Streams: cli.Streams{Out: &out, Err: &told}}}
		code := a.end(ctx, new(retryCmd).retry(ctx, a, endingStore{end: func() error { return row.end(stop) }}, "", ""))
		stop()
		if code != row.code || out.Len() > 0 || told.String() != row.want {
			t.Errorf("%s: exit status %d, %q, %q; want %d and %q", row.name, code, out.String(), told.String(), row.code, row.want)
		}
	}
}
