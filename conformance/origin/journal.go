package origin

import (
	"context"
	"fmt"
	"net/http"
	"sync"
	"time"
)

// maxLogEntries bounds the log; the oldest entries go first.
const maxLogEntries = 100_000

// journal is the log of requests and the counters of the keys.
type journal struct {
	mu      sync.Mutex
	limit   int
	entries []*entry // oldest first
	keys    map[string]*keyState
	arrived chan struct{} // closed and replaced with each entry
}

// keyState outlives its entries: a counter that went back would repeat steps.
type keyState struct {
	number  int
	turn    int
	cycles  map[string]int // the turn of each script of /cycle
	entries []*entry
}

// entry is one request in the log. All but journal and done is guarded by the
// journal's lock.
type entry struct {
	journal *journal
	done    chan struct{}
	request Request
}

func newJournal(limit int) *journal {
	return &journal{limit: limit, keys: make(map[string]*keyState), arrived: make(chan struct{})}
}

// open logs r and chooses its step: the turn-th of steps, or the last.
// Helpers have one step and do not take a turn.
func (j *journal) open(r Request, rt *route) (*entry, *step) {
	j.mu.Lock()
	defer j.mu.Unlock()
	state := j.state(rt.key)
	state.number++
	r.Key, r.Number = rt.key, state.number
	switch {
	case rt.cycle != "":
		state.cycles[rt.cycle]++
		r.Turn = state.cycles[rt.cycle]
	case !rt.helper:
		state.turn++
		r.Turn = state.turn
	}
	chosen := rt.stepAt(r.Turn)
	r.Step = chosen.text
	e := &entry{journal: j, done: make(chan struct{}), request: r}
	e.request.Done = e.done
	j.append(state, e)
	return e, chosen
}

func (j *journal) state(key string) *keyState {
	state, ok := j.keys[key]
	if !ok {
		state = &keyState{cycles: make(map[string]int)}
		j.keys[key] = state
	}
	return state
}

func (j *journal) append(state *keyState, e *entry) {
	close(j.arrived)
	j.arrived = make(chan struct{})
	j.entries = append(j.entries, e)
	state.entries = append(state.entries, e)
	for len(j.entries) > j.limit {
		oldest := j.entries[0]
		j.entries[0] = nil
		j.entries = j.entries[1:]
		// The oldest of all is the oldest of its key.
		owner := j.keys[oldest.request.Key]
		owner.entries[0] = nil
		owner.entries = owner.entries[1:]
	}
}

// body notes how much of the request body was read; sum is "" before its end.
func (e *entry) body(n int64, sum string) {
	e.journal.mu.Lock()
	defer e.journal.mu.Unlock()
	e.request.BodyBytes, e.request.BodySHA256 = n, sum
}

// finish notes the end of the exchange. It is called once.
func (e *entry) finish(end End) {
	e.journal.mu.Lock()
	defer e.journal.mu.Unlock()
	e.request.End = end
	close(e.done)
}

// snapshot returns the request as it stands now.
func (e *entry) snapshot() Request {
	e.journal.mu.Lock()
	defer e.journal.mu.Unlock()
	return e.request.clone()
}

func (r Request) clone() Request {
	r.Header = r.Header.Clone()
	r.Fields = append([]Field(nil), r.Fields...)
	return r
}

func (j *journal) requests(key string) []Request {
	j.mu.Lock()
	defer j.mu.Unlock()
	state, ok := j.keys[key]
	if !ok {
		return nil
	}
	return copies(state.entries)
}

// await returns request number n of key as soon as there is one.
func (j *journal) await(ctx context.Context, key string, n int) (Request, error) {
	for {
		r, arrived := j.numbered(key, n)
		if arrived == nil {
			return r, nil
		}
		select {
		case <-arrived:
		case <-ctx.Done():
			return Request{}, fmt.Errorf("await request %d of %s: %w", n, key, ctx.Err())
		}
	}
}

// numbered returns request number n of key, or a channel that tells of the
// next arrival.
func (j *journal) numbered(key string, n int) (Request, <-chan struct{}) {
	j.mu.Lock()
	defer j.mu.Unlock()
	if state, ok := j.keys[key]; ok {
		for _, e := range state.entries {
			if e.request.Number == n {
				return e.request.clone(), nil
			}
		}
	}
	return Request{}, j.arrived
}

func (j *journal) all() []Request {
	j.mu.Lock()
	defer j.mu.Unlock()
	return copies(j.entries)
}

func copies(entries []*entry) []Request {
	requests := make([]Request, len(entries))
	for i, e := range entries {
		requests[i] = e.request.clone()
	}
	return requests
}

func (j *journal) reset() {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.entries = nil
	clear(j.keys)
}

// Field is one header field as it was received, in its place and spelling
// where the protocol keeps them (HTTP/1.1 and the listener h2fault do).
type Field struct {
	Name  string `json:"name"`
	Value string `json:"value"`
}

// Request is one request in the log.
type Request struct {
	// Number counts the requests for Key from 1, those of the redirect
	// helpers (/r, /loop, /loop2, /cross) included.
	Number int `json:"number"`
	// Turn is the n that chose the step: it counts the requests to /s/KEY,
	// and those to each script of /cycle/KEY, from 1. It is 0 for the redirect helpers.
	Turn int `json:"turn"`
	// Key is the KEY of the URL, decoded.
	Key string `json:"key"`
	// Method is as it was sent.
	Method string `json:"method"`
	// Path is as it was sent, still encoded, without the query.
	Path string `json:"path"`
	// Query is as it was sent, without "?".
	Query string `json:"query"`
	// Host is the Host field or :authority.
	Host string `json:"host"`
	// Protocol is "HTTP/1.0", "HTTP/1.1" or "HTTP/2.0".
	Protocol string `json:"protocol"`
	// Listener is the name of the listener; "handler" if the request came
	// through [Origin.ServeHTTP] from somebody else's server.
	Listener string `json:"listener"`
	// RemoteAddr is the client's address.
	RemoteAddr string `json:"remote_addr"`
	// Connection numbers the connections of this origin from 1. It is 0 where
	// the connection is somebody else's.
	Connection uint64 `json:"connection"`
	// ConnectionRequest numbers the requests of that connection from 1.
	ConnectionRequest int `json:"connection_request"`
	// Header is the header in canonical form, without Host.
	Header http.Header `json:"header"`
	// Fields is the header in the order received.
	Fields []Field `json:"fields"`
	// BodyBytes is the size of the request body that was read so far.
	BodyBytes int64 `json:"body_bytes"`
	// BodySHA256 is the digest of the whole body in hex; empty until all of it
	// was read.
	BodySHA256 string `json:"body_sha256"`
	// Step is the step that was chosen, as in the URL.
	Step string `json:"step"`
	// Time is when the head had been read.
	Time time.Time `json:"time"`
	// End says how the exchange ended; "" while it goes on. A client can hold a
	// whole answer a moment before its end is noted: wait for Done, then ask
	// again.
	End End `json:"end"`
	// Done is closed when the exchange has ended, by an answer, by a fault, or
	// because the client left.
	Done <-chan struct{} `json:"-"`
}

// End is how an exchange ended.
type End string

// The ends of an exchange.
const (
	// EndAnswered: all of the answer was written.
	EndAnswered End = "answered"
	// EndBroken: the origin broke off, as the step asked.
	EndBroken End = "broken"
	// EndClientGone: the client left before all of the answer was written.
	EndClientGone End = "client-gone"
	// EndRefused: the step makes no sense here; the answer says why in the
	// field Origin-Error.
	EndRefused End = "refused"
)
