package main

import (
	"bytes"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"maps"
	"net"
	"net/url"
	"os"
	"reflect"
	"slices"
	"strings"

	"fetchd/fetch"
	"fetchd/fetch/auth"
	"fetchd/internal/secure"
	"fetchd/internal/tlswatch"
	"fetchd/server"
)

// originsFile is the file of --origins-file: credentials and TLS for origins.
type originsFile struct {
	Profiles  map[string]originProfile  `yaml:"profiles"`
	Providers map[string]originProvider `yaml:"providers"`
}

// originProfile is the TLS configuration of one origin.
type originProfile struct {
	CAFile   string   `yaml:"ca-file"`
	CertFile string   `yaml:"cert-file"`
	KeyFile  string   `yaml:"key-file"`
	Callers  []string `yaml:"callers"`
}

// originProvider is a credential for some origins.
type originProvider struct {
	Origins   []string           `yaml:"origins"`
	Callers   []string           `yaml:"callers"`
	Header    string             `yaml:"header"`
	Scheme    string             `yaml:"scheme"`
	Token     auth.Secret        `yaml:"token"`
	TokenFile string             `yaml:"token-file"`
	Client    *clientCredentials `yaml:"client"`
	HMAC      *auth.HMAC         `yaml:"hmac"`
	SigV4     *sigV4             `yaml:"aws-sigv4"`

	HTTPSignature *httpSignature `yaml:"http-signature"`
}

type clientCredentials struct {
	auth.ClientCredentials `yaml:",inline"`
	SecretFile             string `yaml:"secret-file"`
}

// sigV4 is an [auth.SigV4].
type sigV4 struct {
	auth.SigV4         `yaml:",inline"`
	AccessKeyIDEnv     string `yaml:"access-key-id-env"`
	SecretAccessKeyEnv string `yaml:"secret-access-key-env"`
	SessionTokenEnv    string `yaml:"session-token-env"`
}

// config reads the variables that the operator names, and no others.
func (s *sigV4) config() (*auth.SigV4, error) {
	cfg := s.SigV4
	var secret, token string
	for name, to := range map[string]*string{s.AccessKeyIDEnv: &cfg.AccessKeyID, s.SecretAccessKeyEnv: &secret, s.SessionTokenEnv: &token} {
		if name == "" {
			continue
		}
		if *to = os.Getenv(name); *to == "" {
			return nil, fmt.Errorf("aws-sigv4: the environment variable %s is empty or not set", name)
		}
	}
	cfg.SecretAccessKey, cfg.SessionToken = auth.Secret(secret), auth.Secret(token)
	return &cfg, nil
}

// origins is what --origins-file configures.
type origins struct {
	profiles  map[string]fetch.OriginTLS
	providers map[string]server.AuthProvider
	sources   map[string]originProvider // what each provider was made of, except its callers
	files     map[string][]byte         // every file as it was read
	watched   []tlswatch.Certificate    // of the profiles
}

// readOrigins reads the file. The error says what is wrong, without secrets. Providers that
// are as they were before keep their tokens.
func (s *settings) readOrigins(before *origins) (*origins, error) {
	if s.OriginsFile == "" {
		return new(origins), nil
	}
	o, err := readOrigins(s.OriginsFile, before)
	if err == nil && s.EgressProxy != "" && len(o.profiles) > 0 {
		err = fmt.Errorf("%s: profiles: cannot be combined with --egress-proxy: remove one of them", s.OriginsFile)
	}
	if err != nil {
		return nil, fmt.Errorf("--origins-file: %w", err)
	}
	return o, nil
}

func readOrigins(path string, before *origins) (*origins, error) {
	o := &origins{profiles: make(map[string]fetch.OriginTLS), providers: make(map[string]server.AuthProvider),
		sources: make(map[string]originProvider), files: make(map[string][]byte)}
	raw, err := o.file(path)
	if err != nil {
		return nil, err
	}
	var f originsFile
	if err := secure.DecodeYAML(raw, &f, "YAML with profiles and providers, and in them the keys of docs/operating.md and docs/signing.md, each once"); err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	var open []string // addresses of profiles with a certificate but no callers
	for origin, p := range f.Profiles {
		address, own, err := o.profile(origin, p)
		if err != nil {
			return nil, fmt.Errorf("%s: profiles: %s: %w", path, origin, err)
		}
		if _, ok := o.profiles[address]; ok {
			return nil, fmt.Errorf("%s: profiles: %s: is the same origin as another profile, %s: keep one", path, origin, address)
		}
		o.profiles[address] = own
		if p.Callers == nil && own.Certificate != nil {
			open = append(open, address)
		}
	}
	for name, p := range f.Providers {
		made, err := o.provider(name, p, before)
		if err != nil {
			return nil, fmt.Errorf("%s: providers: %s: %w", path, name, err)
		}
		o.providers[name] = server.AuthProvider{Provider: made, Callers: p.Callers}
	}
	for _, address := range open {
		own := o.profiles[address]
		own.Callers = callersOf(address, o.providers)
		o.profiles[address] = own
	}
	return o, nil
}

// file reads a file once, so that a certificate and a key in one file belong together.
func (o *origins) file(path string) ([]byte, error) {
	if raw, ok := o.files[path]; ok {
		return raw, nil
	}
	raw, err := secure.ReadFile(path)
	if err == nil {
		o.files[path] = raw
	}
	return raw, err
}

// same reports whether all files are as they were.
func (o *origins) same(before *origins) bool {
	return maps.EqualFunc(o.files, before.files, bytes.Equal)
}

// callersOf returns the callers of all providers that name an origin with TLS. A certificate
// without callers is for them only, because other callers may not have the token. It
// returns nil, which means everybody, if a provider has no callers. A provider for all origins says nothing
// about who may use a certificate.
func callersOf(address string, providers map[string]server.AuthProvider) []string {
	var callers []string
	for _, p := range providers {
		names := p.Covers
		if wide, ok := p.Provider.(interface{ Names(u *url.URL) bool }); ok {
			names = wide.Names
		}
		if names(&url.URL{Scheme: "https", Host: address}) {
			if len(p.Callers) == 0 {
				return nil
			}
			callers = append(callers, p.Callers...)
		}
	}
	slices.Sort(callers)
	return slices.Compact(callers)
}

// profile returns the address of the origin and its TLS configuration.
func (o *origins) profile(origin string, p originProfile) (address string, own fetch.OriginTLS, err error) {
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
	address = net.JoinHostPort(strings.ToLower(u.Hostname()), port)
	if p.CAFile != "" {
		var added []*x509.Certificate
		if own.RootCAs, added, err = authorities(p.CAFile, o.file); err != nil {
			return "", own, fmt.Errorf("ca-file: %w", err)
		}
		o.watched = append(o.watched, tlswatch.Describe(tlswatch.OriginAuthority, address, added...)...)
	}
	if (p.CertFile == "") != (p.KeyFile == "") {
		return "", own, errors.New("cert-file and key-file go together: give both or none")
	}
	if own.Callers, err = p.callers(); err != nil {
		return "", own, err
	}
	if p.CertFile != "" {
		if own.Certificate, err = o.pair(p.CertFile, p.KeyFile); err != nil {
			return "", own, err
		}
	}
	if own.Certificate != nil {
		o.watched = append(o.watched, tlswatch.Describe(tlswatch.OriginClient, address, own.Certificate.Leaf)...)
	}
	return address, own, nil
}

// everybody is the callers of a profile whose certificate is for every caller, even if
// the providers of its origin are not.
var everybody = []string{"*"}

// callers returns the callers for whom the certificate is shown. It rejects a list that
// seems to restrict callers and does not.
func (p *originProfile) callers() ([]string, error) {
	switch {
	case p.Callers == nil:
	case p.CertFile == "":
		return nil, fmt.Errorf("callers: %.60q: there is no certificate to show them: give cert-file and key-file, or leave callers out", p.Callers)
	case slices.Equal(p.Callers, everybody):
		return nil, nil
	}
	return p.Callers, nil
}

// pair reads a certificate and its key.
func (o *origins) pair(certFile, keyFile string) (*tls.Certificate, error) {
	cert, err := o.file(certFile)
	if err != nil {
		return nil, fmt.Errorf("cert-file: %w", err)
	}
	key, err := o.file(keyFile)
	if err != nil {
		return nil, fmt.Errorf("key-file: %w", err)
	}
	pair, err := tls.X509KeyPair(cert, key)
	if err != nil {
		return nil, fmt.Errorf("cert-file: %s with the key %s: %w", certFile, keyFile, err)
	}
	return &pair, nil
}

// provider makes a provider, or returns the one from before if that was made of the same.
func (o *origins) provider(name string, p originProvider, before *origins) (auth.Provider, error) {
	if p.HTTPSignature != nil {
		return o.httpSignature(&p)
	}
	cfg := auth.Config{Name: name, Origins: p.Origins, Header: p.Header, Scheme: p.Scheme, Static: p.Token, File: p.TokenFile, HMAC: p.HMAC}
	if c := p.Client; c != nil {
		if c.SecretFile != "" {
			raw, err := o.file(c.SecretFile)
			if err != nil {
				return nil, fmt.Errorf("client: secret-file: %w", err)
			}
			c.Secret = auth.Secret(strings.TrimSpace(string(raw)))
		}
		cfg.Client = &c.ClientCredentials
	}
	if p.SigV4 != nil {
		var err error
		if cfg.SigV4, err = p.SigV4.config(); err != nil {
			return nil, err
		}
	}
	made, err := auth.New(cfg)
	if err != nil {
		return nil, err
	}
	p.Callers = nil
	o.sources[name] = p
	if old, ok := before.sources[name]; ok && reflect.DeepEqual(old, p) {
		return before.providers[name].Provider, nil // it has a token
	}
	return made, nil
}
