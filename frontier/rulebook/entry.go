package rulebook

import (
	"time"

	"fetchd/frontier/robots"
	"fetchd/frontier/store"
)

const (
	// entryBytes is the memory of an entry without its origin and its rules.
	entryBytes = 256
	// soonest and latest limit the delay before an unreachable robots.txt is fetched
	// again. Between them the delay is that of URL retries.
	soonest = time.Second
	latest  = 10 * time.Minute
)

// Entry is the policy of an origin. The zero entry is not fresh.
type Entry struct {
	Policy robots.Policy
	Until  time.Time // when the file is fetched again
	away   time.Time // since when it has been unreachable, or zero
	text   string    // what fetchd said about that
}

// Fresh reports whether the policy may be used without another fetch of the file.
func (e Entry) Fresh() bool { return time.Now().Before(e.Until) }

// Unreachable reports whether the file could not be fetched last.
func (e Entry) Unreachable() bool { return !e.away.IsZero() }

// Cause says why the file is unreachable: the error class, and what fetchd said.
func (e Entry) Cause() string {
	if e.text == "" {
		return e.Policy.Cause
	}
	return e.Policy.Cause + ": " + e.text
}

// EndsURLs reports whether the file is unreachable because of a name that does not exist or is not valid. Then its URLs
// fail in the same way.
func (e Entry) EndsURLs() bool {
	return e.Policy.Cause == "dns_not_found" || e.Policy.Cause == "invalid_request"
}

// Defers returns how long the URLs of an origin wait for its unreachable file: until it is fetched again, which is
// after a pause of the host, but not beyond patience. It is zero if they wait no longer. Other URLs of the host get their
// turns after the pause, before the file is fetched again.
func (e Entry) Defers(patience, pause time.Duration) time.Duration {
	if !e.Policy.Deferred() {
		return 0
	}
	left := patience - time.Since(e.away)
	if left <= 0 {
		return 0
	}
	return max(min(pause+time.Until(e.Until), left), time.Millisecond)
}

// size is the memory of an entry.
func (e Entry) size(origin string) int {
	n := entryBytes + len(origin) + len(e.text)
	if e.Policy.Rules != nil {
		n += e.Policy.Rules.Size()
	}
	return n
}

// policyOf returns the policy of a stored answer. If the file is unreachable, an older answer may
// apply.
func policyOf(r store.Robots, product string) robots.Policy {
	if !r.Unreachable {
		return robots.Judge(robots.Answer{Status: r.Status, ErrorClass: r.ErrorClass, Body: r.Body}, product)
	}
	var stale *robots.Rules
	if r.HasBody && r.UnreachableFor >= robots.DeferFor {
		stale = robots.Judge(robots.Answer{Status: r.BodyStatus, Body: r.Body}, product).Rules
	}
	return robots.Judge(robots.Answer{Status: r.Status, ErrorClass: r.ErrorClass}, product).After(r.UnreachableFor, stale)
}
