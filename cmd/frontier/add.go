package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"fetchd/cmd/frontier/crawl"
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

// addCmd is "frontier add".
type addCmd struct {
	database
	URL     []string `arg:"" optional:"" help:"URLs to add."`
	Input   []string `short:"i" sep:"none" placeholder:"FILE" help:"Add the URLs in FILE, one per line; \"-\" is standard input. Repeatable."`
	Sitemap []string `sep:"none" placeholder:"FILE|URL" help:"Add the URLs of a sitemap, XML or text; \"-\" is standard input. A worker reads the sitemap at a URL. Repeatable."`
	Verbose bool     `short:"v" help:"Report every bad line, not only the first 100."`

	Priority int      `placeholder:"N" help:"Priority within the host, -100 to 100. URLs of higher priority are fetched first. Default: 0."`
	Scope    string   `placeholder:"all" complete:"host,domain,prefix,all" help:"Only URLs of the hosts of the URLs and sitemaps that you name (host), of all hosts of their domains (domain), URLs that start with one of them up to its last slash (prefix), or all. A file names nothing. Default: all."`
	Include  []string `sep:"none" placeholder:"PATTERN" help:"Only URLs that match this regular expression (RE2). Repeatable: one must match."`
	Exclude  []string `sep:"none" placeholder:"PATTERN" help:"No URLs that match this regular expression. Repeatable."`
	URLs     int64    `name:"max-urls" placeholder:"N" help:"Maximum number of URLs in the database. More are left out."`
	HostURLs int64    `name:"max-urls-per-host" placeholder:"N" help:"Maximum number of URLs of a host."`
}

func (c *addCmd) run(ctx context.Context, a *app) int {
	sources, err := sources(c.URL, c.Input, c.Sitemap, a.In)
	if err != nil {
		return a.end(ctx, err)
	}
	if err := c.check(); err != nil {
		return a.end(ctx, err)
	}
	wanted, metadata, err := c.narrow()
	if err != nil {
		return a.end(ctx, err)
	}
	return c.with(ctx, a, creating, func(s store.Store) error {
		ad := &adder{store: s, app: a, Line: progress.NewLine(a.Err), verbose: c.Verbose, priority: c.Priority, wanted: wanted, metadata: metadata,
			limits: store.Limits{URLs: c.URLs, URLsPerHost: c.HostURLs}}
		return ad.add(ctx, sources)
	})
}

// check returns an error for the first number that is not usable.
func (c *addCmd) check() error {
	if c.Priority < -store.MaxPriority || c.Priority > store.MaxPriority {
		return cli.UsageError("--priority", fmt.Sprintf("is %d: use -%d to %d", c.Priority, store.MaxPriority, store.MaxPriority))
	}
	for _, limit := range []struct {
		flag string
		n    int64
	}{{"--max-urls", c.URLs}, {"--max-urls-per-host", c.HostURLs}} {
		if limit.n < 0 {
			return cli.UsageError(limit.flag, fmt.Sprintf("is %d: use 1 or more, or 0 for no limit", limit.n))
		}
	}
	return nil
}

// narrow returns the scope of what is added, or nil if it is everything. It also returns the metadata of
// sitemaps, so that scope and limits apply to what workers find in them.
func (c *addCmd) narrow() (*scope.Scope, string, error) {
	by := scope.By(cmp.Or(c.Scope, string(scope.All)))
	rules := scope.Rules{Scope: by, Places: scope.Places(by, c.named()), Include: c.Include, Exclude: c.Exclude, MaxURLs: c.URLs, MaxHostURLs: c.HostURLs}
	wanted, err := crawl.NewScope(scope.Config{By: by, Places: rules.Places, Include: c.Include, Exclude: c.Exclude})
	switch {
	case err != nil:
		return nil, "", err
	case by != scope.All && len(rules.Places) == 0:
		return nil, "", cli.UsageError("--scope", fmt.Sprintf("%s is relative to URLs: give one, or --sitemap with a URL", by))
	case by == scope.All && !wanted.Narrow():
		wanted = nil
	}
	if len(c.Sitemap) == 0 || wanted == nil && c.URLs == 0 && c.HostURLs == 0 {
		return wanted, "", nil
	}
	metadata, err := rules.Metadata()
	if err == nil && len(metadata) > store.MaxMetadata {
		err = cli.UsageError("--sitemap", fmt.Sprintf("the patterns and the hosts of --scope have %d bytes, and a sitemap has %d for them: give fewer", len(metadata), store.MaxMetadata))
	}
	return wanted, metadata, err
}

// named returns the URLs on the command line in their normal form.
func (c *addCmd) named() []string {
	var all []string
	for _, raw := range slices.Concat(c.URL, c.Sitemap) {
		if u, err := normal.NormalizeURL(raw); err == nil { // a file has none, and others are reported later
			all = append(all, u)
		}
	}
	return all
}

// adder puts entries into the store in batches.
type adder struct {
	*progress.Line
	store    store.Store
	app      *app
	verbose  bool
	priority int
	wanted   *scope.Scope // nil allows everything
	metadata string       // of sitemaps
	limits   store.Limits

	batch []entry
	last  *entry // the last entry that was put
	read  int64
	added int64
	known int64
	bad   int64
	other int64 // that the scope has left out
	over  int64 // that a limit has left out
}

// add puts the entries of all sources, and prints the result.
func (ad *adder) add(ctx context.Context, sources []source) error {
	reading, stop := context.WithCancel(ctx)
	defer stop()
	entries := make(chan entry, batchSize/4)
	// Nothing waits for this goroutine, because a read of standard input cannot be interrupted.
	go func() {
		defer close(entries)
		readAll(reading, sources, entries)
	}()
	err := ad.drain(ctx, entries)
	ad.Clear()
	if n := ad.bad - maxReports; n > 0 && !ad.verbose {
		ad.Printf("%s more; --verbose reports them all\n", cli.Count(n, "bad line"))
	}
	switch {
	case ctx.Err() != nil:
		return ad.interrupted()
	case err != nil:
		return fmt.Errorf("%s: %w", ad.progressText(), err)
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

// drain puts entries until there are no more.
func (ad *adder) drain(ctx context.Context, entries <-chan entry) error {
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
			ad.Show(ad.read, cli.Count(ad.read, "URL")+" read")
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

// put puts the batch, and reports its bad entries in order.
func (ad *adder) put(ctx context.Context) error {
	if len(ad.batch) == 0 {
		return nil
	}
	entries := make([]store.Entry, 0, len(ad.batch))
	place := make([]int, 0, len(ad.batch)) // index in the batch of each entry
	for i, e := range ad.batch {
		if e.Err == nil && ad.wants(e) {
			entries, place = append(entries, ad.entry(e)), append(place, i)
		}
	}
	if len(entries) > 0 {
		r, err := ad.store.Put(ctx, entries, ad.limits)
		if err != nil {
			return err
		}
		ad.added += r.Added
		ad.known += r.Known
		ad.over += r.Over + r.OverHost
		for _, bad := range r.Bad {
			ad.batch[place[bad.Index]].Err = bad.Err
		}
	}
	for _, e := range ad.batch {
		if e.Err != nil {
			ad.report(e)
		}
	}
	last := ad.batch[len(ad.batch)-1]
	ad.last, ad.batch = &last, ad.batch[:0]
	return nil
}

// wants reports whether an entry is in the scope. A URL without a normal form is, because Put reports
// it.
func (ad *adder) wants(e entry) bool {
	if ad.wanted == nil {
		return true
	}
	u, err := normal.NormalizeURL(e.URL)
	if err != nil || e.Sitemap && ad.wanted.AllowsSitemap(u) || !e.Sitemap && ad.wanted.Allows(u) {
		return true
	}
	ad.other++
	return false
}

func (ad *adder) entry(e entry) store.Entry {
	to := store.Entry{URL: e.URL, Priority: ad.priority, Changed: e.Changed}
	if e.Sitemap {
		to.Kind, to.Metadata = store.Sitemap, ad.metadata
	}
	return to
}

// report prints what is wrong with an entry. The reason does not contain the entry, because a URL
// may contain a password.
func (ad *adder) report(e entry) {
	ad.bad++
	if ad.bad > maxReports && !ad.verbose {
		return
	}
	ad.Clear()
	ad.Printf("%s\n", safe(fmt.Sprintf("%s: %v", e.where(), e.Err)))
}

func (ad *adder) sum() string {
	text := fmt.Sprintf("%d added, %d known, %d bad", ad.added, ad.known, ad.bad)
	if ad.other > 0 {
		text += fmt.Sprintf(", %d left out", ad.other)
	}
	if ad.over > 0 {
		text += fmt.Sprintf(", %d over a limit", ad.over)
	}
	return text
}

// progressText returns the last entry that was put, and the counts.
func (ad *adder) progressText() string {
	if ad.last == nil {
		return "nothing was added"
	}
	return fmt.Sprintf("the last line added was %s (%s)", ad.last.where(), ad.sum())
}

func (ad *adder) interrupted() error {
	ad.app.Errorf("interrupted: %s", ad.progressText())
	ad.app.Hintf("What was added stays. Run the same command again to continue: URLs that exist already do not change.")
	return cli.PrintedError(cli.ExitInterrupted, "interrupted")
}
