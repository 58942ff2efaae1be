package auth_test

import (
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"testing"
	"time"

	"fetchd/fetch/auth"
	"fetchd/fetch/auth/httpsig"
	"fetchd/fetch/signing"
	"fetchd/test/must"
	"fetchd/test/signatures"
)

// TestChallengeWithoutKey checks that an origin which asks for a signature shows that no key is valid, and that one which asks
// for something else does not.
func TestChallengeWithoutKey(t *testing.T) {
	t.Parallel()
	for _, row := range []struct {
		name, accept  string
		status        int
		expired       bool
		signs, failed bool
	}{
		{"a valid key", `a=("@authority")`, 401, false, true, false},
		{"an expired key", `a=("@authority")`, 401, true, true, true},
		{"an expired key, and a 403", `a=("@authority")`, 403, true, false, false},
		{"an expired key, and a 429", `a=("@authority")`, 429, true, false, false},
		{"an expired key, and no question", "", 401, true, false, false},
		{"another key", `a=("@authority");keyid="other"`, 401, false, false, false},
	} {
		t.Run(row.name, func(t *testing.T) {
			t.Parallel()
			k, err := httpsig.ParseKey([]byte(signatures.PEMEd25519))
			must.Succeed(t, err)
			now := time.Now()
			if row.expired {
				k.NotAfter = now
			}
			s, err := httpsig.New(httpsig.Config{Keys: []*httpsig.Key{k}})
			must.Succeed(t, err)
			p, err := auth.NewHTTPSignature([]string{"https://a.example"}, s, []int{401, 403})
			must.Succeed(t, err)
			header := make(http.Header)
			if row.accept != "" {
				header.Set("Accept-Signature", row.accept)
			}
			m := &signing.Message{Time: now, Method: "GET", URL: &url.URL{Scheme: "https"}, Authority: "a.example", Target: "/"}
			sign, _ := p.Challenge(row.status, header, m)
			if (sign != nil) != row.signs {
				t.Fatalf("it signs: %t, want %t", sign != nil, row.signs)
			}
			if sign == nil {
				return
			}
			if fields, err := sign(t.Context(), m); (err != nil) != row.failed || row.failed && fields != nil {
				t.Errorf("%v, %v, want an error: %t", fields, err, row.failed)
			}
		})
	}
}

// messageSigner returns a signer, of the profile if there is an agent.
func messageSigner(t *testing.T, agent string) *httpsig.Signer {
	t.Helper()
	k, err := httpsig.ParseKey([]byte(signatures.PEMEd25519))
	must.Succeed(t, err)
	cfg := httpsig.Config{Keys: []*httpsig.Key{k}, Agent: agent}
	if agent != "" {
		cfg.Profile = httpsig.WebBotAuth
	}
	s, err := httpsig.New(cfg)
	must.Succeed(t, err)
	return s
}

// TestHTTPSignatureCovers checks which origins get signatures.
func TestHTTPSignatureCovers(t *testing.T) {
	t.Parallel()
	for _, row := range []struct {
		name    string
		origins []string
		want    string // of the URLs below
	}{
		{"an origin", []string{"https://api.example"}, "https://api.example/a https://api.example:443/"},
		{"all of TLS", []string{"https://*"}, "https://api.example/a https://api.example:443/ https://other.example/ https://*/"},
		{"all of TLS, and one in plaintext", []string{"https://*", "http://api.example"}, "https://api.example/a https://api.example:443/ https://other.example/ https://*/ http://api.example/"},
		{"a list", []string{"http://other.example", "https://other.example"}, "https://other.example/ http://other.example/"},
	} {
		p, err := auth.NewHTTPSignature(row.origins, messageSigner(t, "https://bot.example"), nil)
		must.Succeed(t, err)
		var got []string
		for _, raw := range []string{"https://api.example/a", "https://api.example:443/", "https://other.example/", "https://*/", "http://api.example/", "http://other.example/", "ftp://api.example/"} {
			u, err := url.Parse(raw)
			must.Succeed(t, err)
			if p.Covers(u) {
				got = append(got, raw)
			}
		}
		if strings.Join(got, " ") != row.want {
			t.Errorf("%s: %q, want %s", row.name, got, row.want)
		}
	}
}

// TestNewHTTPSignatureRefuses checks that only a signer that publishes its keys signs for all.
func TestNewHTTPSignatureRefuses(t *testing.T) {
	t.Parallel()
	for _, row := range []struct {
		name, agent string
		origins     []string
		want        string
	}{
		{"nothing", "", nil, "origins is empty"},
		{"all, without the profile", "", []string{"https://*"}, "web-bot-auth"},
		{"all, and one", "", []string{"https://api.example", "https://*"}, "web-bot-auth"},
		{"all in plaintext", "https://bot.example", []string{"http://*"}, "list the origins"},
		{"all of a domain", "https://bot.example", []string{"https://*.example/a"}, "give a scheme and a host"},
		{"all below a domain", "https://bot.example", []string{"https://*.example"}, "list the origins"},
		{"all ports", "https://bot.example", []string{"https://*:8443"}, "list the origins"},
		{"a path", "https://bot.example", []string{"https://a.example/b"}, "give a scheme and a host"},
	} {
		p, err := auth.NewHTTPSignature(row.origins, messageSigner(t, row.agent), nil)
		if err == nil || p != nil || !strings.Contains(fmt.Sprint(err), row.want) {
			t.Errorf("%s: %v, want %q", row.name, err, row.want)
		}
	}
}

// TestHTTPSignature checks what the provider says of itself.
func TestHTTPSignature(t *testing.T) {
	t.Parallel()
	for agent, published := range map[string]string{"": "", "https://bot.example": "https://bot.example"} {
		p, err := auth.NewHTTPSignature([]string{"https://a.example"}, messageSigner(t, agent), nil)
		must.Succeed(t, err)
		if got, _ := p.Published(); got != published {
			t.Errorf("published at %q, want %q", got, published)
		}
		name, value, err := p.Field(t.Context())
		if name != "" || value != "" || err != nil || !errors.Is(p.Refresh(t.Context(), "x"), auth.ErrRefused) {
			t.Errorf("a field %s: %s, %v", name, value, err)
		}
	}
}
