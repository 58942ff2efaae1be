package main

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"testing"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	pb "fetchd/gen/fetchd/v1"
	"fetchd/internal/cli"
	"fetchd/internal/secure"
	"fetchd/test/rig"
)

// What callers are told: nothing else, for a stranger may be one.
const (
	showToken       = "send an Authorization header: Bearer TOKEN"
	unknownToken    = "this token is not known"
	showCertificate = "connect with a client certificate that this service allows"
)

// wantStatus holds the error of a call against a code, and for UNAUTHENTICATED
// against the whole text.
func wantStatus(t *testing.T, what string, err error, code codes.Code, text string) {
	t.Helper()
	if got := status.Convert(err); got.Code() != code || code == codes.Unauthenticated && got.Message() != text {
		t.Errorf("%s: %v, want %s %q", what, err, code, text)
	}
}

// httpCall calls the HTTP port. The call needs no origin.
func (s *service) httpCall(cfg *tls.Config, authorization ...string) (int, string, error) {
	return ask(s.Context(), cfg, s.http, "/v1/fetch:unary", `{"url": "http://10.0.0.1/"}`, authorization...)
}

// TestTLS: who gets through to both ports, with and without certificates asked
// for.
func TestTLS(t *testing.T) {
	a, stranger := newAuthority(t), newAuthority(t)
	f := newFolder(t)
	pair := f.certify(a, wish{})
	open := start(t, pair...)
	mutual := append([]string{"--tls-client-ca-file", f.write("ca.pem", a.pem)}, pair...)
	signed := start(t, mutual...)
	named := start(t, append([]string{"--tls-allow-san", "spiffe://example/a", "--tls-allow-san", "b.example", "--tls-allow-san", "c@example.com"}, mutual...)...)
	strange := stranger.client(&wish{uri: "spiffe://example/a"})
	strange.RootCAs = a.client(nil).RootCAs
	for _, row := range []struct {
		name    string
		service *service
		client  *tls.Config
		code    codes.Code
		http    int // 0: the connection fails
	}{
		{"no certificate is asked for", open, a.client(nil), codes.OK, 200},
		{"one is shown all the same", open, a.client(&wish{}), codes.OK, 200},
		{"TLS 1.2", open, atVersion(a.client(nil), tls.VersionTLS12), codes.OK, 200},
		{"a client that trusts another", open, stranger.client(nil), codes.Unavailable, 0},
		{"signed", signed, a.client(&wish{}), codes.OK, 200},
		{"signed, TLS 1.2", signed, atVersion(a.client(&wish{}), tls.VersionTLS12), codes.OK, 200},
		{"none", signed, a.client(nil), codes.Unavailable, 0},
		{"none, TLS 1.2", signed, atVersion(a.client(nil), tls.VersionTLS12), codes.Unavailable, 0},
		{"expired", signed, a.client(&wish{expired: true}), codes.Unavailable, 0},
		{"not for clients", signed, a.client(&wish{serverOnly: true}), codes.Unavailable, 0},
		{"signed by another", signed, strange, codes.Unavailable, 0},
		{"the URI", named, a.client(&wish{uri: "spiffe://example/a"}), codes.OK, 200},
		{"the DNS name", named, a.client(&wish{dns: "b.example"}), codes.OK, 200},
		{"the address", named, a.client(&wish{email: "c@example.com"}), codes.OK, 200},
		{"one of several names", named, a.client(&wish{dns: "x.example", uri: "spiffe://example/a", email: "x@example.com"}), codes.OK, 200},
		{"another URI", named, a.client(&wish{uri: "spiffe://example/ab"}), codes.Unauthenticated, 401},
		{"another DNS name", named, a.client(&wish{dns: "b.example.com"}), codes.Unauthenticated, 401},
		{"a wildcard", named, a.client(&wish{dns: "*.example"}), codes.Unauthenticated, 401},
		{"no name", named, a.client(&wish{}), codes.Unauthenticated, 401},
		{"the URI, expired", named, a.client(&wish{uri: "spiffe://example/a", expired: true}), codes.Unavailable, 0},
		{"the URI, signed by another", named, strange, codes.Unavailable, 0},
	} {
		t.Run(row.name, func(t *testing.T) {
			s := row.service.in(t)
			wantStatus(t, "gRPC", call(t.Context(), s.dial(row.client)), row.code, showCertificate)
			code, body, err := s.httpCall(row.client)
			if code != row.http || (err != nil) != (row.http == 0) {
				t.Errorf("HTTP: %d %q, %v, want %d", code, body, err, row.http)
			}
		})
	}
}

func atVersion(cfg *tls.Config, version uint16) *tls.Config {
	cfg.MinVersion, cfg.MaxVersion = version, version
	return cfg
}

// TestOldTLS is refused by both ports, in words.
func TestOldTLS(t *testing.T) {
	a := newAuthority(t)
	s := start(t, newFolder(t).certify(a, wish{})...)
	for name, address := range map[string]string{"gRPC": s.grpc, "HTTP": s.http} {
		for version, want := range map[uint16]bool{tls.VersionTLS10: false, tls.VersionTLS11: false, tls.VersionTLS12: true, tls.VersionTLS13: true} {
			d := tls.Dialer{Config: atVersion(a.client(nil), version)}
			conn, err := d.DialContext(t.Context(), "tcp", address)
			if conn != nil {
				_ = conn.Close()
			}
			if alert, told := errors.AsType[tls.AlertError](err); (err == nil) != want {
				t.Errorf("%s with %s: %v, want success: %t", name, tls.VersionName(version), err, want)
			} else if !want && !told && !strings.Contains(fmt.Sprint(err), "protocol version") {
				t.Errorf("%s with %s: %v (%v), want an alert that names the version", name, tls.VersionName(version), err, alert)
			}
		}
	}
}

// TestPlaintextToTLS ends at once, and says what it can.
func TestPlaintextToTLS(t *testing.T) {
	s := start(t, newFolder(t).certify(newAuthority(t), wish{})...)
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	wantStatus(t, "gRPC", call(ctx, s.dial(nil)), codes.Unavailable, "")
	if code, body, err := s.httpCall(nil); code != http.StatusBadRequest || !strings.Contains(body, "HTTPS server") {
		t.Errorf("HTTP: %d %q, %v, want 400 and why", code, body, err)
	}
}

// tokenOf makes a token and writes the file that admits it, and others with more.
func (f *folder) tokenOf(name, more string) (token, file string) {
	f.Helper()
	token, line, err := secure.NewToken(name)
	must(f, err)
	return token, f.write("tokens.yaml", []byte(line+"\n"+more))
}

// TestTokens: what is shown, in every form, to both ports.
func TestTokens(t *testing.T) {
	f := newFolder(t)
	token, file := f.tokenOf("crawler", "")
	s := start(t, "--token-file", file, "--log-level", "debug")
	last := token[:len(token)-1] + map[bool]string{true: "A", false: "B"}[!strings.HasSuffix(token, "A")]
	for _, row := range []struct {
		name string
		sent []string
		ok   bool
	}{
		{"right", []string{"Bearer " + token}, true},
		{"scheme in another case", []string{"bearer " + token}, true},
		{"none", nil, false},
		{"empty", []string{""}, false},
		{"no token", []string{"Bearer "}, false},
		{"wrong", []string{"Bearer fetchd_wrong"}, false},
		{"wrong in its last character", []string{"Bearer " + last}, false},
		{"cut short", []string{"Bearer " + token[:len(token)-1]}, false},
		{"longer", []string{"Bearer " + token + "A"}, false},
		{"without its prefix", []string{"Bearer " + strings.TrimPrefix(token, "fetchd_")}, false},
		{"without scheme", []string{token}, false},
		{"another scheme", []string{"Basic " + token}, false},
		{"two headers", []string{"Bearer " + token, "Bearer " + token}, false},
		{"right and wrong", []string{"Bearer " + token, "Bearer fetchd_wrong"}, false},
		{"the name", []string{"Bearer crawler"}, false},
	} {
		t.Run(row.name, func(t *testing.T) {
			s := s.in(t)
			code, http := codes.OK, 200
			if !row.ok {
				code, http = codes.Unauthenticated, 401
			}
			ctx := t.Context()
			for _, header := range row.sent {
				ctx = metadata.AppendToOutgoingContext(ctx, "authorization", header)
			}
			told := map[bool]string{true: showToken, false: unknownToken}[secure.Bearer(row.sent) == ""]
			wantStatus(t, "gRPC", call(ctx, s.dial(nil)), code, told)
			got, body, err := s.httpCall(nil, row.sent...)
			if got != http || err != nil || !row.ok && !strings.Contains(body, told) {
				t.Errorf("HTTP: %d %q, %v, want %d", got, body, err, http)
			}
		})
	}
	if log := s.log.String(); strings.Contains(log, token) || strings.Contains(log, last) {
		t.Errorf("the log holds a token:\n%s", log)
	}
}

// TestHealthcheck: the service asks itself, without a token, over what it serves.
func TestHealthcheck(t *testing.T) {
	a, other := newAuthority(t), newAuthority(t).pem
	_, tokens := newFolder(t).tokenOf("crawler", "")
	for _, row := range []struct {
		name string
		args func(f *folder, a *authority) []string
		code int
		want string
	}{
		{"tokens", func(*folder, *authority) []string { return []string{"--token-file", tokens} }, cli.ExitOK, ""},
		{"TLS", func(f *folder, a *authority) []string { return f.certify(a, wish{}) }, cli.ExitOK, ""},
		{"TLS for another name", func(f *folder, a *authority) []string { return f.certify(a, wish{dns: "x.example"}) }, cli.ExitOK, ""},
		{"TLS, expired", func(f *folder, a *authority) []string { return f.certify(a, wish{expired: true}) }, cli.ExitFailed, "presents a certificate that expired at "},
		{"mutual TLS, expired", func(f *folder, a *authority) []string {
			return append(f.certify(a, wish{expired: true}), "--tls-client-ca-file", f.write("ca.pem", a.pem))
		}, cli.ExitFailed, "which refuses it: replace it"},
		{"TLS and tokens", func(f *folder, a *authority) []string { return append(f.certify(a, wish{}), "--token-file", tokens) }, cli.ExitOK, ""},
		{"mutual TLS", func(f *folder, a *authority) []string {
			return append(f.certify(a, wish{}), "--tls-client-ca-file", f.write("ca.pem", a.pem))
		}, cli.ExitOK, ""},
		{"mutual TLS that allows others", func(f *folder, a *authority) []string {
			return append(f.certify(a, wish{}), "--tls-client-ca-file", f.write("ca.pem", a.pem), "--tls-allow-san", "a.example")
		}, cli.ExitOK, ""},
		{"a certificate for servers only", func(f *folder, a *authority) []string {
			return append(f.certify(a, wish{serverOnly: true}), "--tls-client-ca-file", f.write("ca.pem", a.pem))
		}, cli.ExitFailed, "for client authentication too"},
		{"a certificate of another authority", func(f *folder, a *authority) []string {
			return append(f.certify(a, wish{}), "--tls-client-ca-file", f.write("ca.pem", other))
		}, cli.ExitFailed, "for client authentication too"},
	} {
		t.Run(row.name, func(t *testing.T) {
			args := row.args(newFolder(t), a.in(t))
			s := start(t, args...)
			code, _, stderr := command(t, append([]string{"healthcheck", "--grpc-addr", s.grpc}, args...)...)
			if code != row.code || !strings.Contains(stderr, row.want) {
				t.Errorf("code %d, stderr %q, want %d and %q", code, stderr, row.code, row.want)
			}
		})
	}
}

// TestLimitsOfTokens: a caller's own limit, that of all, and a change of both.
func TestLimitsOfTokens(t *testing.T) {
	o := rig.Origin(t)
	one, lineOne, _ := secure.NewToken("one")
	two, lineTwo, _ := secure.NewToken("two")
	own := func(line string, most int) string {
		return strings.TrimSuffix(line, "}") + fmt.Sprintf(", max-fetches: %d}\n", most)
	}
	f := newFolder(t)
	tokens := f.write("tokens.yaml", []byte(own(lineOne, 1)+lineTwo+"\n"))
	config := f.write("fetchd.yaml", []byte("max-fetches-per-caller: 2\n"))
	s := start(t, append(open(o), "--config", config, "--token-file", tokens)...)
	client, asked := s.dial(nil), 0
	// holds begins fetches that do not end, until one is refused.
	holds := func(token string) (held int) {
		ctx := metadata.AppendToOutgoingContext(t.Context(), "authorization", "Bearer "+token)
		for ; ; held++ {
			asked++
			stream, err := client.Fetch(ctx, &pb.FetchRequest{Url: o.URL("http", fmt.Sprintf("/s/k%d/silent", asked))})
			if err == nil {
				_, err = stream.Recv() // the first event says that it is admitted
			}
			if err != nil {
				wantStatus(t, fmt.Sprintf("fetch %d", held+1), err, codes.ResourceExhausted, "")
				return held
			}
		}
	}
	for _, row := range []struct {
		name, token string
		want        int
	}{{"one", one, 1}, {"two", two, 2}} {
		if got := holds(row.token); got != row.want {
			t.Errorf("%s holds %d fetches, want %d", row.name, got, row.want)
		}
	}
	f.write("tokens.yaml", []byte(own(lineOne, 4)+lineTwo+"\n"))
	f.write("fetchd.yaml", []byte("max-fetches-per-caller: 3\n"))
	if line := s.reload(`"reloaded"`); !strings.Contains(line, `["max-fetches-per-caller","token-file"]`) {
		t.Errorf("log line %s", line)
	}
	for _, row := range []struct {
		name, token string
		more        int
	}{{"one", one, 3}, {"two", two, 1}} {
		if got := holds(row.token); got != row.more {
			t.Errorf("after the reload %s holds %d more fetches, want %d", row.name, got, row.more)
		}
	}
}
