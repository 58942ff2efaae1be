package main

import (
	"fmt"
	"net/netip"
	"strings"
	"testing"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	pb "fetchd/gen/fetchd/v1"
	"fetchd/test/rig"
)

// TestOrigins reaches an origin with an authority of its own that wants a client
// certificate, and one that wants a token.
func TestOrigins(t *testing.T) {
	t.Parallel()
	o, f := rig.Origin(t), newFolder(t)
	_, client, err := ask(t.Context(), nil, o.Addr("http"), "/_client.pem", "")
	must(t, err)
	pair := f.write("client.pem", []byte(client))
	base := func(listener string) string { return strings.TrimSuffix(o.URL(listener, "/"), "/") }
	file := f.write("origins.yaml", fmt.Appendf(nil, `
profiles:
  %s:
    ca-file: %s
    cert-file: %s
    key-file: %s
providers:
  api:
    origins: [%s]
    token: s3cr3t
  private:
    origins: [%s]
    token: s3cr3t
    callers: [nobody]
`, base("mtls"), f.write("ca.pem", o.CAPEM()), pair, pair, base("http"), base("http")))
	args := []string{"--origins-file", file, "--egress-allow-cidr", "127.0.0.0/8"}
	for _, name := range []string{"http", "mtls", "https"} {
		args = append(args, "--egress-allow-port", fmt.Sprint(netip.MustParseAddrPort(o.Addr(name)).Port()))
	}
	s := start(t, args...)
	call := s.dial(nil)
	fetch := func(in *pb.FetchRequest) (*pb.FetchOutcome, error) {
		out, err := call.FetchUnary(t.Context(), in)
		return out.GetOutcome(), err
	}
	for _, row := range []struct {
		name  string
		in    *pb.FetchRequest
		code  codes.Code
		class pb.ErrorClass
	}{
		{"with the profile", &pb.FetchRequest{Url: o.URL("mtls", "/s/a/200")}, codes.OK, 0},
		{"another origin of that authority", &pb.FetchRequest{Url: o.URL("https", "/s/b/200")}, codes.OK, pb.ErrorClass_ERROR_CLASS_TLS_CERTIFICATE},
		{"with the provider", &pb.FetchRequest{Url: o.URL("http", "/s/c/200:require=Authorization"), AuthProvider: "api"}, codes.OK, 0},
		{"without it", &pb.FetchRequest{Url: o.URL("http", "/s/d/200:require=Authorization")}, codes.OK, pb.ErrorClass_ERROR_CLASS_AUTH_REQUIRED},
		{"a token that is refused", &pb.FetchRequest{Url: o.URL("http", "/s/e/401"), AuthProvider: "api"}, codes.OK, pb.ErrorClass_ERROR_CLASS_AUTH_REQUIRED},
		{"a provider of another origin", &pb.FetchRequest{Url: o.URL("mtls", "/s/f/200"), AuthProvider: "api"}, codes.InvalidArgument, 0},
		{"an unknown provider", &pb.FetchRequest{Url: o.URL("http", "/s/g/200"), AuthProvider: "apo"}, codes.InvalidArgument, 0},
		{"a header beside the provider", &pb.FetchRequest{Url: o.URL("http", "/s/h/200"), AuthProvider: "api", Headers: []*pb.Header{{Name: "authorization", Value: "x"}}}, codes.InvalidArgument, 0},
		{"somebody else's provider", &pb.FetchRequest{Url: o.URL("http", "/s/i/200"), AuthProvider: "private"}, codes.PermissionDenied, 0},
	} {
		out, err := fetch(row.in)
		if status.Code(err) != row.code || out.GetError().GetErrorClass() != row.class {
			t.Errorf("%s: %v, %s; want %s, %s", row.name, err, out.GetError().GetErrorClass(), row.code, row.class)
		}
		if strings.Contains(fmt.Sprint(err), "s3cr3t") {
			t.Errorf("%s: the error has the token", row.name)
		}
	}
	if got := o.Requests("c")[0].Header.Get("Authorization"); got != "Bearer s3cr3t" {
		t.Errorf("the origin was sent %q", got)
	}
	if strings.Contains(s.log.String(), "s3cr3t") {
		t.Error("the token is logged")
	}
}

// TestOriginsFileRefuses names what is wrong in the file, and no secret.
func TestOriginsFileRefuses(t *testing.T) {
	t.Parallel()
	ca := newFolder(t).write("ca.pem", newAuthority(t).pem)
	const emptyCallers = "line 1: callers: is empty or has an empty name: name the callers, or"
	for _, row := range []struct{ name, text, want string }{
		{"an unknown key", "provider: {}", `: line 1: "provider" is not a key of the file: did you mean providers?`},
		{"a secret in the wrong place", "providers: s3cr3t", "line 1: providers: want names"},
		{"a list for a map", "providers: [s3cr3t]", "line 1: providers: want names"},
		{"a list for a provider", "providers: {api: [s3cr3t]}", "line 1: providers: want keys"},
		{"a list for the file", "[s3cr3t]", "want YAML with profiles and providers, and in them the keys of docs/operating.md and docs/signing.md"},
		{"a text for the file", "s3cr3t", "want YAML with profiles"},
		{"a misspelt key", "providers:\n  api:\n    http-signature:\n      keyfile: s3cr3t\n", `line 4: "keyfile" is not a key of http-signature: did you mean key-files?`},
		{"a key in capitals", "providers: {api: {hmac: {Key_File: s3cr3t}}}", `line 1: "Key_File" is not a key of hmac: did you mean key-file?`},
		{"a key of another part", "providers: {api: {hmac: {token-url: s3cr3t}}}", "a key (not repeated here) is none of hmac, which has key-file, key-encoding, algorithm, signs, encoding, fields"},
		{"a duration without a unit", "providers: {api: {http-signature: {lifetime: 1}}}", "line 1: lifetime: 1 is no duration: give its unit too, such as 1s or 1m"},
		{"a text for a duration", "providers: {api: {http-signature: {lifetime: s3cr3t}}}", "line 1: lifetime: want a duration, such as 1m"},
		{"a number for a duration that may be a secret", "providers: {api: {http-signature: {lifetime: 1234567890}}}", "line 1: lifetime: want a duration, such as 1m"},
		{"a text for a list", "providers: {api: {http-signature: {key-files: s3cr3t}}}", "line 1: key-files: want a list, as [A, B]"},
		{"a text for a number", "providers: {api: {http-signature: {on-challenge: [401, s3cr3t]}}}", "line 1: on-challenge: want a whole number"},
		{"a text for a choice", "providers: {api: {client: {in-body: s3cr3t}}}", "line 1: in-body: want true or false"},
		{"keys for a text", "providers: {api: {token: {a: s3cr3t}}}", "line 1: token: want a text"},
		{"a key twice", "providers: {api: {token: s3cr3t, token: s3cr3t}}", "line 1: token is given twice: keep one"},
		{"a name twice", "providers: {api: {}, api: {}}", "line 1: not usable"},
		{"two faults", "provider: {}\nproviders: {api: {hmac: {keyfile: s3cr3t}}}", `did you mean providers?; line 2: "keyfile"`},
		{"an anchor in itself", "providers: &a {api: *a, x: {s3cr3t: x}}", "line 1"},
		{"no origins", "providers: {api: {token: s3cr3t}}", "providers: api: auth: origins"},
		{"no token file", "providers: {api: {origins: ['https://a.example'], token-file: /nowhere}}", "providers: api: auth: token-file: open /nowhere: "},
		{"a folder for a token", "providers: {api: {origins: ['https://a.example'], token-file: /}}", "auth: token-file: / is no regular file: give"},
		{"no key for hmac", "providers: {api: {origins: ['https://a.example'], hmac: {fields: {X-Sig: '{signature}'}}}}", "providers: api: auth: hmac: key-file: is missing: give"},
		{"no key file for hmac", "providers: {api: {origins: ['https://a.example'], hmac: {key-file: /nowhere, fields: {X-Sig: '{signature}'}}}}", "hmac: key-file: open /nowhere: "},
		{"a folder for hmac", "providers: {api: {origins: ['https://a.example'], hmac: {key-file: /, fields: {X-Sig: '{signature}'}}}}", "hmac: key-file: / is no regular file"},
		{"no credentials", "providers: {api: {origins: ['https://a.example'], aws-sigv4: {region: a, service: s3}}}", "aws-sigv4: credentials-file: is missing: give"},
		{"no credentials file", "providers: {api: {origins: ['https://a.example'], aws-sigv4: {region: a, service: s3, credentials-file: /nowhere}}}", "aws-sigv4: credentials-file: open /nowhere: "},
		{"nothing to send", "providers: {api: {origins: ['https://a.example']}}", "give exactly one of"},
		{"a profile in plaintext", "profiles: {'http://a.example': {ca-file: x}}", "https://"},
		{"an empty profile", "profiles: {'https://a.example': {}}", "ca-file"},
		{"no such authority", "profiles: {'https://a.example': {ca-file: /nowhere}}", "/nowhere"},
		{"callers of an authority alone", "profiles: {'https://a.example': {ca-file: PEM, callers: [alice]}}", `profiles: https://a.example: callers: ["alice"]: there is no certificate`},
		{"callers that are none", "profiles: {'https://a.example': {cert-file: x, key-file: x, callers: []}}", emptyCallers},
		{"no callers of a profile", "profiles: {'https://a.example': {cert-file: x, key-file: x, callers: }}", emptyCallers},
		{"a caller without a name", "profiles: {'https://a.example': {cert-file: x, key-file: x, callers: [alice, '']}}", emptyCallers},
		{"callers of a provider that are none", "providers: {api: {origins: ['https://a.example'], token: x, callers: []}}", emptyCallers},
		{"no callers of a provider", "providers: {api: {origins: ['https://a.example'], token: x, callers: }}", emptyCallers},
		{"a caller of a provider without a name", "providers: {api: {origins: ['https://a.example'], token: x, callers: [~]}}", emptyCallers},
		{"no callers by an anchor", "providers: {api: {origins: ['https://a.example'], token: x, scheme: &a , callers: *a}}", emptyCallers},
		{"an origin twice", "profiles: {'https://a.example': {ca-file: PEM}, 'https://A.example:443/': {ca-file: PEM}}", "a.example:443: keep one"},
		{"a certificate without a key", "profiles: {'https://a.example': {cert-file: x}}", "key-file"},
		{"no such secret", "providers: {api: {origins: ['https://a.example'], client: {token-url: 'https://t.example', id: a, secret-file: /nowhere}}}", "/nowhere"},
		{"no YAML", "providers: {", "not usable"},
		{"a secret as an anchor", "providers: {api: {token: *s3cr3t}}", "not usable"},
		{"a secret as a key", "providers: {api: {s3cr3t: x}}", "line 1: a key (not repeated here) is none of providers, which has origins, callers, header,"},
		{"a secret in an origin", "providers: {api: {token: x, origins: ['https://u:s3cr3t@a.example']}}", "userinfo"},
		{"a secret as a scheme", "providers: {api: {token: x, scheme: 'Bearer s3cr3t', origins: ['https://a.example']}}", "scheme"},
		{"a second document", "providers: {}\n---\nproviders: {}", "second document"},
	} {
		t.Run(row.name, func(t *testing.T) {
			t.Parallel()
			path := newFolder(t).write("origins.yaml", []byte(strings.ReplaceAll(row.text, "PEM", ca)))
			_, err := readOrigins(path, new(origins))
			if text := fmt.Sprint(err); err == nil || !strings.Contains(text, row.want) || !strings.Contains(text, path) || strings.Contains(text, "s3cr3t") {
				t.Errorf("%v, want an error with %q and the file's name, without the secret", err, row.want)
			}
		})
	}
	s := &settings{commandLine: commandLine{flags: flags{EgressProxy: "http://127.0.0.1:3128", OriginsFile: newFolder(t).write("origins.yaml", []byte("profiles: {'https://a.example': {ca-file: "+ca+"}}"))}}}
	if _, err := s.readOrigins(new(origins)); !strings.Contains(fmt.Sprint(err), "--egress-proxy") {
		t.Errorf("with a proxy: %v, want an error about it", err)
	}
	if o, err := readOrigins(newFolder(t).write("empty.yaml", nil), new(origins)); err != nil || len(o.profiles)+len(o.providers) != 0 {
		t.Errorf("an empty file: %v", err)
	}
}
