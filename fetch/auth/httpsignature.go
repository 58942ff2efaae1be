package auth

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	"fetchd/fetch/auth/httpsig"
	"fetchd/fetch/signing"
)

// HTTPSignature is a provider that makes HTTP message signatures (RFC 9421).
type HTTPSignature struct {
	signer
	all         bool // https origins are covered
	by          *httpsig.Signer
	onChallenge []int // the statuses; nil: each request is signed
}

// NewHTTPSignature returns a provider for origins. If the signer publishes its keys, "https://*"
// is every https origin: its signatures are of no use elsewhere, and prove what
// anyone may know.
//
// With onChallenge, requests are not signed until the origin asks for it, by a response with one of these
// statuses and Accept-Signature: 401, or 401 and 403 (spec A8). Empty means that each request is signed.
func NewHTTPSignature(origins []string, by *httpsig.Signer, onChallenge []int) (*HTTPSignature, error) {
	if len(onChallenge) > 0 && (!slices.Contains(onChallenge, http.StatusUnauthorized) ||
		slices.ContainsFunc(onChallenge, func(s int) bool { return s != http.StatusUnauthorized && s != http.StatusForbidden })) {
		return nil, fmt.Errorf("auth: on-challenge: %d: give [401] or [401, 403]", onChallenge)
	}
	p := &HTTPSignature{signer: signer{headers: by.Headers(), signingKey: httpKey{by, len(onChallenge) > 0}}, by: by, onChallenge: onChallenge}
	named := slices.DeleteFunc(slices.Clone(origins), func(raw string) bool {
		p.all = p.all || raw == "https://*"
		return raw == "https://*"
	})
	if agent, _ := by.Published(); agent == "" && p.all {
		return nil, errors.New("auth: an origin is for all hosts, which only the profile web-bot-auth can sign for: list the origins")
	}
	if len(named) == 0 && p.all {
		return p, nil
	}
	var err error
	if p.origins, err = parseOrigins(named); err != nil {
		return nil, err
	}
	if len(p.origins) > 1 && !by.Binds() {
		return nil, errors.New("auth: a signature for one of the origins would be valid at the others: add @authority or @target-uri to the components, or give each origin its own provider and key")
	}
	return p, nil
}

// Covers implements [Provider].
func (p *HTTPSignature) Covers(u *url.URL) bool {
	return p.all && u.Scheme == "https" || p.Names(u)
}

// Names reports whether the origin of a URL is in the list of the provider, and not just one of all.
func (p *HTTPSignature) Names(u *url.URL) bool { return p.signer.Covers(u) }

// Published returns the origin that publishes the public keys, and the keys. The origin is empty if
// they are not published.
func (p *HTTPSignature) Published() (agent string, keys []*httpsig.Key) { return p.by.Published() }

// Current returns the key that signs at a time, or an error that says why none does.
func (p *HTTPSignature) Current(at time.Time) (*httpsig.Key, error) { return p.by.Current(at) }

// Challenge returns how requests are signed as a response asks for; see [fetchd/fetch.Challenger]. A 429 is
// repeated anyway, and asks like the statuses of onChallenge.
func (p *HTTPSignature) Challenge(status int, header http.Header, request *signing.Message) (sign signing.Func, ignored string) {
	fields := header.Values("Accept-Signature")
	if len(fields) == 0 || !slices.Contains(p.onChallenge, status) && (status != http.StatusTooManyRequests || len(p.onChallenge) == 0) {
		return nil, ""
	}
	choice, others, ok := p.by.Choose(fields, request)
	_, noKey := p.Current(request.Time)
	if ok || status == http.StatusUnauthorized && noKey != nil { // without a key, Sign says so (spec A7)
		sign = func(_ context.Context, m *signing.Message) ([]signing.Field, error) { return p.by.Sign(m, choice) }
	}
	texts := make([]string, len(others))
	for i, o := range others {
		texts[i] = o.String()
	}
	return sign, strings.Join(texts, "; ")
}

// httpKey is the keys of an HTTPSignature. They are replaced with the provider.
type httpKey struct {
	*httpsig.Signer
	onChallenge bool
}

func (k httpKey) sign(m *signing.Message) ([]signing.Field, error) {
	if k.onChallenge { // the origin has not asked
		return nil, nil
	}
	return k.Sign(m, httpsig.Choice{})
}

func (httpKey) refresh() error { return ErrRefused }
