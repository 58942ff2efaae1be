package server_test

import (
	"encoding/json"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"fetchd/fetch/auth"
	"fetchd/fetch/auth/httpsig"
	"fetchd/server"
	"fetchd/test/signatures"
)

// published is a provider whose keys are published, or not if there is no agent.
func published(t *testing.T, agent string, keys ...string) server.AuthProvider {
	t.Helper()
	cfg := httpsig.Config{Agent: agent}
	if agent != "" {
		cfg.Profile = httpsig.WebBotAuth
	}
	for _, text := range keys {
		k, err := httpsig.ParseKey([]byte(text))
		must(t, err)
		cfg.Keys = append(cfg.Keys, k)
	}
	s, err := httpsig.New(cfg)
	must(t, err)
	p, err := auth.NewHTTPSignature([]string{"https://a.example"}, s, nil)
	must(t, err)
	return server.AuthProvider{Provider: p, Callers: []string{"nobody"}}
}

// TestDirectory asks for the public keys without credentials, under several names.
func TestDirectory(t *testing.T) {
	t.Parallel()
	token, err := auth.New(auth.Config{Static: "hush", Origins: []string{"https://a.example"}})
	must(t, err)
	const one, other = "https://bot.example", "https://Other.example:8443"
	keys, err := signatures.Keys()
	must(t, err)
	for _, row := range []struct {
		name         string
		providers    map[string]server.AuthProvider
		method, host string
		code, keys   int
		signed       bool
	}{
		{"no provider", nil, "GET", "bot.example", 404, 0, false},
		{"a token", map[string]server.AuthProvider{"a": {Provider: token}}, "GET", "bot.example", 404, 0, false},
		{"a signer without the profile", map[string]server.AuthProvider{"a": published(t, "", signatures.PEMEd25519)}, "GET", "bot.example", 404, 0, false},
		{"the agent", map[string]server.AuthProvider{"a": published(t, one, signatures.PEMEd25519)}, "GET", "bot.example", 200, 1, true},
		{"the agent with a port", map[string]server.AuthProvider{"a": published(t, one, signatures.PEMEd25519)}, "GET", "BOT.example:443", 200, 1, true},
		{"HEAD", map[string]server.AuthProvider{"a": published(t, one, signatures.PEMEd25519)}, "HEAD", "bot.example", 200, 0, true},
		{"POST", map[string]server.AuthProvider{"a": published(t, one, signatures.PEMEd25519)}, "POST", "bot.example", 405, 0, false},
		{"another name", map[string]server.AuthProvider{"a": published(t, one, signatures.PEMEd25519)}, "GET", "evil.example", 200, 1, false},
		{"a name below", map[string]server.AuthProvider{"a": published(t, one, signatures.PEMEd25519)}, "GET", "bot.example.evil.example", 200, 1, false},
		{"two providers of an agent", map[string]server.AuthProvider{"a": published(t, one, signatures.PEMEd25519), "b": published(t, one, signatures.JWKP256, signatures.JWKEd25519)}, "GET", "bot.example", 200, 2, true},
		{"the second agent", map[string]server.AuthProvider{"a": published(t, one, signatures.PEMEd25519), "b": published(t, other, signatures.JWKP256)}, "GET", "other.example:8443", 200, 1, true},
		{"neither agent", map[string]server.AuthProvider{"a": published(t, one, signatures.PEMEd25519), "b": published(t, other, signatures.JWKP256)}, "GET", "localhost", 404, 0, false},
	} {
		t.Run(row.name, func(t *testing.T) {
			t.Parallel()
			r := newRig(t, func(c *server.Config) {
				c.AuthProviders = row.providers
				c.Authenticate = func(server.Credentials) (string, error) { return "", io.EOF } // no caller is admitted
			})
			resp, body := directory(r, row.method, row.host)
			var set struct {
				Keys []map[string]any
			}
			_ = json.Unmarshal(body, &set) // an answer of HEAD has no body
			if resp.StatusCode != row.code || len(set.Keys) != row.keys || (resp.Header.Get("Signature") != "") != row.signed || strings.Contains(string(body), `"d"`) {
				t.Fatalf("%d %v %s", resp.StatusCode, resp.Header, body)
			}
			if row.code == 200 && (resp.Header.Get("Content-Type") != httpsig.DirectoryType || resp.Header.Get("Cache-Control") != "max-age=600" || resp.Header.Get("Content-Encoding") != "") {
				t.Errorf("%v", resp.Header)
			}
			if row.signed && row.method == "GET" {
				m := &signatures.Message{Status: 200, Body: body, Request: &signatures.Message{Scheme: "https", Authority: row.host}}
				for name := range resp.Header {
					m.Lines = append(m.Lines, [2]string{name, resp.Header.Get(name)})
				}
				if m.Verify("binding0", keys["test-key-ed25519"]) != nil && m.Verify("binding0", keys["test-key-ecc-p256"]) != nil {
					t.Errorf("no key verifies %v", m)
				}
			}
		})
	}
}

// directory requests the directory of keys under a name.
func directory(r *rig, method, host string) (*http.Response, []byte) {
	r.Helper()
	req, err := http.NewRequestWithContext(r.Context(), method, r.URL+httpsig.DirectoryPath, nil)
	must(r, err)
	req.Host = host
	resp, err := r.HTTPClient.Do(req)
	must(r, err)
	defer func() { _ = resp.Body.Close() }()
	body, err := io.ReadAll(resp.Body)
	must(r, err)
	return resp, body
}

// TestDirectoryIsSignedRarely checks that requests cost no signatures, and that a change of the
// providers shows at once.
func TestDirectoryIsSignedRarely(t *testing.T) {
	t.Parallel()
	bubble(t, func(r *rig) {
		signed := func() string {
			resp, _ := directory(r, "GET", "bot.example")
			return resp.Header.Get("Signature-Input")
		}
		first := signed()
		<-time.After(9 * time.Minute)
		if second := signed(); first == "" || second != first {
			r.Errorf("%s, after 9 minutes %s", first, second)
		}
		<-time.After(2 * time.Minute)
		if third := signed(); third == first || third == "" {
			r.Errorf("%s, after 11 minutes %s", first, third)
		}
		must(r, r.Service.SetOrigins(nil, map[string]server.AuthProvider{"a": published(r.T, "https://bot.example", signatures.PEMEd25519, signatures.JWKP256)}))
		if got := signed(); strings.Count(got, "binding") != 2 {
			r.Errorf("%s, want two signatures", got)
		}
		must(r, r.Service.SetOrigins(nil, nil))
		if got := signed(); got != "" {
			r.Errorf("%s, want none", got)
		}
	}, func(c *server.Config) {
		c.AuthProviders = map[string]server.AuthProvider{"a": published(t, "https://bot.example", signatures.PEMEd25519)}
	})
}
