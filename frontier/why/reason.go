package why

import (
	"context"
	"fmt"
	"time"

	"fetchd/frontier/rulebook"
	"fetchd/frontier/store"
	"fetchd/frontier/traps"
	"fetchd/internal/cli"
)

// Reason says why a URL is not being fetched now. The zero value means that there is no reason.
type Reason struct {
	Code string // for programs
	Text string // a sentence
}

// Evidence is everything known about a URL that is not being fetched.
type Evidence struct {
	store.Explanation
	Robots rulebook.State
	// Asked is the URL in its normal form that was asked about. It differs from URL.URL in session ids only.
	Asked string
	// OnePattern is how many URLs of the host differ from the URL in numbers only, if there are many, or zero.
	OnePattern int64
}

// session says that another row stands for the URL that was asked about. It is empty if none does.
func (e *Evidence) session() string {
	if e.Asked == "" || e.Asked == e.URL.URL {
		return ""
	}
	return "It is the same as " + cli.Escape(e.URL.URL) + ", which differs in session ids only. "
}

// numbers says that the URL may be in a trap. It is empty if not.
func (e *Evidence) numbers() string {
	if e.OnePattern == 0 {
		return ""
	}
	return fmt.Sprintf(" It is one of %d URLs of its host that differ in numbers only (%s): if that is a trap, use --exclude or --max-depth.", e.OnePattern, cli.Escape(traps.Pattern(e.URL.URL)))
}

// Unknown says why no link has added a URL. It is empty if no rule against traps keeps it out.
func Unknown(url string) string {
	if _, text := traps.Refuses(url); text != "" {
		return "Links to it are not followed: " + cli.Escape(text) + "."
	}
	return ""
}

// ReasonOf returns the first reason why a URL is not being fetched now. Reasons that a user can
// change come first, then those that last longest.
func ReasonOf(e *Evidence) Reason {
	r := reasonOf(e)
	r.Text = e.session() + r.Text + e.numbers()
	return r
}

func reasonOf(e *Evidence) Reason {
	for _, ask := range []func(*Evidence) Reason{statusReason, pauseReason, robotsReason, waitReason, flightReason, delayReason} {
		if r := ask(e); r.Code != "" {
			return r
		}
	}
	return Reason{"its_turn", `It is not delayed: it waits for its turn among the URLs of its host, and for a worker.`}
}

// statusReason returns a reason for a URL that is being fetched, or done.
func statusReason(e *Evidence) Reason {
	u := &e.URL
	switch u.Status {
	case store.Fetched:
		return Reason{"fetched", fmt.Sprintf("It was fetched already, %s%s%s.", Relative(u.FetchedAt, e.Now), leftOut(u), dueAgain(e))}
	case store.Dead:
		return Reason{"dead", fmt.Sprintf("It failed for good%s%s: %s.", withError(u), robotsNow(e), Remedy(u.ErrorClass))}
	case store.Fetching:
		if u.LeaseUntil.After(e.Now) {
			return Reason{"fetching", fmt.Sprintf("It is being fetched now%s; the lease ends %s unless it is extended.", ByWorker(u), Relative(u.LeaseUntil, e.Now))}
		}
		return Reason{"lease_expired", fmt.Sprintf(`It was being fetched%s, but the lease expired %s: the next worker takes it back.`, ByWorker(u), Relative(u.LeaseUntil, e.Now))}
	}
	return Reason{}
}

// leftOut says what a limit has left out of a page.
func leftOut(u *store.URL) string {
	if u.LastError == "" {
		return ""
	}
	return " (" + cli.Escape(u.LastError) + ")"
}

// dueAgain says when a fetched URL is fetched again, if it is.
func dueAgain(e *Evidence) string {
	switch at := e.URL.RecrawlAt; {
	case at.IsZero():
		return ""
	case at.After(e.Now):
		return fmt.Sprintf(`, and a run with --recrawl fetches it again %s`, Relative(at, e.Now))
	}
	return `, and is due to be fetched again: start a run with --recrawl`
}

func pauseReason(e *Evidence) Reason {
	switch {
	case e.Paused:
		return Reason{"crawl_paused", `The crawl is paused: "frontier resume" continues it.`}
	case e.Host.Paused:
		return Reason{"host_paused", fmt.Sprintf(`Its host is paused: "frontier resume %s" continues it.`, cli.Escape(e.URL.Host))}
	}
	return Reason{}
}

// waitReason returns the longer wait after a failure: the host's or the URL's.
func waitReason(e *Evidence) Reason {
	blocked, ready := e.Host.BlockedUntil, e.URL.ReadyAt
	switch {
	case blocked.After(e.Now) && !ready.After(blocked):
		return Reason{"host_blocked", fmt.Sprintf("Its host asked for a pause (429 or 503), which ends %s.", Relative(blocked, e.Now))}
	case ready.After(e.Now):
		return Reason{"backing_off", fmt.Sprintf("It failed%s, and is tried again %s at the earliest.", withError(&e.URL), Relative(ready, e.Now))}
	}
	return Reason{}
}

func flightReason(e *Evidence) Reason {
	if e.Host.InFlight < e.Host.MaxInFlight {
		return Reason{}
	}
	return Reason{"host_in_flight", fmt.Sprintf("Its host has %d of at most %d fetches in flight.", e.Host.InFlight, e.Host.MaxInFlight)}
}

func delayReason(e *Evidence) Reason {
	switch {
	case !e.Host.NextAt.After(e.Now):
		return Reason{}
	case e.Host.TurnAt.After(e.Now):
		return Reason{"group_turn", fmt.Sprintf("Its host waits for a turn of its group (--group-by), and asks for it %s.", Relative(e.Host.TurnAt, e.Now))}
	}
	return Reason{"host_delay", fmt.Sprintf("Its host was fetched from a moment ago, and may be fetched from again %s.", Relative(e.Host.NextAt, e.Now))}
}

// withError returns the class of the last error, if there is one.
func withError(u *store.URL) string {
	if u.ErrorClass == "" {
		return ""
	}
	return " (" + cli.Escape(u.ErrorClass) + ")"
}

// ByWorker names the worker that has claimed a URL.
func ByWorker(u *store.URL) string {
	if u.Worker == "" {
		return " by a worker"
	}
	return " by worker " + cli.Escape(u.Worker)
}

// Relative formats t relative to now: "in 4m10s", "3s ago", "now".
func Relative(t, now time.Time) string {
	d := t.Sub(now)
	switch {
	case d >= time.Second/2:
		return "in " + Span(d)
	case d <= -time.Second/2:
		return Span(-d) + " ago"
	}
	return "now"
}

// Span formats a duration in seconds, or in hours from two days on.
func Span(d time.Duration) string {
	const day = 24 * time.Hour
	if d >= 2*day {
		return fmt.Sprintf("%dd%dh", d/day, d%day/time.Hour)
	}
	return d.Round(time.Second).String()
}

// Ask returns everything that is known about a URL in its normal form. The error matches [store.ErrUnknownURL] if the
// frontier does not have it.
func Ask(ctx context.Context, s store.Store, userAgent, url string) (*Evidence, error) {
	found, err := s.Why(ctx, url)
	if err != nil {
		return nil, err
	}
	e := &Evidence{Explanation: found, Asked: url}
	if text := traps.Pattern(found.URL.URL); text != "" {
		if e.OnePattern, err = s.Pattern(ctx, found.URL.Host, text); err != nil {
			return nil, err
		}
	}
	if e.OnePattern < traps.ManyURLs {
		e.OnePattern = 0
	}
	e.Robots, err = rulebook.Ask(ctx, s, userAgent, found.URL.URL)
	return e, err
}
