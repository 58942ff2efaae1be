package clitest

import (
	"bytes"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"fetchd/test/selfsigned"
)

// Only fails the test if a folder has anything but the names.
func Only(t testing.TB, dir string, names ...string) {
	t.Helper()
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, e := range entries {
		got = append(got, e.Name())
	}
	if fmt.Sprint(got) != fmt.Sprint(names) {
		t.Errorf("the folder has %q, want %q", got, names)
	}
}

// Certificate returns a self-signed certificate for 127.0.0.1 and the pool that trusts it. It writes cert.pem
// and key.pem to dir.
func Certificate(t testing.TB, dir string) (tls.Certificate, *x509.CertPool) {
	t.Helper()
	pair, certPEM, keyPEM, err := selfsigned.New()
	err = errors.Join(err, os.WriteFile(filepath.Join(dir, "cert.pem"), certPEM, 0o600), os.WriteFile(filepath.Join(dir, "key.pem"), keyPEM, 0o600))
	if err != nil {
		t.Fatal(err)
	}
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(certPEM)
	return pair, roots
}

// File fails the test unless a file has the text.
func File(t testing.TB, name string, want []byte) {
	t.Helper()
	got, err := os.ReadFile(name)
	if err != nil || !bytes.Equal(got, want) {
		t.Errorf("%s: %d bytes, %v; want %d others", name, len(got), err, len(want))
	}
}
