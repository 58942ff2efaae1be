package main

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"fetchd/fetch/auth/httpsig"
	pb "fetchd/gen/fetchd/v1"
	"fetchd/test/signatures"
)

// withBody returns a change that gives a request a body and many fields.
func withBody(method string) func(*pb.FetchRequest) {
	return func(in *pb.FetchRequest) {
		in.Method, in.Body = method, []byte("some body")
		in.Headers = []*pb.Header{{Name: "Content-Type", Value: "text/plain"}, {Name: "X-Two", Value: "one"}, {Name: "X-Two", Value: "two"},
			{Name: "X-Dict", Value: "b, a=(1   2);c"}, {Name: "X-Bytes", Value: "\xc3\xbc"}, {Name: "Cookie", Value: "a=b"}}
	}
}

// TestHTTPSignatureRefuses has settings that are wrong. No error shows a key.
func TestHTTPSignatureRefuses(t *testing.T) {
	t.Parallel()
	f := newFolder(t)
	must(t, os.Mkdir(f.path("empty"), 0o700))
	pem, secret, p256, bad := f.write("key.pem", []byte(signatures.PEMEd25519)), f.write("secret", []byte(signatures.Base64HMAC)), f.write("p256", []byte(signatures.JWKP256)), f.write("bad", []byte(signatures.JWKP256[:60]))
	short, shortJWK := f.write("short", []byte("czNjcjN0LXMzY3IzdC1z")), f.write("short.json", []byte(`{"kty": "oct", "k": "czNjcjN0LXMzY3IzdC1z", "kid": "a"}`))
	for _, row := range []struct{ name, text, want string }{
		{"no key", "{}", "there is no key"},
		{"no such file", "{key-files: [/nowhere]}", "/nowhere"},
		{"an empty folder", "{key-files: [" + f.path("empty") + "]}", "has no key"},
		{"no JWK", "{key-files: [" + bad + "]}", bad},
		{"too many", "{key-files: [" + strings.TrimSuffix(strings.Repeat(pem+", ", 33), ", ") + "]}", "more than 32"},
		{"another algorithm", "{algorithm: ed25519, key-files: [" + pem + ", " + p256 + "]}", "algorithm"},
		{"an unknown form", "{agent-form: list, key-files: [" + pem + "]}", `agent-form: "list": give dictionary`},
		{"an id for two keys", "{key-id: a, key-files: [" + pem + ", " + p256 + "]}", "key-id"},
		{"an id for the profile", "{key-id: a, profile: web-bot-auth, agent: 'https://bot.example', key-files: [" + pem + "]}", "key-id"},
		{"an agent of the caller", "{components: ['@authority', signature-agent], key-files: [" + pem + "]}", "agent: is missing"},
		{"a secret without an id", "{key-files: [" + secret + "]}", "key-id: is missing"},
		{"a secret for the profile", "{profile: web-bot-auth, agent: 'https://bot.example', key-files: [" + secret + "]}", "key pair"},
		{"a short secret", "{key-id: a, key-files: [" + short + "]}", short + ": the secret for HMAC has 15 bytes, and the minimum is 16"},
		{"a short secret in a JWK", "{key-files: [" + shortJWK + "]}", shortJWK + ": the secret for HMAC has 15 bytes"},
		{"a misspelt component", "{components: ['@methd'], key-files: [" + pem + "]}", `components: component "@methd": is unknown`},
		{"an agent that is none", "{agent: bot.example, key-files: [" + pem + "]}", `http-signature: agent: "bot.example" is not an https origin`},
		{"statuses that are none", "{on-challenge: [403], key-files: [" + pem + "]}", "auth: on-challenge: [403]: give [401] or [401, 403]"},
		{"an unknown optional component", "{optional: [Date], key-files: [" + pem + "]}", "optional: component"},
		{"an unknown key", "{keyfiles: [" + pem + "]}", "line 1"},
		{"no profile for all origins", "{key-files: [" + pem + "]}, origins: ['https://*']", "web-bot-auth"},
		{"an agent without the profile", "{agent: 'https://bot.example', key-files: [" + pem + "]}", "agent: the signature would not cover it: set the profile web-bot-auth"},
		{"two origins that are not covered", "{components: ['@method', '@path'], key-files: [" + pem + "]}, origins: ['https://a.example', 'https://b.example']", "add @authority or @target-uri"},
		{"two ports that are not covered", "{components: ['@request-target'], key-files: [" + pem + "]}, origins: ['https://a.example', 'https://a.example:8443']", "add @authority or @target-uri"},
		{"two schemes of a host, with an optional field", "{components: ['@method'], optional: [x], key-files: [" + pem + "]}, origins: ['https://a.example', 'http://a.example']", "add @authority or @target-uri"},
		{"a token too", "{key-files: [" + pem + "]}, token: s3cr3t", "cannot be combined"},
	} {
		t.Run(row.name, func(t *testing.T) {
			t.Parallel()
			more := ", origins: ['https://a.example']"
			if strings.Contains(row.text, "origins:") {
				more = ""
			}
			path := newFolder(t).write("origins.yaml", []byte("providers: {bot: {http-signature: "+row.text+more+"}}"))
			_, err := readOrigins(path, new(origins))
			text := fmt.Sprint(err)
			if err == nil || !strings.Contains(text, row.want) || strings.Contains(text, "s3cr3t") || signatures.Leaked(text) != "" {
				t.Errorf("%v, want an error with %q", err, row.want)
			}
		})
	}
}

// TestHTTPSignatureAccepts has settings that are like those that are refused.
func TestHTTPSignatureAccepts(t *testing.T) {
	t.Parallel()
	pem := newFolder(t).write("key.pem", []byte(signatures.PEMEd25519))
	for _, row := range []struct{ name, signature, origins string }{
		{"one origin that is not covered", "components: ['@method']", "'https://a.example'"},
		{"one origin twice", "components: ['@method']", "'https://a.example', 'https://A.example:443'"},
		{"two origins by default", "label: a", "'https://a.example', 'https://b.example'"},
		{"two origins in the authority", "components: ['@authority']", "'https://a.example', 'https://b.example'"},
		{"two origins in the target", "components: ['@target-uri']", "'https://a.example', 'https://b.example'"},
		{"an agent that is covered", "agent: 'https://bot.example', components: ['@authority', signature-agent]", "'https://a.example'"},
		{"a member of the agent that is covered", "agent: 'https://bot.example', components: ['@authority', 'signature-agent;key=\"sig1\"']", "'https://a.example'"},
	} {
		t.Run(row.name, func(t *testing.T) {
			t.Parallel()
			path := newFolder(t).write("origins.yaml", fmt.Appendf(nil, "providers: {a: {http-signature: {%s, key-files: [%s]}, origins: [%s]}}", row.signature, pem, row.origins))
			if _, err := readOrigins(path, new(origins)); err != nil {
				t.Error(err)
			}
		})
	}
}

// TestKeys makes keys and prints their directory.
func TestKeys(t *testing.T) {
	t.Parallel()
	f := newFolder(t)
	code, first, log := command(t, "keys", "new", f.path("keys"))
	if code != 0 || !strings.Contains(log, "key-files") {
		t.Fatal(code, first, log)
	}
	code, second, log := command(t, "keys", "new", "--algorithm", "ecdsa-p256-sha256", "--starts-after", "24h", "--valid-for", "48h", f.path("keys"))
	if code != 0 {
		t.Fatal(code, second, log)
	}
	must(t, os.Mkdir(f.path("other"), 0o700))
	code, set, log := command(t, "keys", "directory", f.path("keys"))
	if code != 0 || !strings.Contains(log, httpsig.DirectoryPath) {
		t.Fatal(code, set, log)
	}
	for _, printed := range []string{first, second} {
		lines := strings.Split(printed, "\n")
		raw, err := os.ReadFile(lines[0])
		must(t, err)
		info, err := os.Stat(lines[0])
		must(t, err)
		k, err := httpsig.ParseKey(raw)
		must(t, err)
		var j struct{ D string }
		must(t, json.Unmarshal(raw, &j))
		if len(lines) != 3 || k.ID != lines[1] || info.Mode().Perm() != 0o600 || !strings.Contains(set, `"kid":"`+k.ID+`"`) || strings.Contains(set+printed+log, j.D) {
			t.Errorf("%q %v %s", lines, info.Mode(), set)
		}
	}
	for _, args := range [][]string{{"new", "--algorithm", "rsa", f.path("keys")}, {"new", "--valid-for", "-1h", f.path("keys")}, {"new", "--starts-after", "2h", "--valid-for", "1h", f.path("keys")},
		{"new", f.write("file", nil)}, {"new", "--valid-for", "12h", f.path("keys")}, {"new", filepath.Dir(f.write("other/text", []byte("x")))}, {"directory", f.path("nowhere")}, {"directory", f.write("bad", []byte("x"))}} {
		if code, out, log := command(t, append([]string{"keys"}, args...)...); code != 2 || out != "" || log == "" {
			t.Errorf("%q: %d %s %s", args, code, out, log)
		}
	}
}

// TestKeyStart checks when a new key starts to sign. By default it is after verifiers know it, and not after
// the other keys of the folder end.
func TestKeyStart(t *testing.T) {
	t.Parallel()
	const before = -time.Hour
	for _, row := range []struct {
		name  string
		ends  []time.Duration // of the keys in the folder; 0: never
		args  []string
		start time.Duration
	}{
		{"the first key", nil, nil, 0},
		{"the first key, for later", nil, []string{"--starts-after", "2h"}, 2 * time.Hour},
		{"a second key", []time.Duration{0}, nil, 24 * time.Hour},
		{"a second key, at once", []time.Duration{0}, []string{"--starts-after", "0s"}, 0},
		{"a second key, for later", []time.Duration{0}, []string{"--starts-after", "48h"}, 48 * time.Hour},
		{"a third key", []time.Duration{time.Hour, 0}, nil, 24 * time.Hour},
		{"the other key ends soon", []time.Duration{time.Hour}, nil, time.Hour},
		{"both other keys end soon", []time.Duration{2 * time.Hour, time.Hour}, nil, 2 * time.Hour},
		{"the other key ends late", []time.Duration{48 * time.Hour}, nil, 24 * time.Hour},
		{"the other key has ended", []time.Duration{before}, nil, 0},
		{"one has ended, one ends soon", []time.Duration{before, time.Hour}, nil, time.Hour},
	} {
		t.Run(row.name, func(t *testing.T) {
			t.Parallel()
			f := newFolder(t)
			must(t, os.Mkdir(f.path("keys"), 0o700))
			now := time.Now()
			for i, d := range row.ends {
				k, err := httpsig.NewKey(httpsig.Ed25519)
				must(t, err)
				if d != 0 {
					k.NotAfter = now.Add(d)
				}
				raw, err := k.JWK()
				must(t, err)
				f.write(fmt.Sprintf("keys/%d", i), raw)
			}
			code, printed, log := command(t, append([]string{"keys", "new", f.path("keys")}, row.args...)...)
			if code != 0 || strings.Contains(log, "It signs from") != (row.start > 0) {
				t.Fatal(code, printed, log)
			}
			raw, err := os.ReadFile(strings.Split(printed, "\n")[0])
			must(t, err)
			k, err := httpsig.ParseKey(raw)
			must(t, err)
			if late := k.NotBefore.Sub(now.Add(row.start)); late < -2*time.Second || late > time.Minute {
				t.Errorf("it signs from %s on, %s too late", k.NotBefore, late)
			}
			files, err := os.ReadDir(f.path("keys"))
			must(t, err)
			if len(files) != len(row.ends)+1 {
				t.Errorf("the folder has %v", files)
			}
		})
	}
}

// pagesOfSigning returns the two files of origins in docs/signing.md, with keys in f.
func pagesOfSigning(f *folder) (files []string) {
	page, err := os.ReadFile("../../docs/signing.md")
	must(f, err)
	f.write("aws-credentials", []byte("[default]\naws_access_key_id=A\naws_secret_access_key=hush\n"))
	for _, name := range []string{"standard-webhooks", "github", "slack", "stripe"} {
		f.write(name+"-key", []byte("whsec_aHVzaC1rZXktb2Ytd2ViaG9va3M="))
	}
	for i, block := range regexp.MustCompile("(?s)```yaml\nproviders:\n.*?```").FindAllString(string(page), 2) {
		text := strings.TrimSuffix(strings.TrimPrefix(block, "```yaml\n"), "```")
		name := fmt.Sprintf("page%d.yaml", i)
		files = append(files, f.write(name, []byte(strings.ReplaceAll(text, "/etc/fetchd/", f.dir+"/"))))
	}
	return files
}

// TestSigV4Variables checks that credentials come from the variables that the operator names, and from no others.
func TestSigV4Variables(t *testing.T) {
	for _, name := range []string{"AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "API_ID", "API_SECRET", "API_TOKEN"} {
		t.Setenv(name, "hush-"+name)
	}
	t.Setenv("API_EMPTY", "")
	t.Setenv("API_KEY_ID", "id")
	for i, file := range pagesOfSigning(newFolder(t)) {
		if o, err := readOrigins(file, new(origins)); err != nil || len(o.providers) < 2 {
			t.Errorf("block %d of docs/signing.md: %v", i+1, err)
		}
	}
	for _, row := range []struct{ name, keys, fault string }{
		{"named", "access-key-id-env: API_ID, secret-access-key-env: API_SECRET, session-token-env: API_TOKEN", ""},
		{"those of the SDK, not named", "", "credentials-file: is missing"},
		{"no secret", "access-key-id-env: API_ID", "no secret access key"},
		{"an empty one", "access-key-id-env: API_ID, secret-access-key-env: API_EMPTY", "API_EMPTY is empty or not set"},
		{"one that is not set", "access-key-id-env: API_NONE, secret-access-key-env: API_SECRET", "API_NONE is empty or not set"},
		{"a file too", "access-key-id-env: API_ID, secret-access-key-env: API_SECRET, credentials-file: /etc/x", "credentials file"},
		{"a profile too", "access-key-id-env: API_ID, secret-access-key-env: API_SECRET, profile: x", "only with a file"},
	} {
		t.Run(row.name, func(t *testing.T) {
			file := newFolder(t).write("origins.yaml", []byte("providers: {api: {origins: ['https://api.example'], aws-sigv4: {region: r, service: s, "+row.keys+"}}}"))
			o, err := readOrigins(file, new(origins))
			if (err == nil) != (row.fault == "") || !strings.Contains(fmt.Sprint(err), row.fault) || strings.Contains(fmt.Sprint(err), "hush") {
				t.Errorf("%v, want an error with %q and without a secret", err, row.fault)
			}
			if text := fmt.Sprintf("%+v", o); row.fault == "" && strings.Contains(text, "hush") {
				t.Errorf("a secret is in %s", text)
			}
		})
	}
}
