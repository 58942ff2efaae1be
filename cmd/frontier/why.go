package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"fetchd/frontier"
	"fetchd/frontier/store"
	"fetchd/frontier/why"
	"fetchd/internal/cli"
)

// whyCmd is "frontier why".
type whyCmd struct {
	database
	URL       string `arg:"" help:"The URL, in any form."`
	JSON      bool   `name:"json" help:"Print one line of JSON."`
	UserAgent string `default:"${agent}" help:"Name of the crawler, as for \"frontier run\". Its leading letters, _ and - select the rules of robots.txt."`
}

func (c *whyCmd) run(ctx context.Context, a *app) int {
	url, err := normalURL("URL", c.URL)
	if err != nil {
		return a.end(ctx, err)
	}
	return c.with(ctx, a, readOnly, func(s store.Store) error {
		e, err := evidence(ctx, s, c.UserAgent, url)
		if errors.Is(err, store.ErrUnknownURL) {
			a.Errorf(`the frontier does not have %s: add it with "frontier add"`, url)
			return cli.PrintedError(cli.ExitNothing, "unknown URL")
		}
		if err != nil {
			return err
		}
		out := &cli.Printer{W: a.Out}
		if c.JSON {
			writeJSON(out, explained(e))
		} else {
			out.Printf("%s", explain(e))
		}
		return out.End()
	})
}

// evidence returns everything that is known about a URL in its normal form.
func evidence(ctx context.Context, s store.Store, userAgent, url string) (*why.Evidence, error) {
	found, err := s.Why(ctx, url)
	if err != nil {
		return nil, err
	}
	robots, err := frontier.AskRobots(ctx, s, userAgent, url)
	return &why.Evidence{Explanation: found, Robots: robots}, err
}

// fact is a line of an explanation.
type fact struct{ name, text string }

// explain formats an explanation for people: a sentence, then the facts.
func explain(e *why.Evidence) string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s\n\n%s\n", why.ReasonOf(e).Text, cli.Escape(e.URL.URL))
	for _, f := range urlFacts(e) {
		fmt.Fprintf(&b, "  %-14s %s\n", f.name, cli.Escape(f.text))
	}
	fmt.Fprintf(&b, "Host %s\n", cli.Escape(e.URL.Host))
	for _, f := range hostFacts(e) {
		fmt.Fprintf(&b, "  %-14s %s\n", f.name, cli.Escape(f.text))
	}
	fmt.Fprintf(&b, "Origin %s\n", cli.Escape(e.Robots.Origin))
	for _, f := range originFacts(e) {
		fmt.Fprintf(&b, "  %-14s %s\n", f.name, cli.Escape(f.text))
	}
	fmt.Fprintf(&b, "Crawl\n  %-14s %s\n  %-14s %s (the database's clock)\n", "paused", yes(e.Paused), "now", stamp(e.Now))
	return b.String()
}

func urlFacts(e *why.Evidence) []fact {
	u := &e.URL
	lease := "none"
	if !u.LeaseUntil.IsZero() {
		lease = "until " + when(u.LeaseUntil, e.Now) + why.ByWorker(u)
	}
	return []fact{
		{"kind", u.Kind.String()},
		{"found", found(u)},
		{"priority", fmt.Sprint(u.Priority)},
		{"status", string(u.Status)},
		{"last error", cmp.Or(u.LastError, "none")},
		{"error class", cmp.Or(u.ErrorClass, "none")},
		{"HTTP status", cmp.Or(strings.TrimPrefix(fmt.Sprint(u.HTTPStatus), "0"), "none")},
		{"retries", fmt.Sprintf("%d in its last fetch", u.RetryCount)},
		{"failures", fmt.Sprintf("%d since its last success", u.FailureCount)},
		{"crashes", fmt.Sprintf("%d leases that expired", u.CrashCount)},
		{"ready at", when(u.ReadyAt, e.Now)},
		{"lease", lease},
		{ended(u), when(u.FetchedAt, e.Now)},
		{"due again", when(u.RecrawlAt, e.Now)},
	}
}

// found says where a URL comes from.
func found(u *store.URL) string {
	switch {
	case u.Depth == 0 && u.ParentURL == "":
		return "it was added"
	case u.ParentURL == "":
		return cli.Count(int64(u.Depth), "link") + " from a start"
	}
	return fmt.Sprintf("%s from a start, on %s", cli.Count(int64(u.Depth), "link"), u.ParentURL)
}

// ended names the end of the last fetch, which may have failed.
func ended(u *store.URL) string {
	if u.Status == store.Fetched {
		return "fetched at"
	}
	return "last ended"
}

func hostFacts(e *why.Evidence) []fact {
	return []fact{
		{"next at", when(e.Host.NextAt, e.Now)},
		{"blocked until", when(e.Host.BlockedUntil, e.Now)},
		{"delay", e.Host.Delay.String()},
		{"in flight", fmt.Sprintf("%d of at most %d", e.Host.InFlight, e.Host.MaxInFlight)},
		{"paused", yes(e.Host.Paused)},
	}
}

func originFacts(e *why.Evidence) []fact {
	return []fact{
		{"robots.txt", why.RobotsFact(&e.Robots)},
		{"deferred until", when(e.Deferred, e.Now)},
	}
}

// when formats a time, also relative to now.
func when(t, now time.Time) string {
	if t.IsZero() {
		return "none"
	}
	return fmt.Sprintf("%s (%s)", stamp(t), why.Relative(t, now))
}

func yes(b bool) string {
	if b {
		return "yes"
	}
	return "no"
}

// explanation is the JSON of why.
type explanation struct {
	Reason   string        `json:"reason"`
	Sentence string        `json:"sentence"`
	URL      urlRow        `json:"url"`
	Host     hostFigures   `json:"host"`
	Robots   robotsFigures `json:"robots"`
	Deferred timestamp     `json:"deferred_until"` // until when the URLs of its origin are deferred, because robots.txt is unreachable
	Paused   bool          `json:"paused"`         // the whole crawl
	Now      timestamp     `json:"now"`            // by the database's clock
}

type hostFigures struct {
	Host         string    `json:"host"`
	NextAt       timestamp `json:"next_at"`
	BlockedUntil timestamp `json:"blocked_until"`
	DelayMS      int64     `json:"delay_ms"`
	InFlight     int       `json:"in_flight"`
	MaxInFlight  int       `json:"max_in_flight"`
	Paused       bool      `json:"paused"`
}

func explained(e *why.Evidence) explanation {
	r, h := why.ReasonOf(e), &e.Host
	return explanation{
		Reason: r.Code, Sentence: r.Text, URL: urlRowOf(e.URL), Paused: e.Paused, Now: timestamp(e.Now), Deferred: timestamp(e.Deferred), Robots: robotsFiguresOf(&e.Robots),
		Host: hostFigures{e.URL.Host, timestamp(h.NextAt), timestamp(h.BlockedUntil), h.Delay.Milliseconds(), h.InFlight, h.MaxInFlight, h.Paused},
	}
}
