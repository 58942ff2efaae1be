package tlswatch

import (
	"context"
	"fmt"
	"log/slog"
	"sync"
	"time"
)

// soon is how long before its end a certificate is reported. If it is valid for less than three times
// that, it is reported when a third of its time is left: renewers have renewed it then.
const soon = 30 * 24 * time.Hour

func (c *Certificate) reportAt() time.Time {
	return c.NotAfter.Add(-min(soon, c.NotAfter.Sub(c.NotBefore)/3))
}

const (
	againAfter = 24 * time.Hour // a certificate that is still in use is reported again
	// lookAfter is the longest time between two looks: the clock may have been set meanwhile.
	lookAfter = time.Hour
)

// state is what a certificate is at an instant.
type state int

const (
	valid state = iota
	early       // not valid yet
	near        // expires soon
	expired
)

func (c *Certificate) state(now time.Time) state {
	switch {
	case now.After(c.NotAfter):
		return expired
	case now.Before(c.NotBefore):
		return early
	case !now.Before(c.reportAt()):
		return near
	}
	return valid
}

// Expired reports whether the certificate has expired.
func (c *Certificate) Expired(now time.Time) bool { return c.state(now) == expired }

// Fault returns what is wrong with the certificate, or will be within 30 days, or within a third of its
// time if that is shorter. It is empty if nothing is.
func (c *Certificate) Fault(now time.Time) string {
	switch c.state(now) {
	case expired:
		return fmt.Sprintf("expired %s ago", days(now.Sub(c.NotAfter)))
	case early:
		return "is not valid before " + c.NotBefore.UTC().Format(time.RFC3339)
	case near:
		return fmt.Sprintf("expires in %s", days(c.NotAfter.Sub(now)))
	}
	return ""
}

// days returns a duration in whole days, or else in whole smaller units.
func days(d time.Duration) string {
	switch {
	case d >= 48*time.Hour:
		return fmt.Sprintf("%d days", d/(24*time.Hour))
	case d >= 2*time.Hour:
		return fmt.Sprintf("%d hours", d/time.Hour)
	}
	return d.Truncate(time.Second).String()
}

// Watch logs each certificate that has a [Certificate.Fault]: at once, when it expires, and once a day as
// long as it is in use. Its methods are safe for concurrent use.
type Watch struct {
	logger *slog.Logger

	mu      sync.Mutex
	all     []Certificate
	said    map[identity]saying
	timer   *time.Timer // nil before Set and after Stop
	stopped bool
}

// saying is the last line about a certificate.
type saying struct {
	state state
	at    time.Time
}

// NewWatch returns a watch of no certificates.
func NewWatch(logger *slog.Logger) *Watch {
	return &Watch{logger: logger, said: make(map[identity]saying)}
}

// Set replaces the certificates, and logs what is wrong with those that are new. Of more than 1,000 it
// watches those that expire first.
func (w *Watch) Set(all []Certificate) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.all = first(all, maxInAll)
	kept := make(map[identity]saying)
	for i := range w.all {
		if last, ok := w.said[w.all[i].identity()]; ok {
			kept[w.all[i].identity()] = last
		}
	}
	w.said = kept
	w.lookLocked()
}

// Certificates returns the certificates, those that expire first at the beginning. Do not change them.
func (w *Watch) Certificates() []Certificate {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.all
}

// Stop ends the watch. It logs nothing afterwards.
func (w *Watch) Stop() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.stopped = true
	if w.timer != nil {
		w.timer.Stop()
	}
}

func (w *Watch) look() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.lookLocked()
}

// lookLocked logs what is due, and looks again when something else is.
func (w *Watch) lookLocked() {
	if w.timer != nil {
		w.timer.Stop()
	}
	if w.stopped || len(w.all) == 0 {
		return
	}
	now := time.Now().Round(0) // without the monotonic clock, because certificates have none
	next := now.Add(lookAfter)
	for i := range w.all {
		c := &w.all[i]
		is, last := c.state(now), w.said[c.identity()]
		if is != valid && (is != last.state || now.Sub(last.at) >= againAfter) {
			last = saying{is, now}
			w.log(c, is, now)
		}
		last.state = is
		w.said[c.identity()] = last
		for _, at := range []time.Time{c.reportAt(), c.NotAfter.Add(time.Millisecond), last.at.Add(againAfter)} {
			if at.After(now) && at.Before(next) {
				next = at
			}
		}
	}
	w.timer = time.AfterFunc(next.Sub(now), w.look)
}

func (w *Watch) log(c *Certificate, is state, now time.Time) {
	msg, level := "certificate expires soon", slog.LevelWarn
	switch is {
	case expired:
		msg, level = "certificate has expired", slog.LevelError
	case early:
		msg, level = "certificate is not valid yet", slog.LevelError
	}
	w.logger.Log(context.Background(), level, msg, slog.String("use", string(c.Use)), slog.String("name", c.Name), slog.String("serial", c.Serial),
		slog.Time("not_before", c.NotBefore.UTC()), slog.Time("not_after", c.NotAfter.UTC()), slog.Int("days_left", daysLeft(c.NotAfter.Sub(now))))
}

// daysLeft rounds down, so that a certificate that has expired has less than 0.
func daysLeft(d time.Duration) int {
	whole := int(d / (24 * time.Hour))
	if d < 0 {
		whole--
	}
	return whole
}
