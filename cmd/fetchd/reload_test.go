package main

import (
	"context"
	"crypto/tls"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
)

// serial is that of the certificate that a port shows.
func (s *service) serial(cfg *tls.Config, address string) int64 {
	s.Helper()
	d := tls.Dialer{Config: cfg}
	conn, err := d.DialContext(s.Context(), "tcp", address)
	must(s, err)
	defer func() { _ = conn.Close() }()
	secured, ok := conn.(*tls.Conn)
	if !ok {
		s.Fatalf("a %T", conn)
	}
	return secured.ConnectionState().PeerCertificates[0].SerialNumber.Int64() - 2
}

// TestReloadUnderLoad: calls on old and new connections succeed while the
// certificates change.
func TestReloadUnderLoad(t *testing.T) {
	f, a := newFolder(t), newAuthority(t)
	s := start(t, append(f.certify(a, wish{}), "--tls-client-ca-file", f.write("ca.pem", a.pem))...)
	client := a.client(&wish{dns: "a.example"})
	ctx, stop := context.WithCancel(t.Context())
	var calls atomic.Int64
	var callers sync.WaitGroup
	for range 4 {
		long := s.dial(client)
		callers.Go(func() {
			for ctx.Err() == nil {
				if err := call(t.Context(), long); err != nil {
					t.Errorf("on a connection that is open: %v", err)
				}
				d := tls.Dialer{Config: client}
				conn, err := d.DialContext(t.Context(), "tcp", s.http)
				if err != nil {
					t.Errorf("a new connection: %v", err)
					return
				}
				_ = conn.Close()
				calls.Add(1)
			}
		})
	}
	for serial := int64(1); serial <= 20; serial++ {
		f.certify(a, wish{serial: serial})
		want := `["tls-cert-file","tls-key-file"]`
		if serial%5 == 0 { // another authority besides
			f.write("ca.pem", append(newAuthority(t).pem, a.pem...))
			want = `["tls-cert-file","tls-key-file","tls-client-ca-file"]`
		}
		if line := s.reload(`"reloaded"`); !strings.Contains(line, want) {
			t.Errorf("log line %s, want %s in it", line, want)
		}
		for name, address := range map[string]string{"gRPC": s.grpc, "HTTP": s.http} {
			if got := s.serial(client, address); got != serial {
				t.Errorf("%s shows certificate %d, want %d", name, got, serial)
			}
		}
	}
	stop()
	callers.Wait()
	if calls.Load() == 0 {
		t.Error("no call was made meanwhile")
	}
}

// TestAuthorityGoes: a new connection is judged by the new authorities.
func TestAuthorityGoes(t *testing.T) {
	f, a, b := newFolder(t), newAuthority(t), newAuthority(t)
	s := start(t, append(f.certify(a, wish{}), "--tls-client-ca-file", f.write("ca.pem", a.pem))...)
	old, young := a.client(&wish{}), b.client(&wish{})
	young.RootCAs = old.RootCAs
	wantStatus(t, "of the old authority, before", call(t.Context(), s.dial(old)), codes.OK, "")
	wantStatus(t, "of the new authority, before", call(t.Context(), s.dial(young)), codes.Unavailable, "")
	f.write("ca.pem", b.pem)
	s.reload(`"reloaded"`)
	wantStatus(t, "of the old authority, after", call(t.Context(), s.dial(old)), codes.Unavailable, "")
	wantStatus(t, "of the new authority, after", call(t.Context(), s.dial(young)), codes.OK, "")
}

// TestLook: certificates that are replaced are taken without a signal, and what
// is wrong with them is said once.
func TestLook(t *testing.T) {
	f, a := newFolder(t), newAuthority(t)
	s := start(t, f.certify(a, wish{})...)
	client := a.client(nil)
	s.look <- time.Time{} // nothing has changed; a late look is like the next one
	cert, key := a.sign(wish{serial: 1})
	f.write("cert.pem", cert) // its key comes later
	s.look <- time.Time{}
	line := s.await(`"not reloaded: everything stays as it was"`)
	if !strings.Contains(line, `"level":"ERROR"`) || !strings.Contains(line, f.path("cert.pem")) {
		t.Errorf("log line %s, want an error that names the file", line)
	}
	s.look <- time.Time{}       // said already
	s.reload(`"not reloaded: `) // a signal has it said again; the look has ended by then
	if got := s.serial(client, s.grpc); got != 0 {
		t.Errorf("shows certificate %d, want the old one", got)
	}
	f.write("key.pem", key)
	s.look <- time.Time{}
	s.await(`"reloaded"`)
	if got := s.serial(client, s.grpc); got != 1 {
		t.Errorf("shows certificate %d, want the new one", got)
	}
	if log := s.log.String(); strings.Count(log, "not reloaded") != 2 || strings.Count(log, `"reloaded"`) != 1 {
		t.Errorf("want the fault twice and one reload, the log:\n%s", log)
	}
}

// TestReload: what changes, what waits for a restart, and what is refused whole.
func TestReload(t *testing.T) {
	f, a := newFolder(t), newAuthority(t)
	token, tokens := f.tokenOf("crawler", "")
	admitted, err := os.ReadFile(tokens)
	must(t, err)
	base := "log-level: info\nmax-fetches: 100\ntls-allow-san: [a.example]\n"
	config := f.write("fetchd.yaml", []byte(base))
	pair := f.certify(a, wish{})
	s := start(t, append(pair, "--config", config, "--token-file", tokens, "--tls-client-ca-file", f.write("ca.pem", a.pem), "--max-body-bytes", "1000")...)
	named := metadata.AppendToOutgoingContext(t.Context(), "authorization", "Bearer "+token)
	client, b := s.dial(a.client(&wish{dns: "a.example"})), s.dial(a.client(&wish{dns: "b.example"}))
	for _, row := range []struct {
		name, file, tokens string
		cert               []byte
		want, never        []string // in the log
		refused            bool
		a, b               codes.Code // of calls afterwards
	}{
		{name: "nothing", file: base, want: []string{`"reloaded","changed":[]`}, b: codes.Unauthenticated},
		{name: "a limit", file: base + "max-fetches-per-caller: 3\n", want: []string{`"reloaded","changed":["max-fetches-per-caller"]`}, b: codes.Unauthenticated},
		{name: "what may be repeated", file: base + "max-fetches-per-caller: 3\nnon-idempotent-retries: forbid\n", want: []string{`"reloaded","changed":["non-idempotent-retries"]`}, b: codes.Unauthenticated},
		{name: "what may be repeated back", file: base + "max-fetches-per-caller: 3\n", want: []string{`"reloaded","changed":["non-idempotent-retries"]`}, b: codes.Unauthenticated},
		{name: "a limit back", file: base, want: []string{`"reloaded","changed":["max-fetches-per-caller"]`}, b: codes.Unauthenticated},
		{name: "a flag wins", file: base + "max-body-bytes: 5\n", want: []string{`"reloaded","changed":[]`}, b: codes.Unauthenticated},
		{name: "what needs a restart", file: base + "max-connections: 5\ndrain-time: 1s\nhttp-addr: 127.0.0.1:1\n",
			want: []string{`"level":"WARN"`, `"settings":["max-connections"]`, `"reloaded","changed":[]`}, never: []string{"drain-time", "http-addr"}, b: codes.Unauthenticated},
		{name: "both", file: base + "max-connections: 5\nmax-total-timeout: 1m\n",
			want: []string{`"settings":["max-connections"]`, `"reloaded","changed":["max-total-timeout"]`}, b: codes.Unauthenticated},
		{name: "an unknown key", file: "log-level: error\nmax-fetchs: 2\n", want: []string{"fetchd.yaml:2: max-fetchs: is not a setting"}, refused: true, b: codes.Unauthenticated},
		{name: "a bad value", file: "max-fetches: -1\ntls-allow-san: [b.example]\n", want: []string{"fetchd.yaml:1: max-fetches: -1: is out of range"}, refused: true, b: codes.Unauthenticated},
		{name: "bad tokens beside a good file", file: "tls-allow-san: [b.example]\n", tokens: "- {name: x}\n", want: []string{"tokens.yaml:1: sha256 is missing"}, refused: true, b: codes.Unauthenticated},
		{name: "a bad certificate beside a good file", file: "tls-allow-san: [b.example]\n", cert: []byte("rubbish"), want: []string{"cert.pem"}, refused: true, b: codes.Unauthenticated},
		{name: "names", file: "max-fetches: 100\nmax-total-timeout: 1m\ntls-allow-san: [b.example]\n", want: []string{`"reloaded","changed":["tls-allow-san"]`}, a: codes.Unauthenticated},
		{name: "tokens", file: base + "max-total-timeout: 1m\n", tokens: strings.Replace(string(admitted), "crawler", "spider", 1),
			want: []string{`"reloaded","changed":["tls-allow-san","token-file"]`}, b: codes.Unauthenticated},
		{name: "a token that goes", file: base + "max-total-timeout: 1m\n", tokens: "- {name: x, sha256: " + strings.Repeat("0", 64) + "}\n",
			want: []string{`"reloaded","changed":["token-file"]`}, a: codes.Unauthenticated, b: codes.Unauthenticated},
	} {
		t.Run(row.name, func(t *testing.T) {
			f := f.in(t)
			s := s.in(t)
			good, err := os.ReadFile(f.path("cert.pem"))
			must(t, err)
			f.write("fetchd.yaml", []byte(row.file))
			f.write("tokens.yaml", admitted)
			if row.tokens != "" {
				f.write("tokens.yaml", []byte(row.tokens))
			}
			if row.cert != nil {
				f.write("cert.pem", row.cert)
				defer f.write("cert.pem", good)
			}
			before := *s.seen
			if row.refused {
				s.reload(`"not reloaded: everything stays as it was"`)
			} else {
				s.reload(`"reloaded"`)
			}
			said := s.log.String()[before:*s.seen]
			for _, want := range row.want {
				if !strings.Contains(said, want) {
					t.Errorf("log %s, want %s in it", said, want)
				}
			}
			for _, never := range append(row.never, token) {
				if strings.Contains(said, never) {
					t.Errorf("log %s, want no %s in it", said, never)
				}
			}
			if got := call(named, client); codeOf(got) != row.a {
				t.Errorf("a.example: %v, want %s", got, row.a)
			}
			if got := call(named, b); codeOf(got) != row.b {
				t.Errorf("b.example: %v, want %s", got, row.b)
			}
		})
	}
}

// TestNamesGoWithAuthorities: where both are taken away, neither goes before the
// restart.
func TestNamesGoWithAuthorities(t *testing.T) {
	f, a := newFolder(t), newAuthority(t)
	config := f.write("fetchd.yaml", []byte("tls-client-ca-file: "+f.write("ca.pem", a.pem)+"\ntls-allow-san: [a.example]\n"))
	s := start(t, append(f.certify(a, wish{}), "--config", config)...)
	f.write("fetchd.yaml", nil)
	if line := s.reload(`"settings"`); !strings.Contains(line, `["tls-client-ca-file","tls-allow-san"]`) {
		t.Errorf("log line %s", line)
	}
	s.await(`"reloaded","changed":[]`)
	wantStatus(t, "another name", call(t.Context(), s.dial(a.client(&wish{dns: "b.example"}))), codes.Unauthenticated, showCertificate)
}

// TestLogLevelChanges while the service runs.
func TestLogLevelChanges(t *testing.T) {
	f := newFolder(t)
	s := start(t, "--config", f.write("fetchd.yaml", []byte("log-level: info\n")))
	client := s.dial(nil)
	finished := func() bool {
		wantStatus(t, "a call", call(t.Context(), client), codes.OK, "")
		s.reload("reloaded") // the line of the call comes before
		return strings.Contains(s.log.String()[:*s.seen], `"msg":"finished call"`)
	}
	if finished() {
		t.Error("a call that went well is logged at level info")
	}
	f.write("fetchd.yaml", []byte("log-level: debug\n"))
	if line := s.reload(`"reloaded"`); !strings.Contains(line, `["log-level"]`) {
		t.Errorf("log line %s", line)
	}
	if !finished() {
		t.Errorf("a call is not logged at level debug:\n%s", s.log)
	}
}
