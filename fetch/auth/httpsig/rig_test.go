package httpsig_test

import (
	"fmt"
	"net/http"
	"net/url"
	"os"
	"testing"
	"time"

	"fetchd/fetch/auth/httpsig"
	"fetchd/fetch/signing"
	"fetchd/test/must"
	"fetchd/test/signatures"
)

// vectors is the folder with signatures that others made.
const vectors = "../../../test/signatures/testdata/"

func read(t *testing.T, name string) string {
	t.Helper()
	raw, err := os.ReadFile(vectors + name)
	must.Succeed(t, err)
	return string(raw)
}

// received returns a message of a vector.
func received(t *testing.T, name string) *signatures.Message {
	t.Helper()
	m, err := signatures.Parse([]byte(read(t, name)), "https")
	must.Succeed(t, err)
	return m
}

// unsigned returns the request of a received message, without its signature.
func unsigned(m *signatures.Message) *signing.Message {
	r := &signing.Message{Time: now, Method: m.Method, URL: &url.URL{Scheme: m.Scheme}, Authority: m.Authority, Target: m.Target, Header: http.Header{}, Body: m.Body}
	for _, line := range m.Lines {
		if line[0] != "Signature" && line[0] != "Signature-Input" {
			r.Header.Add(line[0], line[1])
		}
	}
	return r
}

// sent returns a request as an origin receives it.
func sent(r *signing.Message, fields []signing.Field) *signatures.Message {
	m := &signatures.Message{Method: r.Method, Scheme: r.URL.Scheme, Authority: r.Authority, Target: r.Target, Body: r.Body}
	for name, values := range r.Header {
		for _, v := range values {
			m.Lines = append(m.Lines, [2]string{name, v})
		}
	}
	for _, f := range fields {
		m.Lines = append(m.Lines, [2]string{f.Name, f.Value})
	}
	return m
}

func keys(t testing.TB) map[string]any {
	t.Helper()
	all, err := signatures.Keys()
	must.Succeed(t, err)
	return all
}

func key(t testing.TB, text string) *httpsig.Key {
	t.Helper()
	k, err := httpsig.ParseKey([]byte(text))
	must.Succeed(t, err)
	return k
}

func components(t testing.TB, texts ...string) []httpsig.Component {
	t.Helper()
	var list []httpsig.Component
	for _, text := range texts {
		c, err := httpsig.ParseComponent(text)
		must.Succeed(t, err)
		list = append(list, c)
	}
	return list
}

func signer(t testing.TB, cfg httpsig.Config) *httpsig.Signer {
	t.Helper()
	s, err := httpsig.New(cfg)
	must.Succeed(t, err)
	return s
}

// get returns a request without a body.
func get() *signing.Message {
	return &signing.Message{Time: now, Method: "GET", URL: &url.URL{Scheme: "https"}, Authority: "example.com", Target: "/foo?param=Value&Pet=dog", Header: http.Header{}}
}

// at returns the request at another time.
func at(r *signing.Message, t time.Time) *signing.Message {
	r.Time = t
	return r
}

// now is the time of the signatures of RFC 9421.
var now = time.Unix(1618884473, 0)

func value(fields []signing.Field, name string) string {
	for _, f := range fields {
		if f.Name == name {
			return f.Value
		}
	}
	return ""
}

// noKeys reports whether text has no part of the keys of the tests.
func noKeys(text any) bool {
	return signatures.Leaked(fmt.Sprintf("%v %+v %#v %s %q %x", text, text, text, text, text, text)) == ""
}
