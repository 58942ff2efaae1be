package fetch

// The calls of one fetch, in the order of the code. A call is indented below its caller. A line
// without a file is in the file of the line above. To read the package, follow this list.
//
//	Client.Fetch                         run.go
//	  Client.newRun
//	  run.loop                           loop.go            go-retryablehttp calls RoundTrip, checkRetry and backoff
//	    attemptTransport.RoundTrip
//	      run.startAttempt               attempt.go
//	        run.newAttempt
//	          run.progressToResume       resume.go          the body that an earlier attempt delivered a part of
//	        attempt.follow               attempt.go         sends requests until a response is no redirect
//	          attempt.send
//	            attempt.newExchange
//	            attempt.roundTrip
//	              attempt.authorize      credentials.go
//	              attempt.transmit       attempt.go         again, if the origin has not processed the request
//	                Exchange.Connect     conns/exchange.go  takes an idle connection or makes one
//	                attempt.sign         sign.go            if the credential is a signer
//	                Exchange.RoundTrip   conns/exchange.go  sends the request and reads the head
//	            attempt.failWith         fail.go            if there is no head
//	          attempt.redirect           attempt.go
//	            ResolveRedirect          redirect.go
//	            attempt.nextHop          attempt.go
//	          attempt.discard                               the response that redirects
//	    checkRetry                       loop.go
//	      run.endAttempt
//	        attempt.consume              body.go            reads the body of the last response
//	          attempt.deliver
//	            attempt.bodyProgress     resume.go          a new body, or the rest of one
//	            attempt.readInto         body.go
//	              bodyReader.read
//	                bodyReader.copy
//	                  bodyReader.pass
//	                    output.wrote     output.go
//	                      output.flush
//	                        output.send                     passes a BodyChunk to the Sink
//	                      output.stored                     or adds them to the Upload
//	              attempt.toText         text.go            if the text is wanted, not the bytes
//	                attempt.textOf                          of a page when it is the turn of the caller
//	          attempt.readErrorBody      body.go            a body that is not delivered
//	          attempt.endExchange        record.go
//	            attempt.readRest                            of a recorded response
//	            Exchange.End             conns/exchange.go  gives the connection back
//	            attempt.keepRecords      record.go          if the fetch is recorded
//	          attempt.disown             fail.go            if the response may be the answer to another request
//	        run.settle                   settle.go          whether to make another attempt
//	          attempt.observe
//	          classify.Decide            classify/decide.go
//	          run.refresh                credentials.go     if the credential was rejected
//	          attempt.failureOf          settle.go
//	          run.emitFinished                              passes AttemptFinished to the Sink
//	        Client.conclude                                 if there is none
//	          run.outcome
//	    backoff                          loop.go            how long to wait before it
//	  run.close                          run.go
//
// A retry. checkRetry calls run.settle, which stores what classify.Decide returned in run.decision.
// checkRetry and backoff return it to go-retryablehttp, which waits and calls RoundTrip again. The
// next attempt starts at run.startHop: the first hop, or the one that failed.
//
// A redirect. attempt.redirect returns the next request, and attempt.follow sends it. If there
// is none because the redirect must not be followed, it records why, and the attempt ends.
//
// A resumed body. output.send records in run.delivered how much the Sink has. If the body can be
// resumed, the next attempt asks for the rest of it (progress.rangeRequest), and
// attempt.bodyProgress checks that the response is that rest.
//
// A cancelled fetch. run.Cancel ends it with a cause: its time limit, an error of the Sink, or
// Client.End. It cancels the exchange in flight and the wait between two attempts, and so does
// the caller's context. A cancelled exchange fails, and attempt.exchangeCause returns why. A
// cancelled wait ends run.loop, which calls run.settleCancelled. A shutdown cancels only waits.

import (
	"context"
	"net/http/cookiejar"
	"time"

	"golang.org/x/net/publicsuffix"

	"fetchd/classify"
	"fetchd/fetch/fault"
	"fetchd/internal/budget"
)

// maxOnCaller is the number of fetches in flight up to which attempts run on the goroutines of
// their callers, which costs less. Of more fetches, each would keep a large stack while it waits
// for its next attempt, so their attempts end on workers.
const maxOnCaller = 128

// Fetch runs a fetch and returns its outcome, which is never nil. It calls sink for each
// event as it happens, from the calling goroutine or, in a retry, from another one, but
// never concurrently. A nil sink receives nothing. When ctx ends, the fetch ends as DEADLINE
// or CANCELLED, whatever the cause of ctx is; see [Failure.Err]. It also ends as DEADLINE after
// the request's TotalTimeout or the client's maximum. Fetch does not modify req.
func (c *Client) Fetch(ctx context.Context, req *Request, sink Sink) *Outcome {
	onCaller := c.open.Add(1) <= maxOnCaller
	defer c.open.Add(-1)
	r := c.newRun(ctx, req, sink)
	r.onCaller = onCaller
	defer r.close()
	if r.cancelCause() == nil && r.ready() {
		r.loop(sharedEngine)
	}
	if r.ended == nil { // it has failed or was cancelled before its first attempt, or in a wait
		return c.conclude(ctx, r)
	}
	return r.ended
}

// newRun returns a fetch that starts now. It is separate from [Client.Fetch] to keep the stack
// of that function small, because thousands of calls may wait there.
func (c *Client) newRun(ctx context.Context, req *Request, sink Sink) *run {
	r := &run{client: c, req: req, sink: sink, caller: ctx, start: time.Now(), requests: classify.NotSent}
	limit := c.config.MaxTotalTimeout
	if req.TotalTimeout > 0 {
		limit = min(limit, req.TotalTimeout)
	}
	r.deadline = r.start.Add(limit)
	if d, ok := ctx.Deadline(); ok && d.Before(r.deadline) {
		r.deadline = d
	}
	r.total.Init(&r.clock, r)
	r.total.ArmAt(r.start, limit, classify.Deadline)
	if req.Cookies {
		r.jar, _ = cookiejar.New(&cookiejar.Options{PublicSuffixList: publicsuffix.List})
	}
	r.initialHop = hopRequest{method: req.Method, url: req.URL, header: c.firstHeader(req), body: req.Body}
	r.startHop = &r.initialHop
	r.delivered = req.resumeAt()
	c.runs.add(r)
	return r
}

// ready reports whether the fetch may start. If its store or its recorder is known to be down, the fetch
// has failed.
func (r *run) ready() bool {
	var err error
	if r.req.Delivery == Store {
		err = r.req.Destination.Ready()
	}
	if err == nil && r.req.Recorder != nil {
		err = r.req.Recorder.Ready()
	}
	if err != nil {
		detail, reason := storeText(err)
		r.settleAs(classify.StoreFailure, reason, "")
		r.failure.Detail = fault.Printable(detail, MaxDetailBytes)
	}
	return err == nil
}

// close releases the timer, the contexts, the connection and the results of the fetch. The exchange has ended
// before, unless a sink or an observer has panicked. Goroutines of HTTP/2 may keep the run for some time.
func (r *run) close() {
	r.clock.Stop()
	r.dropUpload()
	if r.inFlight != nil {
		r.inFlight.End()
	}
	if r.recording != nil {
		r.recording.Discard()
	}
	r.client.runs.remove(r)
	if r.cancelWaitCtx != nil {
		r.cancelWaitCtx(nil)
	}
	if p := r.delivered; p != nil && p.head.response != r.last.response { // the outcome does not keep it
		r.req.Memory.Shrink(budget.Head, r.charges.bodyHead)
	}
	r.last, r.lastErrorBody, r.lastInlineBody, r.lastText, r.delivered, r.ended = head{}, nil, nil, nil, nil, nil
}
