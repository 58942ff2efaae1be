package main

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"iter"
	"log/slog"
	"maps"
	"slices"
	"time"

	"fetchd/fetch/auth"
	"fetchd/fetch/auth/httpsig"
	"fetchd/internal/signkeys"
)

// httpSignature configures a provider that signs requests (RFC 9421).
type httpSignature struct {
	httpsig.Config `yaml:",inline"`
	KeyFiles       []string `yaml:"key-files"` // files, and folders of files
	KeyID          string   `yaml:"key-id"`
	Algorithm      string   `yaml:"algorithm"`
	AgentForm      string   `yaml:"agent-form"`
	Components     []string `yaml:"components"`
	Optional       []string `yaml:"optional"`
	// What an origin may ask for, and the statuses of responses that do.
	OnChallenge      []int    `yaml:"on-challenge"`
	AcceptComponents []string `yaml:"accept-components"`
}

// httpSignature makes a provider that signs.
func (o *origins) httpSignature(p *originProvider) (auth.Provider, error) {
	if p.Header != "" || p.Scheme != "" || p.Token != "" || p.TokenFile != "" || p.Client != nil || p.HMAC != nil || p.SigV4 != nil {
		return nil, errors.New("http-signature cannot be combined with header, scheme, token, token-file, client, hmac and aws-sigv4: use two providers")
	}
	signer, err := p.HTTPSignature.signer(o.file)
	if err != nil {
		return nil, fmt.Errorf("http-signature: %w", err)
	}
	return auth.NewHTTPSignature(p.Origins, signer, p.HTTPSignature.OnChallenge)
}

// watchKeys logs the key of each provider that signs, and a provider without a valid one, once per change.
func (l *live) watchKeys(at time.Time) {
	now := make(map[string]string)
	for name, k := range l.origins.keys(at) {
		if now[name] = k.text; now[name] == l.keys[name] {
			continue
		}
		if k.valid {
			l.logger.Info("requests are signed with this key", slog.String("auth_provider", name), slog.String("keyid", k.text))
		} else {
			l.logger.Warn("a provider has no valid key: requests that it would sign are not sent", slog.String("auth_provider", name), slog.String("reason", k.text))
		}
	}
	l.keys = now
}

// currentKey is the id of the key that signs, or why none does.
type currentKey struct {
	text  string
	valid bool
}

// keys yields the providers that sign with keys whose time is limited, by name.
func (o *origins) keys(at time.Time) iter.Seq2[string, currentKey] {
	return func(yield func(string, currentKey) bool) {
		for _, name := range slices.Sorted(maps.Keys(o.providers)) {
			p, ok := o.providers[name].Provider.(*auth.HTTPSignature)
			if !ok {
				continue
			}
			k, err := p.Current(at)
			current := currentKey{fmt.Sprint(err), false}
			if err == nil {
				current = currentKey{cmp.Or(k.ID, k.Algorithm), true}
			}
			if !yield(name, current) {
				return
			}
		}
	}
}

// warnKeys prints the providers without a valid key.
func (o *origins) warnKeys(w io.Writer, at time.Time) {
	for name, k := range o.keys(at) {
		if !k.valid {
			_, _ = fmt.Fprintf(w, "fetchd: provider %s: %s\n", name, k.text) // a failed write cannot be reported
		}
	}
}

// signer reads the keys and makes a signer.
func (h *httpSignature) signer(read func(string) ([]byte, error)) (*httpsig.Signer, error) {
	keys, err := signkeys.Read(h.KeyFiles, read)
	if err != nil {
		return nil, fmt.Errorf("key-files: %w", err)
	}
	for _, k := range keys {
		if h.Algorithm != "" && k.Algorithm != h.Algorithm {
			return nil, fmt.Errorf("algorithm: %.40q: a key is for %s", h.Algorithm, k.Algorithm)
		}
	}
	if h.KeyID != "" {
		if len(keys) != 1 || h.Profile != "" {
			return nil, errors.New("key-id: is for one key, and not for a profile: leave it out, or write the id into the JWK of each key")
		}
		keys[0].ID = h.KeyID
	}
	if h.AgentForm != "" && h.AgentForm != "string" && h.AgentForm != "dictionary" {
		return nil, fmt.Errorf("agent-form: %.40q: give dictionary or string", h.AgentForm)
	}
	if h.OnChallenge == nil && len(h.AcceptComponents)+len(h.AcceptTags) > 0 {
		return nil, errors.New("accept-components and accept-tags are for what origins ask for: set on-challenge too")
	}
	cfg := h.Config
	cfg.Keys, cfg.AgentString = keys, h.AgentForm == "string"
	for _, list := range []struct {
		key   string
		texts []string
		into  *[]httpsig.Component
	}{{"components", h.Components, &cfg.Components}, {"optional", h.Optional, &cfg.Optional}, {"accept-components", h.AcceptComponents, &cfg.Accept}} {
		for _, text := range list.texts {
			c, err := httpsig.ParseComponent(text)
			if err != nil {
				return nil, fmt.Errorf("%s: %w", list.key, err)
			}
			*list.into = append(*list.into, c)
		}
	}
	return httpsig.New(cfg)
}
