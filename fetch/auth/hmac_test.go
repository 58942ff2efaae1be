package auth_test

import (
	"context"
	"crypto/hmac"
	"crypto/sha512"
	"encoding/base64"
	"errors"
	"fmt"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"fetchd/fetch/auth"
	"fetchd/fetch/signing"
	"fetchd/test/must"
)

// sign returns the fields that a provider adds to a message.
func sign(t *testing.T, p auth.Provider, m *signing.Message) map[string]string {
	t.Helper()
	fields, err := signWith(t, p, m)
	must.Succeed(t, err)
	got := make(map[string]string)
	for _, f := range fields {
		got[f.Name] = f.Value
	}
	if len(got) != len(fields) {
		t.Errorf("a field twice: %v", fields)
	}
	return got
}

func signWith(t *testing.T, p auth.Provider, m *signing.Message) ([]signing.Field, error) {
	t.Helper()
	s, ok := p.(interface {
		Sign(context.Context, *signing.Message) ([]signing.Field, error)
	})
	if !ok {
		t.Fatalf("%T signs nothing", p)
	}
	return s.Sign(t.Context(), m)
}

func keyFile(t *testing.T, content string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "key")
	replace(t, path, content)
	return path
}

func replace(t *testing.T, path, content string) {
	t.Helper()
	must.Succeed(t, os.WriteFile(path+".new", []byte(content), 0o600))
	must.Succeed(t, os.Rename(path+".new", path))
}

var signedOrigins = []string{"https://hooks.example"}

// longKey is a key of 16 bytes, the minimum.
const longKey = "hush-sixteen-byt"

// TestHMACSchemes compares signatures with those that the documentation of the schemes shows.
func TestHMACSchemes(t *testing.T) {
	t.Parallel()
	const slackBody = "token=xyzz0WbapA4vBCDEFasx0q6G&team_id=T1DC2JH3J&team_domain=testteamnow&channel_id=G8PSS9T3V&channel_name=foobar&user_id=U2CERLKJA&user_name=roadrunner&command=%2Fwebhook-collect&text=&response_url=https%3A%2F%2Fhooks.slack.com%2Fcommands%2FT1DC2JH3J%2F397700885554%2F96rGlfmibIGlgcZRskXaIFfN&trigger_id=398738663015.47445629121.803a0bc887a14d10d2c447fce8b6703c"
	const rfcKey = "CwsLCwsLCwsLCwsLCwsLCwsLCws=" // 20 bytes
	sha512Mac := hmac.New(sha512.New, []byte(longKey))
	sha512Mac.Write([]byte("GET/p?q=1"))
	for _, row := range []struct {
		name   string
		key    string
		config auth.HMAC
		m      signing.Message
		want   map[string]string
	}{
		{"Standard Webhooks", "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw\n", auth.HMAC{KeyEncoding: "whsec", Signs: "{id}.{timestamp}.{body}", Encoding: "base64",
			Fields: map[string]string{"webhook-id": "{id}", "webhook-timestamp": "{timestamp}", "webhook-signature": "v1,{signature}"}},
			signing.Message{ID: "msg_p5jXN8AQM9LWM0D4loKWxJek", Time: time.Unix(1614265330, 999), Body: []byte(`{"test": 2432232314}`)},
			map[string]string{"Webhook-Id": "msg_p5jXN8AQM9LWM0D4loKWxJek", "Webhook-Timestamp": "1614265330", "Webhook-Signature": "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE="}},
		{"GitHub", "It's a Secret to Everybody", auth.HMAC{Fields: map[string]string{"X-Hub-Signature-256": "sha256={signature}"}},
			signing.Message{Body: []byte("Hello, World!")},
			map[string]string{"X-Hub-Signature-256": "sha256=757107ea0eb2509fc211221cce984b8a37570b6d7586c22c46f4379c8b043e17"}},
		{"Slack", "8f742231b10e8888abcd99yyyzzz85a5", auth.HMAC{Signs: "v0:{timestamp}:{body}", Fields: map[string]string{"X-Slack-Request-Timestamp": "{timestamp}", "X-Slack-Signature": "v0={signature}"}},
			signing.Message{Time: time.Unix(1531420618, 0), Body: []byte(slackBody)},
			map[string]string{"X-Slack-Request-Timestamp": "1531420618", "X-Slack-Signature": "v0=a2114d57b48eac39b9ad189dd8316235a7b4a8d21a10bd27519666489c69b503"}},
		{"RFC 2202, test case 1", rfcKey, auth.HMAC{KeyEncoding: "base64", Algorithm: "sha1", Fields: map[string]string{"X-Sig": "{signature}"}},
			signing.Message{Body: []byte("Hi There")}, map[string]string{"X-Sig": "b617318655057264e28bc0b6fb378c8ef146be00"}},
		{"RFC 4231, test case 1", rfcKey, auth.HMAC{KeyEncoding: "base64", Algorithm: "sha512", Fields: map[string]string{"X-Sig": "{signature}"}},
			signing.Message{Body: []byte("Hi There")}, map[string]string{"X-Sig": "87aa7cdea5ef619d4ff0b4241a1d6cb02379f4e2ce4ec2787ad0b30545e17cdedaa833b7d6b8a702038b274eaea3f4e4be9d914eeb61f1702e696c203a126854"}},
		{"method and target, without a body", longKey, auth.HMAC{Algorithm: "sha512", Signs: "{method}{target}", Encoding: "base64", Fields: map[string]string{"X-Sig": "{signature}", "X-Key": "fixed"}},
			signing.Message{Method: "GET", Target: "/p?q=1"}, map[string]string{"X-Sig": base64.StdEncoding.EncodeToString(sha512Mac.Sum(nil)), "X-Key": "fixed"}},
	} {
		t.Run(row.name, func(t *testing.T) {
			t.Parallel()
			row.config.KeyFile = keyFile(t, row.key)
			p := mustNew(t, auth.Config{Origins: signedOrigins, HMAC: &row.config})
			if diff := cmp.Diff(row.want, sign(t, p, &row.m)); diff != "" {
				t.Error(diff)
			}
			if name, value, err := p.Field(t.Context()); name != "" || value != "" || err != nil {
				t.Errorf("Field = %s, %s, %v; want nothing", name, value, err)
			}
			if got := auth.Headers(p); len(got) != len(row.want) || !p.Covers(&url.URL{Scheme: "https", Host: "hooks.example"}) || p.Covers(&url.URL{Scheme: "http", Host: "hooks.example"}) {
				t.Errorf("headers %q", got)
			}
			if text := fmt.Sprintf("%v %+v %#v %s", p, p, p, struct{ P auth.Provider }{p}); strings.Contains(text, strings.TrimSpace(row.key)) {
				t.Errorf("the key is in %s", text)
			}
		})
	}
}

// TestNewRefusesHMAC checks that New names the fault, and not the key.
func TestNewRefusesHMAC(t *testing.T) {
	t.Parallel()
	field := map[string]string{"X-Sig": "{signature}"}
	for _, row := range []struct {
		name, key string
		config    auth.HMAC
		text      string
	}{
		{"no such file", "", auth.HMAC{KeyFile: "/nowhere/key", Fields: field}, "/nowhere/key"},
		{"an empty key", " \n", auth.HMAC{Fields: field}, "has 0 bytes"},
		{"an empty base64 key", "", auth.HMAC{KeyEncoding: "base64", Fields: field}, "has 0 bytes"},
		{"a short key", " hush-hush-hush-\n", auth.HMAC{Fields: field}, "has 15 bytes, and the minimum is 16: agree on a longer one with the origin, such as 32 random bytes (file /"},
		{"a short key in base64", "aHVzaC1odXNoLWh1c2gt", auth.HMAC{KeyEncoding: "base64", Fields: field}, "has 15 bytes"},
		{"a short key after whsec_", "whsec_aHVzaC1odXNoLWh1c2gt", auth.HMAC{KeyEncoding: "whsec", Fields: field}, "has 15 bytes"},
		{"no base64", "hush!hush", auth.HMAC{KeyEncoding: "base64", Fields: field}, "base64"},
		{"no whsec_", "aHVzaA==", auth.HMAC{KeyEncoding: "whsec", Fields: field}, "whsec_"},
		{"an unknown key encoding", "hush", auth.HMAC{KeyEncoding: "hex", Fields: field}, "base64, raw, whsec"},
		{"an unknown algorithm", "hush", auth.HMAC{Algorithm: "md5", Fields: field}, "sha1, sha256, sha512"},
		{"an unknown encoding", "hush", auth.HMAC{Encoding: "HEX", Fields: field}, "base64, hex"},
		{"no field", "hush", auth.HMAC{}, "{signature}"},
		{"no field with the signature", "hush", auth.HMAC{Fields: map[string]string{"X-Time": "{timestamp}"}}, "{signature}"},
		{"the signature in what is signed", "hush", auth.HMAC{Signs: "{signature}", Fields: field}, "{signature} is none of"},
		{"the body in a field", "hush", auth.HMAC{Fields: map[string]string{"X-Sig": "{signature}{body}"}}, "{body} is none of"},
		{"an unknown name", "hush", auth.HMAC{Signs: "{time}", Fields: field}, "{time} is none of {id}, {timestamp}, {method}, {target}, {body}"},
		{"an open brace", "hush", auth.HMAC{Signs: "{body", Fields: field}, "none of"},
		{"a closing brace", "hush", auth.HMAC{Signs: "{body}}", Fields: field}, "}"},
		{"a timestamp that is not sent", "hush", auth.HMAC{Signs: "{timestamp}{body}", Fields: field}, "{timestamp}"},
		{"an id that is not sent", "hush", auth.HMAC{Signs: "{id}{body}", Fields: field}, "{id}"},
		{"a field of the framing", "hush", auth.HMAC{Fields: map[string]string{"content-length": "{signature}"}}, "content-length"},
		{"Host", "hush", auth.HMAC{Fields: map[string]string{"HOST": "{signature}"}}, "HOST"},
		{"a field that is none", "hush", auth.HMAC{Fields: map[string]string{"a b": "{signature}"}}, "a b"},
		{"a field twice", "hush", auth.HMAC{Fields: map[string]string{"x-sig": "{signature}", "X-Sig": "{signature}"}}, "twice"},
		{"two lines in a field", "hush", auth.HMAC{Fields: map[string]string{"X-Sig": "{signature}\nX-Other: y"}}, "control character"},
	} {
		t.Run(row.name, func(t *testing.T) {
			t.Parallel()
			if row.config.KeyFile == "" {
				row.config.KeyFile = keyFile(t, row.key)
			}
			p, err := auth.New(auth.Config{Origins: signedOrigins, HMAC: &row.config})
			if err == nil || p != nil || !strings.Contains(fmt.Sprint(err), row.text) || strings.Contains(fmt.Sprint(err), "hush") {
				t.Errorf("%v, %v; want an error with %q and without the key", p, err, row.text)
			}
		})
	}
	for name, cfg := range map[string]auth.Config{
		"a token too":  {Origins: signedOrigins, Static: "hush", HMAC: &auth.HMAC{Fields: field, KeyFile: keyFile(t, longKey)}},
		"a header too": {Origins: signedOrigins, Header: "X", HMAC: &auth.HMAC{Fields: field, KeyFile: keyFile(t, longKey)}},
		"no origins":   {HMAC: &auth.HMAC{Fields: field, KeyFile: keyFile(t, longKey)}},
	} {
		if p, err := auth.New(cfg); err == nil {
			t.Errorf("%s: %v, want an error", name, p)
		}
	}
}

// TestHMACWithoutID checks that nothing is signed with an empty id.
func TestHMACWithoutID(t *testing.T) {
	t.Parallel()
	p := mustNew(t, auth.Config{Origins: signedOrigins, HMAC: &auth.HMAC{KeyFile: keyFile(t, longKey), Signs: "{id}", Fields: map[string]string{"A": "{id}", "B": "{signature}"}}})
	if fields, err := signWith(t, p, new(signing.Message)); err == nil {
		t.Errorf("signed %v", fields)
	}
}

// TestKeyFile checks that a key is read again when its file changes and when it is rejected, and that an invalid
// file leaves the last key.
func TestKeyFile(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		path := keyFile(t, longKey+"one")
		p := mustNew(t, auth.Config{Origins: signedOrigins, HMAC: &auth.HMAC{KeyFile: path, Fields: map[string]string{"X-Sig": "{signature}"}}})
		now := func() string { return sign(t, p, &signing.Message{Body: []byte("x")})["X-Sig"] }
		first := now()
		if err := p.Refresh(t.Context(), first); !errors.Is(err, auth.ErrRefused) {
			t.Errorf("Refresh of the key that the file still has = %v, want ErrRefused", err)
		}
		replace(t, path, longKey+"two")
		if got := now(); got != first {
			t.Error("the file is checked more than once a second")
		}
		<-time.After(time.Second)
		if err := p.Refresh(t.Context(), first); err != nil {
			t.Errorf("Refresh = %v", err)
		}
		second := now()
		if second == first {
			t.Error("the key is the old one")
		}
		if err := p.Refresh(t.Context(), first); err != nil {
			t.Errorf("Refresh of a straggler = %v", err)
		}
		<-time.After(time.Minute)
		if err := p.Refresh(t.Context(), second); !errors.Is(err, auth.ErrRefused) {
			t.Errorf("Refresh a minute later = %v, want ErrRefused", err)
		}
		replace(t, path, longKey+"three")
		<-time.After(2 * time.Second)
		third := now()
		if third == second {
			t.Error("a changed file is not read again")
		}
		replace(t, path, "short")
		<-time.After(2 * time.Second)
		if got := now(); got != third {
			t.Error("a key that is too short replaces the key")
		}
		if err := p.Refresh(t.Context(), third); err == nil || errors.Is(err, auth.ErrRefused) {
			t.Errorf("Refresh with a short key = %v, want its error", err)
		}
	})
}

// TestRejectionsReadOnceASecond has an origin that rejects everything. Its fetches read the file once a second.
func TestRejectionsReadOnceASecond(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		path := keyFile(t, longKey)
		p := mustNew(t, auth.Config{Origins: signedOrigins, HMAC: &auth.HMAC{KeyFile: path, Fields: map[string]string{"X-Sig": "{signature}"}}})
		for _, row := range []struct {
			name, content string
			then          func(error) bool // in the second that begins
			later         func(error) bool // with the content
		}{
			{"another key", longKey + "two", refused, none},
			{"a broken file", "short", none, fails},
			{"a key again", longKey + "three", fails, none},
		} {
			<-time.After(time.Second)
			_ = p.Refresh(t.Context(), "") // it begins the second
			replace(t, path, row.content)
			for range 100 {
				if err := p.Refresh(t.Context(), ""); !row.then(err) {
					t.Fatalf("%s: Refresh in the same second = %v: it read the file", row.name, err)
				}
				<-time.After(time.Second / 101)
			}
			<-time.After(time.Second / 50)
			if err := p.Refresh(t.Context(), ""); !row.later(err) {
				t.Errorf("%s: Refresh a second later = %v", row.name, err)
			}
		}
	})
}

func none(err error) bool    { return err == nil }
func refused(err error) bool { return errors.Is(err, auth.ErrRefused) }
func fails(err error) bool   { return err != nil && !refused(err) }
