package server

import (
	"context"
	"slices"

	"fetchd/fetch/auth"
)

// AuthProvider is a provider under the name by which requests ask for it.
type AuthProvider struct {
	auth.Provider
	// Callers may use it, by the names that the [Authenticator] gives them; none
	// means every caller.
	Callers []string
}

// open tells whether the caller of a call may use the provider.
func (p AuthProvider) open(ctx context.Context) bool {
	return len(p.Callers) == 0 || slices.Contains(p.Callers, callerOf(ctx))
}

// auth reads which provider opens the origin (spec A1).
func (c *conversion) auth(providers map[string]AuthProvider) {
	name := c.in.GetAuthProvider()
	if name == "" {
		return
	}
	p, known := providers[name]
	switch {
	case !known:
		c.add("auth_provider", "is %.60q: no such provider is configured on this server", name)
	case c.out.URL != nil && !p.Covers(c.out.URL):
		c.add("auth_provider", "is %.60q, which is not for the origin of the URL", name)
	default:
		c.out.Credentials = p.Provider
	}
	if h, ok := p.Provider.(interface{ Header() string }); ok && c.out.Header.Get(h.Header()) != "" {
		c.add("auth_provider", "is %.60q, which sets the header %s: leave the header out", name, h.Header())
	}
}
