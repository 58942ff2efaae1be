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

// restTime is how long a new token stands before it is replaced. An origin that
// refuses everything must not have one token after the other made, which would
// take it from everybody else.
const restTime = time.Second

// refreshTime bounds a refresh. No caller's deadline does: who comes later can
// still use what it brings.
const refreshTime = 30 * time.Second

// ErrRefused says that an origin refuses a credential for which there is no other.
var ErrRefused = errors.New("auth: the credential is refused, and there is no other")

// Secret is a token or a header with one. It does not show in logs.
type Secret string

// String implements fmt.Stringer.
func (Secret) String() string { return "[secret]" }

// GoString implements fmt.GoStringer.
func (Secret) GoString() string { return "[secret]" }

// LogValue implements slog.LogValuer.
func (Secret) LogValue() slog.Value { return slog.StringValue("[secret]") }

// Source brings tokens.
type Source interface {
	// Token returns the token to use from now on. rejected is the one that was
	// refused, and empty at first: a source that has no other returns it again, or
	// an error. Only one call runs at a time.
	Token(ctx context.Context, rejected Secret) (Secret, error)
}

// Fresher is a [Source] whose token can go stale by itself.
type Fresher interface {
	// Stale tells that a new token is there, or needed. It must return at once.
	Stale() bool
}

// Provider gives out the credential for some origins. [New] makes those that an
// operator configures; another implementation must be safe for concurrent use. One
// that has a method Header() string, the name of its field, has requests refused
// that set the field themselves; without it the field just takes its place.
type Provider interface {
	// Covers tells whether the credential may be sent to the URL's origin. It must
	// not depend on the path.
	Covers(u *url.URL) bool
	// Field returns the header field that carries the current credential. It may
	// wait for one; the error holds no secret.
	Field(ctx context.Context) (name, value string, err error)
	// Refresh replaces a credential that an origin has refused, given by the value
	// that was sent, unless that has been done already. It returns nil when there
	// is another, and [ErrRefused] where there is none. It ends with ctx, and what
	// it has begun for others does not.
	Refresh(ctx context.Context, refused string) error
}

// provider shares one token among all who ask.
type provider struct {
	origins map[origin]bool
	header  string
	scheme  string
	source  Source
	flights singleflight.Group

	mu      sync.Mutex
	current Secret
	since   time.Time // when it was got
}

// origin is a scheme, host and port.
type origin struct{ scheme, host, port string }

// originOf reads that of a URL.
func originOf(u *url.URL) origin {
	port := u.Port()
	if port == "" {
		port = map[string]string{"http": "80", "https": "443"}[u.Scheme]
	}
	return origin{u.Scheme, u.Hostname(), port}
}

// Covers implements [Provider].
func (p *provider) Covers(u *url.URL) bool { return p.origins[originOf(u)] }

// Header is the name of the field that carries the credential.
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
	return p.header, p.value(p.token()), nil // an old one is better than none
}

// Refresh implements [Provider].
func (p *provider) Refresh(ctx context.Context, refused string) error {
	token := p.token()
	if p.value(token) != refused {
		return nil // it is an older one: try with this
	}
	if p.age() < restTime {
		return ErrRefused
	}
	return p.replace(ctx, token, false)
}

func (p *provider) token() Secret {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.current
}

// age is how long there has been another token than before.
func (p *provider) age() time.Duration {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.since.IsZero() {
		return restTime // the first: nothing was replaced yet
	}
	return time.Since(p.since)
}

func (p *provider) value(token Secret) string {
	if p.scheme == "" {
		return string(token)
	}
	return p.scheme + " " + string(token)
}

// replace asks the source for another token than old, once for all who hold old.
// stale: old was not refused, and may stay.
func (p *provider) replace(ctx context.Context, old Secret, stale bool) error {
	done := p.flights.DoChan(string(old), func() (any, error) { // in a goroutine of its own, which refreshTime ends
		if now := p.token(); now != old {
			return nil, nil // a flight before this one
		}
		bounded, cancel := context.WithTimeout(context.Background(), refreshTime)
		defer cancel()
		rejected := old
		if stale {
			rejected = ""
		}
		token, err := p.source.Token(bounded, rejected)
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
