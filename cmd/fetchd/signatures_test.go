package main

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc/codes"

	"fetchd/conformance/origin"
	"fetchd/fetch/auth/httpsig"
	pb "fetchd/gen/fetchd/v1"
	"fetchd/test/rig"
	"fetchd/test/signatures"
)

// signingProvider is a provider of the tests, and what its signatures are like.
type signingProvider struct {
	name, label, covered, withBody string
	key                            any // that verifies
}

// providers of signatures. ORIGINS are those of the origin, except one, and HTTP is the one in plaintext.
const providers = `
providers:
  bot:
    origins: ["https://*", HTTP]
    http-signature:
      key-files: [DIR/keys]
      profile: web-bot-auth
      agent: https://bot.example
  default:
    origins: ORIGINS
    http-signature: {key-files: [DIR/p256]}
  partner:
    origins: ORIGINS
    http-signature:
      key-files: [DIR/secret]
      key-id: shared
      algorithm: hmac-sha256
      label: us
      tag: orders
      lifetime: 5m
      parameters: [created, expires, keyid, alg, nonce, tag]
      components: ["@method", "@target-uri", "@request-target", "@scheme", "@authority", "@path", "@query", user-agent, accept-encoding, fetchd-hops, content-digest]
      optional: [content-type, content-length, range, cookie, x-two, 'x-dict;key="a"', "x-bytes;bs"]
`

// startSigning starts a service with providers of signatures.
func startSigning(t *testing.T, o *origin.Origin) (*service, []signingProvider) {
	t.Helper()
	keys, err := signatures.Keys()
	must(t, err)
	f := newFolder(t)
	must(t, os.Mkdir(f.path("keys"), 0o700))
	for name, text := range map[string]string{"keys/a.pem": signatures.PEMEd25519, "p256": signatures.JWKP256, "secret": signatures.Base64HMAC} {
		f.write(name, []byte(text))
	}
	var own []string
	args := []string{"--egress-allow-cidr", "127.0.0.0/8", "--egress-ca-file", f.write("ca.pem", o.CAPEM())}
	for _, name := range []string{"http", "https1", "https", "http-other"} {
		args = append(args, "--egress-allow-port", fmt.Sprint(netip.MustParseAddrPort(o.Addr(name)).Port()))
		if name != "http-other" {
			own = append(own, strings.TrimSuffix(o.URL(name, "/"), "/"))
		}
	}
	text := strings.NewReplacer("DIR", f.dir, "ORIGINS", "["+strings.Join(own, ", ")+"]", "HTTP", own[0]).Replace(providers)
	all := `("@method" "@target-uri" "@request-target" "@scheme" "@authority" "@path" "@query" "user-agent" "accept-encoding" "fetchd-hops" "content-digest"`
	return start(t, append(args, "--origins-file", f.write("origins.yaml", []byte(text)))...), []signingProvider{
		{name: "bot", label: "sig1", key: keys["test-key-ed25519"], covered: `("@authority" "signature-agent";key="sig1");created=`},
		{name: "default", label: "sig1", key: keys["test-key-ecc-p256"], covered: `("@method" "@authority" "@path" "@query" "content-digest");created=`},
		{name: "partner", label: "us", key: keys["test-shared-secret"], covered: all,
			withBody: all + ` "content-type" "content-length" "cookie" "x-two" "x-dict";key="a" "x-bytes";bs);created=`},
	}
}

// TestHTTPSignature has origins verify requests over HTTP/1.1 and HTTP/2.
func TestHTTPSignature(t *testing.T) {
	t.Parallel()
	o := rig.Origin(t)
	s, signers := startSigning(t, o)
	c := s.dial(nil)
	other := strings.NewReplacer(":", "%3A", "/", "%2F").Replace(strings.TrimSuffix(o.URL("http-other", "/"), "/"))
	two := int32(2)
	for _, p := range signers {
		for _, row := range []struct {
			name, script string
			change       func(*pb.FetchRequest)
			signed       []bool // of the requests in order
		}{
			{"a-get", "200?a=1&b=%20", nil, []bool{true}},
			{"a-post", "200", withBody("POST"), []bool{true}},
			{"a-put", "200", withBody("PUT"), []bool{true}},
			{"a-retry", "503/200", func(in *pb.FetchRequest) { in.RetryPolicy = &pb.RetryPolicy{MaxAttempts: &two} }, []bool{true, true}},
			{"a-redirect-within", "302:to=%2Fs%2FKEY%2F200", nil, []bool{true, true}},
			{"a-redirect-elsewhere", "302:to=OTHER%2Fs%2FKEY%2F200", nil, []bool{true, false}},
		} {
			for listener, protocol := range map[string]string{"http": "HTTP/1.1", "https1": "HTTP/1.1", "https": "HTTP/2.0"} {
				if row.name == "a-redirect-elsewhere" && listener != "http" {
					continue // a downgrade is refused
				}
				if row.name == "a-post" {
					protocol = "HTTP/1.1" // it is sent on a separate connection
				}
				t.Run(p.name+" "+row.name+" "+listener, func(t *testing.T) {
					t.Parallel()
					key := p.name + "-" + row.name + "-" + listener
					in := &pb.FetchRequest{Url: o.URL(listener, "/s/"+key+"/"+strings.NewReplacer("KEY", key, "OTHER", other).Replace(row.script)), AuthProvider: p.name}
					if row.change != nil {
						row.change(in)
					}
					out, err := c.FetchUnary(t.Context(), in)
					if err != nil || out.GetOutcome().GetError() != nil {
						t.Fatal(err, out.GetOutcome().GetError())
					}
					var signed []bool
					inputs := make(map[string]bool)
					for _, q := range o.Requests(key) {
						input := p.verify(t, rig.Received(&q, in.GetBody()))
						signed, inputs[input] = append(signed, input != ""), true
						if q.Protocol != protocol {
							t.Errorf("over %s, want %s", q.Protocol, protocol)
						}
					}
					if !slices.Equal(signed, row.signed) || len(inputs) != len(signed) {
						t.Errorf("signed: %t, want %t; %d different", signed, row.signed, len(inputs))
					}
				})
			}
		}
	}
	t.Cleanup(func() {
		if strings.Contains(s.log.String(), "created=") {
			t.Error("a signature is logged")
		}
	})
}

// verify verifies a request, and that its signature is of no use for another one. It returns its
// parameters, which are empty if it has no signature.
func (p *signingProvider) verify(t *testing.T, m *signatures.Message) string {
	t.Helper()
	input := m.Members("signature-input")[p.label]
	if input == "" {
		if len(m.Values("signature"))+len(m.Values("signature-agent"))+len(m.Values("content-digest")) > 0 {
			t.Errorf("fields of a signature without it: %q", m.Lines)
		}
		return ""
	}
	if err := m.Verify(p.label, p.key); err != nil {
		t.Errorf("%v: %q", err, m.Lines)
	}
	if want := p.covered; !strings.HasPrefix(input, want) || len(m.Body) > 0 && !strings.HasPrefix(input, p.withBody) {
		t.Errorf("it covers %s, want %s, or %s", input, want, p.withBody)
	}
	_, text, _ := strings.Cut(input, ";created=")
	var created int64
	if _, err := fmt.Sscan(strings.Split(text, ";")[0], &created); err != nil || time.Since(time.Unix(created, 0)).Abs() > time.Minute {
		t.Errorf("created %d, %v", created, err)
	}
	m.Authority = "evil.example"
	if m.Verify(p.label, p.key) == nil {
		t.Error("it is of use at another origin")
	}
	return input
}

// TestHTTPSignatureOfCaller checks that callers cannot send fields that a provider adds.
func TestHTTPSignatureOfCaller(t *testing.T) {
	t.Parallel()
	o := rig.Origin(t)
	s, _ := startSigning(t, o)
	c := s.dial(nil)
	for _, name := range []string{"Signature", "signature-input", "Signature-Agent"} {
		_, err := c.FetchUnary(t.Context(), &pb.FetchRequest{Url: o.URL("http", "/s/own/200"), AuthProvider: "bot", Headers: []*pb.Header{{Name: name, Value: "x"}}})
		if codeOf(err) != codes.InvalidArgument || len(o.Requests("own")) > 0 {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// withBody returns a change that gives a request a body and many fields.
func withBody(method string) func(*pb.FetchRequest) {
	return func(in *pb.FetchRequest) {
		in.Method, in.Body = method, []byte("some body")
		in.Headers = []*pb.Header{{Name: "Content-Type", Value: "text/plain"}, {Name: "X-Two", Value: "one"}, {Name: "X-Two", Value: "two"},
			{Name: "X-Dict", Value: "b, a=(1   2);c"}, {Name: "X-Bytes", Value: "\xc3\xbc"}, {Name: "Cookie", Value: "a=b"}}
	}
}

// TestKeyRotation adds and removes keys while the service runs, and reads the directory.
func TestKeyRotation(t *testing.T) {
	t.Parallel()
	o, f := rig.Origin(t), newFolder(t)
	must(t, os.Mkdir(f.path("keys"), 0o700))
	file := f.write("origins.yaml", nil)
	s := start(t, "--origins-file", file, "--egress-allow-cidr", "127.0.0.0/8", "--egress-allow-port", fmt.Sprint(netip.MustParseAddrPort(o.Addr("http")).Port()))
	c := s.dial(nil)
	made := func(change func(*httpsig.Key)) (id string, raw []byte) {
		k, err := httpsig.NewKey(httpsig.Ed25519)
		must(t, err)
		change(k)
		raw, err = k.JWK()
		must(t, err)
		return k.ID, raw
	}
	now := time.Now()
	oldest, first := made(func(*httpsig.Key) {})
	newest, second := made(func(k *httpsig.Key) { k.NotBefore = now.Add(-time.Minute) })
	next, third := made(func(k *httpsig.Key) { k.NotBefore = now.Add(time.Hour) })
	_, over := made(func(k *httpsig.Key) { k.NotAfter = now.Add(-time.Minute) })
	for _, row := range []struct {
		name   string
		change func(*folder)
		log    string
		signs  string
		listed []string // nil: there is no directory
	}{
		{name: "no profile", change: func(f *folder) { f.write("x", nil) }},
		{name: "one key", change: func(f *folder) {
			f.write("keys/z", first)
			f.write("origins.yaml", fmt.Appendf(nil, "providers: {bot: {origins: ['%s'], http-signature: {key-files: [%s], profile: web-bot-auth, agent: 'https://bot.example'}}}",
				strings.TrimSuffix(o.URL("http", "/"), "/"), f.path("keys")))
		}, log: `["origins-file"]`, signs: oldest, listed: []string{oldest}},
		{name: "a newer key", change: func(f *folder) { f.write("keys/a", second) }, log: `["origins-file"]`, signs: newest, listed: []string{newest, oldest}},
		{name: "a key for later", change: func(f *folder) { f.write("keys/b", third) }, log: `["origins-file"]`, signs: newest, listed: []string{newest, next, oldest}},
		{name: "a key that is over", change: func(f *folder) { f.write("keys/c", over) }, log: `["origins-file"]`, signs: newest, listed: []string{newest, next, oldest}},
		{name: "half a key", change: func(f *folder) { f.write("keys/d", first[:20]) }, log: "not reloaded", signs: newest, listed: []string{newest, next, oldest}},
		{name: "hidden files and folders", change: func(f *folder) {
			must(f, os.Remove(f.path("keys/d")))
			f.write("keys/.hidden", []byte("x"))
			must(f, os.Mkdir(f.path("keys/folder"), 0o700))
		}, signs: newest, listed: []string{newest, next, oldest}},
		{name: "without the oldest", change: func(f *folder) { must(f, os.Remove(f.path("keys/z"))) }, log: `["origins-file"]`, signs: newest, listed: []string{newest, next}},
		{name: "no provider", change: func(f *folder) { f.write("origins.yaml", nil) }, log: `["origins-file"]`},
	} {
		t.Run(row.name, func(t *testing.T) {
			s, f := s.in(t), f.in(t)
			row.change(f)
			s.look <- time.Time{}
			if row.log != "" {
				s.await(row.log)
			} else {
				s.reload(`"changed":[]`) // a signal always logs a line; the look has ended by then
			}
			key := strings.ReplaceAll(row.name, " ", "-")
			if row.signs != "" {
				out, err := c.FetchUnary(t.Context(), &pb.FetchRequest{Url: o.URL("http", "/s/"+key+"/200"), AuthProvider: "bot"})
				if err != nil || out.GetOutcome().GetError() != nil {
					t.Fatal(err, out.GetOutcome().GetError())
				}
				if got := o.Requests(key)[0].Header.Get("Signature-Input"); !strings.Contains(got, `keyid="`+row.signs+`"`) {
					t.Errorf("%s, want the key %s", got, row.signs)
				}
			}
			code, header, body := directory(t, s.http, "bot.example")
			if row.listed == nil {
				if code != http.StatusNotFound || header.Get("Signature") != "" {
					t.Errorf("%d %s", code, body)
				}
				return
			}
			var set struct {
				Keys []struct{ Kid string }
			}
			must(t, json.Unmarshal(body, &set))
			var listed []string
			for _, k := range set.Keys {
				listed = append(listed, k.Kid)
			}
			if !slices.Equal(listed, row.listed) || strings.Count(header.Get("Signature"), "binding") != len(listed) {
				t.Errorf("%q, want %q; %v", listed, row.listed, header)
			}
		})
	}
}

// directory reads the directory of keys under a host.
func directory(t *testing.T, address, host string) (int, http.Header, []byte) {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://"+address+httpsig.DirectoryPath, nil)
	must(t, err)
	req.Host = host
	resp, err := (&http.Transport{DisableKeepAlives: true}).RoundTrip(req)
	must(t, err)
	defer func() { _ = resp.Body.Close() }()
	raw, err := io.ReadAll(resp.Body)
	must(t, err)
	return resp.StatusCode, resp.Header, raw
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
		{"an unknown component", "{components: ['@status'], key-files: [" + pem + "]}", `components: component "@status": is unknown: give`},
		{"a misspelt component", "{components: ['@methd'], key-files: [" + pem + "]}", `components: component "@methd": is unknown`},
		{"a component with wrong parameters", "{components: ['x-dict;key='], key-files: [" + pem + "]}", `components: component "x-dict;key=": is not a name`},
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
