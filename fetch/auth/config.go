package auth

import (
	"errors"
	"fmt"
	"net/http"
	"net/textproto"
	"net/url"
	"strings"
	"unicode"

	"golang.org/x/net/http/httpguts"
)

// Config configures a provider. Origins and exactly one of Static, File, Client, HMAC and
// SigV4 are required.
type Config struct {
	// Origins lists the origins that get the credential, such as
	// "https://api.example.com". It is sent to no other.
	Origins []string
	// Name is in the errors about a token that cannot be had.
	Name string
	// Header is the name of the field that carries the credential; empty means
	// Authorization. Scheme precedes the token; empty means Bearer in Authorization,
	// and no scheme in other fields. Both are for tokens only.
	Header, Scheme string

	// Static is a token that does not change.
	Static Secret
	// File is the path of a file with a token, of at most 16 KiB, that another program
	// updates. It is read again when it changes (checked once a second) and when an
	// origin rejects the token.
	File string
	// Client gets tokens from a token endpoint.
	Client *ClientCredentials
	// HMAC signs requests with a shared key.
	HMAC *HMAC
	// SigV4 signs requests with AWS Signature Version 4.
	SigV4 *SigV4
}

// ClientCredentials configures the client credentials grant of RFC 6749 §4.4.
type ClientCredentials struct {
	// TokenURL is the token endpoint. It must be https, or http on loopback.
	TokenURL string `yaml:"token-url"`
	// ID and Secret identify the client. Both are required.
	ID     string `yaml:"id"`
	Secret Secret `yaml:"secret"`
	// Scopes lists the scopes to request. Empty means the endpoint's default.
	Scopes []string `yaml:"scopes"`
	// Audience is sent as the parameter of that name. Empty means that it is omitted.
	Audience string `yaml:"audience"`
	// InBody sends ID and secret in the request body, for endpoints that do not
	// support HTTP Basic authentication (RFC 6749 §2.3.1).
	InBody bool `yaml:"in-body"`
	// HTTP is the client for the token endpoint. Nil means one that has a time limit
	// of 10 s, follows no redirects and uses no proxy.
	HTTP *http.Client `yaml:"-"`
}

// New returns a provider. The error names the field that is invalid, and contains no
// secret.
func New(cfg Config) (Provider, error) {
	origins, err := parseOrigins(cfg.Origins)
	if err != nil {
		return nil, err
	}
	if err := cfg.checkKind(); err != nil {
		return nil, err
	}
	if cfg.HMAC != nil {
		k, err := cfg.HMAC.signer()
		if err != nil {
			return nil, err
		}
		return &signer{origins, k.names, k}, nil
	}
	if cfg.SigV4 != nil {
		k, names, err := cfg.SigV4.signer()
		if err != nil {
			return nil, err
		}
		return &signer{origins, names, k}, nil
	}
	p := &provider{name: cfg.Name, origins: origins, header: "Authorization", scheme: cfg.Scheme}
	if cfg.Header != "" {
		p.header = textproto.CanonicalMIMEHeaderKey(cfg.Header)
	}
	if p.scheme == "" && p.header == "Authorization" {
		p.scheme = "Bearer"
	}
	if !httpguts.ValidHeaderFieldName(p.header) || p.scheme != "" && !httpguts.ValidHeaderFieldName(p.scheme) {
		return nil, errors.New("auth: header or scheme is not a token (RFC 9110 section 5.6.2): use for example Authorization and Bearer, and give the secret as the token")
	}
	if p.source, err = cfg.source(); err != nil {
		return nil, err
	}
	return p, nil
}

// checkKind checks that the configuration is of one kind.
func (cfg *Config) checkKind() error {
	kinds := 0
	for _, given := range []bool{cfg.Static != "", cfg.File != "", cfg.Client != nil, cfg.HMAC != nil, cfg.SigV4 != nil} {
		if given {
			kinds++
		}
	}
	switch {
	case kinds != 1:
		return errors.New("auth: give exactly one of a static token, a token file, client credentials, hmac and aws-sigv4")
	case (cfg.HMAC != nil || cfg.SigV4 != nil) && (cfg.Header != "" || cfg.Scheme != ""):
		return errors.New("auth: header and scheme are for tokens: remove them")
	}
	return nil
}

func parseOrigins(all []string) (map[origin]bool, error) {
	origins := make(map[origin]bool)
	for _, raw := range all {
		o, err := parseOrigin(raw)
		if err != nil {
			return nil, err
		}
		origins[o] = true
	}
	if len(origins) == 0 {
		return nil, errors.New("auth: origins is empty: list the origins that get the credential")
	}
	return origins, nil
}

// parseOrigin parses an origin. Its form must be that of the URLs of fetches: names in
// ASCII, ports without leading zeros.
func parseOrigin(raw string) (origin, error) {
	u, err := url.Parse(raw)
	switch {
	case strings.Contains(raw, "@"):
		return origin{}, errors.New("auth: an origin has userinfo: remove it")
	case err != nil || u.Scheme != "https" && u.Scheme != "http" || u.Hostname() == "" || strings.Trim(u.Path, "/") != "" || u.RawQuery != "" || u.Fragment != "":
		return origin{}, fmt.Errorf("auth: origin %q: give a scheme and a host, such as https://api.example.com", raw)
	case strings.ContainsFunc(u.Host, func(r rune) bool { return r > unicode.MaxASCII }):
		return origin{}, fmt.Errorf("auth: origin %q: give the name in ASCII (xn--…)", raw)
	case strings.Contains(u.Host, "*"):
		return origin{}, fmt.Errorf("auth: origin %q: a * stands for nothing here: list the origins", raw)
	case u.Port() != "" && (u.Port()[0] == '0' || len(u.Port()) > 5):
		return origin{}, fmt.Errorf("auth: origin %q: give a port from 1 to 65535", raw)
	}
	u.Host = strings.ToLower(u.Host)
	return originOf(u), nil
}

func (cfg *Config) source() (Source, error) {
	switch {
	case cfg.Static != "":
		return static(cfg.Static), checkToken(cfg.Static)
	case cfg.File != "":
		return newFile(cfg.File)
	}
	return cfg.Client.source()
}

// checkToken returns an error if the token is not valid in a header field.
func checkToken(token Secret) error {
	if token == "" || !httpguts.ValidHeaderFieldValue(string(token)) {
		return errors.New("auth: the token is empty or contains a control character")
	}
	return nil
}
