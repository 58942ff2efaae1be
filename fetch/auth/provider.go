package auth

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/url"
	"sync"
	"time"

	"golang.org/x/sync/singleflight"
)

// minTokenAge is how long a new token is kept before a rejection replaces it. Without
// it, an origin that rejects everything would cause one refresh after another, and could
// invalidate the tokens that other fetches use.
const minTokenAge = time.Second

// refreshTime is the time limit of a refresh. The callers' deadlines do not apply,
// because later callers can still use its result.
const refreshTime = 30 * time.Second

// ErrRefused is returned by [Provider].Refresh if an origin rejects the credential and
// there is no other. Test for it with errors.Is.
var ErrRefused = errors.New("auth: the origin rejects the credential, and there is no other")

// justNowError is returned for a credential that is too new to be replaced. It is an [ErrRefused].
type justNowError struct{}

// Error implements error.
func (justNowError) Error() string {
	return "auth: the origin rejects a credential that was refreshed less than a second ago"
}

// Unwrap returns [ErrRefused].
func (justNowError) Unwrap() error { return ErrRefused }

// RefreshedJustNow reports that a later call may succeed; see package fetch.
func (justNowError) RefreshedJustNow() bool { return true }

// passingError is why a source has no token, if it may have one later. A source that refuses the client has none.
type passingError string

// Error implements error.
func (e passingError) Error() string { return string(e) }

// MayPass reports that a later call may succeed; see package fetch.
func (passingError) MayPass() bool { return true }

// Secret is a token, or a header value that contains one. It formats and logs as
// "[secret]".
type Secret string

// String implements fmt.Stringer.
func (Secret) String() string { return "[secret]" }

// GoString implements fmt.GoStringer.
func (Secret) GoString() string { return "[secret]" }

// LogValue implements slog.LogValuer.
func (Secret) LogValue() slog.Value { return slog.StringValue("[secret]") }

// Source provides tokens.
type Source interface {
	// Token returns the token to use from now on. rejected is the token that an origin
	// rejected, or empty. A source that has no other token returns an error, or the
	// same token. Calls are not concurrent.
	Token(ctx context.Context, rejected Secret) (Secret, error)
}

// Fresher is a [Source] whose token can become stale without being rejected.
type Fresher interface {
	// Stale reports whether a new token is available or needed. It must not block.
	Stale() bool
}

// Provider provides the credential for some origins. Implementations must be safe for
// concurrent use.
//
// If a provider also has a method Header() string that returns the name of its field, or Headers()
// []string for several, requests that set these fields themselves are rejected. Otherwise the
// provider's fields silently replace theirs. A provider that signs requests also has the method
// Sign of [fetchd/fetch.Signer].
type Provider interface {
	// Covers reports whether the credential may be sent to the URL's origin. It must
	// not depend on the path.
	Covers(u *url.URL) bool
	// Field returns the header field that carries the current credential, or an empty name
	// if there is none. It may wait for a token. The error contains no secret.
	Field(ctx context.Context) (name, value string, err error)
	// Refresh replaces a credential that an origin rejected. refused is the field
	// value that was sent. Refresh returns nil if a newer credential is available, and
	// [ErrRefused] if there is none. It returns early if ctx ends; the refresh itself
	// continues for other callers.
	Refresh(ctx context.Context, refused string) error
}

// Headers returns the names of the fields that a provider says it sets; see [Provider].
func Headers(p Provider) []string {
	switch named := p.(type) {
	case interface{ Headers() []string }:
		return named.Headers()
	case interface{ Header() string }:
		return []string{named.Header()}
	}
	return nil
}

// provider shares one token among all callers.
type provider struct {
	name    string // for errors; may be empty
	origins map[origin]bool
	header  string
	scheme  string
	source  Source
	flights singleflight.Group

	mu      sync.Mutex
	current Secret
	since   time.Time // when current replaced another token, zero for the first one
}

// origin is a scheme, host and port.
type origin struct{ scheme, host, port string }

// originOf returns the origin of a URL.
func originOf(u *url.URL) origin {
	port := u.Port()
	if port == "" {
		port = map[string]string{"http": "80", "https": "443"}[u.Scheme]
	}
	return origin{u.Scheme, u.Hostname(), port}
}

// Covers implements [Provider].
func (p *provider) Covers(u *url.URL) bool { return p.origins[originOf(u)] }

// Header returns the name of the field that carries the credential.
func (p *provider) Header() string { return p.header }

// Field implements [Provider].
func (p *provider) Field(ctx context.Context) (name, value string, err error) {
	token := p.token()
	fresher, ok := p.source.(Fresher)
	if token == "" || ok && fresher.Stale() {
		err = p.replace(ctx, token, true)
	}
	if err != nil && token == "" {
		return "", "", err
	}
	return p.header, p.value(p.token()), nil // after an error, the old token may still work
}

// Refresh implements [Provider].
func (p *provider) Refresh(ctx context.Context, refused string) error {
	p.mu.Lock()
	token, since := p.current, p.since // of one moment: between two locks a refresh could end
	p.mu.Unlock()
	if p.value(token) != refused {
		return nil // the current token is newer than the rejected one
	}
	if !since.IsZero() && time.Since(since) < minTokenAge {
		return justNowError{}
	}
	return p.replace(ctx, token, false)
}

func (p *provider) token() Secret {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.current
}

func (p *provider) value(token Secret) string {
	if p.scheme == "" {
		return string(token)
	}
	return p.scheme + " " + string(token)
}

// replace gets a token from the source to replace old, once for all callers with the
// same old token. If stale is set, old was not rejected, and the source may return it
// again.
func (p *provider) replace(ctx context.Context, old Secret, stale bool) error {
	done := p.flights.DoChan(string(old), func() (any, error) { // runs in its own goroutine, for at most refreshTime
		if now := p.token(); now != old {
			return nil, nil // an earlier refresh has replaced it
		}
		bounded, cancel := context.WithTimeout(context.Background(), refreshTime)
		defer cancel()
		rejected := old
		if stale {
			rejected = ""
		}
		token, err := p.source.Token(bounded, rejected)
		if err != nil && p.name != "" {
			err = fmt.Errorf("auth provider %q: %w", p.name, err)
		}
		if err != nil {
			return nil, err
		}
		if token == "" || token == old && !stale {
			return nil, ErrRefused
		}
		p.mu.Lock()
		defer p.mu.Unlock()
		if p.current != "" && token != p.current {
			p.since = time.Now()
		}
		p.current = token
		return nil, nil
	})
	select {
	case r := <-done:
		return r.Err
	case <-ctx.Done():
		return fmt.Errorf("auth: wait for the credential: %w", context.Cause(ctx))
	}
}
