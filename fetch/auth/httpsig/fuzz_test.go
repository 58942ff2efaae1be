package httpsig_test

import (
	"net/http"
	"net/url"
	"strings"
	"testing"

	"fetchd/fetch/auth/httpsig"
	"fetchd/fetch/signing"
	"fetchd/test/signatures"
)

// FuzzParsers parses components, keys and Accept-Signature. What is chosen is signed as it was
// asked for, and its components are among those that are configured.
func FuzzParsers(f *testing.F) {
	for _, seed := range []string{
		"@authority", `"x-dict";key="a"`, `@query-param;name="a%20b"`, "date;sf;bs;tr", signatures.PEMEd25519, signatures.JWKP256, signatures.Base64HMAC,
		`sig1=("@authority" "content-digest" "@query-param";name="Pet");created;expires;nonce="a+/=";alg="ed25519";keyid="newest";tag="other"`,
		`a=("cookie"), b=("@target-uri" "x-dict";key="a");keyid="old", c;d=:AA==:`, `a=(),a=("@authority");created=?0;x=%"f%c3%bc";y=@1`,
	} {
		f.Add(seed)
	}
	s := asked(f)
	allowed := []string{`"@method"`, `"@authority"`, `"date"`, `"@target-uri"`, `"@path"`, `"@query-param";name="Pet"`, `"content-digest"`, `"x-dict";key="a"`}
	f.Fuzz(func(t *testing.T, text string) {
		if c, err := httpsig.ParseComponent(text); err == nil {
			again, err := httpsig.ParseComponent(c.String())
			if err != nil || again.String() != c.String() {
				t.Errorf("%q: %s becomes %s, %v", text, c, again, err)
			}
		}
		if k, err := httpsig.ParseKey([]byte(text)); err == nil && k.Algorithm == "" {
			t.Error("a key without an algorithm")
		}
		r := get()
		r.Header = http.Header{"Date": {"today"}, "X-Dict": {"a"}}
		choice, ignored, ok := s.Choose([]string{text}, r)
		if len(ignored) > 9 {
			t.Errorf("%d are ignored", len(ignored))
		}
		for _, i := range ignored {
			if len(i.Reason) > 300 || strings.ContainsFunc(i.Reason, func(r rune) bool { return r < ' ' || r > '~' }) {
				t.Errorf("%q: the reason is %q", text, i.Reason)
			}
		}
		if !ok {
			return
		}
		fields, err := s.Sign(r, choice)
		if err != nil {
			t.Fatal(err)
		}
		input := strings.TrimPrefix(value(fields, "Signature-Input"), choice.Label()+"=(")
		list, _, _ := strings.Cut(input, ")")
		for _, id := range allowed {
			list = strings.Replace(list, id, "", 1)
		}
		if strings.Trim(list, " ") != "" {
			t.Errorf("%q: it covers %s", text, input)
		}
		m := sent(r, fields)
		verified := false
		for _, name := range []string{"test-key-ed25519", "test-key-ecc-p256", "test-shared-secret"} {
			verified = verified || m.Verify(choice.Label(), keys(t)[name]) == nil
		}
		if !verified {
			t.Errorf("%q: the signature is wrong: %v", text, fields)
		}
	})
}

// FuzzSign compares what is signed with what the verifier of the tests reads of the message.
func FuzzSign(f *testing.F) {
	f.Add("/foo?Pet=dog&a=%C3%BC+~*", "example.com:443", "a=1,   b=(c  d);e", "two", []byte("body"))
	f.Add("", "EXAMPLE.com", "", " \t", []byte(nil))
	f.Add("/?&=&Pet", "[::1]:8080", `Pet="a, b", x`, "\xff", []byte{0})
	all := components(f, "@method", "@authority", "@scheme", "@path", "@query", "@target-uri", "@request-target", "content-digest", "x", "x;bs")
	optional := components(f, "y")
	k := key(f, signatures.PEMEd25519)
	f.Fuzz(func(t *testing.T, target, authority, x, y string, body []byte) {
		if !strings.HasPrefix(target, "/") || strings.Contains(target, "#") {
			return // no request has such a target
		}
		r := &signing.Message{Method: "PUT", URL: &url.URL{Scheme: "https"}, Authority: authority, Target: target, Header: http.Header{"X": {x, y}, "Y": {y}}, Body: body}
		fields, err := signer(t, httpsig.Config{Keys: []*httpsig.Key{k}, Components: all, Optional: optional}).Sign(r, httpsig.Choice{})
		if err != nil {
			return
		}
		if err := sent(r, fields).Verify("sig1", keys(t)["test-key-ed25519"]); err != nil {
			t.Error(err)
		}
	})
}
