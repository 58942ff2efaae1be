package main

import (
	"crypto/tls"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"encoding/pem"

	"fetchd/test/clitest"
)

// TestOldTLS checks the settings for old origins that docs/operating.md names, and that they are needed.
func TestOldTLS(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name, setting string
		suite         uint16
	}{
		{"RSA key exchange", "tlsrsakex=1", tls.TLS_RSA_WITH_AES_128_CBC_SHA},
		{"3DES", "tls3des=1", tls.TLS_ECDHE_RSA_WITH_3DES_EDE_CBC_SHA},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			o := httptest.NewUnstartedServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
			o.TLS = &tls.Config{MaxVersion: tls.VersionTLS12, CipherSuites: []uint16{tt.suite}} //nolint:gosec // an old origin
			o.StartTLS()
			t.Cleanup(o.Close)
			ca := filepath.Join(t.TempDir(), "ca.pem")
			clitest.Must(t, os.WriteFile(ca, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: o.Certificate().Raw}), 0o600))
			for setting, works := range map[string]bool{"": false, tt.setting: true} {
				cmd := exec.CommandContext(t.Context(), "fetchctl", "get", "-sS", "-r", "0", "--cacert", ca, o.URL)
				cmd.Env = append(os.Environ(), "GODEBUG="+setting)
				if out, err := cmd.CombinedOutput(); (err == nil) != works {
					t.Errorf("GODEBUG=%s: %v, want success %t\n%s", setting, err, works, out)
				}
			}
		})
	}
}
