package site

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"
)

// Kind is the purpose of a request, as far as its URL shows.
type Kind uint8

const (
	// First is the first request of a fetch, or a retry of it.
	First Kind = iota
	// Redirected is a request after a redirect.
	Redirected
	// Robots is a request for /robots.txt, also after a redirect.
	Robots
)

// String returns the kind in lower case.
func (k Kind) String() string {
	return [...]string{First: "first", Redirected: "redirected", Robots: "robots"}[k]
}

// Visit is one request in the journal. Its times are monotonic and start at zero when the site
// starts.
type Visit struct {
	// Host is the Host field in lower case, without port and trailing dot.
	Host string
	// Path is the path with its query, as it was sent.
	Path string
	// Method is as it was sent.
	Method string
	// Start is when the header had been read.
	Start time.Duration
	// End is just before the last byte was written or the connection was closed, so a client has
	// its answer after End. If the client left first, End is when the site noticed, which is later
	// than for the client. Zero means that the visit has not ended.
	End time.Duration
	// Kind is what the URL shows about the request.
	Kind Kind
	// Again reports whether the same URL was requested before, by a retry inside the fetch or by
	// another fetch.
	Again bool
	// Left reports whether the client left, or the site was closed, before the answer.
	Left bool
}

// Ended reports whether the visit has ended.
func (v Visit) Ended() bool { return v.End > 0 }

// journal records visits. One lock is enough, because it is held for short times only.
type journal struct {
	began time.Time

	mu    sync.Mutex
	hosts map[string]*hostLog
	count int
}

type hostLog struct {
	visits []Visit // in the order in which they got the lock
	seen   map[string]struct{}
}

func newJournal() *journal {
	return &journal{began: time.Now(), hosts: make(map[string]*hostLog)}
}

// now returns the current time, which is never zero.
func (j *journal) now() time.Duration { return max(time.Since(j.began), 1) }

// entry is a visit in the journal. One goroutine uses it.
type entry struct {
	journal *journal
	log     *hostLog
	at      int
}

// open records a request that arrives now.
func (j *journal) open(host, path, method string) entry {
	v := Visit{Host: host, Path: path, Method: method, Start: j.now(), Kind: kindOf(path)}
	j.mu.Lock()
	defer j.mu.Unlock()
	log, ok := j.hosts[host]
	if !ok {
		log = &hostLog{seen: make(map[string]struct{})}
		j.hosts[host] = log
	}
	before := len(log.seen)
	log.seen[path] = struct{}{}
	v.Again = len(log.seen) == before
	log.visits = append(log.visits, v)
	j.count++
	return entry{journal: j, log: log, at: len(log.visits) - 1}
}

// end records that the visit ends now. The last call counts.
func (e entry) end() { e.endAt(e.journal.now(), false) }

func (e entry) endAt(at time.Duration, left bool) {
	e.journal.mu.Lock()
	defer e.journal.mu.Unlock()
	v := &e.log.visits[e.at]
	v.End, v.Left = at, left
}

// finish ends the visit, unless its end was recorded before.
func (e entry) finish() {
	now := e.journal.now()
	e.journal.mu.Lock()
	defer e.journal.mu.Unlock()
	if v := &e.log.visits[e.at]; !v.Ended() {
		v.End = now
	}
}

func (j *journal) size() int {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.count
}

func (j *journal) all() []Visit {
	j.mu.Lock()
	visits := make([]Visit, 0, j.count)
	for _, log := range j.hosts {
		visits = append(visits, log.visits...)
	}
	j.mu.Unlock()
	slices.SortStableFunc(visits, byStart)
	return visits
}

// byStart orders by start. If visits start at the same time, their hosts make the order stable.
func byStart(a, b Visit) int {
	return cmp.Or(cmp.Compare(a.Start, b.Start), cmp.Compare(a.Host, b.Host))
}

const (
	robotsPath = "/robots.txt"
	markName   = "via"
	mark       = markName + "=r"
)

// kindOf returns the kind of a path with its query.
func kindOf(target string) Kind {
	path, query, _ := strings.Cut(target, "?")
	switch {
	case path == robotsPath:
		return Robots
	case marked(query):
		return Redirected
	}
	return First
}

func marked(query string) bool {
	for pair := range strings.SplitSeq(query, "&") {
		if name, _, _ := strings.Cut(pair, "="); name == markName {
			return true
		}
	}
	return false
}

// withMark adds the mark to a Location that does not have it.
func withMark(location string) string {
	rest, fragment, hasFragment := strings.Cut(location, "#")
	_, query, hasQuery := strings.Cut(rest, "?")
	switch {
	case marked(query):
		return location
	case hasQuery && query != "":
		rest += "&" + mark
	case hasQuery:
		rest += mark
	default:
		rest += "?" + mark
	}
	if hasFragment {
		rest += "#" + fragment
	}
	return rest
}

// Violation is a visit that started too early.
type Violation struct {
	Host string
	// Before is the visit of the host that ended last, or has not ended, of those that started
	// before.
	Before Visit
	// Visit is the one that started too early.
	Visit Visit
	// By is how much later it should have started. If Before has not ended, By is the delay and at
	// least 1 ns, and may be too small.
	By time.Duration
}

// String names both visits and their times.
func (v Violation) String() string {
	before := "has not ended"
	if v.Before.Ended() {
		before = fmt.Sprintf("ended at %v", v.Before.End)
	}
	return fmt.Sprintf("%s: %s %s started at %v, %v too early: %s %s, started at %v, %s",
		v.Host, v.Visit.Kind, v.Visit.Path, v.Visit.Start, v.By, v.Before.Kind, v.Before.Path, v.Before.Start, before)
}

// Early returns the visits that started less than delay after the end of any earlier visit of the
// same host, of whatever kind, in the order of their starts. A visit that overlaps an earlier one
// is therefore always too early. Exactly the delay is not too early.
//
// Early checks only the visits for which which returns true; nil means all. Each violation names
// the earlier visit that ended last. If visits of one host start at the same time, those that are
// not checked count as earlier. The visits may be in any order, and Early does not change them.
func Early(visits []Visit, delay time.Duration, which func(Visit) bool) []Violation {
	if which == nil {
		which = func(Visit) bool { return true }
	}
	ordered := slices.Clone(visits)
	slices.SortStableFunc(ordered, func(a, b Visit) int {
		order := cmp.Compare(a.Start, b.Start)
		if checkA, checkB := which(a), which(b); order == 0 && checkA != checkB {
			order = 1
			if checkB {
				order = -1
			}
		}
		return order
	})
	var found []Violation
	last := make(map[string]Visit)
	for _, v := range ordered {
		before, ok := last[v.Host]
		if ok && which(v) {
			if by := wait(before, v, delay); by > 0 {
				found = append(found, Violation{Host: v.Host, Before: before, Visit: v, By: by})
			}
		}
		if !ok || endsAfter(v, before) {
			last[v.Host] = v
		}
	}
	return found
}

// wait returns how much too early v started after before. The result is not positive if it did not.
func wait(before, v Visit, delay time.Duration) time.Duration {
	if !before.Ended() {
		return max(delay, 1)
	}
	return before.End + delay - v.Start
}

// endsAfter reports whether a ends after b, or has not ended.
func endsAfter(a, b Visit) bool {
	if !a.Ended() || !b.Ended() {
		return b.Ended()
	}
	return a.End > b.End
}
