package origin

import (
	"context"
	"fmt"
	"net/http"
	"slices"
	"sync"
	"time"
)

// maxLogEntries limits the log. The oldest entries are dropped first.
const maxLogEntries = 100_000

// journal is the log of requests and the counters of the keys.
type journal struct {
	mu      sync.Mutex
	limit   int
	entries []*entry // oldest first
	keys    map[string]*keyState
	arrived chan struct{} // closed and replaced with each entry
}

// keyState is kept when its entries are dropped: a reset counter would repeat steps.
type keyState struct {
	number  int
	turn    int
	cycles  map[string]int // the turn of each /cycle script
	entries []*entry
}

// entry is one request in the log. The journal's lock guards request.
type entry struct {
	journal *journal
	done    chan struct{}
	request Request
}

func newJournal(limit int) *journal {
	return &journal{limit: limit, keys: make(map[string]*keyState), arrived: make(chan struct{})}
}

// open logs r and chooses its step by the turn of its key. A redirect helper has one
// step and does not advance the turn. A request whose step says that it is not processed is
// not logged. stream is that of the listener h2fault, otherwise 0.
func (j *journal) open(r Request, rt *route, stream uint32) (*entry, *step) {
	j.mu.Lock()
	defer j.mu.Unlock()
	state, ok := j.keys[rt.key]
	if !ok {
		state = &keyState{cycles: make(map[string]int)}
		j.keys[rt.key] = state
	}
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
	e := &entry{journal: j, done: make(chan struct{})}
	if !chosen.disclaims(stream) {
		state.number++
		r.Key, r.Number, r.Done = rt.key, state.number, e.done
		e.request = r
		j.appendLocked(state, e)
	}
	return e, chosen
}

func (j *journal) appendLocked(state *keyState, e *entry) {
	close(j.arrived)
	j.arrived = make(chan struct{})
	j.entries = append(j.entries, e)
	state.entries = append(state.entries, e)
	for len(j.entries) > j.limit {
		oldest := j.entries[0]
		j.entries[0] = nil
		j.entries = j.entries[1:]
		// The oldest entry of all is also the oldest of its key.
		owner := j.keys[oldest.request.Key]
		owner.entries[0] = nil
		owner.entries = owner.entries[1:]
	}
}

// body records how much of the request body was read; sum is "" before its end.
func (e *entry) body(n int64, sum string) {
	e.journal.mu.Lock()
	defer e.journal.mu.Unlock()
	e.request.BodyBytes, e.request.BodySHA256 = n, sum
}

// finish records the end of the exchange. It is called once.
func (e *entry) finish(end End) {
	e.journal.mu.Lock()
	defer e.journal.mu.Unlock()
	e.request.End = end
	close(e.done)
}

// snapshot returns a copy of the request in its current state.
func (e *entry) snapshot() Request {
	e.journal.mu.Lock()
	defer e.journal.mu.Unlock()
	return e.request.clone()
}

func (r Request) clone() Request {
	r.Header = r.Header.Clone()
	r.Fields = slices.Clone(r.Fields)
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

// await waits for request number n of key.
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

// numbered returns request number n of key, or a channel that is closed when the
// next request arrives.
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

// Field is one header field as it was received. HTTP/1.1 and the listener h2fault
// keep the order and the spelling of the fields.
type Field struct {
	Name  string `json:"name"`
	Value string `json:"value"`
}

// Request is one request in the log.
type Request struct {
	// Number counts the requests for Key from 1, including those to the redirect
	// helpers (/r, /loop, /loop2, /cross).
	Number int `json:"number"`
	// Turn selects the step. It counts from 1 the requests to /s/KEY, and
	// separately those to each script of /cycle/KEY. It is 0 for the redirect helpers.
	Turn int `json:"turn"`
	// Key is the KEY of the URL, decoded.
	Key string `json:"key"`
	// Method is the method as sent.
	Method string `json:"method"`
	// Path is the path as sent: still encoded, and without the query.
	Path string `json:"path"`
	// Query is the query as sent, without "?".
	Query string `json:"query"`
	// Host is the Host field or :authority.
	Host string `json:"host"`
	// Protocol is "HTTP/1.0", "HTTP/1.1" or "HTTP/2.0".
	Protocol string `json:"protocol"`
	// Listener is the name of the listener, or "handler" if another server called
	// [Origin.ServeHTTP].
	Listener string `json:"listener"`
	// RemoteAddr is the client's address.
	RemoteAddr string `json:"remote_addr"`
	// Connection numbers the connections of this origin from 1. It is 0 if the
	// connection belongs to another server.
	Connection uint64 `json:"connection"`
	// ConnectionRequest numbers the requests on that connection from 1.
	ConnectionRequest int `json:"connection_request"`
	// Header is the header in canonical form, without Host.
	Header http.Header `json:"header"`
	// Fields is the header in the order received.
	Fields []Field `json:"fields"`
	// BodyBytes is how much of the request body was read so far.
	BodyBytes int64 `json:"body_bytes"`
	// BodySHA256 is the digest of the whole body in hex. It is empty until all of
	// the body was read.
	BodySHA256 string `json:"body_sha256"`
	// Step is the selected step, as written in the URL.
	Step string `json:"step"`
	// Time is when the origin had read the head.
	Time time.Time `json:"time"`
	// End is how the exchange ended, or "" if it has not. A client can have the
	// whole answer a moment before End is set: wait for Done, then get the request
	// again.
	End End `json:"end"`
	// Done is closed when the exchange has ended: by an answer, by a fault, or
	// because the client left.
	Done <-chan struct{} `json:"-"`
}

// End is how an exchange ended.
type End string

// The ends of an exchange.
const (
	// EndAnswered: all of the answer was written.
	EndAnswered End = "answered"
	// EndBroken: the origin broke off the exchange, as the step asks.
	EndBroken End = "broken"
	// EndClientGone: the client left before all of the answer was written.
	EndClientGone End = "client-gone"
	// EndRefused: the protocol cannot express the step. The field Origin-Error of
	// the answer gives the reason.
	EndRefused End = "refused"
)
