package main

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"fetchd/conformance/origin"
	"fetchd/fetch"
	"fetchd/fetch/auth"
	"fetchd/internal/cli"
	"fetchd/server"
	"fetchd/server/fetchdtest"
	"fetchd/test/clitest"
	"fetchd/test/rig"
	"fetchd/test/signatures"
)

// signing has the flags that sign, and verifies what an origin receives.
type signing struct {
	*testing.T
	origin *origin.Origin
	dir    string
	flags  []string
	key    any
}

func newSigning(t *testing.T) *signing {
	t.Helper()
	s := &signing{T: t, origin: rig.Origin(t), dir: t.TempDir()}
	keys, err := signatures.Keys()
	clitest.Must(t, err)
	s.key = keys["test-key-ed25519"]
	clitest.Must(t, os.Mkdir(s.path("keys"), 0o700))
	clitest.Must(t, os.WriteFile(s.path("keys/a.json"), []byte(signatures.JWKEd25519), 0o600))
	clitest.Must(t, os.WriteFile(s.path("ca.pem"), s.origin.CAPEM(), 0o600))
	s.flags = []string{"--sign-key", s.path("keys"), "--sign-agent", "https://bot.example/", "--cacert", s.path("ca.pem")}
	return s
}

// in returns s for a subtest.
func (s *signing) in(t *testing.T) *signing {
	c := *s
	c.T = t
	return &c
}

func (s *signing) path(name string) string { return filepath.Join(s.dir, name) }

// signed returns which requests with a key have a valid signature, in order. No two may have the same.
func (s *signing) signed(key string) []bool {
	s.Helper()
	var signed []bool
	inputs := make(map[string]bool)
	for _, q := range s.origin.Requests(key) {
		m := rig.Received(&q, nil)
		input := m.Members("signature-input")["sig1"]
		signed = append(signed, input != "")
		if input == "" {
			if len(m.Values("signature"))+len(m.Values("signature-agent")) > 0 {
				s.Errorf("fields of a signature without it: %q", m.Lines)
			}
			continue
		}
		if err := m.Verify("sig1", s.key); err != nil {
			s.Errorf("%v: %q", err, m.Lines)
		}
		if !strings.HasPrefix(input, `("@authority" "signature-agent";key="sig1")`) || !strings.HasSuffix(input, `tag="web-bot-auth"`) ||
			!slices.Equal(m.Values("signature-agent"), []string{`sig1="https://bot.example"`}) || inputs[input] {
			s.Errorf("it has %q", m.Lines)
		}
		inputs[input] = true
		m.Authority = "evil.example"
		if m.Verify("sig1", s.key) == nil {
			s.Error("it is of use at another origin")
		}
	}
	return signed
}

// TestGetSigned has an origin verify the requests of get.
func TestGetSigned(t *testing.T) {
	t.Parallel()
	s := newSigning(t)
	for _, row := range []struct {
		name, script string
		args         []string
		signed       []bool
	}{
		{"get", "200:body=hello", nil, []bool{true}},
		{"post", "200:body=hello", []string{"-d", "a=b"}, []bool{true}},
		{"retry", "503/200:body=hello", []string{"--retry-delay", "0.001"}, []bool{true, true}},
		{"within", "302:to=%2Fs%2FKEY%2F200/200:body=hello", nil, []bool{true, true}},
		{"elsewhere", "302:to=OTHER%2Fs%2FKEY%2F200:body=hello", nil, []bool{true, true}},
	} {
		t.Run(row.name, func(t *testing.T) {
			t.Parallel()
			s := s.in(t)
			key := "get-" + row.name
			other := strings.NewReplacer(":", "%3A", "/", "%2F").Replace(strings.TrimSuffix(s.origin.URL("https1", "/"), "/"))
			url := s.origin.URL("https", "/s/"+key+"/"+strings.NewReplacer("KEY", key, "OTHER", other).Replace(row.script))
			warc := s.path(key + ".warc")
			got := fetchctl.Run(t, slices.Concat([]string{"get", "-v", "--warc", warc, url}, s.flags, row.args)...)
			if signed := s.signed(key); got.Code != cli.ExitOK || !slices.Equal(signed, row.signed) {
				t.Errorf("exit status %d, signed %t, want %t\n%s", got.Code, signed, row.signed, got.Err)
			}
			for name, text := range map[string]string{"output": got.Out + got.Err, "WARC": read(t, warc)} {
				for _, secret := range []string{"n4Ni-HpI", "created=", "sig1=:"} {
					if strings.Contains(text, secret) {
						t.Errorf("the %s has %q:\n%s", name, secret, text)
					}
				}
			}
		})
	}
}

func read(t *testing.T, name string) string {
	t.Helper()
	raw, err := os.ReadFile(name)
	clitest.Must(t, err)
	return string(raw)
}

// TestDowngradeUnsigned checks that a redirect to plaintext has no signature.
func TestDowngradeUnsigned(t *testing.T) {
	t.Parallel()
	s := newSigning(t)
	to := strings.NewReplacer(":", "%3A", "/", "%2F").Replace(s.origin.URL("http", "/s/down/200:body=hello"))
	got := fetchctl.Run(t, slices.Concat([]string{"get", s.origin.URL("https", "/s/down/302:to="+to)}, s.flags)...)
	if signed := s.signed("down"); got.Code != cli.ExitOK || !slices.Equal(signed, []bool{true, false}) {
		t.Errorf("exit status %d, signed %t\n%s", got.Code, signed, got.Err)
	}
}

// TestDownloadSigned downloads a list with URLs of both schemes. All are fetched, and one line says which are not signed.
func TestDownloadSigned(t *testing.T) {
	t.Parallel()
	s := newSigning(t)
	list := ""
	for i, listener := range []string{"https", "http", "https1", "http"} {
		list += fmt.Sprintf("%s file%d\n", s.origin.URL(listener, fmt.Sprintf("/s/d%d/200:body=hello", i)), i)
	}
	clitest.Must(t, os.WriteFile(s.path("list"), []byte(strings.Replace(list, "https", "HTTPS", 1)), 0o600))
	got := fetchctl.Run(t, slices.Concat([]string{"download", "-d", s.path("files"), "-i", s.path("list")}, s.flags)...)
	if got.Code != cli.ExitOK || strings.Count(got.Err, "not signed, because they are not https: 2 of 4 URLs\n") != 1 {
		t.Errorf("exit status %d\n%s", got.Code, got.Err)
	}
	for i, want := range []bool{true, false, true, false} {
		if signed := s.signed(fmt.Sprintf("d%d", i)); !slices.Equal(signed, []bool{want}) {
			t.Errorf("file %d: signed %t, want %t", i, signed, want)
		}
	}
}

// TestAuthProvider checks that get and download name a provider of the service at --server.
func TestAuthProvider(t *testing.T) {
	t.Parallel()
	s := fetchdtest.Start(t, fetchdtest.Options{Configure: func(c *server.Config) { c.Fetch.Egress = fetch.Egress{Unrestricted: true} }})
	made, err := auth.New(auth.Config{Origins: []string{strings.TrimSuffix(s.Origin.URL("http", "/"), "/")}, Static: "hush"})
	clitest.Must(t, err)
	clitest.Must(t, s.Service.SetOrigins(nil, map[string]server.AuthProvider{"wiki": {Provider: made}}))
	for _, row := range []struct {
		name string
		code int
		want string // Authorization
		err  string
	}{
		{"wiki", cli.ExitOK, "Bearer hush", ""},
		{"other", cli.ExitUsage, "", `auth_provider: is "other", which is not configured on this server`},
	} {
		for _, command := range [][]string{{"get"}, {"download", "-d", t.TempDir()}} {
			t.Run(fmt.Sprintf("%q, %s", row.name, command[0]), func(t *testing.T) {
				t.Parallel()
				key := fmt.Sprintf("%s-%x", command[0], row.name)
				got := fetchctl.Run(t, append(command, "--server", s.Addr, "--auth-provider", row.name, s.Origin.URL("http", "/s/"+key+"/200"))...)
				sent := ""
				for _, q := range s.Origin.Requests(key) {
					sent = q.Header.Get("Authorization")
				}
				if got.Code != row.code || sent != row.want || !strings.Contains(got.Err, row.err) {
					t.Errorf("exit status %d, sent %q; want %d, %q and %q\n%s", got.Code, sent, row.code, row.want, row.err, got.Err)
				}
			})
		}
	}
}

// TestSignRefuses has uses of the flags that are wrong. Nothing is sent.
func TestSignRefuses(t *testing.T) {
	t.Parallel()
	s := newSigning(t)
	const server, remedy = "127.0.0.1:9", "with --auth-provider"
	for _, row := range []struct {
		name, listener string
		args           []string
		want           []string
	}{
		{"with a service", "https", append(s.flags[:4:4], "--server", server), []string{"--sign-key: is for the service inside", remedy}},
		{"an agent with a service", "https", append(s.flags[2:4:4], "--server", server), []string{"--sign-agent: is for the service inside", remedy}},
		{"no agent", "https", s.flags[:2], []string{"--sign-agent: is missing"}},
		{"no such key", "https", []string{"--sign-key", s.path("nothing"), "--sign-agent", "https://bot.example"}, []string{"--sign-key: ", s.path("nothing"), "fetchd keys new"}},
		{"a field of a signature", "https", append(s.flags[:6:6], "-H", "Signature: x"), []string{`"--sign-key", which sets the header Signature: leave that header out`}},
		{"a provider without a service", "https", []string{"--auth-provider", "bot"}, []string{"--auth-provider: names a provider of a service: give --server too"}},
		{"plaintext", "http", s.flags, []string{"--sign-key: signs requests to https origins: give an https URL"}},
	} {
		for _, command := range [][]string{{"get"}, {"download", "-d", s.path("files")}} {
			if command[0] == "download" && (row.listener == "http" || slices.Contains(row.args, "-H")) {
				continue
			}
			t.Run(row.name+", "+command[0], func(t *testing.T) {
				t.Parallel()
				s := s.in(t)
				got := fetchctl.Run(t, slices.Concat(command, []string{s.origin.URL(row.listener, "/s/never/200")}, row.args)...)
				if got.Code != cli.ExitUsage || len(s.origin.Requests("never")) > 0 {
					t.Errorf("exit status %d, want %d", got.Code, cli.ExitUsage)
				}
				for _, want := range row.want {
					if !strings.Contains(got.Err, want) {
						t.Errorf("%s; want %q", got.Err, want)
					}
				}
			})
		}
	}
}
