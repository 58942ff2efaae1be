package main

import (
	"bytes"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/url"
	"os"
	"regexp"
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"

	"fetchd/auth"
	"fetchd/fetch"
	"fetchd/server"
)

// originsFile is the file of --origins-file: what the service shows to origins.
type originsFile struct {
	Profiles  map[string]originProfile  `yaml:"profiles"`
	Providers map[string]originProvider `yaml:"providers"`
}

// originProfile is the TLS of one origin.
type originProfile struct {
	CAFile   string `yaml:"ca-file"`
	CertFile string `yaml:"cert-file"`
	KeyFile  string `yaml:"key-file"`
}

// originProvider is a credential for some.
type originProvider struct {
	Origins   []string           `yaml:"origins"`
	Callers   []string           `yaml:"callers"`
	Header    string             `yaml:"header"`
	Scheme    string             `yaml:"scheme"`
	Token     auth.Secret        `yaml:"token"`
	TokenFile string             `yaml:"token-file"`
	Client    *clientCredentials `yaml:"client"`
}

type clientCredentials struct {
	TokenURL   string      `yaml:"token-url"`
	ID         string      `yaml:"id"`
	Secret     auth.Secret `yaml:"secret"`
	SecretFile string      `yaml:"secret-file"`
	Scopes     []string    `yaml:"scopes"`
	Audience   string      `yaml:"audience"`
	InBody     bool        `yaml:"in-body"`
}

// readOrigins reads the file. The error names what is wrong in it, and no secret.
func readOrigins(path string) (map[string]fetch.OriginTLS, map[string]server.AuthProvider, error) {
	raw, err := os.ReadFile(path)
	if err != nil {
		return nil, nil, err
	}
	var f originsFile
	decoder := yaml.NewDecoder(bytes.NewReader(raw))
	decoder.KnownFields(true)
	if err := decoder.Decode(&f); err != nil && !errors.Is(err, io.EOF) {
		return nil, nil, fmt.Errorf("%s: %s", path, whereOf(err))
	}
	if err := decoder.Decode(new(any)); !errors.Is(err, io.EOF) {
		return nil, nil, fmt.Errorf("%s: has a second document: put all into one", path)
	}
	profiles := make(map[string]fetch.OriginTLS, len(f.Profiles))
	for origin, p := range f.Profiles {
		address, own, err := p.read(origin)
		if err != nil {
			return nil, nil, fmt.Errorf("%s: profiles: %s: %w", path, origin, err)
		}
		profiles[address] = own
	}
	providers := make(map[string]server.AuthProvider, len(f.Providers))
	for name, p := range f.Providers {
		made, err := p.read()
		if err != nil {
			return nil, nil, fmt.Errorf("%s: providers: %s: %w", path, name, err)
		}
		providers[name] = server.AuthProvider{Provider: made, Callers: p.Callers}
	}
	return profiles, providers, nil
}

// lineNumber is how the decoder tells where.
var lineNumber = regexp.MustCompile(`line \d+`)

// whereOf tells the lines at which the file is not what it should be, and nothing
// of what stands there, which may be a secret.
func whereOf(err error) string {
	lines := lineNumber.FindAllString(fmt.Sprint(err), -1)
	where := "is not usable"
	if len(lines) > 0 {
		where = strings.Join(slices.Compact(lines), ", ") + ": not usable"
	}
	return where + ": want YAML with profiles and providers, and in them the keys of docs/operating.md, each once"
}

// read returns the address of the origin and its TLS.
func (p originProfile) read(origin string) (address string, own fetch.OriginTLS, err error) {
	u, err := url.Parse(origin)
	if err != nil || u.Scheme != "https" || u.Host == "" || strings.Trim(u.Path, "/") != "" || u.User != nil {
		return "", own, errors.New("give an origin with TLS, such as https://internal.example.com")
	}
	port := u.Port()
	if port == "" {
		port = "443"
	}
	if p.CAFile == "" && p.CertFile == "" {
		return "", own, errors.New("is empty: give a ca-file, or a cert-file and key-file")
	}
	if p.CAFile != "" {
		if own.RootCAs, err = authorities(p.CAFile); err != nil {
			return "", own, fmt.Errorf("ca-file: %w", err)
		}
	}
	if (p.CertFile == "") != (p.KeyFile == "") {
		return "", own, errors.New("cert-file and key-file go together: give both or none")
	}
	if p.CertFile != "" {
		pair, err := tls.LoadX509KeyPair(p.CertFile, p.KeyFile)
		if err != nil {
			return "", own, fmt.Errorf("cert-file: %w", err)
		}
		own.Certificate = &pair
	}
	return net.JoinHostPort(strings.ToLower(u.Hostname()), port), own, nil
}

func (p *originProvider) read() (auth.Provider, error) {
	cfg := auth.Config{Origins: p.Origins, Header: p.Header, Scheme: p.Scheme, Static: p.Token, File: p.TokenFile}
	if c := p.Client; c != nil {
		cfg.Client = &auth.ClientCredentials{TokenURL: c.TokenURL, ID: c.ID, Secret: c.Secret, Scopes: c.Scopes, Audience: c.Audience, InBody: c.InBody}
		if c.SecretFile != "" {
			raw, err := os.ReadFile(c.SecretFile)
			if err != nil {
				return nil, fmt.Errorf("client: secret-file: %w", err)
			}
			cfg.Client.Secret = auth.Secret(strings.TrimSpace(string(raw)))
		}
	}
	return auth.New(cfg)
}
