package main

import (
	"crypto/tls"
	"encoding/pem"
	"fmt"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"

	"google.golang.org/grpc/metadata"

	pb "fetchd/gen/fetchd/v1"
	"fetchd/internal/secure"
	"fetchd/test/signatures"
)

// TestProfileCallers checks that the certificate of a profile is shown only for its callers.
func TestProfileCallers(t *testing.T) {
	t.Parallel()
	origin := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, _ = fmt.Fprintf(w, "%d certificates", len(r.TLS.PeerCertificates))
	}))
	origin.TLS = &tls.Config{ClientAuth: tls.RequestClientCert}
	origin.StartTLS()
	defer origin.Close()
	f, a := newFolder(t), newAuthority(t)
	cert, key := a.sign(wish{})
	ca := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: origin.Certificate().Raw})
	file := f.write("origins.yaml", fmt.Appendf(nil, "profiles:\n  %s:\n    ca-file: %s\n    cert-file: %s\n    key-file: %s\n    callers: [alice]\n",
		origin.URL, f.write("ca.pem", ca), f.write("client.pem", cert), f.write("client-key.pem", key)))
	bob, line, err := secure.NewToken("bob")
	must(t, err)
	alice, tokens := f.tokenOf("alice", line+"\n")
	_, port, _ := strings.Cut(origin.Listener.Addr().String(), ":")
	s := start(t, "--origins-file", file, "--token-file", tokens, "--egress-allow-cidr", "127.0.0.0/8", "--egress-allow-port", port)
	c, request := s.dial(nil), &pb.FetchRequest{Url: origin.URL}
	for _, row := range []struct{ name, token, want string }{
		{"alice", alice, "1 certificates"}, {"bob", bob, "0 certificates"}, {"alice again", alice, "1 certificates"}, {"bob again", bob, "0 certificates"},
	} {
		ctx := metadata.AppendToOutgoingContext(t.Context(), "authorization", "Bearer "+row.token)
		unary, err := c.FetchUnary(ctx, request)
		if got := string(unary.GetOutcome().GetInlineBody()); err != nil || got != row.want {
			t.Errorf("%s, FetchUnary: %q, %v; want %q", row.name, got, err, row.want)
		}
	}
}

// TestCallersOfProfiles checks which callers the certificate of a profile is for, by its
// own callers and those of its origin's providers.
func TestCallersOfProfiles(t *testing.T) {
	t.Parallel()
	f, a := newFolder(t), newAuthority(t)
	cert, key := a.sign(wish{})
	profile := fmt.Sprintf("profiles:\n  https://a.example:\n    cert-file: %s\n    key-file: %s\n", f.write("cert.pem", cert), f.write("key.pem", key))
	provider := func(name, origin, callers string) string {
		return fmt.Sprintf("  %s:\n    origins: [%s]\n    token: hush\n%s", name, origin, callers)
	}
	bot := func(name, callers string) string {
		return fmt.Sprintf("  %s:\n    origins: ['https://*']\n    http-signature: {key-files: [%s], profile: web-bot-auth, agent: 'https://bot.example'}\n%s", name, f.write("bot.pem", []byte(signatures.PEMEd25519)), callers)
	}
	const own, other, alice, bob = "https://a.example", "https://b.example", "    callers: [alice]\n", "    callers: [bob, alice]\n"
	for _, row := range []struct {
		name, file string
		want       []string // nil: everybody
	}{
		{"no provider", profile, nil},
		{"its own", profile + alice + "providers:\n" + provider("p", own, bob), []string{"alice"}},
		{"those of the provider", profile + "providers:\n" + provider("p", own, bob), []string{"alice", "bob"}},
		{"those of all providers", profile + "providers:\n" + provider("p", own, alice) + provider("q", own+":443", bob), []string{"alice", "bob"}},
		{"one provider for everybody", profile + "providers:\n" + provider("p", own, alice) + provider("q", own, ""), nil},
		{"a provider of another origin", profile + "providers:\n" + provider("p", other, alice), nil},
		{"a provider for all origins and everybody", profile + "providers:\n" + provider("p", own, alice) + bot("q", ""), []string{"alice"}},
		{"a provider for all origins and others", profile + "providers:\n" + provider("p", own, alice) + bot("q", bob), []string{"alice"}},
		{"everybody, whatever the provider says", profile + "    callers: [\"*\"]\nproviders:\n" + provider("p", own, alice), nil},
	} {
		t.Run(row.name, func(t *testing.T) {
			t.Parallel()
			f := f.in(t)
			o, err := readOrigins(f.write(strings.ReplaceAll(row.name, " ", "-")+".yaml", []byte(row.file)), new(origins))
			must(t, err)
			if got := o.profiles["a.example:443"].Callers; !slices.Equal(got, row.want) {
				t.Errorf("callers %q, want %q", got, row.want)
			}
		})
	}
}
