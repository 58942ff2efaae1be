package main

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"fetchd/frontier"
	"fetchd/frontier/normal"
	"fetchd/frontier/store"
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
	url, err := normal.NormalizeURL(c.URL)
	if err != nil {
		return a.end(ctx, cli.UsageError("URL", fmt.Sprintf("%v: give a complete URL, with http:// or https://", err)))
	}
	return c.with(ctx, a, existing, func(s store.Store) error {
		found, err := s.Why(ctx, url)
		if errors.Is(err, store.ErrUnknownURL) {
			a.Errorf(`the frontier does not have %s: add it with "frontier add"`, url)
			return cli.PrintedError(cli.ExitNothing, "unknown URL")
		}
		if err != nil {
			return err
		}
		robots, err := frontier.AskRobots(ctx, s, c.UserAgent, url)
		if err != nil {
			return err
		}
		out, e := &cli.Printer{W: a.Out}, &evidence{found, robots}
		if c.JSON {
			writeJSON(out, explained(e))
		} else {
			out.Printf("%s", explain(e))
		}
		return out.End()
	})
}

// reason says why a URL is not being fetched now. The zero value means that there is no reason.
type reason struct {
	code string // for programs
	text string // a sentence
}

// evidence is everything known about a URL that is not being fetched.
type evidence struct {
	store.Explanation
	Robots frontier.RobotsState
}

// reasonOf returns the first reason why a URL is not being fetched now. Reasons that a user can
// change come first, then those that last longest.
func reasonOf(e *evidence) reason {
	for _, ask := range []func(*evidence) reason{statusReason, pauseReason, robotsReason, waitReason, flightReason, delayReason} {
		if r := ask(e); r.code != "" {
			return r
		}
	}
	return reason{"its_turn", `Nothing delays it: it waits for its turn among the URLs of its host, and for a "frontier run".`}
}

// statusReason returns a reason for a URL that is being fetched, or done.
func statusReason(e *evidence) reason {
	u := &e.URL
	switch u.Status {
	case store.Fetched:
		return reason{"fetched", fmt.Sprintf("It was fetched already, %s.", relative(u.FetchedAt, e.Now))}
	case store.Dead:
		return reason{"dead", fmt.Sprintf("It failed for good%s%s: %s.", withError(u), robotsNow(e), remedy(u.ErrorClass))}
	case store.Fetching:
		if u.LeaseUntil.After(e.Now) {
			return reason{"fetching", fmt.Sprintf("It is being fetched now%s; the lease ends %s unless it is extended.", byWorker(u), relative(u.LeaseUntil, e.Now))}
		}
		return reason{"lease_expired", fmt.Sprintf(`It was being fetched%s, but the lease expired %s: a "frontier run" will take it back.`, byWorker(u), relative(u.LeaseUntil, e.Now))}
	}
	return reason{}
}

func pauseReason(e *evidence) reason {
	switch {
	case e.Paused:
		return reason{"crawl_paused", `The crawl is paused: "frontier resume" continues it.`}
	case e.Host.Paused:
		return reason{"host_paused", fmt.Sprintf(`Its host is paused: "frontier resume %s" continues it.`, cli.Escape(e.URL.Host))}
	}
	return reason{}
}

// waitReason returns the longer wait after a failure: the host's or the URL's.
func waitReason(e *evidence) reason {
	blocked, ready := e.Host.BlockedUntil, e.URL.ReadyAt
	switch {
	case blocked.After(e.Now) && !ready.After(blocked):
		return reason{"host_blocked", fmt.Sprintf("Its host asked for a pause (429 or 503), which ends %s.", relative(blocked, e.Now))}
	case ready.After(e.Now):
		return reason{"backing_off", fmt.Sprintf("It failed%s, and is tried again %s at the earliest.", withError(&e.URL), relative(ready, e.Now))}
	}
	return reason{}
}

func flightReason(e *evidence) reason {
	if e.Host.InFlight < e.Host.MaxInFlight {
		return reason{}
	}
	return reason{"host_in_flight", fmt.Sprintf("Its host has %d of at most %d fetches in flight.", e.Host.InFlight, e.Host.MaxInFlight)}
}

func delayReason(e *evidence) reason {
	if !e.Host.NextAt.After(e.Now) {
		return reason{}
	}
	return reason{"host_delay", fmt.Sprintf("Its host was fetched from a moment ago, and may be fetched from again %s.", relative(e.Host.NextAt, e.Now))}
}

// withError returns the class of the last error, if there is one.
func withError(u *store.URL) string {
	if u.ErrorClass == "" {
		return ""
	}
	return " (" + cli.Escape(u.ErrorClass) + ")"
}

func byWorker(u *store.URL) string {
	if u.Worker == "" {
		return " by a worker"
	}
	return " by worker " + cli.Escape(u.Worker)
}

// fact is a line of an explanation.
type fact struct{ name, text string }

// explain formats an explanation for people: a sentence, then the facts.
func explain(e *evidence) string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s\n\n%s\n", reasonOf(e).text, cli.Escape(e.URL.URL))
	for _, f := range urlFacts(e) {
		fmt.Fprintf(&b, "  %-14s %s\n", f.name, cli.Escape(f.text))
	}
	fmt.Fprintf(&b, "Host %s\n", cli.Escape(e.URL.Host))
	for _, f := range hostFacts(e) {
		fmt.Fprintf(&b, "  %-14s %s\n", f.name, cli.Escape(f.text))
	}
	fmt.Fprintf(&b, "Crawl\n  %-14s %s\n  %-14s %s (the database's clock)\n", "paused", yes(e.Paused), "now", stamp(e.Now))
	return b.String()
}

func urlFacts(e *evidence) []fact {
	u := &e.URL
	lease := "none"
	if !u.LeaseUntil.IsZero() {
		lease = "until " + when(u.LeaseUntil, e.Now) + byWorker(u)
	}
	return []fact{
		{"status", string(u.Status)},
		{"last error", or(u.LastError, "none")},
		{"error class", or(u.ErrorClass, "none")},
		{"HTTP status", or(strings.TrimPrefix(fmt.Sprint(u.HTTPStatus), "0"), "none")},
		{"retries", fmt.Sprintf("%d in its last fetch", u.RetryCount)},
		{"failures", fmt.Sprintf("%d since its last success", u.FailureCount)},
		{"crashes", fmt.Sprintf("%d leases that expired", u.CrashCount)},
		{"ready at", when(u.ReadyAt, e.Now)},
		{"lease", lease},
		{ended(u), when(u.FetchedAt, e.Now)},
	}
}

// ended names the end of the last fetch, which may have failed.
func ended(u *store.URL) string {
	if u.Status == store.Fetched {
		return "fetched at"
	}
	return "last ended"
}

func hostFacts(e *evidence) []fact {
	return []fact{
		{"next at", when(e.Host.NextAt, e.Now)},
		{"blocked until", when(e.Host.BlockedUntil, e.Now)},
		{"delay", e.Host.Delay.String()},
		{"in flight", fmt.Sprintf("%d of at most %d", e.Host.InFlight, e.Host.MaxInFlight)},
		{"paused", yes(e.Host.Paused)},
		{"robots.txt", robotsFact(&e.Robots)},
	}
}

// when formats a time, also relative to now.
func when(t, now time.Time) string {
	if t.IsZero() {
		return "none"
	}
	return fmt.Sprintf("%s (%s)", stamp(t), relative(t, now))
}

func yes(b bool) string {
	if b {
		return "yes"
	}
	return "no"
}

func or(text, other string) string {
	if text == "" {
		return other
	}
	return text
}

// explanation is the JSON of why.
type explanation struct {
	Reason   string        `json:"reason"`
	Sentence string        `json:"sentence"`
	URL      urlRow        `json:"url"`
	Host     hostFigures   `json:"host"`
	Robots   robotsFigures `json:"robots"`
	Paused   bool          `json:"paused"` // the whole crawl
	Now      timestamp     `json:"now"`    // by the database's clock
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

func explained(e *evidence) explanation {
	r, h := reasonOf(e), &e.Host
	return explanation{
		Reason: r.code, Sentence: r.text, URL: urlRowOf(e.URL), Paused: e.Paused, Now: timestamp(e.Now), Robots: robotsFiguresOf(&e.Robots),
		Host: hostFigures{e.URL.Host, timestamp(h.NextAt), timestamp(h.BlockedUntil), h.Delay.Milliseconds(), h.InFlight, h.MaxInFlight, h.Paused},
	}
}
