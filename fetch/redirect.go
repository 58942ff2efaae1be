package fetch

import (
	"net/http"
	"net/url"
	"slices"
	"strings"

	"fetchd/classify"
	"fetchd/fetch/urls"
)

// RedirectRules restricts which redirects are followed (spec D4).
type RedirectRules struct {
	Scope           Scope
	ForbidDowngrade bool
}

// Step is the request that a redirect response leads to.
type Step struct {
	// Location is how the Location is treated.
	Location classify.Location
	// Fault is [classify.RedirectRejected] if the redirect cannot be followed, with the
	// Reason in lower_snake_case. Otherwise it is [classify.NoClass].
	Fault  classify.Class
	Reason string
	// URL is the URL of the next request. It is nil if the Location is not a URL.
	URL *url.URL
	// Method is the method of the next request.
	Method string
	// BodyKept reports whether the next request has the body of the first.
	BodyKept bool
	// CrossOrigin reports whether the scheme, host or port changes.
	CrossOrigin bool
}

// ResolveRedirect returns the request that follows a response to a request of from with
// the given method. status and location are those of the response, and first is the
// first URL of the fetch. It is a pure function and does not apply the egress policy.
//
// # Source
//
// Spec R3, D2, D4, D5; RFC 9110 §10.2.2 and §15.4; the Fetch standard for the
// change of method.
func ResolveRedirect(rules RedirectRules, first, from *url.URL, method string, status int, location string) Step {
	step := Step{Method: redirectMethod(method, status)}
	step.BodyKept = step.Method == method
	location = strings.Trim(location, " \t")
	if location == "" || !isRedirect(status) {
		return step // other statuses have no redirect, even with a Location: 304 above all
	}
	step.Location = classify.InScope
	u, err := urls.Resolve(from, location)
	step.URL = u
	if u != nil {
		step.CrossOrigin = !urls.SameOrigin(from, u)
		if !rules.Scope.holds(first, u) {
			step.Location = classify.OutOfScope
			return step
		}
	}
	switch {
	case err != nil:
		step.Fault, step.Reason = classify.RedirectRejected, "location_"+err.Reason
	case rules.ForbidDowngrade && from.Scheme == "https" && u.Scheme == "http":
		step.Fault, step.Reason = classify.RedirectRejected, "downgrade"
	}
	return step
}

// isRedirect reports whether the Location of a status is followed (spec D1, H9).
func isRedirect(status int) bool {
	switch status {
	case http.StatusMovedPermanently, http.StatusFound, http.StatusSeeOther,
		http.StatusTemporaryRedirect, http.StatusPermanentRedirect:
		return true
	}
	return false
}

// redirectMethod returns the method after a redirect (spec D2).
func redirectMethod(method string, status int) string {
	switch {
	case status == http.StatusSeeOther && method != http.MethodHead:
		return http.MethodGet
	case (status == http.StatusMovedPermanently || status == http.StatusFound) && method == http.MethodPost:
		return http.MethodGet
	}
	return method
}

// holds reports whether u is in the scope of a fetch of first.
func (s Scope) holds(first, u *url.URL) bool {
	switch s {
	case SameHost:
		return urls.SameHost(first, u)
	case SameOrigin:
		return urls.SameOrigin(first, u)
	}
	return true
}

// crossOriginHeaders are forwarded to another origin, because they neither identify anyone nor
// grant access (spec D4).
var crossOriginHeaders = map[string]bool{
	"Accept": true, "Accept-Language": true, "Accept-Encoding": true, "User-Agent": true, "Range": true,
	"If-Match": true, "If-None-Match": true, "If-Modified-Since": true, "If-Unmodified-Since": true, "If-Range": true,
	"Idempotency-Key": true, HopsHeader: true,
}

// nextHeader returns the header of the request after a redirect of hop. It only removes fields,
// so that a removed field does not return later in the chain.
func nextHeader(hop *hopRequest, step *Step, forward bool) http.Header {
	downgrade := hop.url.Scheme == "https" && step.URL.Scheme == "http"
	strip := step.CrossOrigin && !forward || downgrade
	next := make(http.Header, len(hop.header))
	for name, values := range hop.header {
		content := strings.HasPrefix(name, "Content-")
		switch {
		case content && !step.BodyKept:
		case strip && content && len(hop.body) == 0:
		case strip && !content && !crossOriginHeaders[name]:
		default:
			next[name] = values
		}
	}
	return next
}

// hopRequest is one request of a redirect chain, without the cookies and the credential, which
// are added when it is sent.
type hopRequest struct {
	method string
	url    *url.URL
	text   string // what urlText returns; empty: not needed yet
	header http.Header
	body   []byte // nil once a redirect has dropped it
}

// urlText returns the URL without userinfo, for events and results.
func (h *hopRequest) urlText() string {
	if h.text == "" {
		h.text = urls.WithoutUserinfo(h.url)
	}
	return h.text
}

func sameRequest(a, b *hopRequest) bool {
	if a.method != b.method || urls.WithoutFragment(a.url).String() != urls.WithoutFragment(b.url).String() || len(a.header) != len(b.header) {
		return false
	}
	for name, values := range a.header {
		if !slices.Equal(values, b.header[name]) {
			return false
		}
	}
	return true
}
