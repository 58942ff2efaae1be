package fetch_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"fetchd/classify"
	"fetchd/conformance/origin"
	"fetchd/fetch"
	"fetchd/fetch/signing"
)

// notary is a signer that keeps what it signs. Its signatures are numbered.
type notary struct {
	hosts   []string
	names   []string // of the fields that it may add; nil: those that it adds
	fails   error
	newKeys bool // a refresh has another key

	mu        sync.Mutex
	messages  []*signing.Message
	refreshed []string
}

func (n *notary) Covers(u *url.URL) bool { return slices.Contains(n.hosts, u.Host) }

func (*notary) Field(context.Context) (name, value string, err error) { return "", "", nil }

func (n *notary) Refresh(_ context.Context, refused string) error {
	n.refreshed = append(n.refreshed, refused)
	if n.newKeys {
		return nil
	}
	return errors.New("no other key")
}

func (n *notary) Headers() []string {
	if n.names != nil {
		return n.names
	}
	return []string{"Signature", "X-Stamp"}
}

func (n *notary) Sign(_ context.Context, m *signing.Message) ([]signing.Field, error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.fails != nil {
		return nil, n.fails
	}
	n.messages = append(n.messages, m)
	return []signing.Field{{Name: "Signature", Value: fmt.Sprintf("hush-signature-%d", len(n.messages))}, {Name: "X-Stamp", Value: "hush-stamp"}}, nil
}

// anywhere is a signer for all origins.
type anywhere struct{ fetch.Signer }

func (anywhere) Covers(*url.URL) bool { return true }

// expected returns the header that an origin must receive for message i: what was signed, and the signature.
func (n *notary) expected(i int) http.Header {
	h := maps.Clone(n.messages[i].Header)
	h["Signature"], h["X-Stamp"] = []string{fmt.Sprintf("hush-signature-%d", i+1)}, []string{"hush-stamp"}
	return h
}

// received returns the header of a request from its lines, without Connection.
func received(q *origin.Request) http.Header {
	h := http.Header{"Host": {q.Host}}
	for _, f := range q.Fields {
		switch name := http.CanonicalHeaderKey(f.Name); {
		case name == "Host" || name == "Connection":
		case name == "Cookie" && h["Cookie"] != nil && q.Protocol == "HTTP/2.0": // RFC 9113 §8.2.3
			h["Cookie"][0] += "; " + f.Value
		default:
			h[name] = append(h[name], f.Value)
		}
	}
	return h
}

// signs makes a notary for the host of a request sign it.
func signs(r *fetch.Request) *notary {
	n := &notary{hosts: []string{r.URL.Host}}
	r.Credentials, r.ID = n, "the-id"
	return n
}

// TestSignedIsSent compares what was signed with what origins receive: every field, the method, the target,
// the authority and the body (A7).
func TestSignedIsSent(t *testing.T) {
	t.Parallel()
	for _, row := range []struct {
		name   string
		change func(*fetch.Request)
	}{
		{"a GET", func(*fetch.Request) {}},
		{"a HEAD", func(r *fetch.Request) { r.Method = "HEAD" }},
		{"a POST", func(r *fetch.Request) { r.Method, r.Body = "POST", []byte("a body") }},
		{"a POST without a body", func(r *fetch.Request) { r.Method = "POST" }},
		{"a PUT without a body", func(r *fetch.Request) { r.Method = "PUT" }},
		{"a DELETE", func(r *fetch.Request) { r.Method = "DELETE" }},
		{"a GET with a body", func(r *fetch.Request) { r.Body = []byte("odd") }},
		{"a long body", func(r *fetch.Request) { r.Method, r.Body = "PUT", bytes.Repeat([]byte("0123456789"), 100_000) }},
		{"a query", func(r *fetch.Request) { r.URL.RawQuery = "b=2&a=%20+1&c" }},
		{"a query mark alone", func(r *fetch.Request) { r.URL.ForceQuery = true }},
		{"a fragment", func(r *fetch.Request) { r.URL.Fragment = "part" }},
		{"a path with escapes", func(r *fetch.Request) {
			r.URL.Path, r.URL.RawPath = "/s/k/200:body=%2f é", "/s/k/200:body=%252f%20%C3%A9"
		}},
		{"what the service adds", func(r *fetch.Request) {
			r.Hops, r.IdempotencyKey = 3, "key"
		}},
		{"no codings", func(r *fetch.Request) { r.KeepEncoding = true }},
		{"fields of the caller", func(r *fetch.Request) {
			r.Header = http.Header{"X-Several": {"one", "two"}, "X-Empty": {""}, "X-Blanks": {"  \tin here \t"}, "Content-Type": {"text/plain"}, "X-None": {}}
		}},
		{"no User-Agent", func(r *fetch.Request) { r.Header = http.Header{"User-Agent": {""}} }},
		{"a User-Agent of blanks", func(r *fetch.Request) { r.Header = http.Header{"User-Agent": {" "}} }},
		{"several User-Agents", func(r *fetch.Request) { r.Header = http.Header{"User-Agent": {" a", "b"}} }},
		{"cookies", func(r *fetch.Request) { r.Header = http.Header{"Cookie": {"a=1; b=2", "c=3"}} }},
		{"a caller's field that the signer adds", func(r *fetch.Request) { r.Header = http.Header{"Signature": {"forged"}, "X-Stamp": {"forged"}} }},
		{"on a separate connection", func(r *fetch.Request) { r.Method, r.Header = "POST", http.Header{"Authorization": {"NTLM x"}} }},
	} {
		for _, listener := range []string{"http", "https1", "h2fault"} {
			t.Run(row.name+" "+listener, func(t *testing.T) {
				t.Parallel()
				w, to := newWire(t), new(tape)
				r := w.request(listener, "/s/k/200")
				row.change(r)
				n := signs(r)
				recorded := listener == "http"
				if recorded {
					r.Recorder = to
				}
				before := time.Now()
				if out := w.client.Fetch(t.Context(), r, nil); out.Failure != nil || len(n.messages) != 1 {
					t.Fatalf("%+v, %d messages", out.Failure, len(n.messages))
				}
				q, m := w.origin.Requests("k")[0], n.messages[0]
				if diff := cmp.Diff(n.expected(0), received(&q)); diff != "" {
					t.Errorf("signed and received: %s", diff)
				}
				if m.Time.Before(before) || m.Time.After(time.Now()) || m.ID != "the-id" {
					t.Errorf("signed %s at %s, want the-id from %s on", m.ID, m.Time, before)
				}
				wantReceived(t, m, &q)
				if recorded {
					wantRaw(t, n.expected(0), m, to.recordings[0].sent)
				}
			})
		}
	}
}

// wantReceived compares what was signed, except the fields, with what an origin received.
func wantReceived(t *testing.T, m *signing.Message, q *origin.Request) {
	t.Helper()
	target := q.Path
	if m.URL.ForceQuery || q.Query != "" {
		target += "?" + q.Query
	}
	same := m.Method == q.Method && m.Target == target && m.Authority == q.Host && m.URL.Fragment == ""
	if !same || len(m.Body) > 0 && digest(m.Body) != q.BodySHA256 || int64(len(m.Body)) != q.BodyBytes {
		t.Errorf("signed %+v, received %+v", m, q)
	}
}

// wantRaw compares what was signed with the bytes of a request over HTTP/1.1.
func wantRaw(t *testing.T, want http.Header, m *signing.Message, sent []byte) {
	t.Helper()
	head, body, _ := bytes.Cut(sent, []byte("\r\n\r\n"))
	lines := strings.Split(string(head), "\r\n")
	got := make(http.Header)
	for _, line := range lines[1:] {
		name, value, _ := strings.Cut(line, ": ")
		if name != "Connection" {
			got[name] = append(got[name], value)
		}
	}
	if diff := cmp.Diff(want, got); diff != "" || lines[0] != m.Method+" "+m.Target+" HTTP/1.1" || !bytes.Equal(body, m.Body) {
		t.Errorf("signed and sent %q: %s", lines[0], diff)
	}
}

// TestSignedEachTime checks that every transmission to the signer's origin has a new signature, and
// that no other has one.
func TestSignedEachTime(t *testing.T) {
	t.Parallel()
	const tag = ",etag=%22v1%22,range"
	for _, row := range []struct {
		name, path string
		change     func(*fetch.Request)
		want       []string // of the requests in order: the number of its signature and its range, or nothing
	}{
		{"a retry", "/s/k/503/503/200", nil, []string{"1", "2", "3"}},
		{"a reset", "/s/k/reset/200", nil, []string{"1", "2"}},
		{"a connection that the origin closes", "/s/k/close-idle/200", nil, []string{"1"}},
		{"a redirect within the origin", "/s/k/302:to=%2Fs%2Fk%2F200", nil, []string{"1", "2"}},
		{"a redirect that keeps the body", "/s/k/307:to=%2Fs%2Fk%2F200", func(r *fetch.Request) { r.Method, r.Body = "PUT", []byte("x") }, []string{"1", "2"}},
		{"a redirect to another origin", "/cross/k/302/http-other/200", nil, []string{"1", ""}},
		{"a redirect to another origin, with everything", "/cross/k/307/http-other/200", func(r *fetch.Request) { r.ForwardCredentials = true }, []string{"1", ""}},
		{"a redirect to another of its origins", "/cross/k/307/http-other/503/200", func(r *fetch.Request) {
			s, _ := r.Credentials.(fetch.Signer)
			r.Credentials = anywhere{s}
		}, []string{"1", "2", "3", "4"}},
		{"a redirect to TLS", "/cross/k/302/https/200", nil, []string{"1", ""}},
		{"a resumed body", "/s/k/200:size=1000000,cut=300000" + tag + "/200:size=1000000" + tag, func(r *fetch.Request) { r.HoldBackBytes = 1000 }, []string{"1", "2 bytes=300000-"}},
		{"from a resume point", "/s/k/200:size=1000000" + tag, func(r *fetch.Request) {
			r.ResumePoint = fetch.ResumePoint{Offset: 10, Validator: `"v1"`}
		}, []string{"1 bytes=10-"}},
		{"a 429", "/s/k/429:retry-after=0/200", nil, []string{"1", "2"}},
		{"with cookies", "/s/k/302:set-cookie=a%3D1,to=%2Fs%2Fk%2F200", func(r *fetch.Request) { r.Cookies = true }, []string{"1", "2"}},
	} {
		for _, listener := range []string{"http", "https"} {
			if listener == "https" && strings.Contains(row.path, "/https/") {
				continue
			}
			t.Run(row.name+" "+listener, func(t *testing.T) {
				t.Parallel()
				w := newWire(t)
				r := w.request(listener, row.path)
				n := signs(r)
				if row.change != nil {
					row.change(r)
				}
				if out := w.client.Fetch(t.Context(), r, nil); out.Failure != nil {
					t.Fatalf("%+v", out.Failure)
				}
				var got []string
				signed := 0
				for _, q := range w.origin.Requests("k") {
					text := strings.TrimSuffix(strings.TrimPrefix(q.Header.Get("Signature"), "hush-signature-")+" "+q.Header.Get("Range"), " ")
					if got = append(got, text); text == "" || q.Header.Get("Signature") == "" {
						continue
					}
					if diff := cmp.Diff(n.expected(signed), received(&q)); diff != "" {
						t.Errorf("request %d: signed and received: %s", len(got), diff)
					}
					signed++
				}
				if !slices.Equal(got, row.want) || len(n.messages) != signed {
					t.Errorf("signatures %q, want %q; %d messages", got, row.want, len(n.messages))
				}
			})
		}
	}
}

// TestSignaturesStayAtTheirOrigin follows redirects to another origin and back, and with every status, by the
// log of the origin: each request to the signer's origin has a signature, and no other has one.
func TestSignaturesStayAtTheirOrigin(t *testing.T) {
	t.Parallel()
	w := newWire(t)
	const resumable = ":size=100000,etag=%22v1%22,range"
	for _, from := range []string{"http", "https"} {
		for _, to := range []string{"http-other", "http", "https", "https1", "h2fault"} {
			for _, forward := range []bool{false, true} {
				for _, status := range []int{301, 302, 303, 307, 308} {
					name := fmt.Sprintf("%s to %s, %d, forward %t", from, to, status, forward)
					t.Run(name, func(t *testing.T) {
						t.Parallel()
						w, key := w.in(t), url.QueryEscape(strings.ReplaceAll(name, " ", ""))
						back := url.QueryEscape(w.origin.URL(from, "/s/"+key+"back/503/200"))
						away := url.QueryEscape(w.origin.URL(to, "/s/"+key+"away/"+fmt.Sprint(status)+":to="+back))
						r := w.request(from, fmt.Sprintf("/s/%s/%d:to=%s", key, status, away))
						n := signs(r)
						r.ForwardCredentials, r.Method, r.Body = forward, "PUT", []byte("body")
						if out := w.client.Fetch(t.Context(), r, nil); out.Failure != nil {
							t.Fatalf("%+v", out.Failure)
						}
						w.wantSignedAt(n, from, key)
					})
				}
				name := fmt.Sprintf("%s to %s, resumed, forward %t", from, to, forward)
				t.Run(name, func(t *testing.T) {
					t.Parallel()
					w, key := w.in(t), url.QueryEscape(strings.ReplaceAll(name, " ", ""))
					away := url.QueryEscape(w.origin.URL(to, "/s/"+key+"away/200"+resumable+",cut=50000/200"+resumable))
					r := w.request(from, "/s/"+key+"/302:to="+away)
					n := signs(r)
					r.ForwardCredentials, r.HoldBackBytes = forward, 1000
					if out := w.client.Fetch(t.Context(), r, nil); out.Failure != nil || out.Attempts != 2 {
						t.Fatalf("%+v after %d attempts", out.Failure, out.Attempts)
					}
					w.wantSignedAt(n, from, key)
				})
			}
		}
	}
}

// wantSignedAt checks that exactly the requests to a listener are signed, each with its own signature.
func (w *wire) wantSignedAt(n *notary, listener, key string) {
	w.Helper()
	key, _ = url.QueryUnescape(key)
	signed, others := make(map[string]bool), 0
	for _, k := range []string{key, key + "away", key + "back"} {
		for _, q := range w.origin.Requests(k) {
			signature := q.Header.Get("Signature")
			if (signature != "") != (q.Listener == listener) || (signature != "") != (q.Header.Get("X-Stamp") != "") || signed[signature] {
				w.Errorf("%s at %s has the signature %q", k, q.Listener, signature)
			}
			if signature == "" {
				others++
				continue
			}
			signed[signature] = true
		}
	}
	if len(signed) == 0 || len(signed) != len(n.messages) || len(signed)+others < 2 {
		w.Errorf("%d signed requests of %d messages, %d others", len(signed), len(n.messages), others)
	}
}

// TestNotSigned checks that a request that could not be signed is not sent, that the connection serves the
// next fetch, and that the caller does not see why.
func TestNotSigned(t *testing.T) {
	t.Parallel()
	for _, row := range []struct {
		name   string
		change func(*notary)
		log    string
	}{
		{"the signer fails", func(n *notary) { n.fails = errors.New("the key is gone") }, "the key is gone"},
		{"a field that it does not declare", func(n *notary) { n.names = []string{"Signature"} }, "X-Stamp"},
	} {
		for _, listener := range []string{"http", "https"} {
			t.Run(row.name+" "+listener, func(t *testing.T) {
				t.Parallel()
				r := newDetailRig(t)
				req := r.request(listener, "/s/k/200")
				n := signs(req)
				row.change(n)
				out := r.client.Fetch(t.Context(), req, nil)
				if got := failureText(out); got != "auth_required signing_failed auth_failed" || out.Exchanges != 0 || out.Attempts != 1 {
					t.Errorf("%s after %d exchanges", got, out.Exchanges)
				}
				if f := out.Failure; strings.Contains(f.Detail+f.Message, row.log) || f.Phase != classify.PhasePolicy || f.Retryable {
					t.Errorf("the caller gets %+v", f)
				}
				if line := fmt.Sprint(r.line("fetch finished")["error"]); !strings.Contains(line, row.log) || strings.Contains(line, "hush") {
					t.Errorf("error of the log %q, want %q in it", line, row.log)
				}
				n.fails, n.names = nil, nil
				if out := r.client.Fetch(t.Context(), req, nil); out.Failure != nil || out.Hops[0].Exchange.Reused != (listener == "http") { // over HTTP/2 the first head makes a connection shared
					t.Errorf("afterwards %+v, reused: %t", out.Failure, out.Hops[0].Exchange.Reused)
				}
			})
		}
	}
}

// TestSignaturesAreSecret checks that the added fields are in no event, log line or error, and that a
// recording gets all their names, for the hops that have them.
func TestSignaturesAreSecret(t *testing.T) {
	t.Parallel()
	r, to := newDetailRig(t), new(tape)
	req := r.request("http", "/cross/k/302/http-other/503")
	signs(req)
	req.Recorder, req.Events, req.Policy.MaxAttempts = to, fetch.All, 2
	var events strings.Builder
	out := r.client.Fetch(t.Context(), req, func(e fetch.Event) error {
		_, err := fmt.Fprintf(&events, "%+v\n", e)
		return err
	})
	if got := len(to.recordings); got != 3 && got != 4 {
		t.Fatalf("%d recordings: %+v", got, out.Failure)
	}
	for _, recording := range to.recordings {
		var want []string
		if strings.Contains(string(recording.sent), "hush-signature") {
			want = []string{"Signature", "X-Stamp"}
		}
		if got := recording.exchange.Redact; !slices.Equal(got, want) {
			t.Errorf("redact %q, want %q, of %s", got, want, recording.sent)
		}
	}
	echo := mustParse(t, "http://"+canned(t, "HTTP/1.1 200 OK\r\nechoed hush-signature-1 hush-stamp\r\n\r\n"))
	port, err := strconv.ParseUint(echo.Port(), 10, 16)
	must(t, err)
	r.use(fetch.Config{}, uint16(port))
	bad := get(t, echo.String())
	signs(bad)
	bad.Policy.MaxAttempts = 1
	if out := r.client.Fetch(t.Context(), bad, nil); out.Failure == nil || !strings.Contains(out.Failure.Detail, "echoed [hidden]") {
		t.Errorf("%+v", out.Failure)
	}
	if text := fmt.Sprintf("%+v", *out) + events.String() + r.lines.String(); strings.Contains(text, "hush") {
		t.Errorf("a signature is in %s", text)
	}
}

// TestClockWarning checks that the log has a warning if the Date of an origin differs by more than 30 s from the
// time of the signature, and only one a minute.
func TestClockWarning(t *testing.T) {
	t.Parallel()
	for _, row := range []struct {
		name, script string
		unsigned     bool
		want         any // the difference in seconds; nil: there is no warning
	}{
		{name: "the same time", script: "200"},
		{name: "20 s before", script: "200:date-offset=-20"},
		{name: "20 s after", script: "200:date-offset=20"},
		{name: "an hour before", script: "200:date-offset=-3600", want: -3600.0},
		{name: "an hour after", script: "401:date-offset=3600", want: 3600.0},
		{name: "an hour in a cache", script: "200:date-offset=-3600,header=Age%3D3600"},
		{name: "an age that is none", script: "200:date-offset=-3600,header=Age%3D-3600", want: -3600.0},
		{name: "no Date", script: "200:date=none"},
		{name: "a Date that is none", script: "200:date=yesterday"},
		{name: "not signed", script: "200:date-offset=3600", unsigned: true},
	} {
		t.Run(row.name, func(t *testing.T) {
			t.Parallel()
			r := newDetailRig(t)
			for range 2 {
				req := r.request("http", "/s/k/"+row.script)
				if !row.unsigned {
					signs(req)
				}
				r.client.Fetch(t.Context(), req, nil)
			}
			const warning = "clock differs from an origin's, which may refuse signatures"
			if n := strings.Count(r.lines.String(), warning); (n == 1) != (row.want != nil) || n > 1 {
				t.Errorf("%d warnings, want %v", n, row.want)
			}
			if want, ok := row.want.(float64); ok {
				line := r.line(warning)
				if got, _ := line["difference_seconds"].(float64); got < want-2 || got > want+2 || line["level"] != "WARN" {
					t.Errorf("%v, want a difference of about %v", line, want)
				}
			}
		})
	}
}
