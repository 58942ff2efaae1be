package main

import (
	"fmt"
	"net/netip"
	"net/url"
	"slices"
	"strings"
	"testing"

	"fetchd/conformance/origin"
	pb "fetchd/gen/fetchd/v1"
	"fetchd/test/rig"
	"fetchd/test/signatures"
)

// challenged are providers that sign if an origin asks.
const challenged = `
providers:
  asked:
    origins: ORIGINS
    http-signature: {key-files: [DIR/key], on-challenge: [401], accept-components: ["@target-uri", x-own], accept-tags: [orders]}
  asked-403:
    origins: ALL
    http-signature: {key-files: [DIR/key], on-challenge: [401, 403], accept-components: ["@target-uri", x-own], accept-tags: [orders]}
`

// TestChallenge has origins ask for signatures (A8). The origin's log decides which requests were signed, and
// that each signature is what was asked for.
func TestChallenge(t *testing.T) {
	t.Parallel()
	o := rig.Origin(t)
	keys, err := signatures.Keys()
	must(t, err)
	f := newFolder(t)
	f.write("key", []byte(signatures.PEMEd25519))
	args := []string{"--egress-allow-cidr", "127.0.0.0/8", "--egress-ca-file", f.write("ca.pem", o.CAPEM())}
	var own []string
	for _, name := range []string{"http", "https", "http-other"} {
		args = append(args, "--egress-allow-port", fmt.Sprint(netip.MustParseAddrPort(o.Addr(name)).Port()))
		own = append(own, strings.TrimSuffix(o.URL(name, "/"), "/"))
	}
	text := strings.NewReplacer("DIR", f.dir, "ORIGINS", "["+strings.Join(own[:2], ", ")+"]", "ALL", "["+strings.Join(own, ", ")+"]").Replace(challenged)
	s := start(t, append(args, "--origins-file", f.write("origins.yaml", []byte(text)))...)
	c := s.dial(nil)
	// asks is a status whose response asks for a signature.
	asks := func(status int, accept string) string {
		return fmt.Sprintf("%d:header=Accept-Signature%%3D%s", status, escape(accept))
	}
	const (
		path   = `you=("@authority" "@path");created;nonce="n0nce"`
		digest = `d=("@target-uri" "content-digest");tag="orders"`
		cookie = `you=("@authority" "cookie")`
		lacked = `you=("@authority" "x-own")`
	)
	type rows = []struct {
		name, provider, script string
		change                 func(*pb.FetchRequest)
		inputs                 []string // how the signature of each request in order begins; empty: it has none
		rule, class            string   // of the outcome
		ignored                string   // of the log
	}
	for _, row := range (rows{
		{name: "a-401", provider: "asked", script: asks(401, path) + "/200", inputs: []string{"", `("@authority" "@path");created=`}, rule: "H0"},
		{name: "a-nonce", provider: "asked", script: asks(401, path) + "/503/200", inputs: []string{"", `("@authority" "@path");created=`, `("@authority" "@path");created=`}, rule: "H0"},
		{name: "a-403-allowed", provider: "asked-403", script: asks(403, path) + "/200", inputs: []string{"", `("@authority" "@path");created=`}, rule: "H0"},
		{name: "a-403", provider: "asked", script: asks(403, path) + "/200", inputs: []string{""}, rule: "H4", class: "FORBIDDEN"},
		{name: "a-403-twice", provider: "asked-403", script: asks(403, path), inputs: []string{"", `("@authority" "@path")`}, rule: "H4", class: "FORBIDDEN"},
		{name: "a-403-to-a-post", provider: "asked-403", script: asks(403, path) + "/200", change: withBody("POST"), inputs: []string{""}, rule: "H4", class: "FORBIDDEN"},
		{name: "a-401-to-a-post", provider: "asked-403", script: asks(401, digest) + "/200", change: withBody("POST"), inputs: []string{"", `("@target-uri" "content-digest");`}, rule: "H0"},
		{name: "a-401-twice", provider: "asked", script: asks(401, path), inputs: []string{"", `("@authority" "@path")`}, rule: "A2", class: "AUTH_REQUIRED"},
		{name: "a-401-that-asks-for-nothing", provider: "asked", script: "401", inputs: []string{""}, rule: "H3", class: "AUTH_REQUIRED"},
		{name: "a-403-that-asks-for-nothing", provider: "asked-403", script: "403", inputs: []string{""}, rule: "H4", class: "FORBIDDEN"},
		{name: "a-429", provider: "asked", script: asks(429, path) + "/200", inputs: []string{"", `("@authority" "@path")`}, rule: "H0"},
		{name: "a-503", provider: "asked", script: asks(503, path) + "/200", inputs: []string{"", ""}, rule: "H0"},
		{name: "a-200", provider: "asked", script: asks(200, path), inputs: []string{""}, rule: "H0"},
		{name: "no-attempt-left", provider: "asked", script: asks(401, path), inputs: []string{""}, rule: "I4", class: "AUTH_REQUIRED",
			change: func(in *pb.FetchRequest) { in.RetryPolicy = &pb.RetryPolicy{MaxAttempts: new(int32(1))} }},
		{name: "a-component-that-is-not-configured", provider: "asked", script: asks(401, cookie), inputs: []string{""}, rule: "H3", class: "AUTH_REQUIRED", ignored: `you: component \"cookie\" is none of components, optional and accept-components`},
		{name: "the-second-of-two", provider: "asked", script: asks(401, cookie+", "+digest) + "/200", inputs: []string{"", `("@target-uri" "content-digest")`}, rule: "H0", ignored: "you: component"},
		{name: "a-field-that-the-request-lacks", provider: "asked", script: asks(401, lacked), inputs: []string{""}, rule: "H3", class: "AUTH_REQUIRED", ignored: `you: cannot sign \"x-own\": the request does not have it`},
		{name: "a-403-for-a-field-that-the-request-lacks", provider: "asked-403", script: asks(403, lacked), inputs: []string{""}, rule: "H4", class: "FORBIDDEN", ignored: `you: cannot sign \"x-own\": the request does not have it`},
		{name: "a-429-for-a-field-that-the-request-lacks", provider: "asked", script: asks(429, lacked) + "/200", inputs: []string{"", ""}, rule: "H0", ignored: `you: cannot sign \"x-own\": the request does not have it`},
		{name: "the-second-lacks-nothing", provider: "asked", script: asks(401, lacked+", "+digest) + "/200", inputs: []string{"", `("@target-uri" "content-digest")`}, rule: "H0", ignored: `you: cannot sign \"x-own\": the request does not have it`},
		{name: "a-field-that-the-request-has", provider: "asked", script: asks(401, lacked) + "/200", inputs: []string{"", `("@authority" "x-own")`}, rule: "H0",
			change: func(in *pb.FetchRequest) { in.Headers = []*pb.Header{{Name: "X-Own", Value: "1"}} }},
		{name: "another-key", provider: "asked", script: asks(401, `you=("@authority");keyid="other"`), inputs: []string{""}, rule: "H3", class: "AUTH_REQUIRED", ignored: `keyid \"other\" is that of no key in key-files`},
		{name: "another-tag", provider: "asked", script: asks(401, `you=("@authority");tag="payment"`), inputs: []string{""}, rule: "H3", class: "AUTH_REQUIRED", ignored: `tag \"payment\" is none of tag and accept-tags`},
		{name: "not-the-authority", provider: "asked", script: asks(401, `you=("@path")`), inputs: []string{""}, rule: "H3", class: "AUTH_REQUIRED", ignored: "covers neither"},
		{name: "no-structured-field", provider: "asked", script: asks(401, `you=(`), inputs: []string{""}, rule: "H3", class: "AUTH_REQUIRED", ignored: "not a dictionary"},
		{name: "a-redirect-within", provider: "asked", script: asks(401, path) + "/302:to=%2Fs%2FKEY%2F200", inputs: []string{"", `("@authority" "@path")`, `("@authority" "@path")`}, rule: "H0"},
		{name: "another-origin-that-does-not-ask", provider: "asked", script: asks(401, path) + "/302:to=OTHER%2Fs%2FKEY%2F200", inputs: []string{"", `("@authority" "@path")`, ""}, rule: "H0"},
		{name: "another-origin-that-is-not-asked-for", provider: "asked-403", script: asks(401, path) + "/302:to=OTHER%2Fs%2FKEY%2F200", inputs: []string{"", `("@authority" "@path")`, ""}, rule: "H0"},
		{name: "another-origin-that-asks", provider: "asked-403", script: asks(401, path) + "/302:to=OTHER" + escape("/s/KEY-2/"+asks(401, digest)+"/200"),
			inputs: []string{"", `("@authority" "@path")`, `("@authority" "@path")`, "", `("@target-uri" "content-digest")`}, rule: "H0"},
		{name: "a-body-that-is-resumed", provider: "asked", script: asks(401, path) + "/200:size=2000,etag=%22x%22,range,cut=1000/200:size=2000,etag=%22x%22,range",
			inputs: []string{"", `("@authority" "@path")`, `("@authority" "@path")`}, rule: "H0"},
	}) {
		for _, listener := range []string{"http", "https"} {
			if listener == "https" && strings.HasPrefix(row.name, "another-origin") {
				continue // a downgrade
			}
			t.Run(row.name+" "+listener, func(t *testing.T) {
				s := s.in(t)
				key := row.name + "-" + listener
				other := escape(strings.TrimSuffix(o.URL("http-other", "/"), "/"))
				in := &pb.FetchRequest{Url: o.URL(listener, "/s/"+key+"/"+strings.NewReplacer("KEY", key, "OTHER", other).Replace(row.script)), AuthProvider: row.provider,
					RetryPolicy: &pb.RetryPolicy{MaxAttempts: new(int32(3))}}
				if row.change != nil {
					row.change(in)
				}
				out := outcomeOf(t, c, in)
				class := strings.TrimPrefix(out.GetError().GetErrorClass().String(), "ERROR_CLASS_")
				if out.GetError() == nil {
					class = ""
				}
				if out.GetDecisionRule() != row.rule || class != row.class {
					t.Errorf("%s %s, want %s %s", out.GetDecisionRule(), class, row.rule, row.class)
				}
				wantInputs(t, append(o.Requests(key), o.Requests(key+"-2")...), row.inputs, in.GetBody(), keys["test-key-ed25519"])
				if row.ignored != "" {
					s.await(row.ignored)
				}
			})
		}
	}
	if text := s.log.String(); strings.Contains(text, "created=") {
		t.Error("the log has a signature")
	}
}

// outcomeOf runs a fetch whose body is streamed without a hold-back.
func outcomeOf(t *testing.T, c pb.FetchServiceClient, in *pb.FetchRequest) *pb.FetchOutcome {
	t.Helper()
	in.BodyPolicy = &pb.BodyPolicy{Delivery: &pb.BodyPolicy_Stream{Stream: &pb.StreamDelivery{MaxHoldBackBytes: new(int64(0))}}}
	events, err := c.Fetch(t.Context(), in)
	must(t, err)
	for {
		m, err := events.Recv()
		must(t, err)
		for _, e := range m.GetEvents() {
			if out := e.GetOutcome(); out != nil {
				return out
			}
		}
	}
}

// wantInputs checks which requests are signed, how, and that the signatures are right.
func wantInputs(t *testing.T, requests []origin.Request, want []string, body []byte, key any) {
	t.Helper()
	var inputs []string
	for _, q := range requests {
		m := rig.Received(&q, body)
		input := ""
		for label, value := range m.Members("signature-input") {
			if label == "" { // there is none
				continue
			}
			input = value
			if err := m.Verify(label, key); err != nil {
				t.Errorf("%v: %q", err, m.Lines)
			}
			if strings.HasPrefix(value, `("@authority" "@path")`) && !strings.Contains(value, `;nonce="n0nce"`) {
				t.Errorf("%s lacks the nonce", value)
			}
		}
		if len(m.Values("signature-input")) != len(m.Values("signature")) {
			t.Errorf("%q", m.Lines)
		}
		inputs = append(inputs, input)
	}
	if !slices.EqualFunc(inputs, want, func(input, start string) bool { return strings.HasPrefix(input, start) && (start != "" || input == "") }) {
		t.Errorf("%q, want %q", inputs, want)
	}
}

// escape escapes a parameter of a script.
func escape(text string) string { return strings.ReplaceAll(url.QueryEscape(text), "+", "%20") }
