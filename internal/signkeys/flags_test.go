package signkeys

import (
	"fmt"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"fetchd/fetch/auth/httpsig"
	"fetchd/fetch/signing"
	"fetchd/test/must"
	"fetchd/test/signatures"
)

// write writes a file for the test.
func write(t *testing.T, name, text string) {
	t.Helper()
	must.Succeed(t, os.WriteFile(name, []byte(text), 0o600))
}

// TestProviders has flags that are wrong. Each error names the flag, the value and a remedy, and shows no key.
func TestProviders(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	at := func(name string) string { return filepath.Join(dir, name) }
	for name, text := range map[string]string{
		"pem": signatures.PEMEd25519, "p256": signatures.JWKP256, "secret": signatures.Base64HMAC, "half": signatures.JWKP256[:60],
		"expired": strings.Replace(signatures.JWKEd25519, "{", `{"exp":1000,`, 1), "later": strings.Replace(signatures.JWKEd25519, "{", `{"nbf":90000000000,`, 1),
	} {
		write(t, at(name), text)
	}
	for _, name := range []string{"none", "folder"} {
		must.Succeed(t, os.Mkdir(at(name), 0o700))
	}
	write(t, at("folder/a"), signatures.PEMEd25519)
	write(t, at("folder/b"), signatures.Base64HMAC)
	must.Succeed(t, os.Symlink(at("loop"), at("loop")))
	const agent, remedy = "https://bot.example", `"fetchd keys new FOLDER" makes one`
	text := func(s string) *string { return &s }
	for _, row := range []struct {
		name       string
		key, agent *string
		want       []string // of the error; none: there is none
	}{
		{"no flag", nil, nil, nil},
		{"PEM", text(at("pem")), text(agent), nil},
		{"a JWK", text(at("p256")), text(agent), nil},
		{"an agent with a slash", text(at("pem")), text(agent + "/"), nil},
		{"no agent", text(at("pem")), nil, []string{"--sign-agent: ", "https://bot.example.com"}},
		{"an empty agent", text(at("pem")), text(""), []string{"--sign-agent: ", "https://bot.example.com"}},
		{"no key", nil, text(agent), []string{"--sign-key: ", remedy}},
		{"an empty key", text(""), text(agent), []string{"--sign-key: ", remedy}},
		{"both empty", text(""), text(""), []string{"--sign-key: ", remedy}},
		{"an agent in plaintext", text(at("pem")), text("http://bot.example"), []string{"--sign-agent: ", `"http://bot.example" is not an https origin`, "https://bot.example.com"}},
		{"an agent with a path", text(at("pem")), text("https://bot.example/keys"), []string{"--sign-agent: ", `"https://bot.example/keys"`}},
		{"an agent with a password", text(at("pem")), text("https://bot:hush@bot.example"), []string{"--sign-agent: ", "not repeated here", "https://bot.example.com"}},
		{"an agent that is a header", text(at("pem")), text("https://a\r\nX: y"), []string{"--sign-agent: ", `"https://a\r\nX: y"`}},
		{"no such file", text(at("nothing")), text(agent), []string{"--sign-key: ", at("nothing"), remedy}},
		{"a file that cannot be read", text(at("loop")), text(agent), []string{"--sign-key: ", at("loop"), "that you can read", remedy}},
		{"an empty folder", text(at("none")), text(agent), []string{"--sign-key: ", at("none"), "has no key", remedy}},
		{"half a key", text(at("half")), text(agent), []string{"--sign-key: ", at("half"), remedy}},
		{"a secret for HMAC", text(at("secret")), text(agent), []string{"--sign-key: ", at("secret"), "no public key", remedy}},
		{"a folder with a secret", text(at("folder")), text(agent), []string{"--sign-key: ", at("folder"), "no public key", remedy}},
		{"a key that has expired", text(at("expired")), text(agent), []string{"--sign-key: ", at("expired"), "no key is valid now", remedy}},
		{"a key that starts later", text(at("later")), text(agent), []string{"--sign-key: ", at("later"), "no key is valid now", remedy}},
	} {
		t.Run(row.name, func(t *testing.T) {
			t.Parallel()
			f := Flags{SignKey: row.key, SignAgent: row.agent}
			got, err := f.Providers()
			text := fmt.Sprint(err)
			if (err == nil) != (row.want == nil) || len(got) > 0 != (err == nil && f.Given()) {
				t.Fatalf("%v, %v", got, err)
			}
			for _, want := range row.want {
				if !strings.Contains(text, want) {
					t.Errorf("%s; want %q", text, want)
				}
			}
			for _, secret := range []string{"hush", "UpuF81l", "uzvJfB4u", "n4Ni-HpI"} {
				if strings.Contains(text+fmt.Sprintf("%v %+v %#v", got, got, got), secret) {
					t.Errorf("%s is shown", secret)
				}
			}
			if p, ok := got[Name]; ok && (!p.Covers(&url.URL{Scheme: "https", Host: "any.example"}) || p.Covers(&url.URL{Scheme: "http", Host: "any.example"})) {
				t.Error("it must cover every https origin, and no other")
			}
		})
	}
}

// TestReread checks that a key that is added to a folder signs after a minute, and that one that is wrong does not stop
// the signing.
func TestReread(t *testing.T) {
	t.Parallel()
	dir, agent := t.TempDir(), "https://bot.example"
	write(t, filepath.Join(dir, "a"), signatures.JWKEd25519)
	got, err := (&Flags{SignKey: &dir, SignAgent: &agent}).Providers()
	must.Succeed(t, err)
	p, _ := got[Name].Provider.(*provider)
	start := time.Now()
	for _, row := range []struct {
		name   string
		add    string // text of a file
		after  time.Duration
		signer string
	}{
		{"at the start", "", 0, signatures.JWKEd25519},
		{"too early", signatures.JWKP256, 30 * time.Second, signatures.JWKEd25519},
		{"a new key", "", 61 * time.Second, signatures.JWKP256},
		{"half a key", signatures.JWKEd25519[:60], 3 * time.Minute, signatures.JWKP256},
	} {
		if row.add != "" {
			write(t, filepath.Join(dir, "b"+row.name), row.add)
		}
		fields, err := p.Sign(t.Context(), &signing.Message{Time: start.Add(row.after), URL: &url.URL{Scheme: "https"}, Authority: "a.example"})
		if err != nil {
			t.Fatalf("%s: %v", row.name, err)
		}
		key, err := httpsig.ParseKey([]byte(row.signer))
		must.Succeed(t, err)
		signer, err := httpsig.New(httpsig.Config{Keys: []*httpsig.Key{key}, Profile: httpsig.WebBotAuth, Agent: "https://bot.example"})
		must.Succeed(t, err)
		_, published := signer.Published()
		if text := fmt.Sprint(fields); !strings.Contains(text, published[0].ID) {
			t.Errorf("%s: %s, want the key %s", row.name, text, published[0].ID)
		}
	}
}

// TestAgentForm checks both forms of Signature-Agent.
func TestAgentForm(t *testing.T) {
	t.Parallel()
	dir, agent := t.TempDir(), "https://bot.example"
	write(t, filepath.Join(dir, "key"), signatures.JWKEd25519)
	for form, want := range map[string]string{"": `{Signature-Agent sig1="https://bot.example"}`, "dictionary": `{Signature-Agent sig1="https://bot.example"}`, "string": `{Signature-Agent "https://bot.example"}`} {
		providers, err := (&Flags{SignKey: &dir, SignAgent: &agent, SignForm: form}).Providers()
		must.Succeed(t, err)
		p, _ := providers[Name].Provider.(*provider)
		fields, err := p.Sign(t.Context(), &signing.Message{Time: time.Now(), URL: &url.URL{Scheme: "https"}, Authority: "a.example"})
		if text := fmt.Sprint(fields); err != nil || !strings.Contains(text, want) {
			t.Errorf("%q: %s, %v, want %s", form, text, err, want)
		}
	}
}
