package signatures_test

import (
	"os"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"fetchd/test/must"
	"fetchd/test/signatures"
)

// vectors are the signatures of RFC 9421 appendix B and of the draft of Web Bot Auth.
var vectors = []struct{ file, label, key, base string }{
	{"b21", "sig-b21", "test-key-rsa-pss", "b21"},
	{"b22", "sig-b22", "test-key-rsa-pss", "b22"},
	{"b23", "sig-b23", "test-key-rsa-pss", "b23"},
	{"b24", "sig-b24", "test-key-ecc-p256", "b24"},
	{"b25", "sig-b25", "test-shared-secret", "b25"},
	{"b26", "sig-b26", "test-key-ed25519", "b26"},
	{"b3", "ttrp", "test-key-ecc-p256", "b3"},
	{"b4", "transform", "test-key-ed25519", "b4"},
	{"b4-added", "transform", "test-key-ed25519", "b4"},
	{"b4-removed", "transform", "test-key-ed25519", "b4"},
	{"b4-reordered", "transform", "test-key-ed25519", "b4"},
	{"b4-other-method", "transform", "test-key-ed25519", ""},
	{"b4-other-order", "transform", "test-key-ed25519", ""},
	{"agent", "sig2", "test-key-ed25519", "agent"},
	{"agent-string", "sig2", "test-key-ed25519", "agent-string"},
	{"directory", "binding", "test-key-ed25519", "directory"},
}

func read(t *testing.T, name string) string {
	t.Helper()
	raw, err := os.ReadFile("testdata/" + name)
	must.Succeed(t, err)
	return string(raw)
}

func message(t *testing.T, raw string) *signatures.Message {
	t.Helper()
	m, err := signatures.Parse([]byte(raw), "https")
	must.Succeed(t, err)
	m.Request = &signatures.Message{Scheme: "https", Authority: "signature-agent.test"}
	return m
}

// TestVectors checks that the verifier accepts what others signed and nothing else.
func TestVectors(t *testing.T) {
	t.Parallel()
	keys, err := signatures.Keys()
	must.Succeed(t, err)
	for _, row := range vectors {
		t.Run(row.file, func(t *testing.T) {
			t.Parallel()
			raw := read(t, row.file+".http")
			m := message(t, raw)
			err := m.Verify(row.label, keys[row.key])
			if row.base == "" {
				if err == nil {
					t.Error("a signature of another message is accepted")
				}
				return
			}
			must.Succeed(t, err)
			base, err := m.Base(m.Members("signature-input")[row.label])
			if diff := cmp.Diff(read(t, row.base+".base"), base); err != nil || diff != "" {
				t.Errorf("%v %s", err, diff)
			}
			for name, key := range keys {
				if name != row.key && m.Verify(row.label, key) == nil {
					t.Errorf("the key %s verifies it", name)
				}
			}
			created := strings.Replace(raw, ";created=1", ";created=2", 1)
			if message(t, created).Verify(row.label, keys[row.key]) == nil {
				t.Error("a changed parameter is accepted")
			}
		})
	}
}
