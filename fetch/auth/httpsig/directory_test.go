package httpsig_test

import (
	"encoding/json"
	"net/url"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"fetchd/fetch/auth/httpsig"
	"fetchd/fetch/signing"
	"fetchd/test/must"
	"fetchd/test/signatures"
)

// TestDirectory makes the signed directory of the draft again, byte for byte.
func TestDirectory(t *testing.T) {
	t.Parallel()
	m := received(t, "directory.http")
	made := time.Unix(1735689600, 0)
	all := []*httpsig.Key{key(t, signatures.JWKEd25519), key(t, signatures.PEMEd25519)} // twice the same
	body, err := httpsig.Directory(all, made)
	if err != nil || string(body) != string(m.Body) {
		t.Fatalf("%v %s, want %s", err, body, m.Body)
	}
	fields, err := httpsig.SignDirectory(all, body, "signature-agent.test", made, time.Unix(4889289600, 0).Sub(made))
	want := []signing.Field{{Name: "Content-Digest", Value: m.Values("content-digest")[0]},
		{Name: "Signature-Input", Value: "binding0=" + m.Members("signature-input")["binding"]}, {Name: "Signature", Value: "binding0=" + m.Members("signature")["binding"]}}
	if diff := cmp.Diff(want, fields); err != nil || diff != "" {
		t.Error(err, diff)
	}
}

// TestDirectoryOfManyKeys checks which keys are listed, and that each signs.
func TestDirectoryOfManyKeys(t *testing.T) {
	t.Parallel()
	old, next, over := key(t, signatures.JWKP256), key(t, signatures.JWKEd25519), key(t, signatures.JWKEd25519)
	old.NotAfter, next.NotBefore, over.NotAfter = now.Add(time.Hour), now.Add(time.Minute), now
	all := []*httpsig.Key{over, old, key(t, signatures.Base64HMAC), next}
	body, err := httpsig.Directory(all, now)
	if err != nil || !noKeys(string(body)) {
		t.Fatal(err, string(body))
	}
	var got any
	must.Succeed(t, json.Unmarshal(body, &got))
	want := map[string]any{"keys": []any{
		map[string]any{"kty": "EC", "crv": "P-256", "kid": "ydQXMtvbsOsZyFir-Y7A8t7fKEM1gbKPvyFkdpu4fvI", "use": "sig", "exp": 1618888073.0,
			"x": "qIVYZVLCrPZHGHjP17CTW0_-D9Lfw0EkjqF7xB4FivA", "y": "Mc4nN9LTDOBhfoUeg8Ye9WedFRhnZXZJA12Qp0zZ6F0"},
		map[string]any{"kty": "OKP", "crv": "Ed25519", "kid": "poqkLGiymh_W0uP6PZFw-dvez3QJT5SolqXBCW38r0U", "use": "sig", "nbf": 1618884533.0,
			"x": "JrQLj5P_89iXES9-vFgrIy29clF9CC_oPPsw3c5D0bs"},
	}}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
	fields, err := httpsig.SignDirectory(all, body, "bot.example:443", now, time.Hour)
	must.Succeed(t, err)
	for authority, valid := range map[string]bool{"bot.example": true, "evil.example": false} {
		m := sent(&signing.Message{Body: body, URL: new(url.URL)}, fields)
		m.Request = &signatures.Message{Scheme: "https", Authority: authority}
		for label, name := range map[string]string{"binding0": "test-key-ecc-p256", "binding1": "test-key-ed25519"} {
			if err := m.Verify(label, keys(t)[name]); (err == nil) != valid {
				t.Errorf("%s by %s: %v", authority, name, err)
			}
		}
	}
	if body, err := httpsig.Directory(nil, now); err != nil || string(body) != `{"keys":[]}` {
		t.Error(string(body), err)
	}
	if fields, err := httpsig.SignDirectory(nil, body, "bot.example", now, time.Hour); err != nil || len(fields) != 1 {
		t.Error(fields, err)
	}
}
