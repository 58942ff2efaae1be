package server

import (
	"context"
	"slices"

	"fetchd/fetch/auth"
)

// AuthProvider provides credentials for origins. Requests select it by its key in
// [Config.AuthProviders].
type AuthProvider struct {
	auth.Provider
	// Callers are the names of the callers that may use the provider, as the [Authenticator]
	// returns them. If Callers is empty, every caller may use it.
	Callers []string
}

// permits reports whether the caller of a call is among callers. An empty list permits everyone.
func permits(ctx context.Context, callers []string) bool {
	return len(callers) == 0 || slices.Contains(callers, callerOf(ctx))
}

// auth reads auth_provider (spec A1).
func (c *conversion) auth(providers map[string]AuthProvider) {
	name := c.in.GetAuthProvider()
	if name == "" {
		return
	}
	p, known := providers[name]
	switch {
	case !known:
		c.Add("auth_provider", "is %.60q, which is not configured on this server: give the name of a configured provider", name)
	case c.out.URL != nil && !p.Covers(c.out.URL):
		c.Add("auth_provider", "is %.60q, which does not cover the origin of the URL: use another provider or URL", name)
	default:
		c.out.Credentials = p.Provider
	}
	if h, ok := p.Provider.(interface{ Header() string }); ok && c.out.Header.Get(h.Header()) != "" {
		c.Add("auth_provider", "is %.60q, which sets the header %s: leave that header out", name, h.Header())
	}
}
