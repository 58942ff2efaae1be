package main

import (
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"math/big"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	pb "fetchd/gen/fetchd/v1"
	"fetchd/internal/cli"
)

// below returns an intermediate authority.
func (a *authority) below() *authority {
	a.Helper()
	b := newAuthority(a.T)
	template := *b.cert
	template.SerialNumber, template.Subject, template.AuthorityKeyId = big.NewInt(7), pkix.Name{CommonName: "intermediate authority"}, nil
	der, err := x509.CreateCertificate(rand.Reader, &template, a.cert, b.key.Public(), a.key)
	must(a, err)
	b.cert, err = x509.ParseCertificate(der)
	must(a, err)
	b.pem = pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})
	return b
}

// TestIntermediatesReload changes --egress-intermediates for an origin that sends only its own certificate.
func TestIntermediatesReload(t *testing.T) {
	t.Parallel()
	f, root := newFolder(t), newAuthority(t)
	between := root.below()
	pair, err := tls.X509KeyPair(between.sign(wish{}))
	must(t, err)
	origin := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.Header().Set("Connection", "close") }))
	origin.TLS = &tls.Config{Certificates: []tls.Certificate{pair}}
	origin.StartTLS()
	defer origin.Close()
	_, port, _ := strings.Cut(origin.Listener.Addr().String(), ":")
	args := []string{"--egress-allow-cidr", "127.0.0.0/8", "--egress-allow-port", port, "--egress-ca-file", f.write("ca.pem", root.pem),
		"--egress-intermediates", f.write("between.pem", newAuthority(t).below().pem)}
	s := start(t, args...)
	c := s.dial(nil)
	const changed, refused = `"reloaded","changed":["egress-intermediates"]`, "not reloaded"
	for _, row := range []struct {
		name   string
		text   []byte
		signal bool // or else a look
		log    string
		ok     bool
	}{
		{"others", nil, true, `"reloaded","changed":[]`, false},
		{"the intermediate, look", append(newAuthority(t).below().pem, between.pem...), false, changed, true},
		{"rubbish, look", []byte("rubbish"), false, refused, true},
		{"rubbish, signal", []byte("rubbish"), true, refused, true},
		{"others, signal", newAuthority(t).below().pem, true, changed, false},
		{"the intermediate, signal", between.pem, true, changed, true},
	} {
		if row.text != nil {
			f.write("between.pem", row.text)
		}
		if row.signal {
			s.hangup <- nil
		} else {
			s.look <- time.Time{}
		}
		if line := s.await("reloaded"); !strings.Contains(line, row.log) || row.log == refused && !strings.Contains(line, f.dir) {
			t.Errorf("%s: log line %s, want %s", row.name, line, row.log)
		}
		out, err := c.FetchUnary(t.Context(), &pb.FetchRequest{Url: origin.URL})
		must(t, err)
		class := out.GetOutcome().GetError().GetErrorClass()
		if row.ok != (class == pb.ErrorClass_ERROR_CLASS_UNSPECIFIED) || !row.ok && class != pb.ErrorClass_ERROR_CLASS_TLS_CERTIFICATE {
			t.Errorf("%s: %v, want success %t", row.name, out.GetOutcome().GetError(), row.ok)
		}
	}
	for name, want := range map[string]string{"/nowhere/between.pem": "no such file", f.write("key.pem", []byte("key")): "has no certificate of an authority in PEM: give those of intermediate authorities"} {
		if code, _, stderr := command(t, "config", "--egress-intermediates", name); code != cli.ExitUsage || !strings.Contains(stderr, "--egress-intermediates: ") || !strings.Contains(stderr, name) || !strings.Contains(stderr, want) {
			t.Errorf("%s: exit code %d, %q, want %q", name, code, stderr, want)
		}
	}
}
