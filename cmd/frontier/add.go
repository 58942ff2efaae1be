package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"fetchd/frontier/store"
	"fetchd/internal/cli"
)

const (
	// batchSize is how many entries go into one Put.
	batchSize = 1000
	// maxTold is how many bad lines are reported in full without --verbose.
	maxTold = 100
	// putEvery is the longest that an entry waits for others.
	putEvery = time.Second
	// logEvery is the time between two lines of progress where there is no terminal.
	logEvery = 10 * time.Second
)

// addCmd is "frontier add".
type addCmd struct {
	database
	URL     []string `arg:"" optional:"" help:"URLs to add."`
	Input   []string `short:"i" sep:"none" placeholder:"FILE" help:"Add the URLs of a list, one a line; \"-\" is standard input. May be given again."`
	Sitemap []string `sep:"none" placeholder:"FILE" help:"Add the URLs of a sitemap, as XML or text; \"-\" is standard input. May be given again."`
	Verbose bool     `short:"v" help:"Report every bad line, not only the first 100."`
}

func (c *addCmd) run(ctx context.Context, a *app) int {
	sources, err := c.sources(a.In)
	if err != nil {
		return a.end(ctx, err)
	}
	return c.with(ctx, a, creating, func(s store.Store) error {
		ad := &adder{store: s, app: a, err: &cli.Printer{W: a.Err}, terminal: cli.IsTerminal(a.Err), verbose: c.Verbose, begun: time.Now()}
		return ad.add(ctx, sources)
	})
}

// adder puts entries into the store, a batch at a time.
type adder struct {
	store    store.Store
	app      *app
	err      *cli.Printer
	terminal bool
	verbose  bool
	begun    time.Time
	logged   time.Time // the last line of progress
	shown    bool      // a line of progress stands on the terminal

	batch []entry
	last  *entry // of those that were put
	read  int64
	added int64
	known int64
	bad   int64
}

// add reads every source to its end, and tells what came of it.
func (ad *adder) add(ctx context.Context, sources []source) error {
	reading, stop := context.WithCancel(ctx)
	defer stop()
	entries := make(chan entry, batchSize/4)
	// It is not waited for: a read of standard input has no end that could be hastened.
	go func() {
		defer close(entries)
		readAll(reading, sources, entries)
	}()
	err := ad.drain(ctx, entries)
	ad.clear()
	if n := ad.bad - maxTold; n > 0 && !ad.verbose {
		ad.err.Printf("%s more; --verbose reports them all\n", cli.Count(n, "bad line"))
	}
	switch {
	case ctx.Err() != nil:
		return ad.interrupted()
	case err != nil:
		return ad.failed(err)
	}
	out := &cli.Printer{W: ad.app.Out}
	out.Printf("%s\n", ad.sum())
	if err := out.End(); err != nil {
		return err
	}
	if ad.bad > 0 {
		return cli.PrintedError(cli.ExitBadInput, "some input was bad")
	}
	return nil
}

// drain puts what comes, until there is no more.
func (ad *adder) drain(ctx context.Context, entries <-chan entry) error {
	ad.logged = ad.begun
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
			err = ad.put(ctx)
			ad.tell()
		case e, more := <-entries:
			if !more {
				return errors.Join(ctx.Err(), ad.put(ctx))
			}
			ad.read++
			ad.batch = append(ad.batch, e)
			if len(ad.batch) == batchSize {
				err = ad.put(ctx)
			}
		}
		if err != nil {
			return err
		}
	}
}

// put adds the batch, and reports what is bad of it in the order in which it came.
func (ad *adder) put(ctx context.Context) error {
	if len(ad.batch) == 0 {
		return nil
	}
	urls := make([]string, 0, len(ad.batch))
	place := make([]int, 0, len(ad.batch)) // of each URL in the batch
	for i, e := range ad.batch {
		if e.err == nil {
			urls, place = append(urls, e.url), append(place, i)
		}
	}
	if len(urls) > 0 {
		r, err := ad.store.Put(ctx, urls)
		if err != nil {
			return err
		}
		ad.added += r.Added
		ad.known += r.Known
		for _, bad := range r.Bad {
			ad.batch[place[bad.Index]].err = bad.Err
		}
	}
	for _, e := range ad.batch {
		if e.err != nil {
			ad.report(e)
		}
	}
	last := ad.batch[len(ad.batch)-1]
	ad.last, ad.batch = &last, ad.batch[:0]
	return nil
}

// report tells what is wrong with an entry. The reason does not repeat it, for a
// URL may hold a password.
func (ad *adder) report(e entry) {
	ad.bad++
	if ad.bad > maxTold && !ad.verbose {
		return
	}
	ad.clear()
	ad.err.Printf("%s\n", safe(fmt.Sprintf("%s: %v", e.where(), e.err)))
}

// tell draws how far it is, or logs it now and then.
func (ad *adder) tell() {
	now := time.Now()
	text := fmt.Sprintf("%s read, %.0f/s", cli.Count(ad.read, "URL"), float64(ad.read)/now.Sub(ad.begun).Seconds())
	switch {
	case ad.terminal:
		ad.err.Printf("\r\x1b[K%s", text)
		ad.shown = true
	case now.Sub(ad.logged) >= logEvery:
		ad.err.Printf("%s\n", text)
		ad.logged = now
	}
}

// clear takes the progress away, so that a line can stand there.
func (ad *adder) clear() {
	if ad.shown {
		ad.err.Printf("\r\x1b[K")
		ad.shown = false
	}
}

func (ad *adder) sum() string {
	return fmt.Sprintf("%d added, %d known, %d bad", ad.added, ad.known, ad.bad)
}

// far says how far it came.
func (ad *adder) far() string {
	if ad.last == nil {
		return "nothing was put"
	}
	return fmt.Sprintf("%s was the last line put (%s)", ad.last.where(), ad.sum())
}

func (ad *adder) interrupted() error {
	ad.app.Errorf("interrupted: %s", ad.far())
	ad.app.Hintf("What was put stays. The same command again goes on: URLs that are there already stay as they are.")
	return cli.PrintedError(cli.ExitInterrupted, "interrupted")
}

// failed says how far it came before the database failed.
func (ad *adder) failed(err error) error {
	return fmt.Errorf("%s: %w", ad.far(), err)
}
