package fetch

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"time"

	"fetchd/classify"
	"fetchd/fetch/conns"
	"fetchd/fetch/fault"
	"fetchd/fetch/signing"
)

var errNoCredential = fault.New(classify.AuthRequired, classify.PhasePolicy, "no_credential")

// refreshedJustNow is the reason of AUTH_REQUIRED if the credential that was rejected is too new to be
// replaced. A later fetch gets another one.
const refreshedJustNow = "refreshed_just_now"

// refreshFailed is the reason of AUTH_REQUIRED if the credential was rejected, and a new one could not be had now.
const refreshFailed = "refresh_failed"

// passing is an error of [Credentials] if a later call may succeed.
type passing interface {
	error
	MayPass() bool
}

// mayPass reports whether a provider may have a credential later.
func mayPass(err error) bool {
	e, ok := errors.AsType[passing](err)
	return ok && e.MayPass()
}

// justRefreshed is an error of [Credentials].Refresh.
type justRefreshed interface {
	error
	RefreshedJustNow() bool
}

// authorize adds the credential to a request to an origin that it covers. It asks for it at each
// hop. The header of the hop does not get it, so no redirect forwards it (A1). It returns the signer
// of the request, or nil.
func (a *attempt) authorize(x *conns.Exchange, req *http.Request) (Signer, error) {
	a.added, a.signedAt, a.unsigned = nil, time.Time{}, nil
	c := a.run.req.Credentials
	if c == nil || !c.Covers(req.URL) {
		return nil, nil
	}
	name, value, err := a.field(x.Context(), c)
	if err != nil {
		a.noCredential, a.mayPass = true, mayPass(err)
		return nil, err
	}
	if name != "" {
		setField(req, name, value)
		a.added = []signing.Field{{Name: name, Value: value}}
	}
	signer, _ := c.(Signer)
	return signer, nil
}

// credential returns the first value that the provider has added to the request of the last hop, or "".
func (a *attempt) credential() string {
	if len(a.added) == 0 {
		return ""
	}
	return a.added[0].Value
}

// field gets the credential, which may require a wait. A shutdown ends the wait. During a
// shutdown no wait starts, and only a credential that is available at once is sent.
func (a *attempt) field(ctx context.Context, c Credentials) (name, value string, err error) {
	failure := errNoCredential
	if shutdown := a.run.client.config.Shutdown; shutdown.Err() != nil {
		ctx, failure = shutdown, errShutdown
	} else {
		a.run.setWaiting(true)
		defer a.run.setWaiting(false)
	}
	if name, value, err = c.Field(ctx); err != nil {
		err = fmt.Errorf("%w: %w", failure, err) // the provider's error is for the log only
	}
	return name, value, err
}

// authResult returns what the provider has done so far about a 401 (A2), or about a 403 that asks for a
// signature (A8).
func (a *attempt) authResult(status int) classify.AuthResult {
	switch {
	case a.challenged:
		return classify.Challenged
	case status == http.StatusForbidden:
		return classify.NoProvider
	case a.noCredential:
		return classify.RefreshFailed
	case len(a.added) == 0:
		return classify.NoProvider
	case a.run.refreshed:
		return classify.RefusedAgain
	}
	return classify.NotAsked
}

// refresh asks the provider for a new credential and returns the result. It is a wait between two
// attempts, so a shutdown ends it.
func (r *run) refresh(a *attempt) classify.AuthResult {
	r.refreshed = true
	if a.challenged {
		return classify.Challenged
	}
	r.setWaiting(true)
	defer r.setWaiting(false)
	if err := r.req.Credentials.Refresh(r.waitContext(), a.credential()); err != nil {
		tooNew, ok := errors.AsType[justRefreshed](err)
		a.refreshedJustNow, a.mayPass = ok && tooNew.RefreshedJustNow(), mayPass(err)
		a.refreshError = fault.Printable(a.withoutSecrets(fmt.Sprint(err)), maxLoggedBytes)
		return classify.RefreshFailed
	}
	return classify.Refreshed
}
