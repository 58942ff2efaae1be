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

// Config describes a provider. Origins and one of Static, File and Client are
// required.
type Config struct {
	// Origins that the credential is for, such as "https://api.example.com". The
	// credential goes to no other.
	Origins []string
	// Header carries the credential; empty means Authorization. Scheme stands before
	// it; empty means Bearer in Authorization, and none in other headers.
	Header, Scheme string

	// Static is a token that does not change.
	Static Secret
	// File holds a token that something else keeps fresh. It is read again when it
	// changes, and when an origin refuses what it held.
	File string
	// Client asks a token endpoint.
	Client *ClientCredentials
}

// ClientCredentials are those of RFC 6749 §4.4.
type ClientCredentials struct {
	// TokenURL is the endpoint, https, or http on loopback.
	TokenURL string
	// ID and Secret of the client.
	ID     string
	Secret Secret
	// Scopes asked for; none means the endpoint's own.
	Scopes []string
	// Audience, where the endpoint wants one.
	Audience string
	// InBody sends ID and secret in the body of the question, for endpoints that do
	// not take them by HTTP Basic authentication (RFC 6749 §2.3.1).
	InBody bool
	// HTTP is the client to ask with; nil means one with a time limit and no proxy.
	HTTP *http.Client
}

// New returns a provider. The error names the field that is not usable, and holds
// no secret.
func New(cfg Config) (Provider, error) {
	p := &provider{origins: make(map[origin]bool), header: "Authorization", scheme: cfg.Scheme}
	if cfg.Header != "" {
		p.header = textproto.CanonicalMIMEHeaderKey(cfg.Header)
	}
	if p.scheme == "" && p.header == "Authorization" {
		p.scheme = "Bearer"
	}
	if !httpguts.ValidHeaderFieldName(p.header) || p.scheme != "" && !httpguts.ValidHeaderFieldName(p.scheme) {
		return nil, errors.New("auth: header or scheme is no token (RFC 9110 section 5.6.2): give such as Authorization and Bearer, and the secret as token")
	}
	for _, raw := range cfg.Origins {
		o, err := parseOrigin(raw)
		if err != nil {
			return nil, err
		}
		p.origins[o] = true
	}
	if len(p.origins) == 0 {
		return nil, errors.New("auth: origins is empty: name those that the credential is for")
	}
	var err error
	if p.source, err = cfg.source(); err != nil {
		return nil, err
	}
	return p, nil
}

// parseOrigin reads an origin as URLs of fetches have it: names in ASCII, ports
// without zeros.
func parseOrigin(raw string) (origin, error) {
	u, err := url.Parse(raw)
	switch {
	case strings.Contains(raw, "@"):
		return origin{}, errors.New("auth: an origin has userinfo: leave it out")
	case err != nil || u.Scheme != "https" && u.Scheme != "http" || u.Hostname() == "" || strings.Trim(u.Path, "/") != "" || u.RawQuery != "" || u.Fragment != "":
		return origin{}, fmt.Errorf("auth: origin %q: give a scheme and a host, such as https://api.example.com", raw)
	case strings.ContainsFunc(u.Host, func(r rune) bool { return r > unicode.MaxASCII }):
		return origin{}, fmt.Errorf("auth: origin %q: give the name in ASCII, as xn--…", raw)
	case u.Port() != "" && (u.Port()[0] == '0' || len(u.Port()) > 5):
		return origin{}, fmt.Errorf("auth: origin %q: give the port from 1 to 65535", raw)
	}
	u.Host = strings.ToLower(u.Host)
	return originOf(u), nil
}

func (cfg *Config) source() (Source, error) {
	given := 0
	for _, is := range []bool{cfg.Static != "", cfg.File != "", cfg.Client != nil} {
		if is {
			given++
		}
	}
	switch {
	case given != 1:
		return nil, errors.New("auth: give one of a static token, a token file and client credentials")
	case cfg.Static != "":
		return static(cfg.Static), checkToken(cfg.Static)
	case cfg.File != "":
		return newFile(cfg.File)
	}
	return cfg.Client.source()
}

// checkToken refuses what would not fit into a header.
func checkToken(token Secret) error {
	if token == "" || !httpguts.ValidHeaderFieldValue(string(token)) {
		return errors.New("auth: the token is empty or has a control character")
	}
	return nil
}
