// Package download fetches many URLs into files, several at once, and continues what an
// interrupted run left. It is what "fetchctl download" does.
package download

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"sync"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"fetchd/client"
	pb "fetchd/gen/fetchd/v1"
	"fetchd/internal/cli"
	"fetchd/internal/jsontext"
)

const (
	// streamWindow is the flow-control window of each fetch. It limits how far the service
	// may be ahead of the data written here. Together with the data that is not yet recorded
	// in the sidecar it is less than 1 MiB, which is how much a killed run may fetch twice.
	streamWindow = 512 << 10
	// connWindow is the window of the connection. It does not limit the fetches on it.
	connWindow = 16 << 20
	// leastRate is the minimum share of a limited rate for one file. gRPC tells the service
	// that data was read after a quarter of the window, and the service waits 30 s for that.
	leastRate = 8 << 10

	maxJobs    = 64
	maxRetries = 10
)

// Run is one run of "fetchctl download".
type Run struct {
	flags   *Command
	headers []*pb.Header
	json    io.Writer // receives a line for each file that has ended; nil for none
	svc     pb.FetchServiceClient
	entries []*entry
	dir     *folder
	naming  *naming
	sums    map[string]string // nil if there is no list
	limit   *limiter
	board   *board

	mu     sync.Mutex
	counts counts
	code   int   // exit code
	fatal  error // ends the run, because every other file would fail as well
	cancel context.CancelFunc
}

// newRun reads the lists, opens the folder and gives every file a name. The caller closes the
// Run. No request has been made so far.
func newRun(ctx context.Context, c *Command, p *cli.Program) (*Run, error) {
	switch {
	case c.Jobs < 1 || c.Jobs > maxJobs:
		return nil, cli.UsageError("--jobs", fmt.Sprintf("is %d: give 1 to %d", c.Jobs, maxJobs))
	case c.MaxRetries < 0 || c.MaxRetries > maxRetries:
		return nil, cli.UsageError("--max-retries", fmt.Sprintf("is %d: give 0 to %d", c.MaxRetries, maxRetries))
	case c.LimitRate != nil && *c.LimitRate < leastRate:
		return nil, cli.UsageError("--limit-rate", fmt.Sprintf("is %d bytes a second: give %d or more", *c.LimitRate, leastRate))
	}
	d := &Run{flags: c}
	var err error
	if d.entries, err = c.entries(ctx, p.In); err != nil {
		return nil, err
	}
	if d.sums, err = readSums(ctx, c.Sums); err != nil {
		return nil, err
	}
	if err = c.Complete(ctx); err != nil { // it may ask for a password
		return nil, err
	}
	if d.headers, err = c.Headers(); err != nil {
		return nil, err
	}
	if d.dir, err = openFolder(c.Dir); err != nil {
		return nil, err
	}
	if c.LimitRate != nil {
		d.limit = &limiter{rate: int64(*c.LimitRate)}
	}
	if c.JSON {
		d.json = p.Out
	}
	d.board = &board{out: &cli.Printer{W: p.Err}, paint: p.Painter(p.Err), quiet: c.Quiet, files: len(d.entries), started: time.Now()}
	d.dir.say = func(err error) { (&cli.Printer{W: d.board}).Printf("%s\n", cli.Escape(fmt.Sprint(err))) }
	if d.naming, err = newNaming(d.dir, d.entries, d.sums); err != nil {
		d.dir.close()
		return nil, err
	}
	if !c.Quiet && cli.IsTerminal(p.Err) && p.Env("TERM") != "dumb" {
		d.board.draws, d.board.size = true, func() (columns, rows int) { return cli.TerminalSize(p.Err) }
	}
	d.reportUnsigned()
	return d, nil
}

// reportUnsigned says how many URLs no provider signs.
func (d *Run) reportUnsigned() {
	n := 0
	for _, e := range d.entries {
		if d.flags.Sign.Given() && d.flags.Provider(e.url) == "" {
			n++
		}
	}
	if n > 0 && !d.flags.Quiet {
		d.board.out.Printf("not signed, because they are not https: %d of %d URLs\n", n, len(d.entries))
	}
}

// Close releases the folder.
func (d *Run) Close() { d.dir.close() }

// jobs returns how many files are fetched at once: no more than a limited rate can serve.
func (c *Command) jobs() int {
	if c.LimitRate == nil {
		return c.Jobs
	}
	return max(1, int(min(cli.ByteSize(c.Jobs), *c.LimitRate/leastRate)))
}

// counts is how many files ended in which way.
type counts struct {
	completed, failed, alreadyThere, interrupted int

	retries int // attempts after the first of a file
	retried int // files with such attempts
	bytes   int64
}

// The values of Result.Result.
const (
	resultCompleted    = "completed"
	resultFailed       = "failed"
	resultAlreadyThere = "already_there"
	resultInterrupted  = "interrupted"
)

// Result is how a file ended, as --json prints it.
type Result struct {
	URL          string  `json:"url"`
	Name         string  `json:"name"`
	Result       string  `json:"result"`
	SizeBytes    int64   `json:"size_bytes"`    // of the file, or of what is kept of it
	FetchedBytes int64   `json:"fetched_bytes"` // in this run
	ResumedAt    int64   `json:"resumed_at_bytes,omitempty"`
	AttemptCount int32   `json:"attempt_count"`
	StatusCode   int32   `json:"status_code,omitempty"`
	SHA256       string  `json:"sha256,omitempty"` // where a list was given
	ErrorClass   string  `json:"error_class,omitempty"`
	FailureType  string  `json:"failure_type,omitempty"`
	Retryable    bool    `json:"retryable,omitempty"`
	Message      string  `json:"message,omitempty"`
	Seconds      float64 `json:"seconds"`

	code int // exit code
}

// Fetch downloads the files in their order. It returns the exit code for files that failed,
// or an error that ended the run.
func (d *Run) Fetch(ctx context.Context, svc pb.FetchServiceClient) (code int, err error) {
	work, cancel := context.WithCancel(ctx)
	defer cancel()
	d.svc, d.cancel = svc, cancel
	d.board.start()
	queue := make(chan *entry)
	var workers sync.WaitGroup
	for range min(d.flags.jobs(), len(d.entries)) {
		workers.Go(func() {
			for e := range queue {
				d.ended(d.one(work, e))
			}
		})
	}
	started := feed(work, queue, d.entries)
	workers.Wait()
	d.board.end()
	d.board.sum(d.counts, len(d.entries)-started)
	switch {
	case d.fatal != nil:
		return cli.ExitFailed, d.fatal
	case ctx.Err() != nil && (d.counts.interrupted > 0 || started < len(d.entries)):
		return cli.ExitFailed, ctx.Err()
	}
	return d.code, nil
}

// feed sends the entries to queue until ctx ends, and returns how many it sent.
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

// one fetches one file.
func (d *Run) one(ctx context.Context, e *entry) Result {
	t := &transfer{Run: d, entry: e, result: Result{URL: e.url, Name: e.name}}
	t.open()
	err := t.run(ctx)
	t.close(ctx, err)
	return t.result
}

// ended counts a file, and updates the exit code.
func (d *Run) ended(r Result) {
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
	if r.AttemptCount > 1 {
		d.counts.retries += int(r.AttemptCount) - 1
		d.counts.retried++
	}
	d.counts.bytes += r.FetchedBytes
	d.code = graver(d.code, r.code)
	if d.json == nil {
		return
	}
	line, err := json.Marshal(r)
	if err == nil {
		_, err = d.json.Write(jsontext.Escape(append(line, '\n')))
	}
	if err != nil {
		d.stopLocked(cli.OutputError(err))
	}
}

// stopLocked ends the run, because every other file would fail as well.
func (d *Run) stopLocked(err error) {
	if d.fatal == nil {
		d.fatal = err
	}
	d.cancel()
}

// stopsAll reports whether err is an error of the service that every other file would meet too.
func stopsAll(err error) bool {
	switch status.Code(err) {
	case codes.Unavailable, codes.Unimplemented, codes.Unauthenticated, codes.PermissionDenied:
		return true
	}
	return errors.Is(err, client.ErrContract)
}

// gravity orders the exit codes. If files failed in several ways, the code is that of the
// failure that is least likely to pass by itself.
var gravity = map[int]int{cli.ExitTransient: 1, cli.ExitRateLimited: 2, cli.ExitNeedsAuth: 3, cli.ExitPermanent: 4, cli.ExitNotIdempotent: 4, cli.ExitUsage: 5, cli.ExitService: 6, cli.ExitOutput: 7}

func graver(a, b int) int {
	if gravity[b] > gravity[a] {
		return b
	}
	return a
}

// limiter limits the total rate of everything that shares it. A nil limiter does nothing.
type limiter struct {
	rate int64 // bytes a second

	mu   sync.Mutex
	free time.Time // when the bytes so far will have been paid for
}

// pay waits for as long as n bytes take. Unused time is not saved up.
func (l *limiter) pay(ctx context.Context, n int) error {
	if l == nil {
		return nil
	}
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-time.After(time.Until(l.book(n))):
		return nil
	}
}

func (l *limiter) book(n int) time.Time {
	l.mu.Lock()
	defer l.mu.Unlock()
	if now := time.Now(); l.free.Before(now) {
		l.free = now
	}
	l.free = l.free.Add(time.Duration(float64(n) / float64(l.rate) * float64(time.Second)))
	return l.free
}
