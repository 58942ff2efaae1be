package signatures_test

import (
	"fmt"
	"testing"

	"fetchd/test/signatures"
)

// TestLeaked checks that keys are found in each form, and that nothing is found in public keys.
func TestLeaked(t *testing.T) {
	t.Parallel()
	seed := []byte{0x9f, 0x83, 0x62, 0xf8, 0x7a, 0x48, 0x4a, 0x95, 0x4e, 0x6e, 0x74, 0x0c, 0x5b, 0x4c, 0x0e, 0x84, 0x22, 0x91, 0x39, 0xa2, 0x0a, 0xa8, 0xab, 0x56, 0xff, 0x66, 0x58, 0x6f, 0x6a, 0x7d, 0x29, 0xc5}
	texts := append(signatures.Forms(seed), signatures.PEMEd25519, signatures.PEMP256, signatures.JWKEd25519, signatures.JWKP256, signatures.Base64HMAC,
		fmt.Sprintf("%+v", struct{ Seed []byte }{seed}), fmt.Sprintf("%x", seed), fmt.Sprintf("%X", seed))
	for _, text := range texts {
		if signatures.Leaked("before "+text+" after") == "" {
			t.Errorf("nothing is found in %q", text)
		}
	}
	keys, err := signatures.Keys()
	if err != nil {
		t.Fatal(err)
	}
	delete(keys, "test-shared-secret")
	if found := signatures.Leaked(fmt.Sprintf("%v %+v %x", keys, keys, keys)); found != "" {
		t.Errorf("%s is found in the public keys", found)
	}
}
