package main

import (
	"fetchd/internal/secure"
	"fetchd/server"
)

// identityFiles returns the files in the settings.
func (s *settings) identityFiles() secure.IdentityFiles {
	return secure.IdentityFiles{Files: secure.Files{Cert: s.TLSCertFile, Key: s.TLSKeyFile, ClientCA: s.TLSClientCAFile},
		Tokens: s.TokenFile, SANs: s.TLSAllowSAN}
}

// limits returns the limits in the settings and the token file, and the capacity.
func (s *settings) limits(id *secure.Identity, has *capacity) server.Limits {
	l := server.Limits{MaxTotalTimeout: s.MaxTotalTimeout, MaxBodyBytes: s.MaxBodyBytes,
		MaxFetches: has.fetches, MaxFetchesPerCaller: s.MaxFetchesPerCaller}
	if s.NonIdempotentRetries == nonIdempotentForbid {
		l.NonIdempotentRetries = server.NonIdempotentForbidden
	}
	if id.Callers != nil && id.Callers.Tokens != nil {
		l.CallerMaxFetches = id.Callers.Tokens.Limits()
	}
	return l
}

// authenticate returns nil if callers do not authenticate.
func authenticate(known *secure.Known) server.Authenticator {
	if known.Load().Callers == nil {
		return nil
	}
	return func(shown server.Credentials) (string, error) {
		return known.Load().Callers.Name(shown.Token, shown.TLS)
	}
}
