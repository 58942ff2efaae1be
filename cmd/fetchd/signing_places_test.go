package main

import (
	"errors"
	"fmt"
	"io"
	"net"
	"slices"
	"strings"
	"testing"

	"google.golang.org/grpc/codes"
	"google.golang.org/protobuf/types/known/durationpb"

	"fetchd/conformance/origin"
	pb "fetchd/gen/fetchd/v1"
	"fetchd/test/dnstest"
	"fetchd/test/rig"
	"fetchd/test/signatures"
)

// kinds are the kinds of providers that sign: the key of the origins file, one with another key, and the fields
// that they add.
var kinds = map[string]struct {
	provider, other string
	fields          []string
}{
	"hmac": {
		`hmac: {key-file: DIR/key, signs: "{id}.{timestamp}.{body}", fields: {webhook-id: "{id}", webhook-timestamp: "{timestamp}", webhook-signature: "v1,{signature}"}}`,
		`hmac: {key-file: DIR/other-key, signs: "{id}.{timestamp}.{body}", fields: {webhook-id: "{id}", webhook-timestamp: "{timestamp}", webhook-signature: "v1,{signature}"}}`,
		[]string{"webhook-id", "webhook-signature", "webhook-timestamp"}},
	"aws-sigv4": {
		`aws-sigv4: {region: us-east-1, service: s3, credentials-file: DIR/aws}`,
		`aws-sigv4: {region: us-east-1, service: s3, credentials-file: DIR/aws, profile: other}`,
		[]string{"authorization", "x-amz-content-sha256", "x-amz-date", "x-amz-security-token"}},
	"http-signature": {
		`http-signature: {key-files: [DIR/p256], optional: [range]}`,
		`http-signature: {key-files: [DIR/ed25519], optional: [range]}`,
		[]string{"content-digest", "signature", "signature-input"}},
	"web-bot-auth": {
		`http-signature: {key-files: [DIR/ed25519], profile: web-bot-auth, agent: "https://bot.example", optional: [range]}`,
		`http-signature: {key-files: [DIR/p256], profile: web-bot-auth, agent: "https://bot.example", optional: [range]}`,
		[]string{"signature", "signature-agent", "signature-input"}},
}

// places are an origin with several names and listeners, and two services that sign for one of them.
type places struct {
	*service
	origin *origin.Origin
	ports  *strings.Replacer     // of ports in URLs
	own    string                // the host and port for which is signed
	here   pb.FetchServiceClient // a service
	there  pb.FetchServiceClient // another replica, with more providers
}

// in returns p for a subtest.
func (p *places) in(t *testing.T) *places {
	c := *p
	c.service = p.service.in(t)
	return &c
}

func newPlaces(t *testing.T) *places {
	t.Helper()
	o, f := rig.Origin(t), newFolder(t)
	for name, text := range map[string]string{"key": "hush-key-of-the-tests", "other-key": "hush-key-of-other-tests", "p256": signatures.JWKP256, "ed25519": signatures.PEMEd25519,
		"aws": "[default]\naws_access_key_id=A\naws_secret_access_key=hush\naws_session_token=hush\n[other]\naws_access_key_id=B\naws_secret_access_key=hush\naws_session_token=hush\n"} {
		f.write(name, []byte(text))
	}
	var ports []string
	for _, listener := range []string{"https1", "https", "http"} {
		_, port, err := net.SplitHostPort(o.Addr(listener))
		must(t, err)
		ports = append(ports, strings.ToUpper(listener), port)
	}
	p := &places{origin: o, ports: strings.NewReplacer(ports...)}
	p.own = p.ports.Replace("origin.test:HTTPS")
	here, there := "providers:\n", "providers:\n"
	for name, kind := range kinds {
		provider := func(name, origin, text string) string {
			return fmt.Sprintf("  %s: {origins: ['%s'], %s}\n", name, origin, text)
		}
		own := "https://" + p.own
		if name == "web-bot-auth" {
			own = "https://*"
		}
		here += provider(name, own, kind.provider) + provider(name+"-plain", p.ports.Replace("http://origin.test:HTTP"), kind.provider)
		there += provider(name, own, kind.provider) + provider(name+"-other", own, kind.other) + provider(name+"-nobody", own, kind.provider+", callers: [nobody]") +
			provider(name+"-else", p.ports.Replace("https://www.origin.test:HTTPS"), kind.provider)
	}
	resolver := dnstest.Serve(t, map[string]string{"origin.test": "127.0.0.1", "sub.origin.test": "127.0.0.1", "www.origin.test": "127.0.0.1"})
	run := func(file, text string) *service {
		return start(t, append(rig.Reach(t, []string{"http", "https", "https1"}, o), "--egress-resolver", resolver,
			"--origins-file", f.write(file, []byte(strings.ReplaceAll(text, "DIR", f.dir))))...)
	}
	p.service = run("here.yaml", here)
	p.here, p.there = p.dial(nil), run("there.yaml", there).dial(nil)
	return p
}

// keyOf returns a key of the origin for a subtest.
func keyOf(t *testing.T) string {
	return strings.NewReplacer("/", "-", " ", "-", "#", "-").Replace(t.Name())
}

// to returns a URL as the argument of a step of the origin.
func to(url string) string {
	return "to=" + strings.NewReplacer("%", "%25", ":", "%3A", "/", "%2F", ",", "%2C", "=", "%3D", "@", "%40").Replace(url)
}

// fetchOf runs a fetch to its end. It is retried without a delay.
func fetchOf(t *testing.T, service pb.FetchServiceClient, in *pb.FetchRequest) (outcome *pb.FetchOutcome, err error) {
	t.Helper()
	if in.GetRetryPolicy() == nil {
		in.RetryPolicy = new(pb.RetryPolicy)
	}
	in.RetryPolicy.BaseDelay = durationpb.New(0)
	stream, err := service.Fetch(t.Context(), in)
	for err == nil {
		var m *pb.FetchResponse
		m, err = stream.Recv()
		for _, e := range m.GetEvents() {
			outcome = e.GetOutcome()
		}
	}
	if errors.Is(err, io.EOF) {
		err = nil
	}
	return outcome, err
}

// wantSigned compares the requests of some keys with a kind of provider: those that it is for have its fields, and no request has
// other fields that any kind adds. It returns the requests.
func (p *places) wantSigned(kind string, signs func(*origin.Request) bool, keys ...string) []origin.Request {
	p.Helper()
	var all []origin.Request
	seen := make(map[string]bool)
	for _, key := range keys {
		all = append(all, p.origin.Requests(key)...)
	}
	for _, q := range all {
		var want, got []string
		if signs(&q) {
			want = kinds[kind].fields
		}
		for _, field := range q.Fields {
			name := strings.ToLower(field.Name)
			added := strings.HasPrefix(name, "x-amz-")
			for _, k := range kinds {
				added = added || slices.Contains(k.fields, name)
			}
			if added {
				got = append(got, name)
			}
		}
		if slices.Sort(got); !slices.Equal(got, want) {
			p.Errorf("%s %s at %s of %s has %q, want %q", q.Method, q.Path, q.Host, q.Listener, got, want)
		}
		if signature := q.Header.Get("Signature"); signature != "" && seen[signature] {
			p.Errorf("%s %s at %s has the signature of another request", q.Method, q.Path, q.Host)
		}
		seen[q.Header.Get("Signature")] = true
	}
	return all
}

// covers returns a function that reports whether the provider of a kind is for a request.
func (p *places) covers(kind string) func(*origin.Request) bool {
	return func(q *origin.Request) bool {
		return strings.EqualFold(q.Host, p.own) || kind == "web-bot-auth" && q.Listener != "http"
	}
}

// TestSignedRedirects follows redirects from the origin of a provider to other places and back, and retries them. It
// judges by the raw fields that the origin has received.
func TestSignedRedirects(t *testing.T) {
	t.Parallel()
	p := newPlaces(t)
	for kind := range kinds {
		for _, place := range []struct{ name, base string }{
			{"another host", "https://www.origin.test:HTTPS"},
			{"a name below", "https://sub.origin.test:HTTPS"},
			{"the address", "https://127.0.0.1:HTTPS"},
			{"another port", "https://origin.test:HTTPS1"},
			{"a downgrade", "http://origin.test:HTTP"},
			{"a downgrade to another host", "http://www.origin.test:HTTP"},
			{"another spelling", "https://ORIGIN.Test:HTTPS"},
			{"no scheme", "//www.origin.test:HTTPS"},
		} {
			for _, status := range []int{301, 302, 303, 307, 308} {
				for _, forward := range []bool{false, true} {
					t.Run(fmt.Sprintf("%s to %s %d forward %t", kind, place.name, status, forward), func(t *testing.T) {
						t.Parallel()
						p, key := p.in(t), keyOf(t)
						own := "https://" + p.own + "/s/" + key
						away := fmt.Sprintf("%s/s/%saway/%d:%s", p.ports.Replace(place.base), key, status, to(own+"back/503/200"))
						out, err := fetchOf(t, p.here, &pb.FetchRequest{Url: fmt.Sprintf("%s/%d:%s", own, status, to(away)), Method: "PUT", Body: []byte("body"),
							AuthProvider: kind, RedirectPolicy: &pb.RedirectPolicy{ForwardCredentials: forward}})
						all := p.wantSigned(kind, p.covers(kind), key, key+"away", key+"back")
						if err != nil || out.GetError() != nil || len(all) != 6 {
							t.Errorf("%v %v after %d requests, want 6", err, out.GetError(), len(all))
						}
					})
				}
			}
		}
		for _, row := range []struct {
			name, provider string
			request        *pb.FetchRequest // its URL is a script
			want           int
		}{
			{"an upgrade", kind + "-plain", &pb.FetchRequest{Url: "http://origin.test:HTTP/s/KEY/302:" + to("https://origin.test:HTTPS/s/KEYaway/503/200")}, 4},
			{"a hop sent again elsewhere", kind, &pb.FetchRequest{Method: "POST", Url: "https://origin.test:HTTPS/s/KEY/303:" + to("https://www.origin.test:HTTPS/s/KEYaway/503/200")}, 3},
			{"a body resumed elsewhere", kind, &pb.FetchRequest{Url: "https://origin.test:HTTPS/s/KEY/302:" +
				to("https://www.origin.test:HTTPS/s/KEYaway/200:size=1000000,etag=%22v1%22,range,cut=300000/200:size=1000000,etag=%22v1%22,range"), BodyPolicy: streamed()}, 4},
			{"refused elsewhere", kind, &pb.FetchRequest{Url: "https://origin.test:HTTPS/s/KEY/302:" + to("https://www.origin.test:HTTPS/s/KEYaway/401")}, 2},
			{"its own name as userinfo", kind, &pb.FetchRequest{Url: "https://origin.test:HTTPS/s/KEY/302:" + to("https://origin.test@www.origin.test:HTTPS/s/KEYaway/200")}, 1},
			{"refused in plaintext", kind, &pb.FetchRequest{Url: "https://origin.test:HTTPS/s/KEY/302:" + to("http://origin.test:HTTP/s/KEYaway/401")}, 2},
		} {
			t.Run(kind+" "+row.name, func(t *testing.T) {
				t.Parallel()
				p, key := p.in(t), keyOf(t)
				signs := p.covers(kind)
				if row.provider != kind {
					signs = func(q *origin.Request) bool { return q.Listener == "http" }
				}
				row.request.Url, row.request.AuthProvider = p.ports.Replace(strings.ReplaceAll(row.request.GetUrl(), "KEY", key)), row.provider
				out, err := fetchOf(t, p.here, row.request)
				if all := p.wantSigned(kind, signs, key, key+"away"); err != nil || len(all) != row.want {
					t.Errorf("%v %v after %d requests, want %d", err, out.GetError(), len(all), row.want)
				}
			})
		}
	}
}

// streamed delivers a body without a hold-back, from an offset if that is not 0.
func streamed(offset ...int64) *pb.BodyPolicy {
	none := int64(0)
	s := &pb.StreamDelivery{MaxHoldBackBytes: &none}
	for _, n := range offset {
		s.ResumePoint = &pb.ResumePoint{OffsetBytes: n, Validator: `"v1"`}
	}
	return &pb.BodyPolicy{Delivery: &pb.BodyPolicy_Stream{Stream: s}}
}

// TestSignedAtAnotherReplica continues a body, which was interrupted at one service, at another one.
func TestSignedAtAnotherReplica(t *testing.T) {
	t.Parallel()
	p := newPlaces(t)
	const whole = "200:size=1000000,etag=%22v1%22,range"
	for kind := range kinds {
		for _, row := range []struct {
			name, provider string
			then           string // steps after the first, which is interrupted
			code           codes.Code
			want           []string // the ranges of all requests
			signed         bool     // the requests to the provider's origin, after the first
		}{
			{"the same key", kind, whole, codes.OK, []string{"", "bytes=300000-"}, true},
			{"another key", kind + "-other", whole, codes.OK, []string{"", "bytes=300000-"}, true},
			{"interrupted again", kind, whole + ",cut=300000/" + whole, codes.OK, []string{"", "bytes=300000-", "bytes=600000-"}, true},
			{"retried", kind, "503/" + whole, codes.OK, []string{"", "bytes=300000-", "bytes=300000-"}, true},
			{"redirected to another host", kind, "302:" + to("https://www.origin.test:HTTPS/s/KEYaway/"+whole), codes.OK, []string{"", "bytes=300000-", "bytes=300000-"}, true},
			{"redirected in plaintext", kind, "307:" + to("http://origin.test:HTTP/s/KEYaway/"+whole), codes.OK, []string{"", "bytes=300000-", "bytes=300000-"}, true},
			{"no provider", "", whole, codes.OK, []string{"", "bytes=300000-"}, false},
			{"a provider that is unknown there", kind + "-plain", whole, codes.InvalidArgument, []string{""}, false},
			{"a provider of another origin", kind + "-else", whole, codes.InvalidArgument, []string{""}, false},
			{"a provider for other callers", kind + "-nobody", whole, codes.PermissionDenied, []string{""}, false},
		} {
			t.Run(kind+" "+row.name, func(t *testing.T) {
				t.Parallel()
				p, key := p.in(t), keyOf(t)
				url := p.ports.Replace("https://origin.test:HTTPS/s/" + key + "/" + whole + ",cut=300000/" + strings.ReplaceAll(row.then, "KEY", key))
				one := int32(1)
				out, err := fetchOf(t, p.here, &pb.FetchRequest{Url: url, AuthProvider: kind, BodyPolicy: streamed(), RetryPolicy: &pb.RetryPolicy{MaxAttempts: &one}})
				if err != nil || out.GetError().GetErrorClass() != pb.ErrorClass_ERROR_CLASS_BODY_INTERRUPTED {
					t.Fatalf("the first fetch: %v %v", err, out)
				}
				out, err = fetchOf(t, p.there, &pb.FetchRequest{Url: url, AuthProvider: row.provider, BodyPolicy: streamed(300_000)})
				if codeOf(err) != row.code || out.GetError() != nil {
					t.Errorf("%v %v, want %s", err, out.GetError(), row.code)
				}
				covers := p.covers(kind)
				all := p.wantSigned(kind, func(q *origin.Request) bool { return covers(q) && (q.Header.Get("Range") == "" || row.signed) }, key, key+"away")
				var got []string
				for _, q := range all {
					got = append(got, q.Header.Get("Range"))
					if input := q.Header.Get("Signature-Input") + q.Header.Get("Authorization"); input != "" && strings.Contains(input, "range") != (q.Header.Get("Range") != "") {
						t.Errorf("the range %q is signed by %s", q.Header.Get("Range"), input)
					}
				}
				if !slices.Equal(got, row.want) {
					t.Errorf("ranges %q, want %q", got, row.want)
				}
				if row.name == "another key" && len(all) == 2 && keyID(&all[0]) == keyID(&all[1]) && kind != "hmac" {
					t.Errorf("both are signed with the key of %q", keyID(&all[0]))
				}
			})
		}
	}
}

// keyID returns the part of a signature that names its key.
func keyID(q *origin.Request) string {
	_, id, _ := strings.Cut(q.Header.Get("Signature-Input"), "keyid=")
	id, _, _ = strings.Cut(id+q.Header.Get("Authorization"), "/")
	id, _, _ = strings.Cut(id, ";")
	return id
}
