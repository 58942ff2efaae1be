// Package feed puts the URLs of a command line, of lists and of sitemaps into a frontier.
package feed

import (
	"context"
	"errors"
	"fmt"
	"time"

	"fetchd/cmd/frontier/progress"
	"fetchd/frontier/normal"
	"fetchd/frontier/scope"
	"fetchd/frontier/store"
	"fetchd/internal/cli"
)

const (
	// batchSize is the number of entries in one Put.
	batchSize = 1000
	// maxReports is the number of bad lines that are reported without --verbose.
	maxReports = 100
	// putEvery is the longest time that an entry waits for others.
	putEvery = time.Second
)

// Feed puts entries into a store. It reports bad ones and its progress on the line.
type Feed struct {
	*progress.Line
	Store    store.Store
	Clean    func(string) string // makes a report safe for the terminal
	Verbose  bool                // report every bad entry, not only the first 100
	Priority int
	Scope    *scope.Scope // nil allows everything
	Metadata string       // of sitemaps
	Limits   store.Limits
	Bad      int64 // number of bad entries

	batch []entry
	last  *entry // the last entry that was put
	read  int64
	added int64
	known int64
	other int64 // that the scope has left out
	over  int64 // that a limit has left out
}

// Add puts the entries of all sources in batches.
func (f *Feed) Add(ctx context.Context, sources []Source) error {
	reading, stop := context.WithCancel(ctx)
	defer stop()
	entries := make(chan entry, batchSize/4)
	// Nothing waits for this goroutine, because a read of standard input cannot be interrupted.
	go func() {
		defer close(entries)
		readAll(reading, sources, entries)
	}()
	err := f.drain(ctx, entries)
	f.Clear()
	if n := f.Bad - maxReports; n > 0 && !f.Verbose {
		f.Printf("%s more; --verbose reports them all\n", cli.Count(n, "bad line"))
	}
	return err
}

// drain puts entries until there are no more.
func (f *Feed) drain(ctx context.Context, entries <-chan entry) error {
	tick := time.NewTicker(putEvery)
	defer tick.Stop()
	for {
		if err := ctx.Err(); err != nil {
			return err
		}
		var err error
		select {
		case <-ctx.Done():
		case <-tick.C:
			err = f.put(ctx)
			f.Show(f.read, cli.Count(f.read, "URL")+" read")
		case e, more := <-entries:
			if !more {
				return errors.Join(ctx.Err(), f.put(ctx))
			}
			f.read++
			f.batch = append(f.batch, e)
			if len(f.batch) == batchSize {
				err = f.put(ctx)
			}
		}
		if err != nil {
			return err
		}
	}
}

// put puts the batch, and reports its bad entries in order.
func (f *Feed) put(ctx context.Context) error {
	if len(f.batch) == 0 {
		return nil
	}
	entries := make([]store.Entry, 0, len(f.batch))
	place := make([]int, 0, len(f.batch)) // index in the batch of each entry
	for i, e := range f.batch {
		if e.Err == nil && f.wants(e) {
			entries, place = append(entries, f.entry(e)), append(place, i)
		}
	}
	if len(entries) > 0 {
		r, err := f.Store.Put(ctx, entries, f.Limits)
		if err != nil {
			return err
		}
		f.added += r.Added
		f.known += r.Known
		f.over += r.Over + r.OverHost
		for _, bad := range r.Bad {
			f.batch[place[bad.Index]].Err = bad.Err
		}
	}
	for _, e := range f.batch {
		if e.Err != nil {
			f.report(e)
		}
	}
	last := f.batch[len(f.batch)-1]
	f.last, f.batch = &last, f.batch[:0]
	return nil
}

// wants reports whether an entry is in the scope. A URL without a normal form is, because Put reports
// it.
func (f *Feed) wants(e entry) bool {
	if f.Scope == nil {
		return true
	}
	u, err := normal.NormalizeURL(e.URL)
	if err != nil || e.Sitemap && f.Scope.AllowsSitemap(u) || !e.Sitemap && f.Scope.Allows(u) {
		return true
	}
	f.other++
	return false
}

func (f *Feed) entry(e entry) store.Entry {
	to := store.Entry{URL: e.URL, Priority: f.Priority, Changed: e.Changed}
	if e.Sitemap {
		to.Kind, to.Metadata = store.Sitemap, f.Metadata
	}
	return to
}

// report prints what is wrong with an entry. The reason does not contain the entry, because a URL
// may contain a password.
func (f *Feed) report(e entry) {
	f.Bad++
	if f.Bad > maxReports && !f.Verbose {
		return
	}
	f.Clear()
	f.Printf("%s\n", f.Clean(fmt.Sprintf("%s: %v", e.where(), e.Err)))
}

// Sum says how many entries were added, known, bad and left out.
func (f *Feed) Sum() string {
	text := fmt.Sprintf("%d added, %d known, %d bad", f.added, f.known, f.Bad)
	if f.other > 0 {
		text += fmt.Sprintf(", %d left out", f.other)
	}
	if f.over > 0 {
		text += fmt.Sprintf(", %d over a limit", f.over)
	}
	return text
}

// Done returns the last entry that was put, and the counts.
func (f *Feed) Done() string {
	if f.last == nil {
		return "nothing was added"
	}
	return fmt.Sprintf("the last line added was %s (%s)", f.last.where(), f.Sum())
}
