package signatures

import (
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"net/url"
	"strconv"
	"strings"
	"sync"
)

// Forms returns the texts as which a secret could appear where it must not be.
func Forms(secret []byte) []string {
	plain := hex.EncodeToString(secret)
	quoted, _ := json.Marshal(string(secret)) // a string has no error
	return []string{
		string(secret), string(quoted[1 : len(quoted)-1]), strings.Trim(strconv.Quote(string(secret)), `"`), url.QueryEscape(string(secret)),
		base64.RawStdEncoding.EncodeToString(secret), base64.RawURLEncoding.EncodeToString(secret), // a prefix of those with padding
		plain, strings.ToUpper(plain), strings.Trim(fmt.Sprint(secret), "[]"),
	}
}

// secrets are the private parts of the keys of appendix B.1, by name, each in every form.
var secrets = sync.OnceValue(func() map[string][]string {
	all := make(map[string][]string)
	for _, jwk := range []string{JWKEd25519, JWKP256} {
		var key struct{ Kid, D string }
		_ = json.Unmarshal([]byte(jwk), &key) // TestLeaked would fail
		secret, _ := base64.RawURLEncoding.DecodeString(key.D)
		all[key.Kid] = Forms(secret)
	}
	secret, _ := base64.StdEncoding.DecodeString(Base64HMAC)
	all["test-shared-secret"] = Forms(secret)
	for name, text := range map[string]string{"PEM of Ed25519": PEMEd25519, "PEM of P-256": PEMP256} {
		all[name] = strings.Split(strings.TrimSpace(text), "\n")[1:2]
	}
	return all
})

// Leaked returns the name of a key of appendix B.1 if the first twelve characters of its private part are in a text,
// or "". Tests use it for all that a service says.
func Leaked(text string) string {
	for name, forms := range secrets() {
		for _, form := range forms {
			if strings.Contains(text, form[:12]) {
				return name
			}
		}
	}
	return ""
}
