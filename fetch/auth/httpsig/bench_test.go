package httpsig_test

import (
	"crypto/ed25519"
	"crypto/sha256"
	"testing"

	"fetchd/fetch/auth/httpsig"
	"fetchd/test/signatures"
)

// BenchmarkSign compares a signature of a request with the arithmetic that it needs: Ed25519, and
// SHA-256 of the body.
func BenchmarkSign(b *testing.B) {
	body := make([]byte, 16<<10)
	r := get()
	r.Body = body
	b.Run("arithmetic", func(b *testing.B) {
		private := ed25519.NewKeyFromSeed(make([]byte, ed25519.SeedSize))
		for b.Loop() {
			sum := sha256.Sum256(body)
			ed25519.Sign(private, sum[:])
		}
	})
	for name, cfg := range map[string]httpsig.Config{
		"default":      {},
		"web-bot-auth": {Profile: httpsig.WebBotAuth, Agent: "https://bot.example", Components: components(b, "@authority", "content-digest")},
	} {
		b.Run(name, func(b *testing.B) {
			cfg.Keys = []*httpsig.Key{key(b, signatures.PEMEd25519)}
			s := signer(b, cfg)
			for b.Loop() {
				if _, err := s.Sign(r, httpsig.Choice{}); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
