package show

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"fetchd/cmd/frontier/crawl"
	"fetchd/frontier"
	"fetchd/frontier/store"
	"fetchd/frontier/traps"
	"fetchd/frontier/why"
	"fetchd/internal/cli"
)

// Status is what "frontier status" shows. Its JSON is stable.
type Status struct {
	URLs    urlCounts              `json:"urls"`
	Waiting map[string]int64       `json:"waiting"` // pending and failed URLs, by what they wait for: the reasons of "frontier why"
	Hosts   hostCounts             `json:"hosts"`
	Origins originCounts           `json:"origins"`
	Workers []workerState          `json:"workers"`
	Paused  bool                   `json:"paused"`            // the whole crawl
	Budgets string                 `json:"budgets,omitempty"` // what the budgets of "frontier crawl" have left out, and which has ended its last run
	Traps   trapCounts             `json:"traps"`
	Classes map[string]classCounts `json:"classes,omitempty"`
}

// trapCounts are what the rules against traps have done.
type trapCounts struct {
	Repeated     int64        `json:"repeated"`       // links that were refused: a group of segments repeats
	Segments     int64        `json:"segments"`       // links that were refused: too many segments
	SessionIDs   int64        `json:"session_ids"`    // links with a session id, each time that they were found
	SameAsParent int64        `json:"same_as_parent"` // pages whose links were not followed: the body is that of the page that links to them
	SameOnHost   int64        `json:"same_on_host"`   // likewise: the body is that of many pages of the host
	Patterns     []urlPattern `json:"patterns"`       // URLs of a host that differ in numbers only, if there are many
}

type urlPattern struct {
	Host    string `json:"host"`
	Pattern string `json:"pattern"`
	URLs    int64  `json:"urls"`
}

// maxPatterns is how many patterns status lists.
const maxPatterns = 10

func readTraps(ctx context.Context, s store.Store) (trapCounts, error) {
	t, err := frontier.ReadTraps(ctx, s)
	if err != nil {
		return trapCounts{}, err
	}
	found, err := s.Patterns(ctx, traps.ManyURLs, maxPatterns)
	all := make([]urlPattern, len(found)) // not null in JSON
	for i, p := range found {
		all[i] = urlPattern(p)
	}
	return trapCounts{t.Repeated, t.Segments, t.Sessions, t.Parent, t.Host, all}, err
}

// table formats the counts for people. It is empty if there are none.
func (t *trapCounts) table() string {
	var b strings.Builder
	for _, row := range []struct {
		name string
		n    int64
		note string
	}{
		{"repeated", t.Repeated, "links not added: segments of their path repeat"},
		{"segments", t.Segments, "links not added: their path has more than 20 segments"},
		{"session ids", t.SessionIDs, "links with a session id"},
		{"same body", t.SameAsParent, "pages like the page that links to them: their links are not followed"},
		{"same body", t.SameOnHost, "pages like many others of their host: their links are not followed"},
	} {
		if row.n > 0 {
			fmt.Fprintf(&b, "  %-11s %9d  %s\n", row.name, row.n, row.note)
		}
	}
	for _, p := range t.Patterns {
		fmt.Fprintf(&b, "  %-11s %9d  URLs of %s that differ in numbers only: %s\n", "pattern", p.URLs, cli.Escape(p.Host), cli.Escape(p.Pattern))
	}
	if b.Len() == 0 {
		return ""
	}
	return "Traps\n" + b.String()
}

type urlCounts struct {
	Pending  int64 `json:"pending"`
	Fetching int64 `json:"fetching"`
	Fetched  int64 `json:"fetched"`
	Failed   int64 `json:"failed"`
	Dead     int64 `json:"dead"`
	Total    int64 `json:"total"`
	// Scheduled counts those of Fetched that will be fetched again.
	Scheduled int64 `json:"scheduled"`
}

type hostCounts struct {
	Total    int64 `json:"total"`
	Due      int64 `json:"due"`
	Waiting  int64 `json:"waiting"`
	InFlight int64 `json:"in_flight"`
	Blocked  int64 `json:"blocked"`
	Paused   int64 `json:"paused"`
}

// originCounts are the origins whose URLs wait for an unreachable robots.txt.
type originCounts struct {
	Deferred int64            `json:"deferred"`
	First    []deferredOrigin `json:"first"` // those that have been unreachable for longest
}

type deferredOrigin struct {
	Origin        string    `json:"origin"`
	URLs          int64     `json:"urls"` // that wait, counted up to 100,001
	UnreachableMS int64     `json:"unreachable_ms"`
	Cause         string    `json:"cause"` // the error class
	Text          string    `json:"text,omitempty"`
	NextTryAt     Timestamp `json:"next_try_at"`
}

// maxOrigins is how many origins status lists.
const maxOrigins = 10

// waits has the sentences of what URLs wait for.
var waits = []struct{ code, name, note string }{
	{"its_turn", "turn", "for a worker, or for other URLs of their host"},
	{"host_delay", "delay", "for the delay of their host"},
	{"host_in_flight", "in flight", "for the fetches of their host"},
	{"backing_off", "retry", "for the time of their retry"},
	{"host_blocked", "blocked", "for a pause that their host asked for (429 or 503)"},
	{"robots_unreachable", "robots.txt", "for the robots.txt of their origin, which is unreachable"},
	{"host_paused", "host", "for \"frontier resume\" of their host"},
	{"crawl_paused", "crawl", "for \"frontier resume\""},
}

// workerState is a worker that runs, holds URLs, or has vanished.
type workerState struct {
	Name       string    `json:"name"`
	StartedAt  Timestamp `json:"started_at"` // null if the worker does not report itself, as seen_at
	SeenAt     Timestamp `json:"seen_at"`
	Claims     int64     `json:"claims"`      // URLs that it holds
	LeaseUntil Timestamp `json:"lease_until"` // when the last of them is free
	Vanished   bool      `json:"vanished"`    // not seen for 30 s

	now time.Time
}

// text says in one line what is known about a worker.
func (w *workerState) text() string {
	var parts []string
	switch {
	case w.Vanished:
		parts = append(parts, "vanished: last seen "+why.Relative(w.SeenAt.Time, w.now))
	case !w.StartedAt.IsZero():
		parts = append(parts, "started "+why.Relative(w.StartedAt.Time, w.now))
	}
	if w.Claims > 0 {
		held := "holds " + cli.Count(w.Claims, "URL")
		if w.Vanished {
			held += " until the last lease ends " + why.Relative(w.LeaseUntil.Time, w.now)
		}
		parts = append(parts, held)
	}
	return strings.Join(parts, ", ")
}

// classCounts counts the URLs whose last fetch failed with a class.
type classCounts struct {
	Failed int64 `json:"failed"`
	Dead   int64 `json:"dead"`
}

// ReadStatus reads the counts. With classes it also reads the whole table.
func ReadStatus(ctx context.Context, s store.Store, classes bool) (Status, error) {
	n, err := s.Counts(ctx)
	if err != nil {
		return Status{}, err
	}
	out := Status{
		URLs: urlCounts{n.Pending, n.Fetching, n.Fetched, n.Failed, n.Dead,
			n.Pending + n.Fetching + n.Fetched + n.Failed + n.Dead, n.Scheduled},
		Hosts:   hostCounts{n.Hosts, n.HostsDue, n.HostsWaiting, n.HostsInFlight, n.HostsBlocked, n.HostsPaused},
		Waiting: make(map[string]int64), Paused: n.Paused, Origins: originCounts{Deferred: n.OriginsDeferred, First: []deferredOrigin{}},
	}
	for _, w := range n.Waits.List() {
		out.Waiting[w.Code] = w.URLs
	}
	if n.OriginsDeferred > 0 {
		if out.Origins.First, err = readOrigins(ctx, s); err != nil {
			return Status{}, err
		}
	}
	if out.Budgets, err = crawl.Budgets(ctx, s); err != nil {
		return Status{}, err
	}
	if out.Traps, err = readTraps(ctx, s); err != nil {
		return Status{}, err
	}
	if out.Workers, err = readWorkers(ctx, s); err == nil && classes {
		out.Classes, err = countClasses(ctx, s)
	}
	return out, err
}

func readOrigins(ctx context.Context, s store.Store) ([]deferredOrigin, error) {
	found, err := s.DeferredOrigins(ctx, maxOrigins)
	all := make([]deferredOrigin, len(found))
	for i, o := range found {
		cause := o.ErrorClass
		if cause == "" && o.Status > 0 {
			cause = fmt.Sprintf("status %d", o.Status)
		}
		all[i] = deferredOrigin{o.Origin, o.URLs, o.UnreachableFor.Milliseconds(), cause, o.ErrorText, Timestamp{time.Now().Add(o.For)}}
	}
	return all, err
}

// FirstDeferred says in one line why URLs wait for an unreachable robots.txt. It is empty if none does.
func FirstDeferred(ctx context.Context, s store.Store) (string, error) {
	found, err := readOrigins(ctx, s)
	if err != nil || len(found) == 0 {
		return "", err
	}
	return cli.Escape(found[0].Origin + "/robots.txt: " + found[0].text()), nil
}

// text says in one line why the URLs of an origin wait.
func (o *deferredOrigin) text() string {
	urls := cli.Count(o.URLs, "URL")
	if o.URLs > store.MaxDeferredURLs {
		urls = fmt.Sprintf("more than %d URLs", store.MaxDeferredURLs)
	}
	cause := o.Cause
	if o.Text != "" {
		cause += ": " + strings.TrimSuffix(o.Text, ".")
	}
	return fmt.Sprintf("%s, unreachable for %s, tried again %s: %.300s", urls, why.Span(time.Duration(o.UnreachableMS)*time.Millisecond),
		why.Relative(o.NextTryAt.Time, time.Now()), cause)
}

func readWorkers(ctx context.Context, s store.Store) ([]workerState, error) {
	found, err := s.Workers(ctx)
	all := make([]workerState, len(found)) // not null in JSON
	for i, w := range found {
		all[i] = workerState{w.Name, Timestamp{w.Started}, Timestamp{w.Seen}, w.Claims, Timestamp{w.LeaseUntil}, w.Vanished, w.Now}
	}
	return all, err
}

func countClasses(ctx context.Context, s store.Store) (map[string]classCounts, error) {
	classes := make(map[string]classCounts)
	for u, err := range s.URLs(ctx) {
		if err != nil {
			return nil, err
		}
		n := classes[u.ErrorClass]
		switch u.Status {
		case store.Failed:
			n.Failed++
		case store.Dead:
			n.Dead++
		default:
			continue
		}
		classes[u.ErrorClass] = n
	}
	return classes, nil
}

// Table formats the counts for people.
func (n *Status) Table() string {
	var b strings.Builder
	row := func(name string, count int64, note string) {
		b.WriteString(strings.TrimRight(fmt.Sprintf("  %-10s %10d  %s", name, count, note), " ") + "\n")
	}
	b.WriteString("URLs\n")
	row("pending", n.URLs.Pending, "Pending")
	row("fetching", n.URLs.Fetching, "InProgress")
	completed := "Completed"
	if n.URLs.Scheduled > 0 {
		completed += fmt.Sprintf("; %d will be fetched again", n.URLs.Scheduled)
	}
	row("fetched", n.URLs.Fetched, completed)
	row("failed", n.URLs.Failed, "to be tried again later")
	row("dead", n.URLs.Dead, "Failed: not to be tried again")
	row("total", n.URLs.Total, "")
	if n.URLs.Pending+n.URLs.Failed > 0 {
		b.WriteString("What pending and failed URLs wait for\n")
	}
	for _, w := range waits {
		if urls := n.Waiting[w.code]; urls > 0 {
			row(w.name, urls, w.note)
		}
	}
	b.WriteString("Hosts\n")
	row("due", n.Hosts.Due, "a worker looks at them now")
	row("waiting", n.Hosts.Waiting, "for their delay, or for a block to end")
	row("in flight", n.Hosts.InFlight, "")
	row("blocked", n.Hosts.Blocked, "after a 429 or 503")
	row("paused", n.Hosts.Paused, "")
	row("total", n.Hosts.Total, "")
	if n.Origins.Deferred > 0 {
		fmt.Fprintf(&b, "Origins whose robots.txt is unreachable: %d\n", n.Origins.Deferred)
	}
	for _, o := range n.Origins.First {
		fmt.Fprintf(&b, "  %s  %s\n", cli.Escape(o.Origin), cli.Escape(o.text()))
	}
	b.WriteString(n.Traps.table())
	if len(n.Workers) > 0 {
		b.WriteString("Workers\n")
	}
	for _, w := range n.Workers {
		b.WriteString(strings.TrimRight(fmt.Sprintf("  %-23s %s", cli.Escape(cmp.Or(w.Name, "(no name)")), w.text()), " ") + "\n")
	}
	if n.Classes != nil {
		fmt.Fprintf(&b, "Error classes %22s  %10s\n", "failed", "dead")
	}
	for _, class := range slices.Sorted(maps.Keys(n.Classes)) {
		c := n.Classes[class]
		class = cmp.Or(class, "(none)")
		fmt.Fprintf(&b, "  %-23s %10d  %10d\n", cli.Escape(class), c.Failed, c.Dead)
	}
	if n.Paused {
		b.WriteString("The crawl is paused: \"frontier resume\" continues it.\n")
	}
	b.WriteString(n.Budgets)
	return b.String()
}

// Deferred says how many URLs wait for an unreachable robots.txt, if any does.
func Deferred(urls, origins int64) string {
	if origins == 0 {
		return ""
	}
	return fmt.Sprintf(", %s of %s without robots.txt", cli.Count(urls, "URL"), cli.Count(origins, "origin"))
}
