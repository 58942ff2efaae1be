package show

import (
	"cmp"
	"fmt"
	"strings"
	"time"

	"fetchd/frontier/rulebook"
	"fetchd/frontier/store"
	"fetchd/frontier/why"
	"fetchd/internal/cli"
)

// fact is a line of an explanation.
type fact struct{ name, text string }

// Explain formats an explanation for people: a sentence, then the facts.
func Explain(e *why.Evidence) string {
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
	fmt.Fprintf(&b, "Crawl\n  %-14s %s\n  %-14s %s (the database's clock)\n", "paused", yes(e.Paused), "now", Stamp(e.Now))
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
	case u.Kind < store.Page && u.PageURL != "":
		return fmt.Sprintf("%s from %s, which needs it, on %s", cli.Count(int64(u.Hops), "hop"), u.PageURL, cmp.Or(u.ParentURL, "a page that was deleted"))
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
	return fmt.Sprintf("%s (%s)", Stamp(t), why.Relative(t, now))
}

func yes(b bool) string {
	if b {
		return "yes"
	}
	return "no"
}

// Explanation is the JSON of "frontier why".
type Explanation struct {
	Reason   string        `json:"reason"`
	Sentence string        `json:"sentence"`
	URL      urlRow        `json:"url"`
	Host     hostFigures   `json:"host"`
	Robots   robotsFigures `json:"robots"`
	Deferred Timestamp     `json:"deferred_until"` // until when the URLs of its origin are deferred, because robots.txt is unreachable
	Paused   bool          `json:"paused"`         // the whole crawl
	Now      Timestamp     `json:"now"`            // by the database's clock
}

type hostFigures struct {
	Host         string    `json:"host"`
	NextAt       Timestamp `json:"next_at"`
	BlockedUntil Timestamp `json:"blocked_until"`
	DelayMS      int64     `json:"delay_ms"`
	InFlight     int       `json:"in_flight"`
	MaxInFlight  int       `json:"max_in_flight"`
	Paused       bool      `json:"paused"`
}

// ExplanationOf returns an explanation as JSON.
func ExplanationOf(e *why.Evidence) Explanation {
	r, h := why.ReasonOf(e), &e.Host
	return Explanation{
		Reason: r.Code, Sentence: r.Text, URL: urlRowOf(e.URL), Paused: e.Paused, Now: Timestamp{e.Now}, Deferred: Timestamp{e.Deferred}, Robots: robotsFiguresOf(&e.Robots),
		Host: hostFigures{e.URL.Host, Timestamp{h.NextAt}, Timestamp{h.BlockedUntil}, h.Delay.Milliseconds(), h.InFlight, h.MaxInFlight, h.Paused},
	}
}

// robotsFigures is the part of the JSON of why about robots.txt.
type robotsFigures struct {
	Origin string `json:"origin"`
	Known  bool   `json:"known"` // the other fields are empty otherwise
	// Allowed and Reason are the decision. Reason is unreachable, unavailable, robots_txt, no_rule
	// or by_rule.
	Allowed       bool   `json:"allowed"`
	Reason        string `json:"reason"`
	Line          int    `json:"line,omitempty"`
	Rule          string `json:"rule,omitempty"`
	Cause         string `json:"cause,omitempty"` // why there is no file
	Text          string `json:"text,omitempty"`  // what fetchd said about the error
	AgeMS         int64  `json:"age_ms"`
	UnreachableMS int64  `json:"unreachable_ms"`
}

func robotsFiguresOf(r *rulebook.State) robotsFigures {
	f := robotsFigures{Origin: r.Origin, Known: r.Known}
	if !r.Known {
		return f
	}
	f.Allowed, f.Reason = r.Decision.Allowed, r.Decision.Reason.String()
	f.Line, f.Rule, f.Cause, f.Text = r.Decision.Line.Number, r.Decision.Line.Text, r.Cause, r.Text
	f.AgeMS, f.UnreachableMS = r.Age.Milliseconds(), r.UnreachableFor.Milliseconds()
	return f
}
