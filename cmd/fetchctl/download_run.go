package main

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"sync"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	pb "fetchd/gen/fetchd/v1"
	"fetchd/internal/cli"
	"fetchd/internal/plainjson"
)

// downloads is one run of "fetchctl download".
type downloads struct {
	app      *app
	svc      pb.FetchServiceClient
	server   string
	dir      *folder
	naming   *naming
	sums     map[string]string // nil: there is no list
	force    bool
	attempts int32
	limit    *limiter
	board    *board

	mu     sync.Mutex
	json   io.Writer // nil: nothing is written
	counts counts
	status int
	fatal  error // why no file can be fetched any more
	cancel context.CancelFunc
}

// counts are how files ended.
type counts struct {
	completed, failed, alreadyThere, interrupted int

	retries int // attempts after the first of a file
	retried int // files with such attempts
	bytes   int64
}

// What a file's end is called.
const (
	resultCompleted    = "completed"
	resultFailed       = "failed"
	resultAlreadyThere = "already_there"
	resultInterrupted  = "interrupted"
)

// fileResult is how a file ended, as --json tells it.
type fileResult struct {
	URL          string  `json:"url"`
	Name         string  `json:"name"`
	Result       string  `json:"result"`
	SizeBytes    int64   `json:"size_bytes"`    // of the file, or of what is kept of it
	FetchedBytes int64   `json:"fetched_bytes"` // in this run
	ResumedAt    int64   `json:"resumed_at_bytes,omitempty"`
	Attempts     int32   `json:"attempts"`
	StatusCode   int32   `json:"status_code,omitempty"`
	SHA256       string  `json:"sha256,omitempty"` // where a list was given
	ErrorClass   string  `json:"error_class,omitempty"`
	FailureType  string  `json:"failure_type,omitempty"`
	Retryable    bool    `json:"retryable,omitempty"`
	Message      string  `json:"message,omitempty"`
	Seconds      float64 `json:"seconds"`

	status int // exit status
}

// run fetches the entries, so many at once, in their order.
func (d *downloads) run(ctx context.Context, entries []*entry, jobs int) int {
	work, cancel := context.WithCancel(ctx)
	defer cancel()
	d.cancel = cancel
	d.board.start()
	queue := make(chan *entry)
	var workers sync.WaitGroup
	for range min(jobs, len(entries)) {
		workers.Go(func() {
			for e := range queue {
				d.ended(d.one(work, e))
			}
		})
	}
	begun := feed(work, queue, entries)
	workers.Wait()
	d.board.end()
	d.board.sum(d.counts, len(entries)-begun)
	switch {
	case d.fatal != nil:
		return d.app.fail(ctx, d.server, d.fatal)
	case ctx.Err() != nil && (d.counts.interrupted > 0 || begun < len(entries)):
		return d.app.fail(ctx, d.server, ctx.Err())
	}
	return d.status
}

// feed gives out entries until all are given or ctx ends, and says how many.
func feed(ctx context.Context, queue chan<- *entry, entries []*entry) int {
	defer close(queue)
	for i, e := range entries {
		if ctx.Err() != nil {
			return i
		}
		select {
		case queue <- e:
		case <-ctx.Done():
			return i
		}
	}
	return len(entries)
}

// one brings one file.
func (d *downloads) one(ctx context.Context, e *entry) fileResult {
	t := &transfer{downloads: d, entry: e, result: fileResult{URL: e.url, Name: e.name}}
	t.open()
	err := t.run(ctx)
	t.close(ctx, err)
	return t.result
}

// ended counts a file, and notes what the exit status must say.
func (d *downloads) ended(r fileResult) {
	d.mu.Lock()
	defer d.mu.Unlock()
	switch r.Result {
	case resultCompleted:
		d.counts.completed++
	case resultAlreadyThere:
		d.counts.alreadyThere++
	case resultInterrupted:
		d.counts.interrupted++
	default:
		d.counts.failed++
	}
	if r.Attempts > 1 {
		d.counts.retries += int(r.Attempts) - 1
		d.counts.retried++
	}
	d.counts.bytes += r.FetchedBytes
	d.status = graver(d.status, r.status)
	if d.json == nil {
		return
	}
	line, err := json.Marshal(r)
	if err == nil {
		_, err = d.json.Write(plainjson.Escape(append(line, '\n')))
	}
	if err != nil {
		d.stop(cli.OutputError(err))
	}
}

// stop ends the run: no other file would fare better. The caller holds the lock.
func (d *downloads) stop(err error) {
	if d.fatal == nil {
		d.fatal = err
	}
	d.cancel()
}

// stopsAll tells errors of the service that any other file would meet too.
func stopsAll(err error) bool {
	switch status.Code(err) {
	case codes.Unavailable, codes.Unimplemented, codes.Unauthenticated, codes.PermissionDenied:
		return true
	}
	return errors.Is(err, errContract)
}

// gravity orders exit statuses: where files ended in several ways, the one told
// is that which is least likely to pass by itself.
var gravity = map[int]int{cli.ExitTransient: 1, cli.ExitRateLimited: 2, cli.ExitNeedsAuth: 3, cli.ExitPermanent: 4, cli.ExitUsage: 5, cli.ExitService: 6, cli.ExitOutput: 7}

func graver(a, b int) int {
	if gravity[b] > gravity[a] {
		return b
	}
	return a
}
