package httpsig_test

import (
	"encoding/json"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"time"

	"fetchd/fetch/auth/httpsig"
	"fetchd/test/must"
	"fetchd/test/signatures"
)

// TestKeys has each form of a key. The thumbprints are those of RFC 8037 appendix A.3 and of
// the draft.
func TestKeys(t *testing.T) {
	t.Parallel()
	const thumbprint = "poqkLGiymh_W0uP6PZFw-dvez3QJT5SolqXBCW38r0U"
	for _, row := range []struct{ name, text, want string }{
		{"PEM of Ed25519", signatures.PEMEd25519, "ed25519 " + thumbprint},
		{"PEM with space around it", "\n " + signatures.PEMEd25519 + "\n\n", "ed25519 " + thumbprint},
		{"JWK of Ed25519", signatures.JWKEd25519, "ed25519 test-key-ed25519"},
		{"JWK without an id", `{"kty":"OKP","crv":"Ed25519","d":"nWGxne_9WmC6hEr0kuwsxERJxWl7MmkZcDusAxyuf2A","x":"11qYAYKxCrfVS_7TyWQHOg7hcvPapiMlrwIaaPcHURo"}`, "ed25519 kPrK_qmxVWaYVA9wwBF6Iuo3vVzz7TxHCTwXBygrS4k"},
		{"PEM of P-256", signatures.PEMP256, "ecdsa-p256-sha256 "},
		{"JWK of P-256", signatures.JWKP256, "ecdsa-p256-sha256 test-key-ecc-p256"},
		{"a secret", signatures.Base64HMAC, "hmac-sha256 "},
		{"JWK of a secret", `{"kty":"oct","k":"uzvJfB4u3N0Jy4T7NZ75MA","kid":"a"}`, "hmac-sha256 a"},
	} {
		k := key(t, row.text)
		if got := fmt.Sprint(k); !strings.HasPrefix(got, row.want) {
			t.Errorf("%s: %s, want %s", row.name, got, row.want)
		}
		var log strings.Builder
		slog.New(slog.NewTextHandler(&log, nil)).Info("x", "key", k)
		raw, err := json.Marshal(k)
		if !noKeys(k) || !noKeys(*k) || !noKeys(log.String()) || !noKeys(string(raw)) || err != nil {
			t.Errorf("%s: the key is shown", row.name)
		}
	}
}

// TestKeysRefused has what is no key. No error quotes it.
func TestKeysRefused(t *testing.T) {
	t.Parallel()
	for _, row := range []struct{ name, text string }{
		{"nothing", ""},
		{"a short secret", "aHVzaA=="},
		{"a password", "correct horse battery staple"},
		{"a public key", "-----BEGIN PUBLIC KEY-----\nMCowBQYDK2VwAyEAJrQLj5P/89iXES9+vFgrIy29clF9CC/oPPsw3c5D0bs=\n-----END PUBLIC KEY-----"},
		{"a public JWK", `{"kty":"OKP","crv":"Ed25519","x":"JrQLj5P_89iXES9-vFgrIy29clF9CC_oPPsw3c5D0bs"}`},
		{"two PEM blocks", signatures.PEMEd25519 + signatures.PEMP256},
		{"a truncated PEM block", signatures.PEMEd25519[:60]},
		{"a PEM block of nothing", "-----BEGIN PRIVATE KEY-----\n-----END PRIVATE KEY-----"},
		{"X25519", "-----BEGIN PRIVATE KEY-----\nMC4CAQAwBQYDK2VuBCIEIJ+DYvh6SEqVTm50DFtMDoQikTmiCqirVv9mWG9qfSnF\n-----END PRIVATE KEY-----"},
		{"a JWK with another public part", strings.Replace(signatures.JWKEd25519, `"x":"J`, `"x":"K`, 1)},
		{"a JWK with another y", strings.Replace(signatures.JWKP256, `"y":"M`, `"y":"N`, 1)},
		{"a JWK with a short key", `{"kty":"OKP","crv":"Ed25519","d":"n4Ni-HpI"}`},
		{"a JWK of zero", `{"kty":"EC","crv":"P-256","d":"AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA"}`},
		{"a JWK of another curve", strings.Replace(signatures.JWKP256, "P-256", "P-384", 1)},
		{"a JWK with a secret in the wrong member", `{"kty":"EC","crv":"P-256","k":"UpuF81l-kOxbjf7T4mNSv0r5tN67Gim7rnf6EFpcYDs"}`},
		{"a JWK that ends in milliseconds", strings.Replace(signatures.JWKEd25519, `{`, `{"exp":1618884473000,`, 1)},
		{"a JWK that is not JSON", signatures.JWKEd25519[:50]},
		{"a set of keys", `{"keys":[` + signatures.JWKEd25519 + `]}`},
	} {
		if k, err := httpsig.ParseKey([]byte(row.text)); err == nil || k != nil || !noKeys(err) {
			t.Errorf("%s: %v, %v", row.name, k, err)
		}
	}
}

// TestNewKey makes keys, and reads what it writes.
func TestNewKey(t *testing.T) {
	t.Parallel()
	for _, algorithm := range []string{httpsig.Ed25519, httpsig.ECDSAP256} {
		k, err := httpsig.NewKey(algorithm)
		must.Succeed(t, err)
		k.NotBefore, k.NotAfter = now, now.Add(time.Hour)
		asJWK, err := k.JWK()
		must.Succeed(t, err)
		got := key(t, string(asJWK))
		if got.String() != k.String() || !got.NotBefore.Equal(now) || !got.NotAfter.Equal(k.NotAfter) {
			t.Errorf("JWK: %v %v %v, want %v", got, got.NotBefore, got.NotAfter, k)
		}
	}
	_, err := key(t, signatures.Base64HMAC).JWK()
	_, err2 := httpsig.NewKey(httpsig.HMAC)
	if err == nil || err2 == nil {
		t.Error("a secret is written as a key pair")
	}
}
