package peers

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"google.golang.org/protobuf/types/known/durationpb"

	"fetchd/client"
	"fetchd/conformance/origin"
	"fetchd/fetch/auth/httpsig"
	pb "fetchd/gen/fetchd/v1"
	"fetchd/test/must"
	"fetchd/test/need"
	"fetchd/test/rig"
)

func TestMain(m *testing.M) { rig.Main(m, "fetchd") }

// The verifiers. The first two have a common ancestor: web-bot-auth uses http-message-sig, which is a fork of
// http-message-signatures. The third shares no code with them, not even the parser of structured fields, and it
// compares Content-Digest with the body.
const (
	webBotAuth        = "web-bot-auth"
	messageSignatures = "http-message-signatures"
	helloHTTPSig      = "@hellocoop/httpsig"
)

// limits are what a verifier cannot do in the version of package-lock.json, and why. A limit that is gone fails the test.
var limits = []struct {
	verifier, what, why string
	accepts             bool // a changed byte; otherwise it refuses what is right
}{
	{webBotAuth, "body", "it is not given the body: comparing Content-Digest is left to its caller", true},
	{messageSignatures, "body", "it is not given the body: comparing Content-Digest is left to its caller", true},
	{webBotAuth, "dictionary", "it knows Signature-Agent as a string only, as in older drafts", false},
	{helloHTTPSig, "http", "it takes each request for one of https, so that @target-uri is another", false},
}

// theProviders are the providers of the origins file. Each signs for all origins of the test. The signatures are
// valid until they are verified, at the end.
const theProviders = `
providers:
  bot:
    origins: ORIGINS
    http-signature:
      key-files: [DIR/ed25519]
      profile: web-bot-auth
      agent: https://bot.example
      agent-form: string
      lifetime: 5m
      components: ["@authority", "@method", "@target-uri", content-digest]
      optional: [content-type, range, signature-key]
  dictionary:
    origins: ORIGINS
    http-signature: {key-files: [DIR/ed25519], profile: web-bot-auth, agent: "https://bot.example", lifetime: 5m}
  partner:
    origins: ORIGINS
    http-signature:
      key-files: [DIR/p256]
      lifetime: 5m
      components: ["@method", "@authority", "@path", "@target-uri", "@request-target", user-agent, accept-encoding, fetchd-hops, content-digest]
      optional: [content-type, content-length, range, if-range, signature-key]
  shared:
    origins: ORIGINS
    http-signature:
      key-files: [DIR/secret]
      lifetime: 5m
      key-id: shared
      label: us
      tag: orders
      parameters: [created, expires, keyid, alg, nonce, tag]
      components: ["@method", "@authority", "@scheme", "@path", "@query", "@target-uri", fetchd-hops, content-digest]
      optional: [content-type, content-length, range, cookie, x-two, 'x-dict;key="a"', "x-bytes;bs"]
`

// signedBy is a provider, and who verifies what it signs.
type signedBy struct {
	provider, algorithm string
	key                 map[string]string // a JWK
	ask                 []string
}

// toVerify is a request for verify.mjs.
type toVerify struct {
	ID        string            `json:"id"`
	Method    string            `json:"method"`
	URL       string            `json:"url"`
	Fields    [][2]string       `json:"fields"`
	Body      []byte            `json:"body"`
	Key       map[string]string `json:"key"`
	Algorithm string            `json:"algorithm"`
	Ask       []string          `json:"ask"`

	what []string // the conditions and the change, as in limits
}

// value returns the first value of a field. It is empty if there is none.
func (v *toVerify) value(name string) *string {
	i := slices.IndexFunc(v.Fields, func(f [2]string) bool { return strings.EqualFold(f[0], name) })
	if i < 0 {
		return new(string)
	}
	return &v.Fields[i][1]
}

// set changes the first value of a field.
func (v *toVerify) set(name string, change func(string) string) {
	value := v.value(name)
	*value = change(*value)
}

// get returns the first value of a field.
func (v *toVerify) get(name string) string { return *v.value(name) }

// flip changes the last letter or digit of a text.
func flip(text string) string {
	at := strings.LastIndexFunc(text, func(r rune) bool { return r >= '0' && r <= '9' || r >= 'A' && r <= 'Z' || r >= 'a' && r <= 'z' })
	return text[:at] + string(after(text[at])) + text[at+1:]
}

func after(c byte) byte {
	if strings.IndexByte("9Zz", c) >= 0 {
		return 'a'
	}
	return c + 1
}

// flipAfter changes the byte that follows the first occurrence of a text.
func flipAfter(mark string) func(string) string {
	return func(text string) string {
		before, rest, _ := strings.Cut(text, mark)
		return before + mark + string(after(rest[0])) + rest[1:]
	}
}

var covered = regexp.MustCompile(`[( ]"([a-z][a-z-]*)"`)

// changed returns the request with one byte changed, for each byte that a verifier must notice.
func (v *toVerify) changed() []*toVerify {
	var all []*toVerify
	change := func(what string, apply func(*toVerify)) {
		c := *v
		c.Fields, c.what = slices.Clone(v.Fields), append(slices.Clone(v.what), what)
		c.ID += ", changed " + what
		apply(&c)
		all = append(all, &c)
	}
	change("signature", func(c *toVerify) { c.set("Signature", flipAfter("=:")) })
	change("nonce", func(c *toVerify) { c.set("Signature-Input", flipAfter(`nonce="`)) })
	change("authority", func(c *toVerify) {
		c.URL = strings.Replace(c.URL, "127.0.0.1", "127.0.0.2", 1)
		c.set("Host", func(host string) string { return strings.Replace(host, "127.0.0.1", "127.0.0.2", 1) })
	})
	list, _, _ := strings.Cut(v.get("Signature-Input"), ")")
	if strings.Contains(list, "@target-uri") {
		change("method", func(c *toVerify) { c.Method = flip(c.Method) })
		change("target", func(c *toVerify) { c.URL = flip(c.URL) })
	}
	for _, found := range covered.FindAllStringSubmatch(list, -1) {
		change(found[1], func(c *toVerify) { c.set(found[1], flip) })
	}
	if len(v.Body) > 0 && strings.Contains(list, "content-digest") {
		other := append(slices.Clone(v.Body[:len(v.Body)-1]), 'x')
		sum := sha256.Sum256(other)
		change("body", func(c *toVerify) { c.Body = other })
		change("body and digest", func(c *toVerify) {
			c.Body = other
			c.set("Content-Digest", func(string) string { return "sha-256=:" + base64.StdEncoding.EncodeToString(sum[:]) + ":" })
		})
	}
	return all
}

// asReceived returns a request of the origin's log for the verifiers. What was sent as its body is its body, if the origin
// has received that.
func (s *signedBy) asReceived(t *testing.T, q *origin.Request, sent []byte) *toVerify {
	t.Helper()
	scheme := "https"
	if q.Listener == "http" {
		scheme = "http"
	}
	v := &toVerify{Method: q.Method, URL: scheme + "://" + q.Host + q.Path, Key: s.key, Algorithm: s.algorithm, Ask: s.ask, what: []string{s.provider, q.Listener}}
	if q.Query != "" {
		v.URL += "?" + q.Query
	}
	for _, f := range q.Fields {
		v.Fields = append(v.Fields, [2]string{f.Name, f.Value})
	}
	if v.get("Host") == "" {
		v.Fields = append(v.Fields, [2]string{"Host", q.Host}) // it is :authority over HTTP/2
	}
	if q.BodyBytes > 0 {
		v.Body = sent
	}
	if sum := sha256.Sum256(v.Body); q.BodySHA256 != hex.EncodeToString(sum[:]) {
		t.Errorf("the origin has received %d bytes of a body, want %d", q.BodyBytes, len(v.Body))
	}
	return v
}

// startSigner starts a fetchd that signs with new keys for the listeners of an origin.
func startSigner(ctx context.Context, t *testing.T, o *origin.Origin, listeners []string) (*client.Client, []signedBy) {
	t.Helper()
	dir := t.TempDir()
	write := func(name string, text []byte) string {
		path := filepath.Join(dir, name)
		must.Succeed(t, os.WriteFile(path, text, 0o600))
		return path
	}
	pair := func(algorithm string) map[string]string {
		key, err := httpsig.NewKey(algorithm)
		must.Succeed(t, err)
		raw, err := key.JWK()
		must.Succeed(t, err)
		write(algorithm, raw)
		public := map[string]string{"kid": key.ID}
		var all map[string]any
		must.Succeed(t, json.Unmarshal(raw, &all))
		for _, name := range []string{"kty", "crv", "x", "y"} {
			if value, ok := all[name].(string); ok {
				public[name] = value
			}
		}
		return public
	}
	secret := base64.StdEncoding.EncodeToString([]byte("a secret that the origin has, too"))
	write("secret", []byte(secret))
	edwards, curve, oct := pair(httpsig.Ed25519), pair(httpsig.ECDSAP256), map[string]string{"kty": "oct", "k": secret, "kid": "shared"}
	var origins []string
	for _, name := range listeners {
		origins = append(origins, strings.TrimSuffix(o.URL(name, "/"), "/"))
	}
	text := strings.NewReplacer("DIR/ed25519", filepath.Join(dir, httpsig.Ed25519), "DIR/p256", filepath.Join(dir, httpsig.ECDSAP256), "DIR", dir,
		"ORIGINS", "["+strings.Join(origins, ", ")+"]").Replace(theProviders)
	f := rig.StartFetchd(ctx, t, rig.FetchdOptions{Args: append(rig.Reach(t, listeners, o), "--origins-file", write("origins.yaml", []byte(text)))})
	return client.New(rig.Dial(t, f.GRPC, client.DialOptions()...)), []signedBy{
		{"bot", "ed25519", edwards, []string{webBotAuth, messageSignatures, helloHTTPSig}},
		{"dictionary", "ed25519", edwards, []string{webBotAuth, messageSignatures}},
		{"partner", "ecdsa-p256-sha256", curve, []string{messageSignatures, helloHTTPSig}},
		{"shared", "hmac-sha256", oct, []string{messageSignatures}},
	}
}

// TestVerifiers has packages of others verify what origins received, and refuse it when one byte is changed.
func TestVerifiers(t *testing.T) {
	t.Parallel()
	ctx := rig.Long(t, 2*time.Minute)
	node, program := need.Program(t, "node", "nodejs"), rig.NodeProgram(t, "verify.mjs")
	o := rig.Origin(t)
	listeners := map[string]string{"http": "HTTP/1.1", "https1": "HTTP/1.1", "h2fault": "HTTP/2.0"}
	service, providers := startSigner(ctx, t, o, []string{"http", "https1", "h2fault"})
	const resumable = ":size=1000000,etag=%22v1%22,range"
	var all []*toVerify
	for _, p := range providers {
		for listener, protocol := range listeners {
			for _, row := range []struct {
				name, method, script string
				requests             int
			}{
				{"GET", "GET", "200?a=1", 1},
				{"POST", "POST", "200", 1},
				{"PUT", "PUT", "200", 1},
				{"redirect", "GET", "302:to=%2Fs%2FKEY%2F200", 2},
				{"redirect with the body", "PUT", "307:to=%2Fs%2FKEY%2F200", 2},
				{"redirect to another of the origins", "GET", "302:to=OTHER%2Fs%2FKEY%2F200", 2},
				{"retry", "GET", "503/200", 2},
				{"retry with the body", "PUT", "503/200", 2},
				{"resumed range", "GET", "200" + resumable + ",cut=300000/200" + resumable, 2},
			} {
				name := p.provider + ", " + row.name + ", " + listener
				key := strings.NewReplacer(",", "", " ", "-").Replace(name)
				other := o.URL(map[string]string{"http": "https1", "https1": "h2fault", "h2fault": "https1"}[listener], "")
				script := strings.NewReplacer("KEY", key, "OTHER", strings.NewReplacer(":", "%3A", "/", "%2F").Replace(other)).Replace(row.script)
				in := &pb.FetchRequest{Url: o.URL(listener, "/s/"+key+"/"+script), Method: row.method, AuthProvider: p.provider,
					Headers:     headers(p.key),
					RetryPolicy: &pb.RetryPolicy{BaseDelay: durationpb.New(0)}, RedirectPolicy: &pb.RedirectPolicy{ForwardCredentials: true}}
				if row.method != "GET" {
					in.Body = []byte("a body with some text")
					in.Headers = append(in.Headers, &pb.Header{Name: "Content-Type", Value: "text/plain"})
				}
				if row.method == "POST" { // over HTTP/2 only if it may be repeated
					in.RetryPolicy.IdempotencyKey, in.RetryPolicy.AllowNonIdempotent = key, true
				}
				zero := int64(0) // every byte is delivered, so that the rest must be resumed
				in.BodyPolicy = &pb.BodyPolicy{Delivery: &pb.BodyPolicy_Stream{Stream: &pb.StreamDelivery{MaxHoldBackBytes: &zero}}}
				fetchAll(ctx, t, service, in, name)
				seen := o.Requests(key)
				if len(seen) != row.requests {
					t.Errorf("%s: %d requests, want %d", name, len(seen), row.requests)
				}
				for i, q := range seen {
					v := p.asReceived(t, &q, in.GetBody())
					v.ID = fmt.Sprintf("%s, request %d", name, i+1)
					if q.Listener == listener && q.Protocol != protocol || v.get("Signature") == "" {
						t.Errorf("%s: %s %s, signature %q", v.ID, q.Listener, q.Protocol, v.get("Signature"))
						continue
					}
					if row.name == "resumed range" && i == 1 && v.get("Range") != "bytes=300000-" {
						t.Errorf("%s: range %q", v.ID, v.get("Range"))
					}
					all = append(append(all, v), v.changed()...)
				}
			}
		}
	}
	judge(ctx, t, node, program, all)
}

// headers returns fields of a caller that providers cover. One has the key.
func headers(key map[string]string) []*pb.Header {
	all := []*pb.Header{{Name: "Cookie", Value: "a=b"}, {Name: "X-Two", Value: "one"}, {Name: "X-Two", Value: "two"},
		{Name: "X-Dict", Value: "b, a=(1   2);c"}, {Name: "X-Bytes", Value: `"odd, quotes`}}
	switch {
	case key["crv"] == "Ed25519":
		all = append(all, &pb.Header{Name: "Signature-Key", Value: fmt.Sprintf(`sig1=hwk;kty="OKP";crv="Ed25519";x=%q;alg="Ed25519"`, key["x"])})
	case key["crv"] == "P-256":
		all = append(all, &pb.Header{Name: "Signature-Key", Value: fmt.Sprintf(`sig1=hwk;kty="EC";crv="P-256";x=%q;y=%q;alg="ES256"`, key["x"], key["y"])})
	}
	return all
}

// fetchAll runs a fetch, which must succeed.
func fetchAll(ctx context.Context, t *testing.T, service *client.Client, in *pb.FetchRequest, name string) {
	t.Helper()
	for e, err := range service.Events(ctx, in) {
		if err != nil || e.GetOutcome().GetError() != nil {
			t.Errorf("%s: %v %v", name, err, e.GetOutcome().GetError())
		}
	}
}

// judge runs verify.mjs and compares its verdicts with what each request is.
func judge(ctx context.Context, t *testing.T, node, program string, all []*toVerify) {
	t.Helper()
	var lines bytes.Buffer
	byID := make(map[string]*toVerify)
	asked := 0
	for _, v := range all {
		line, err := json.Marshal(v)
		must.Succeed(t, err)
		lines.Write(append(line, '\n'))
		byID[v.ID] = v
		asked += len(v.Ask)
	}
	cmd := exec.CommandContext(ctx, node, program)
	var said bytes.Buffer
	cmd.Stdin, cmd.Stderr = &lines, &said
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("verify.mjs: %v: %s", err, &said)
	}
	accepted, refused := make(map[string]int), make(map[string]int)
	limited := make([]int, len(limits))
	for line := range strings.Lines(string(out)) {
		var verdict struct{ ID, Verifier, Error string }
		if err := json.Unmarshal([]byte(line), &verdict); err != nil {
			t.Fatalf("%v in %q", err, line)
		}
		v := byID[verdict.ID]
		want, why := !strings.Contains(v.ID, "changed"), ""
		for i, l := range limits {
			if l.verifier == verdict.Verifier && slices.Contains(v.what, l.what) && (l.accepts != want) {
				want, why = l.accepts, l.why
				limited[i]++
			}
		}
		got := verdict.Error == ""
		if got != want {
			t.Errorf("%s: %s accepts it: %t (%s), want %t %s", v.ID, verdict.Verifier, got, verdict.Error, want, why)
		}
		if got {
			accepted[verdict.Verifier]++
		} else {
			refused[verdict.Verifier]++
		}
		asked--
	}
	if asked != 0 || len(byID) != len(all) {
		t.Errorf("%d verdicts are missing; %d ids of %d requests", asked, len(byID), len(all))
	}
	for i, l := range limits {
		if limited[i] == 0 {
			t.Errorf("no request shows the limit of %s: %s", l.verifier, l.what)
		}
		t.Logf("limit: %s, %s: %s (%d requests)", l.verifier, l.what, l.why, limited[i])
	}
	t.Logf("accepted %v, refused %v", accepted, refused)
}
