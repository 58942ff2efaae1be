package main

import (
	"crypto/tls"
	"encoding/pem"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc/codes"

	pb "fetchd/gen/fetchd/v1"
)

// TestOriginsReload changes the files for an origin that demands a client certificate, and
// sends a signal or lets the service look. The origin answers with the certificate's serial
// and the header X-Key.
func TestOriginsReload(t *testing.T) {
	t.Parallel()
	f, a := newFolder(t), newAuthority(t)
	origin := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, _ = fmt.Fprintf(w, "%v%s %s", r.TLS.PeerCertificates[0].SerialNumber, r.Header.Get("X-Key"), r.RemoteAddr)
	}))
	origin.TLS = &tls.Config{ClientAuth: tls.RequireAnyClientCert}
	origin.StartTLS()
	defer origin.Close()
	trusted := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: origin.Certificate().Raw})
	f.write("ca.pem", trusted)
	write := func(f *folder, a *authority, serial int64, names ...string) {
		cert, key := a.sign(wish{serial: serial - 2})
		for _, name := range names {
			f.write(name, map[string][]byte{"client.pem": cert, "key.pem": key}[name])
		}
	}
	write(f, a, 11, "client.pem", "key.pem")
	profiles := fmt.Sprintf("profiles:\n  %s:\n    ca-file: %s\n    cert-file: %s\n    key-file: %s\n", origin.URL, f.path("ca.pem"), f.path("client.pem"), f.path("key.pem"))
	provider := "providers:\n  key:\n    origins: [" + origin.URL + "]\n    header: X-Key\n    token: "
	file := f.write("origins.yaml", []byte(profiles))
	_, port, _ := strings.Cut(origin.Listener.Addr().String(), ":")
	s := start(t, "--origins-file", file, "--egress-allow-cidr", "127.0.0.0/8", "--egress-allow-port", port)
	c := s.dial(nil)
	fetch := func(provider string) (*pb.FetchOutcome, error) {
		one := int32(1)
		out, err := c.FetchUnary(t.Context(), &pb.FetchRequest{Url: origin.URL, AuthProvider: provider, RetryPolicy: &pb.RetryPolicy{MaxAttempts: &one}})
		return out.GetOutcome(), err
	}
	const changed, unchanged, refused = `"reloaded","changed":["origins-file"]`, `"reloaded","changed":[]`, "not reloaded"
	connection := ""
	for _, row := range []struct {
		name     string
		change   func(f *folder, a *authority)
		signal   bool   // or else a look
		log      string // empty: nothing
		provider string
		want     string // what the origin answers; empty: the fetch fails
		class    pb.ErrorClass
		code     codes.Code
		kept     bool // the connection
	}{
		{name: "the start", want: "11"},
		{name: "nothing, signal", signal: true, log: unchanged, want: "11", kept: true},
		{name: "nothing, look", want: "11", kept: true},
		{name: "certificate, signal", change: func(f *folder, a *authority) { write(f, a, 12, "client.pem", "key.pem") }, signal: true, log: changed, want: "12"},
		{name: "certificate, look", change: func(f *folder, a *authority) { write(f, a, 13, "client.pem", "key.pem") }, log: changed, want: "13"},
		{name: "certificate without its key, signal", change: func(f *folder, a *authority) { write(f, a, 14, "client.pem") }, signal: true, log: refused, want: "13", kept: true},
		{name: "certificate without its key, look", log: refused, want: "13", kept: true},
		{name: "certificate without its key, second look", want: "13", kept: true},
		{name: "both again", change: func(f *folder, a *authority) { write(f, a, 15, "client.pem", "key.pem") }, log: changed, want: "15"},
		{name: "another authority", change: func(f *folder, a *authority) { f.write("ca.pem", a.pem) }, log: changed, class: pb.ErrorClass_ERROR_CLASS_TLS_CERTIFICATE},
		{name: "no authority", change: func(f *folder, _ *authority) { f.write("ca.pem", []byte("rubbish")) }, log: refused, class: pb.ErrorClass_ERROR_CLASS_TLS_CERTIFICATE},
		{name: "the authority of before", change: func(f *folder, _ *authority) { f.write("ca.pem", trusted) }, log: changed, want: "15"},
		{name: "unknown provider", provider: "key", code: codes.InvalidArgument},
		{name: "new provider", change: func(f *folder, _ *authority) { f.write("origins.yaml", []byte(profiles+provider+"-first")) }, log: changed, provider: "key", want: "15-first", kept: true},
		{name: "changed provider", change: func(f *folder, _ *authority) { f.write("origins.yaml", []byte(profiles+provider+"-second")) }, signal: true, log: changed, provider: "key", want: "15-second", kept: true},
		{name: "wrong file", change: func(f *folder, _ *authority) { f.write("origins.yaml", []byte("profiles: []\n")) }, log: refused, provider: "key", want: "15-second", kept: true},
		{name: "no file", change: func(f *folder, _ *authority) { f.write("origins.yaml", nil) }, log: changed, provider: "key", code: codes.InvalidArgument},
		{name: "no profile", class: pb.ErrorClass_ERROR_CLASS_TLS_CERTIFICATE},
		{name: "the profile again", change: func(f *folder, _ *authority) { f.write("origins.yaml", []byte(profiles)) }, log: changed, want: "15"},
	} {
		t.Run(row.name, func(t *testing.T) {
			f := f.in(t)
			s := s.in(t)
			if row.change != nil {
				row.change(f, a.in(t))
			}
			before := strings.Count(s.log.String(), "reloaded")
			if row.signal {
				s.hangup <- nil
			} else {
				s.look <- time.Time{}
			}
			if row.log != "" {
				line := s.await("reloaded")
				if !strings.Contains(line, row.log) || row.log == refused && !strings.Contains(line, f.dir) {
					t.Errorf("log line %s, want %s in it", line, row.log)
				}
			} else {
				s.reload("reloaded") // a signal always logs a line; the look has ended by then
				if n := strings.Count(s.log.String(), "reloaded") - before; n != 1 {
					t.Errorf("%d new lines about a reload, want one, of the signal; log:\n%s", n, s.log)
				}
			}
			out, err := fetch(row.provider)
			if codeOf(err) != row.code || out.GetError().GetErrorClass() != row.class {
				t.Fatalf("%v, %v, want code %s and class %s", err, out.GetError(), row.code, row.class)
			}
			if row.want == "" {
				return
			}
			got, at, _ := strings.Cut(string(out.GetInlineBody()), " ")
			if got != row.want {
				t.Errorf("the origin answered %q, want %q", got, row.want)
			}
			if row.kept && at != connection {
				t.Errorf("the fetch used connection %s, want %s as before", at, connection)
			}
			if !row.kept && at == connection {
				t.Errorf("the fetch used connection %s, which was made with other settings", at)
			}
			connection = at
		})
	}
}

// TestOriginsKeepProviders checks which providers keep their tokens on a reload.
func TestOriginsKeepProviders(t *testing.T) {
	t.Parallel()
	const text = "providers:\n  a:\n    origins: ['https://a.example']\n    client: {token-url: 'https://t.example', id: me, secret-file: SECRET}\n"
	for _, row := range []struct {
		name, before, after, secret string
		kept                        bool
	}{
		{"nothing", text, text, "hush", true},
		{"callers", text, text + "    callers: [alice]\n", "hush", true},
		{"another provider", text, text + "  b: {origins: ['https://b.example'], token: hush}\n", "hush", true},
		{"secret", text, text, "hush2", false},
		{"scopes", text, strings.Replace(text, "id: me", "id: me, scopes: [read]", 1), "hush", false},
		{"header", text, text + "    header: X-Key\n", "hush", false},
		{"new", "providers: {}\n", text, "hush", false},
	} {
		t.Run(row.name, func(t *testing.T) {
			t.Parallel()
			f := newFolder(t)
			read := func(text, secret string, before *origins) *origins {
				text = strings.ReplaceAll(text, "SECRET", f.write("secret", []byte(secret)))
				o, err := readOrigins(f.write("origins.yaml", []byte(text)), before)
				must(t, err)
				return o
			}
			first := read(row.before, "hush", new(origins))
			second := read(row.after, row.secret, first)
			if kept := second.providers["a"].Provider == first.providers["a"].Provider; kept != row.kept {
				t.Errorf("kept: %t, want %t", kept, row.kept)
			}
			if same := second.same(first); same != (row.before == row.after && row.secret == "hush") {
				t.Errorf("the files are the same: %t", same)
			}
		})
	}
}
