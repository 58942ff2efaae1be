package frontier

import (
	"errors"
	"log/slog"
	"sync"
	"time"

	"fetchd/frontier/normal"
	"fetchd/frontier/store"
	pb "fetchd/gen/fetchd/v1"
)

// maxRemembered limits what an identity remembers. It forgets everything then.
const maxRemembered = 4096

// leftOutFor is how long an origin is believed not to be covered. Providers of a service change while a worker runs.
const leftOutFor = 10 * time.Minute

// identity is what a worker has learned about the auth provider of its requests.
type identity struct {
	mu       sync.Mutex
	warned   bool
	unsigned map[string]time.Time // origins that it does not cover, and when it said so
	failed   map[string]time.Time // when the request for a URL could not be signed for the first time
	worked   time.Time            // when it has signed a request
}

// covers reports whether requests to an origin name the provider.
func (i *identity) covers(origin string) bool {
	i.mu.Lock()
	defer i.mu.Unlock()
	at, ok := i.unsigned[origin]
	return !ok || time.Since(at) >= leftOutFor
}

// leaveOut records that the provider does not cover an origin. It reports whether that is the first one.
func (i *identity) leaveOut(origin string) (first bool) {
	i.mu.Lock()
	defer i.mu.Unlock()
	if i.unsigned == nil || len(i.unsigned) >= maxRemembered {
		i.unsigned = make(map[string]time.Time)
	}
	i.unsigned[origin] = time.Now()
	first, i.warned = !i.warned, true
	return first
}

// succeeded records that the request for a URL was signed.
func (i *identity) succeeded(url string) {
	i.mu.Lock()
	defer i.mu.Unlock()
	delete(i.failed, url)
	i.worked = time.Now()
}

// cannotSign records that the request for a URL could not be signed. It reports whether that lies in the URL: others were
// signed since its last failure.
func (i *identity) cannotSign(url string) (ofURL bool) {
	i.mu.Lock()
	defer i.mu.Unlock()
	if at, ok := i.failed[url]; ok && i.worked.After(at) {
		return true
	}
	if i.failed == nil || len(i.failed) >= maxRemembered {
		i.failed = make(map[string]time.Time)
	}
	i.failed[url] = time.Now()
	return false
}

// Reasons of fetchd about an auth provider (spec A1, A2, A7).
const (
	providerUnknown = "auth_provider_unknown"
	providerOrigin  = "auth_provider_origin"
	providerCaller  = "auth_provider_caller"
	noCredential    = "no_credential"
	signingFailed   = "signing_failed"
	refreshFailed   = "refresh_failed"
)

// provider returns the auth provider for a URL, or an empty string.
func (v *visit) provider(url string) string {
	if origin, _ := normal.OriginOf(url); v.w.config.Identity == "" || !v.w.identity.covers(origin) {
		return ""
	}
	return v.w.config.Identity
}

// checkIdentity returns the visit's ending if a fetch could not have the auth provider of its request, which is no fault of
// the URL (F57). again is true if the part is to be sent once more, without it.
func (v *visit) checkIdentity(url string, request *pb.FetchRequest, outcome *pb.FetchOutcome, kind chainKind) (again bool, e *ending) {
	if request.GetAuthProvider() == "" {
		return false, nil
	}
	f := outcome.GetError()
	switch f.GetReason() {
	case providerOrigin:
		origin, _ := normal.OriginOf(url)
		if v.w.identity.leaveOut(origin) {
			v.w.logger.WarnContext(v.ctx, "some origins are not covered by the auth provider, and get requests without it", slog.String("auth_provider", request.GetAuthProvider()), slog.String("origin", origin))
		}
		return true, nil
	case providerUnknown, providerCaller:
		v.w.cannotStore(v.ctx, &v.w.denied, "fetch", errors.New(message(f)+": give another --identity, or check the auth providers of the service"))
		return false, &ending{how: giveBackDelayed}
	case noCredential, signingFailed, refreshFailed:
		return false, v.unsigned(url, f, kind)
	}
	if outcome.GetExchangeCount() > 0 {
		v.w.identity.succeeded(url)
	}
	return false, nil
}

// unsigned returns the ending of a visit whose request could not be signed. It is not dead for that, and lets other URLs go
// first: the cause may be its own. It returns nil for a robots.txt that has only itself to blame.
func (v *visit) unsigned(url string, f *pb.FetchError, kind chainKind) *ending {
	ofURL, class := v.w.identity.cannotSign(url), className(f.GetErrorClass())
	e := v.failed(class, class+": "+message(f), true, 0)
	if !ofURL {
		v.w.cannotStore(v.ctx, &v.w.denied, "fetch", errors.New(message(f)+": check the key of --sign-key, or the auth provider of --identity: the log of the service says more"))
		e.action, e.fetch.Status, e.fetch.RetryIn = Retry, store.Failed, v.w.config.Policy.RetryDelay
	}
	switch {
	case !kind.robots():
		return &e
	case ofURL:
		return nil
	}
	return &ending{how: giveBackDelayed}
}
