package frontier

import (
	"context"
	"errors"
	"log/slog"
	"time"

	"fetchd/client"
	"fetchd/frontier/links"
	"fetchd/frontier/normal"
	"fetchd/frontier/robots"
	"fetchd/frontier/sitemap"
	"fetchd/frontier/store"
	pb "fetchd/gen/fetchd/v1"
)

// chainKind is the purpose of a chain of redirects.
type chainKind int

const (
	pageChain       chainKind = iota
	robotsChain               // does not check robots.txt itself
	robotsOnceChain           // the same, with one attempt
	sitemapChain
	requisiteChain
)

func (k chainKind) robots() bool { return k == robotsChain || k == robotsOnceChain }

// chain fetches a URL and follows its redirects, with a separate fetch for each origin. It returns
// the outcome of the last part, or the visit's ending. earlier is the record that the response may
// refer to.
func (v *visit) chain(url string, kind chainKind, earlier store.Earlier) (*pb.FetchOutcome, *ending) {
	left := v.w.config.Policy.MaxRedirects
	if kind.robots() {
		left = robots.MaxRedirects // RFC 9309 §2.3.1.2
	}
	asked := map[string]bool{}
	for {
		asked[url] = true
		outcome, e := v.part(url, left, kind, earlier)
		if e != nil {
			return nil, e
		}
		next := target(outcome)
		if outcome.GetKind() != pb.OutcomeKind_OUTCOME_KIND_REDIRECT || next == "" || (!kind.robots() && !v.w.config.Policy.FollowRedirects) {
			return outcome, nil
		}
		if !kind.robots() && !v.allows(next) {
			return nil, v.outOfScope(outcome, next)
		}
		left -= len(outcome.GetHops()) // the redirects that fetchd followed, and this one
		switch {
		case left < 0:
			return failedRedirect(outcome, pb.ErrorClass_ERROR_CLASS_TOO_MANY_REDIRECTS), nil
		case asked[next]:
			return failedRedirect(outcome, pb.ErrorClass_ERROR_CLASS_REDIRECT_LOOP), nil
		}
		if asked := askedFor(outcome); asked > 0 {
			v.w.block(normal.HostOf(lastURL(outcome)), asked)
		}
		if kind == requisiteChain && normal.HostOf(next) != v.claim.Host {
			if ok, e := v.mayLead(next); e != nil {
				return nil, e
			} else if !ok {
				return nil, v.outOfScope(outcome, next)
			}
		}
		granted, e := v.takeHost(next, kind)
		if e != nil {
			return nil, e
		}
		if !granted {
			return outcome, nil
		}
		url = next
	}
}

// takeHost waits until the host of a redirect's target is open, and reserves it. It returns false
// if that takes too long.
func (v *visit) takeHost(next string, kind chainKind) (granted bool, e *ending) {
	u, err := normal.NormalizeURL(next)
	if err != nil {
		return false, nil // fetchd would reject it, or a frontier cannot store it
	}
	patience, cancel := context.WithTimeout(v.ctx, v.w.config.MaxRedirectWait)
	defer cancel()
	defer context.AfterFunc(v.w.draining, cancel)()
	if !kind.robots() {
		if e, known := v.askForeign(patience, u); e != nil || !known {
			return false, e
		}
	}
	host := normal.HostOf(u)
	if kind.robots() && host == v.claim.Host {
		if e := v.leaveHost(); e != nil { // the request for a robots.txt is not covered by the claim
			return false, e
		}
	}
	return v.reserve(patience, host)
}

// minRoom is how much room at least a body waits for that had none: the default maximum of bodies.
const minRoom = defaultMaxBody

// awaitRoom waits until there is room for so many bytes of the body of url, and then until its host is open. While it
// waits, it holds no host.
func (v *visit) awaitRoom(url string, kind chainKind, bytes int64) *ending {
	v.dropBody()
	v.release()
	if e := v.leaveHost(); e != nil {
		return e
	}
	v.w.logger.InfoContext(v.ctx, "a body waits for room", slog.String("url", url), slog.Int64("bytes", bytes))
	waiting, cancel := context.WithCancel(v.ctx)
	defer cancel()
	defer context.AfterFunc(v.w.draining, cancel)()
	v.reserved = v.w.config.Bodies.New(v.w.storing)
	if err := v.wait(func() error { return v.reserved.Reserve(waiting, bytes) }); err != nil {
		if e := v.stopped(); e != nil {
			return e
		}
		return v.back()
	}
	granted, e := v.takeHost(url, kind)
	if e == nil && !granted {
		return v.back()
	}
	return e
}

// part fetches one URL of a chain, with its redirects within the origin. It is sent again when there is room for its body, or
// without a setting that the service cannot use.
func (v *visit) part(url string, redirects int, kind chainKind, earlier store.Earlier) (*pb.FetchOutcome, *ending) {
	for {
		if e := v.checkLease(); e != nil {
			return nil, e
		}
		task, err := v.task(url, redirects, kind, earlier)
		if err != nil {
			return nil, v.storeFailed("read the URL of a page", err)
		}
		outcome, err := v.send(task)
		if outcome == nil {
			return nil, v.broken(err)
		}
		if errors.Is(context.Cause(v.ctx), errLeaseLost) {
			return nil, &ending{how: forget}
		}
		again, e := v.sendAgain(url, kind, task.Request, outcome, err)
		if e != nil {
			return nil, e
		}
		if !again {
			return v.recorded(whole(outcome))
		}
	}
}

// task returns the fetch of a part. Its body is that of the visit, except for a robots.txt.
func (v *visit) task(url string, redirects int, kind chainKind, earlier store.Earlier) (task client.Task, err error) {
	task = client.Task{SendBefore: v.startBefore()}
	if kind.robots() {
		task.Request = v.w.config.robotsRequest(url, redirects, earlier)
	} else {
		task.Body = v.newBody()
		task.Request = v.w.config.pageRequest(url, redirects, v.validators(url), earlier)
		if v.spool != nil {
			deliver(task.Request)
		}
		if p := task.Request.GetRecordPolicy(); p != nil {
			p.Path, err = v.crawlPath(url)
		}
	}
	switch kind {
	case robotsOnceChain:
		once(task.Request)
	case sitemapChain:
		sitemapPolicies(task.Request)
	case requisiteChain:
		err = errors.Join(err, v.requisitePolicies(task.Request))
	}
	if v.anySize {
		anySize(task.Request)
	}
	task.Request.AuthProvider = v.provider(url)
	return task, err
}

// send sends a task, and counts what it has cost. The outcome is nil if the fetch has none.
func (v *visit) send(task client.Task) (*pb.FetchOutcome, error) {
	v.unused = false
	v.mu.Lock()
	v.overdue, v.queued = time.Time{}, time.Now().Add(maxQueued)
	v.mu.Unlock()
	var wait time.Duration
	var last []*pb.Hop
	task.OnEvent = func(m *pb.FetchEvent) {
		v.noteProgress()
		if f := m.GetAttemptFinished(); f != nil {
			wait += f.GetRetryDecision().GetRetry().GetDelay().AsDuration()
			v.delayOthers(f.GetHops())
			last = f.GetHops()
		}
	}
	outcome, err := v.w.pool.Do(v.ctx, task)
	v.storeAddresses(addressesOf(last))
	v.mu.Lock()
	v.queued = time.Time{}
	v.mu.Unlock()
	if outcome != nil || errors.Is(err, client.ErrLost) {
		v.started = true
	}
	if outcome != nil {
		v.totals.add(outcome, wait)
	}
	return outcome, err
}

// sendAgain reports whether a part is to be sent again. It waits until it may be, or returns the visit's ending.
func (v *visit) sendAgain(url string, kind chainKind, request *pb.FetchRequest, outcome *pb.FetchOutcome, err error) (again bool, e *ending) {
	if full, ok := errors.AsType[*NoRoomError](err); ok {
		return true, v.awaitRoom(url, kind, min(max(2*full.Bytes, minRoom), request.GetBodyPolicy().GetMaxSizeBytes()))
	}
	if _, failed := errors.AsType[*client.Error](err); err != nil && !failed { // the body could not be written
		v.notKept(err)
		return false, &ending{how: giveBackDelayed}
	}
	return v.checkSettings(url, request, outcome, kind)
}

// recorded returns an outcome whose WARC records were written, if there are to be some, or else the visit's ending.
func (v *visit) recorded(outcome *pb.FetchOutcome) (*pb.FetchOutcome, *ending) {
	if err := v.w.config.recordError(outcome); err != nil {
		v.w.cannotStore(v.ctx, &v.w.recording, "write WARC records", err)
		return nil, &ending{how: giveBackDelayed}
	}
	if len(outcome.GetRecords()) > 0 {
		v.w.recording.succeeded()
	}
	return outcome, nil
}

// checkSettings returns the visit's ending if the service cannot make a fetch because of a setting. again is true if the
// part is to be sent once more.
func (v *visit) checkSettings(url string, request *pb.FetchRequest, outcome *pb.FetchOutcome, kind chainKind) (again bool, e *ending) {
	if again, e := v.checkIdentity(url, request, outcome, kind); again || e != nil {
		return again, e
	}
	return v.checkDenied(outcome, kind)
}

// checkDenied returns the visit's ending if a policy of the service forbids a setting of this worker, which is no fault
// of the URL. again is true if the part is to be sent once more, without a maximum size.
func (v *visit) checkDenied(outcome *pb.FetchOutcome, kind chainKind) (again bool, e *ending) {
	anySize := v.anySize
	v.anySize = false
	switch f := outcome.GetError(); {
	case f.GetPolicy() == "" || f.GetErrorClass() != pb.ErrorClass_ERROR_CLASS_INVALID_REQUEST:
		if kind == pageChain || kind == requisiteChain {
			v.w.denied.succeeded()
		}
		return false, nil
	case kind != pageChain && f.GetReason() == deniedSize && !anySize:
		v.anySize = true
		return true, nil
	default:
		v.w.cannotStore(v.ctx, &v.w.denied, "fetch", deniedError(f))
		return false, &ending{how: giveBackDelayed}
	}
}

// newBody drops the body of the part before, which was a redirect, and prepares the next one. It
// returns nil if the body is not needed.
func (v *visit) newBody() client.BodyWriter {
	reserved := v.reserved
	v.reserved = nil
	v.dropBody()
	var to writers
	if v.w.config.Bodies != nil {
		v.body = reserved
		if v.body == nil {
			// Not v.ctx: a body whose outcome has arrived is stored even if the visit is cancelled.
			v.body = v.w.config.Bodies.New(v.w.storing)
		}
		to = append(to, v.body)
	}
	switch {
	case v.claim.Kind == store.Sitemap:
		v.spool = &spool{limit: sitemap.MaxBytes}
	case v.discovers() || v.searchesRequisites():
		var limits links.Limits
		if d := v.w.config.Discovery; d != nil {
			limits = d.Links
		}
		v.spool = &spool{limit: limits.DocumentBytes() + 1} // one more shows that it is longer
	}
	if v.spool != nil {
		to = append(to, v.spool)
	}
	if len(to) == 0 {
		return nil
	}
	return to
}

func (v *visit) dropBody() {
	if v.spool != nil {
		v.spool.close()
		v.spool = nil
	}
	if v.body != nil {
		v.body.Drop()
		v.body = nil
	}
	if v.reserved != nil {
		v.reserved.Drop()
		v.reserved = nil
	}
}

// keep stores the body of an outcome. It returns the visit's ending if that failed: the URL is fetched
// again later.
func (v *visit) keep(outcome *pb.FetchOutcome) *ending {
	digest := outcome.GetBodySummary().GetSha256()
	if digest == "" { // a 204
		return nil
	}
	err := v.wait(func() error { return v.body.Commit(digest, outcome.GetInlineBody()) })
	if wrong, ok := errors.AsType[*DigestError](err); ok {
		return new(v.w.config.Policy.judge(v.claim, corrupted(outcome, wrong), v.totals))
	}
	if err != nil {
		v.notKept(err)
		return &ending{how: giveBackDelayed}
	}
	v.w.backoff.succeeded()
	return nil
}

// validators returns those of the URL's last success, if url is at the same origin.
func (v *visit) validators(url string) store.Claim {
	own, _ := normal.OriginOf(v.claim.URL)
	if origin, _ := normal.OriginOf(url); origin != own {
		return store.Claim{}
	}
	return v.claim
}

// delayOthers delays the hosts of hops that this visit does not hold. There are none if the service
// follows redirects only within an origin, but the worker does not rely on that.
func (v *visit) delayOthers(hops []*pb.Hop) {
	var hosts []string
	for _, h := range hops {
		if host := normal.HostOf(h.GetUrl()); host != "" && host != v.claim.Host && host != v.held {
			hosts = append(hosts, host)
		}
	}
	if len(hosts) > 0 {
		v.w.delayHosts(hosts)
	}
}
