package main

import (
	"errors"
	"fmt"
	"time"

	"fetchd/fetch/auth"
	"fetchd/fetch/auth/httpsig"
	"fetchd/internal/signkeys"
)

// httpSignature configures a provider that signs requests (RFC 9421).
type httpSignature struct {
	KeyFiles   []string      `yaml:"key-files"` // files, and folders of files
	KeyID      string        `yaml:"key-id"`
	Algorithm  string        `yaml:"algorithm"`
	Profile    string        `yaml:"profile"`
	Agent      string        `yaml:"agent"`
	AgentForm  string        `yaml:"agent-form"`
	Components []string      `yaml:"components"`
	Optional   []string      `yaml:"optional"`
	Label      string        `yaml:"label"`
	Parameters []string      `yaml:"parameters"`
	Lifetime   time.Duration `yaml:"lifetime"`
	Tag        string        `yaml:"tag"`
	// What an origin may ask for, and the statuses of responses that do.
	OnChallenge      []int    `yaml:"on-challenge"`
	AcceptComponents []string `yaml:"accept-components"`
	AcceptTags       []string `yaml:"accept-tags"`
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
		return nil, errors.New("agent-form: give dictionary or string")
	}
	if h.OnChallenge == nil && len(h.AcceptComponents)+len(h.AcceptTags) > 0 {
		return nil, errors.New("accept-components and accept-tags are for what origins ask for: set on-challenge too")
	}
	cfg := httpsig.Config{Keys: keys, Profile: h.Profile, Agent: h.Agent, AgentString: h.AgentForm == "string", Label: h.Label, Parameters: h.Parameters,
		Lifetime: h.Lifetime, Tag: h.Tag, AcceptTags: h.AcceptTags}
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
