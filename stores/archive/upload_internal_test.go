package archive

import (
	"context"
	"os"
	"testing"
	"time"

	"fetchd/internal/budget"
)

// TestQueueDuringTry queues a file while its upload is being tried. The try may have found it locked, so it
// waits again.
func TestQueueDuringTry(t *testing.T) {
	a := &Archive{spools: budget.New(100), wake: make(chan struct{}, 1), config: Config{Upload: func(context.Context, string, *os.File, int64) error { return nil }}}
	a.queue("x", 10, time.Unix(1, 0))
	tried := a.waiting[0]
	a.queue("x", 20, time.Unix(2, 0))
	a.unqueue(tried)
	if len(a.waiting) != 1 || a.waits != 20 {
		t.Errorf("%d files of %d bytes wait, want 1 of 20", len(a.waiting), a.waits)
	}
	a.unqueue(a.waiting[0])
	if len(a.waiting) != 0 || a.waits != 0 {
		t.Errorf("%d files of %d bytes wait after the upload, want none", len(a.waiting), a.waits)
	}
}
