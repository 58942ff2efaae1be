package auth

import (
	"errors"
	"net/url"
	"slices"

	"fetchd/fetch/auth/httpsig"
	"fetchd/fetch/signing"
)

// HTTPSignature is a provider that makes HTTP message signatures (RFC 9421).
type HTTPSignature struct {
	signer
	all bool // https origins are covered
	by  *httpsig.Signer
}

// NewHTTPSignature returns a provider for origins. If the signer publishes its keys, "https://*"
// is every https origin: its signatures are of no use elsewhere, and prove what
// anyone may know.
func NewHTTPSignature(origins []string, by *httpsig.Signer) (*HTTPSignature, error) {
	p := &HTTPSignature{signer: signer{headers: by.Headers(), signingKey: httpKey{by}}, by: by}
	named := slices.DeleteFunc(slices.Clone(origins), func(raw string) bool {
		p.all = p.all || raw == "https://*"
		return raw == "https://*"
	})
	if agent, _ := by.Published(); agent == "" && p.all {
		return nil, errors.New("auth: an origin is for all hosts, which only the profile web-bot-auth can sign for: list the origins")
	}
	if len(named) == 0 && p.all {
		return p, nil
	}
	var err error
	if p.origins, err = parseOrigins(named); err != nil {
		return nil, err
	}
	return p, nil
}

// Covers implements [Provider].
func (p *HTTPSignature) Covers(u *url.URL) bool {
	return p.all && u.Scheme == "https" || p.Names(u)
}

// Names reports whether the origin of a URL is in the list of the provider, and not just one of all.
func (p *HTTPSignature) Names(u *url.URL) bool { return p.signer.Covers(u) }

// Published returns the origin that publishes the public keys, and the keys. The origin is empty if
// they are not published.
func (p *HTTPSignature) Published() (agent string, keys []*httpsig.Key) { return p.by.Published() }

// httpKey is the keys of an HTTPSignature. They are replaced with the provider.
type httpKey struct{ *httpsig.Signer }

func (k httpKey) sign(m *signing.Message) ([]signing.Field, error) {
	return k.Sign(m, httpsig.Choice{})
}

func (httpKey) refresh() error { return ErrRefused }
