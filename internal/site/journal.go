package site

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"
)

// Kind is what a request was for, as far as its URL tells.
type Kind uint8

// The kinds.
const (
	// First is the first request of a fetch, or a repetition of it.
	First Kind = iota
	// Redirected is a request that a redirect led to.
	Redirected
	// Robots is a request for /robots.txt, whatever led to it.
	Robots
)

// String names the kind in lower case.
func (k Kind) String() string {
	switch k {
	case First:
		return "first"
	case Redirected:
		return "redirected"
	case Robots:
		return "robots"
	}
	return fmt.Sprintf("Kind(%d)", uint8(k))
}

// Visit is one request in the journal. Its times count from the start of the
// site, on its monotonic clock.
type Visit struct {
	// Host is the Host field in lower case, without port and trailing dot.
	Host string
	// Path is as it was sent, with its query.
	Path string
	// Method is as it was sent.
	Method string
	// Start is when the head had been read.
	Start time.Duration
	// End is just before the last byte was written or the connection broken
	// off, so that a client that has its answer has it after End. Where the
	// client left first, it is when the site noticed, and so after the client's
	// own end. Zero means that the visit goes on.
	End time.Duration
	// Kind is what the URL tells of the request.
	Kind Kind
	// Again says that the same URL was requested before: by a retry inside the
	// fetch or by a later fetch.
	Again bool
	// Left says that the client left, or the site was closed, before the answer.
	Left bool
}

// Ended says whether the visit has ended.
func (v Visit) Ended() bool { return v.End > 0 }

// journal notes visits. One lock is enough: what is done under it is short.
type journal struct {
	began time.Time

	mu    sync.Mutex
	hosts map[string]*hostLog
	count int
}

type hostLog struct {
	visits []Visit // in the order of their arrival at the lock
	seen   map[string]struct{}
}

func newJournal() *journal {
	return &journal{began: time.Now(), hosts: make(map[string]*hostLog)}
}

// now is a time that no visit has as its zero.
func (j *journal) now() time.Duration { return max(time.Since(j.began), 1) }

// entry is a visit in the journal. It belongs to one goroutine.
type entry struct {
	journal *journal
	log     *hostLog
	at      int
}

// open notes a request that arrives now.
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

// end notes that the visit ends now; the last call counts.
func (e entry) end() { e.endAt(e.journal.now(), false) }

func (e entry) endAt(at time.Duration, left bool) {
	e.journal.mu.Lock()
	defer e.journal.mu.Unlock()
	v := &e.log.visits[e.at]
	v.End, v.Left = at, left
}

// finish ends the visit unless its end was noted.
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
	visits := j.copies()
	slices.SortStableFunc(visits, byStart)
	return visits
}

func (j *journal) copies() []Visit {
	j.mu.Lock()
	defer j.mu.Unlock()
	visits := make([]Visit, 0, j.count)
	for _, log := range j.hosts {
		visits = append(visits, log.visits...)
	}
	return visits
}

// byStart orders visits that start at once by their hosts, so that the order
// is the same each time.
func byStart(a, b Visit) int {
	return cmp.Or(cmp.Compare(a.Start, b.Start), cmp.Compare(a.Host, b.Host))
}

const (
	robotsPath = "/robots.txt"
	markName   = "via"
	mark       = markName + "=r"
)

// kindOf reads the kind off a path with its query.
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

// withMark adds the mark to a Location, unless it is there.
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
