package fetch

// All state of a fetch is in this file: the run, its current attempt, and the functions that cancel them
// and emit events. The other files say what is done with it.

import (
	"context"
	"crypto/sha256"
	"errors"
	"hash"
	"net/http"
	"net/http/cookiejar"
	"sync"
	"time"

	"fetchd/classify"
	"fetchd/fetch/coding"
	"fetchd/fetch/conns"
	"fetchd/fetch/fault"
	"fetchd/fetch/signing"
	"fetchd/fetch/timers"
	"fetchd/internal/list"
)

// run is one fetch with all its state.
type run struct {
	client   *Client
	req      *Request
	sink     Sink
	caller   context.Context // the context that was passed to Fetch
	start    time.Time
	clock    timers.Clock // the timer of all time limits
	total    timers.Limit // the time limit of the fetch
	deadline time.Time    // of total, or of caller if that is earlier
	jar      *cookiejar.Jar
	cookies  int // stored in jar

	initialHop hopRequest    // the request that the caller described
	startHop   *hopRequest   // the first request of the next attempt
	chain      []*hopRequest // the requests before startHop, as they were sent: they count for D1 and D3 (I3)
	sinkErr    error         // the error that the sink returned; it is not called again

	placeholder struct {
		request  http.Request
		response http.Response
	}
	current   *attempt // in flight, or to be decided about; nil: between two attempts
	attempts  int
	exchanges int
	requests  classify.RequestState // of all exchanges
	redirects int                   // the most of an attempt
	onCaller  bool                  // attempts run on the goroutine that called Fetch
	fresh     bool                  // a 421 was answered: later attempts use new connections
	refreshed bool                  // the credential was refreshed, which is done once
	answers   []answer              // to origins that asked for signatures
	// ignoredLogged reports whether the log says what an origin asked for in vain.
	ignoredLogged bool
	upload        Upload    // with delivery Store; nil: none
	uploadOf      *progress // of the body of upload
	delivered     *progress // of the body that was delivered in part, in this fetch or before its resume point; or nil
	decision      classify.Decision
	failure       *Failure // of the last attempt
	ended         *Outcome // nil: it goes on
	failedHop     hopError // of the last attempt, for the log

	last          head // of the last response in any attempt (I5); until there is one, it has only the URL of the last hop
	lastErrorBody []byte

	// Results of the last attempt. The attempt itself is released before a wait.
	lastHops       []Hop
	lastBody       BodySummary
	lastInlineBody []byte
	lastText       *TextSummary
	lastStored     *StoredObject
	records        []Record
	rateLimits     []RateLimit // of the last response
	recording      Recording   // of the exchange in flight; nil: the fetch is not recorded
	charges        charges     // bytes charged for all of the above

	mu            sync.Mutex
	cause         error           // why the fetch was cancelled; nil: it was not, or by the caller's context
	inFlight      *conns.Exchange // the exchange of the last hop, which may have ended; nil: none
	waitCtx       context.Context // ends with the fetch; nil: nothing has waited yet
	cancelWaitCtx context.CancelCauseFunc
	waiting       bool // between attempts or for a credential, when a shutdown ends the fetch

	listed list.Place[*run] // guarded by the lock of the client's runs
}

// charges are the bytes that a run is charged for the results of its last attempt. bodyHead is for
// the head with which the delivered body started. lastHead is for the last head if it is another.
type charges struct{ lastHead, bodyHead, hops, errorBody int64 }

// hopError is a failed hop for the log.
type hopError struct {
	text, url, address string
	status             int
}

// attempt is one iteration of the retry loop: a chain of hops, and the body of the last
// response. [run.startAttempt] fills it in, and [run.settle] decides what follows. docs/design.md draws it.
type attempt struct {
	run    *run
	number int
	limit  timers.Limit // the attempt's own time limit

	hop      *hopRequest    // the current or the last one
	hops     []Hop          // what callers see of each hop
	sent     []*hopRequest  // the requests as they were sent, for the loop check
	sentRoom [1]*hopRequest // memory for sent, enough in the common case

	resp     *http.Response // of the last hop; consume reads its body
	response *Response      // the same for callers
	head     head           // the head that callers see, which may be that of an earlier attempt; see [attempt.shownHead]

	recorded *recordedBody // of the current response; nil: the fetch is not recorded, or there is none

	exchange *conns.Exchange // of the current hop; set under the run's lock
	cause    error           // why the attempt was cancelled, or nil; guarded by the run's lock

	location classify.Location // how the Location of the last response is treated

	failures
	authorization
	delivery

	// What nearly every attempt needs once, in one block with it. A wait keeps none of it.
	firstExchange conns.Exchange
	firstRequest  http.Request
	reader        bodyReader

	headCharge, hopsCharge int64 // bytes charged for the last response head and for the hops after the first
}

// failures is what failed in an attempt.
type failures struct {
	faults classify.Faults // the classes of all failures
	phase  classify.Phase  // of the first failure, as are reason and note
	reason string
	denial denial
	note   errorNote
}

// authorization is how the request of the last hop of an attempt was signed, or has a credential.
type authorization struct {
	added        []signing.Field  // by the provider to the request; nil: none
	signedAt     time.Time        // zero: it was not signed
	unsigned     *signing.Message // the request, if its signer has not signed it
	challenged   bool             // the last response asks for a signature, and the next request to its origin has it
	noCredential bool             // the provider had none, or could not sign
	mayPass      bool             // the provider may have one later
	// refreshedJustNow reports whether the credential was too new to be refreshed.
	refreshedJustNow bool
	refreshError     string // why the refresh of the credential failed; empty: it did not, or there was none
}

// delivery is what an attempt does with the body of its last response.
type delivery struct {
	resuming   *progress // the body that this attempt resumes; nil: it starts at the first byte
	refused    bool      // the last status is about the rest of that body only, see noteRefusal
	body       BodySummary
	inlineBody []byte
	text       *TextSummary // nil: inlineBody has the bytes of the body
	stored     *StoredObject
	errorBody  []byte
	// committed reports whether this attempt has delivered body bytes. The body may still be
	// resumed or restarted, unlike with [classify.Observation].BodyCommitted.
	committed bool
}

// denial is the policy of the fetch that forbids a target, its rule, and what it permits instead. The policy is empty
// if none does.
type denial struct{ policy, rule, permitted string }

// errorNote is the text of an error. The error itself may keep certificates or a line from the
// origin in memory.
type errorNote struct {
	class      classify.Class
	callerText string // without addresses, and without text of resolvers and proxies
	logText    string // the whole error, for the log; empty: no error
	address    string // the address that was dialed, whether allowed or not
	ofStore    bool   // the store was busy: the origin and the hop are not at fault
}

// progress is how much of a body has been delivered, in this attempt and in those that it
// resumes, and what is needed to resume it again.
type progress struct {
	size    int64 // decoded bytes, including those before a resume point
	encoded int64 // bytes on the wire in earlier attempts
	digest  hash.Hash
	room    [sha256.Size]byte // memory for the sum of digest
	charset *coding.Charset

	head      head   // of the response that started the body in this fetch; its response is nil until then
	validator string // for If-Range; empty: the body cannot be resumed
	coding    string // Content-Encoding of the response
	url       string // of the body, without the query; empty: unknown (resume point) or not needed
	total     int64  // size of the whole body; negative: unknown
	sent      bool   // bytes of it were delivered in this fetch
	end       int64  // end of the body according to the 206 that resumes it; zero: no 206
	mismatch  bool   // a response did not continue the body, which is not resumed again
	refusals  int    // failed statuses in a row instead of the rest
}

// head is a response, with the attempt and the URL that it came from.
type head struct {
	response *Response
	attempt  int
	url      string // without userinfo
}

// Cancel ends the fetch: its exchange and its wait.
func (r *run) Cancel(cause error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.cause != nil || r.caller.Err() != nil {
		return
	}
	r.cause = cause
	if r.inFlight != nil {
		r.inFlight.Cancel(cause)
	}
	if r.cancelWaitCtx != nil {
		r.cancelWaitCtx(cause)
	}
}

// Cancel ends the attempt: its exchange, and those that would follow.
func (a *attempt) Cancel(cause error) {
	a.run.mu.Lock()
	defer a.run.mu.Unlock()
	a.cause = cause
	if a.exchange != nil {
		a.exchange.Cancel(cause)
	}
}

// cancelCause returns the first reason why the fetch was cancelled, or nil.
func (r *run) cancelCause() error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.cause != nil {
		return r.cause
	}
	return fault.CallerErrorOf(r.caller)
}

// waitContext returns a context that ends with the fetch.
func (r *run) waitContext() context.Context {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.waitCtx == nil {
		r.waitCtx, r.cancelWaitCtx = context.WithCancelCause(r.caller)
		if r.cause != nil {
			r.cancelWaitCtx(r.cause)
		}
	}
	return r.waitCtx
}

// setWaiting starts or ends a wait that a shutdown ends: between two attempts, or for a
// credential. A shutdown does not end an attempt in flight.
func (r *run) setWaiting(w bool) {
	r.mu.Lock()
	r.waiting = w
	r.mu.Unlock()
	if w && r.client.config.Shutdown.Err() != nil { // runs.endWaits may have passed this run already
		r.Cancel(errShutdown)
	}
}

func (r *run) isWaiting() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.waiting
}

func (r *run) timeLeft() time.Duration {
	return max(time.Until(r.deadline), 0)
}

// wantsAttemptEvents reports whether events are emitted during an attempt, not only at its end.
func (r *run) wantsAttemptEvents() bool {
	return r.sink != nil && (r.req.Events == Attempts || r.req.Events == All)
}

// emit passes an event to the sink. An error of the sink ends the fetch. After
// [ErrOutOfMemory] and [ErrCancelled] the sink still receives the final events. emit reports whether
// the sink took the event.
func (r *run) emit(e Event) (taken bool) {
	switch {
	case r.sink == nil:
		return true
	case r.sinkErr != nil:
		return false
	}
	err := r.sink(e)
	if errors.Is(err, ErrOutOfMemory) {
		r.req.Memory.Await(r.waitContext, func() bool {
			err = r.sink(e)
			return !errors.Is(err, ErrOutOfMemory)
		})
	}
	switch {
	case errors.Is(err, ErrOutOfMemory):
		r.Cancel(fault.OutOfMemory)
	case errors.Is(err, ErrCancelled):
		r.Cancel(context.Canceled)
	case err != nil:
		r.sinkErr = err
		r.Cancel(context.Canceled)
	}
	return err == nil
}

// emit passes an event to the sink. The attempt's time limit is paused meanwhile, because
// the caller uses that time (spec B7). The limit of the hop runs only during a read. emit reports
// whether the sink took the event.
func (a *attempt) emit(e Event) bool {
	began := time.Now()
	left := a.limit.Pause(began)
	taken := a.run.emit(e)
	a.resume(began, left)
	return taken
}

// resume continues the attempt's time limit, which was paused at began with so much time left.
func (a *attempt) resume(began time.Time, left time.Duration) {
	ended := time.Now()
	if n := len(a.hops); n > 0 {
		a.hops[n-1].Exchange.Backpressure += ended.Sub(began)
	}
	a.limit.Resume(ended, left)
}
