package fetch

import (
	"fmt"
	"log/slog"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"time"

	"fetchd/classify"
	"fetchd/fetch/conns"
	"fetchd/fetch/fault"
	"fetchd/fetch/signing"
	"fetchd/fetch/urls"
)

var errNotSigned = fault.New(classify.AuthRequired, classify.PhasePolicy, "signing_failed")

// sign adds the fields of a signer to a request whose connection is known. It is the last step before
// the request is written, so nothing that was signed changes later (A7). A nil signer adds nothing.
func (a *attempt) sign(x *conns.Exchange, req *http.Request, signer Signer) error {
	if signer == nil {
		return nil
	}
	names := signer.Headers()
	req.Header = conns.FinalHeader(req, names)
	m := signing.Message{ID: a.run.req.ID, Time: time.Now(), Method: req.Method, URL: req.URL, Authority: req.Host,
		Target: req.URL.RequestURI(), Header: conns.SentHeader(req), Body: a.hop.body}
	fields, err := a.run.signs(req.URL, signer)(x.Context(), &m)
	for _, f := range fields {
		if err == nil && !slices.Contains(names, f.Name) {
			err = fmt.Errorf("the signer adds %.60q, which is not among its headers", f.Name)
		}
	}
	if err != nil {
		a.noCredential = true
		return fmt.Errorf("%w: %w", errNotSigned, err) // the signer's error is for the log only
	}
	for _, f := range fields {
		req.Header[f.Name] = append(req.Header[f.Name], f.Value)
	}
	if len(fields) > 0 {
		a.added, a.signedAt = append(a.added, fields...), m.Time
	} else {
		a.unsigned = &m
	}
	return nil
}

// answer is how the requests to an origin are signed because it asked for it.
type answer struct {
	url  *url.URL // of the origin
	sign signing.Func
}

// signs returns what signs requests to the origin of a URL.
func (r *run) signs(u *url.URL, signer Signer) signing.Func {
	for _, a := range r.answers {
		if urls.SameOrigin(a.url, u) {
			return a.sign
		}
	}
	return signer.Sign
}

// readChallenge reads a response that may ask for a signature (A8). An origin is answered once: what follows is
// signed as it asked first. So there are at most as many answers as attempts.
func (a *attempt) readChallenge() {
	if a.resp == nil || len(a.added) > 0 || a.unsigned == nil {
		return
	}
	switch a.resp.StatusCode {
	case http.StatusUnauthorized, http.StatusForbidden, http.StatusTooManyRequests:
	default:
		return
	}
	c, ok := a.run.req.Credentials.(Challenger)
	if !ok || !c.Covers(a.hop.url) {
		return
	}
	sign, ignored := c.Challenge(a.resp.StatusCode, a.resp.Header, a.unsigned)
	if ignored != "" && !a.run.ignoredLogged { // the next response may ask for the same
		a.run.ignoredLogged = true
		a.run.log(slog.LevelInfo, "Accept-Signature ignored", slog.String("fetch_id", a.run.req.ID),
			slog.String("url", a.hop.redactedURL()), slog.String("reason", fault.Printable(ignored, maxLoggedBytes)))
	}
	if sign != nil {
		a.challenged = true
		a.run.answers = append(a.run.answers, answer{a.hop.url, sign})
	}
}

// clockTolerance is how much the clocks of this service and of an origin may differ without a warning.
const clockTolerance = 30 * time.Second

// checkClock warns if the clock of an origin differs from the time of the signature that it got (A7). What a
// cache has kept is as old as its Age says.
func (a *attempt) checkClock(resp *http.Response) {
	if a.signedAt.IsZero() {
		return
	}
	theirs, err := http.ParseTime(resp.Header.Get("Date"))
	if err != nil {
		return
	}
	age, _ := strconv.ParseUint(resp.Header.Get("Age"), 10, 31) // zero: there is none
	theirs = theirs.Add(time.Duration(age) * time.Second)
	if difference := theirs.Sub(a.signedAt); difference.Abs() > clockTolerance && a.run.client.clockWarnings.Allow() {
		a.run.log(slog.LevelWarn, "clock differs from an origin's, which may refuse signatures", slog.String("fetch_id", a.run.req.ID),
			slog.String("url", a.hop.redactedURL()), slog.Float64("difference_seconds", difference.Round(time.Second).Seconds()))
	}
}
