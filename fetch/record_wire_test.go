package fetch_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"reflect"
	"regexp"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"fetchd/classify"
	"fetchd/fetch"
	"fetchd/fetch/markdown"
	"fetchd/internal/budget"
)

// tape is a recorder that keeps its recordings in memory, and fails on request.
type tape struct {
	ready, sent, received, commit error
	room                          int // bytes that come before the error received

	mu         sync.Mutex
	recordings []*taped
}

// taped is the recording of one exchange.
type taped struct {
	tape           *tape
	sent, received []byte
	exchange       *fetch.RecordedExchange
	discarded      bool
}

func (t *tape) Ready() error { return t.ready }

func (t *tape) Begin(*budget.Lease) fetch.Recording {
	t.mu.Lock()
	defer t.mu.Unlock()
	r := &taped{tape: t}
	t.recordings = append(t.recordings, r)
	return r
}

func (r *taped) add(to *[]byte, p []byte, err error) error {
	r.tape.mu.Lock()
	defer r.tape.mu.Unlock()
	if r.exchange == nil {
		*to = append(*to, p...)
	}
	if to == &r.received && len(*to) <= r.tape.room {
		return nil
	}
	return err
}

func (r *taped) Sent(p []byte) error     { return r.add(&r.sent, p, r.tape.sent) }
func (r *taped) Received(p []byte) error { return r.add(&r.received, p, r.tape.received) }

func (r *taped) Commit(e *fetch.RecordedExchange) ([]fetch.Record, error) {
	r.tape.mu.Lock()
	defer r.tape.mu.Unlock()
	r.exchange = e
	return []fetch.Record{{Type: fetch.RecordedRequest}, {Type: fetch.RecordedResponse}}, r.tape.commit
}

func (r *taped) Discard() { r.discarded = true }

// TestRecord checks that the bytes of every exchange are recorded, and how far.
func TestRecord(t *testing.T) {
	t.Parallel()
	const size = 100_000 // more than is kept of a failed response
	type part struct {
		body int64 // bytes; negative: no head came
		why  fetch.Truncation
	}
	whole := part{size, fetch.Whole}
	empty := part{0, fetch.Whole}
	for _, row := range []struct {
		name, script string
		change       func(*fetch.Request)
		want         string
		parts        []part // of the exchanges; only a prefix of a body is compared if it is truncated
	}{
		{"a body", "200:size=100000", nil, "ok", []part{whole}},
		{"as a text", "200:size=100000,type=text%2Fhtml", func(r *fetch.Request) { r.Delivery, r.Text = fetch.Inline, markdown.Marked }, "ok", []part{whole}},
		{"with informational heads", "200:size=100000,early=103", nil, "ok", []part{whole}},
		{"not read", "200:size=100000", func(r *fetch.Request) { r.Delivery = fetch.None }, "ok", []part{whole}},
		{"of another type", "200:size=100000", func(r *fetch.Request) { r.Content.MediaTypes = []string{"text/html"} }, "content_type unwanted_media_type not_retried", []part{whole}},
		{"a failed status", "404:size=100000", nil, "http_client_error  not_retried", []part{whole}},
		{"a failed status, nothing kept", "404:size=100000", func(r *fetch.Request) { r.ErrorBodyBytes = 0 }, "http_client_error  not_retried", []part{whole}},
		{"a 503, then a body", "503:size=100000/200:size=100000", nil, "ok", []part{whole, whole}},
		{"a redirect", "302:size=100000,to=%2Fs%2Fk%2F200:size=100000", nil, "ok", []part{whole, whole}},
		{"a HEAD", "200:size=100000", func(r *fetch.Request) { r.Method = http.MethodHead }, "ok", []part{empty}},
		{"a 204", "204", nil, "ok", []part{empty}},
		{"a 205 with a body", "205:size=100000", nil, "ok", []part{whole}},
		{"a 304", "304", func(r *fetch.Request) { r.Header = http.Header{"If-None-Match": {`"a"`}} }, "ok", []part{empty}},
		{"a wrong coding", "200:size=100000,header=Content-Encoding%3Dgzip", nil, "undecodable content_coding not_retried", []part{whole}},

		{"cut", "200:size=100000,cut=60000", nil, "body_interrupted cut attempts_exhausted", []part{{60_000, fetch.Disconnected}, {60_000, fetch.Disconnected}, {60_000, fetch.Disconnected}}},
		{"reset before the head", "reset", func(r *fetch.Request) { r.Policy.MaxAttempts = 1 }, "connection_reset  attempts_exhausted", []part{{-1, fetch.Disconnected}}},
		{"too long", "200:size=100000,chunked", func(r *fetch.Request) { r.MaxBodyBytes = 50_000 }, "body_too_large max_size_bytes not_retried", []part{{50_000, fetch.TooLong}}},
		{"known to be too long", "200:size=100000", func(r *fetch.Request) { r.MaxBodyBytes = 10 }, "body_too_large content_length not_retried", []part{{0, fetch.TooLong}}},
		{"truncated", "200:size=100000", func(r *fetch.Request) { r.MaxBodyBytes, r.Truncate = 50_000, true }, "ok", []part{{50_000, fetch.TooLong}}},
		{"a failed status that is too long", "404:size=10000000", func(r *fetch.Request) { r.MaxBodyBytes = 50_000 }, "http_client_error  not_retried", []part{{50_000, fetch.TooLong}}},
	} {
		for _, listener := range []string{"http", "https"} {
			t.Run(row.name+" "+listener, func(t *testing.T) {
				t.Parallel()
				w, to := newWire(t), new(tape)
				r := w.request(listener, "/s/k/"+row.script)
				r.Recorder, r.Delivery = to, fetch.Digest
				if row.change != nil {
					row.change(r)
				}
				out := w.client.Fetch(t.Context(), r, nil)
				if got := failureText(out); got != row.want {
					t.Errorf("%s, want %s", got, row.want)
				}
				if len(to.recordings) != len(row.parts) || len(out.Records) != 2*len(row.parts) || out.Exchanges != len(row.parts) {
					t.Fatalf("%d recordings and %d records of %d exchanges, want %d", len(to.recordings), len(out.Records), out.Exchanges, len(row.parts))
				}
				for i, want := range row.parts {
					got := to.recordings[i]
					if !bytes.HasPrefix(got.sent, []byte(r.Method+" /s/k/")) || !bytes.HasSuffix(got.sent, []byte("\r\n\r\n")) {
						t.Errorf("exchange %d: sent %q", i, got.sent)
					}
					if got.exchange == nil || got.exchange.Truncated != want.why {
						t.Fatalf("exchange %d: %+v, want truncated %d", i, got.exchange, want.why)
					}
					if want.body >= 0 {
						w.wantReceived(listener, got, want.body, want.why == fetch.Whole)
					}
				}
			})
		}
	}
}

// TestRecordThroughProxy checks that a proxy changes nothing in what is recorded, except that the address
// of the origin is not known.
func TestRecordThroughProxy(t *testing.T) {
	t.Parallel()
	for _, scheme := range []string{"http", "https", "socks5"} {
		for _, listener := range []string{"http", "https"} {
			for _, row := range []struct {
				name, method, script string
				body                 int // bytes
			}{
				{"a 503, then a body", http.MethodGet, "503:size=100/200:size=100000", 0},
				{"a long request", http.MethodPut, "200:size=100", 100_000},
			} {
				t.Run(fmt.Sprintf("%s, %s by %s", row.name, listener, scheme), func(t *testing.T) {
					t.Parallel()
					w := newWire(t)
					record := func() []*taped {
						r, to := w.request(listener, "/cycle/k/"+row.script), new(tape)
						r.Method, r.Recorder, r.Delivery = row.method, to, fetch.Digest
						if row.body > 0 {
							r.Body = make([]byte, row.body)
						}
						if out := w.client.Fetch(t.Context(), r, nil); out.Kind != classify.Success {
							t.Fatalf("failure %+v", out.Failure)
						}
						return to.recordings
					}
					direct := record()
					if scheme == "socks5" {
						w.client = throughProxy(t, w, "socks5://"+socksProxy(t, w.origin.Addr(listener)), w.origin.CA())
					} else {
						w.client = (&connectProxy{target: w.origin.Addr(listener), password: "hush"}).serve(t, w, scheme)
					}
					proxied := record()
					if len(proxied) != len(direct) {
						t.Fatalf("%d recordings, want %d", len(proxied), len(direct))
					}
					for i, want := range direct {
						got := proxied[i]
						if !bytes.Equal(got.sent, want.sent) {
							t.Errorf("exchange %d: sent %.300q, want %.300q", i, got.sent, want.sent)
						}
						if got, want := dateLine.ReplaceAll(got.received, nil), dateLine.ReplaceAll(want.received, nil); !bytes.Equal(got, want) {
							t.Errorf("exchange %d: received %.300q, want %.300q", i, got, want)
						}
						want := *want.exchange
						want.Start, want.RemoteAddress = got.exchange.Start, ""
						if !reflect.DeepEqual(*got.exchange, want) {
							t.Errorf("exchange %d: %+v, want %+v", i, *got.exchange, want)
						}
					}
				})
			}
		}
	}
}

var dateLine = regexp.MustCompile("(?m)^Date: .*$")

// wantReceived checks what was recorded of a response. A whole body has n bytes, any other at least n.
func (w *wire) wantReceived(listener string, got *taped, n int64, whole bool) {
	w.Helper()
	if e := got.exchange; e.Protocol != "HTTP/1.1" || (e.TLSVersion != "") != (listener == "https") {
		w.Errorf("%s %s, want HTTP/1.1", e.Protocol, e.TLSVersion)
	}
	if got.exchange.Chunked {
		return // the framing is in it
	}
	_, final, ok := bytes.Cut(got.received, []byte("\r\n\r\nHTTP")) // without a 1xx head
	if !ok {
		final = got.received
	}
	_, body, ok := bytes.Cut(final, []byte("\r\n\r\n"))
	if !ok || whole && int64(len(body)) != n || int64(len(body)) < n {
		w.Errorf("%d bytes of the body, want %d", len(body), n)
	}
	if !bytes.HasPrefix(w.origin.Body(10_000_000), body) {
		w.Errorf("%d other bytes", len(body))
	}
}

// TestRecordTimes checks how long a body is read for its record only, and that the reading does
// not change the outcome.
func TestRecordTimes(t *testing.T) {
	t.Parallel()
	for _, row := range []struct {
		name, script string
		want         string
		took         time.Duration
		why          fetch.Truncation
	}{
		{"a failed status that drips", "404:size=1000,drip=1@1s", "http_client_error  not_retried", 10 * time.Second, fetch.TookTooLong},
		{"a failed status that stops", "404:size=1000,stall=10", "http_client_error  not_retried", 10 * time.Second, fetch.TookTooLong},
		{"a failed status that needs 5 s", "404:size=5,drip=1@1s", "http_client_error  not_retried", 5 * time.Second, fetch.Whole},
		{"a body that is not read drips", "200:size=25,drip=1@1s", "ok", 25 * time.Second, fetch.Whole},
		{"it stops", "200:size=100,stall=10", "ok", 15 * time.Second, fetch.TookTooLong},
	} {
		t.Run(row.name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				w, to := newBubble(t, nil), new(tape)
				r := w.standard(classify.Standard, "/s/k/"+row.script)
				r.Recorder, r.Delivery = to, fetch.None
				began := time.Now()
				out := w.client.Fetch(t.Context(), r, nil)
				took := time.Since(began).Truncate(time.Second)
				if got := failureText(out); got != row.want || took < row.took-time.Second || took > row.took {
					t.Errorf("%s after %s, want %s after %s", got, took, row.want, row.took)
				}
				if got := to.recordings[0].exchange.Truncated; got != row.why {
					t.Errorf("truncated %d, want %d", got, row.why)
				}
			})
		})
	}
}

// TestRecordFails checks that a fetch ends if its exchange cannot be recorded, whatever the
// response is, and that the origin is not asked again.
func TestRecordFails(t *testing.T) {
	t.Parallel()
	for _, row := range []struct {
		name, script string
		to           *tape
		want, detail string
		exchanges    int
	}{
		{"known to be down", "200", &tape{ready: shelfError("down")}, "store_failure store_error stopped", "store shelf: down", 0},
		{"the request", "200", &tape{sent: shelfError("full")}, "store_failure store_error stopped", "store shelf: full", 1},
		{"the response", "200", &tape{received: shelfError("full")}, "store_failure store_error stopped", "store shelf: full", 1},
		{"the body", "200:size=100000", &tape{received: shelfError("full"), room: 50_000}, "store_failure store_error stopped", "store shelf: full", 1},
		{"the body of a failed status", "404:size=100000", &tape{received: shelfError("full"), commit: shelfError("full"), room: 50_000}, "store_failure store_error stopped", "store shelf: full", 1},
		{"the end", "200", &tape{commit: shelfError("late")}, "store_failure store_error stopped", "store shelf: late", 1},
		{"the end of a failed status", "503", &tape{commit: shelfError("late")}, "store_failure store_error stopped", "store shelf: late", 1},
		{"the end of a redirect", "302:to=%2Fs%2Fk%2F200", &tape{commit: shelfError("late")}, "store_failure store_error stopped", "store shelf: late", 1},
		{"without a reason", "200", &tape{commit: errors.New("at 192.0.2.9")}, "store_failure store_error stopped", "", 1},
		{"no memory at the end", "200", &tape{commit: budget.ErrRefused}, "out_of_memory memory stopped", "", 1},
		{"no memory for the response", "200", &tape{received: budget.ErrRefused}, "out_of_memory memory stopped", "", 1},
	} {
		t.Run(row.name, func(t *testing.T) {
			t.Parallel()
			w := newWire(t)
			r := w.request("http", "/s/k/"+row.script)
			r.Recorder = row.to
			out := w.client.Fetch(t.Context(), r, nil)
			if got := failureText(out); got != row.want || out.Attempts > 1 || out.Exchanges > row.exchanges {
				t.Errorf("%s after %d attempts and %d exchanges, want %s", got, out.Attempts, out.Exchanges, row.want)
			}
			if seen := len(w.origin.Requests("k")); seen > row.exchanges {
				t.Errorf("the origin saw %d requests, want at most %d", seen, row.exchanges)
			}
			if f := out.Failure; f != nil && f.Class == classify.StoreFailure && (f.Detail != row.detail || !f.Retryable) {
				t.Errorf("%+v, want detail %q and retryable", f, row.detail)
			}
		})
	}
}

// TestRecordCancelled checks that an exchange is recorded as far as it came if its fetch is
// cancelled.
func TestRecordCancelled(t *testing.T) {
	t.Parallel()
	w, to := newWire(t), new(tape)
	ctx, cancel := context.WithCancel(t.Context())
	r := w.request("http", "/s/k/200:size=100000,stall=50000")
	r.Recorder, r.HoldBackBytes = to, 0
	out := w.client.Fetch(ctx, r, func(e fetch.Event) error {
		if _, ok := e.(fetch.BodyChunk); ok {
			cancel()
		}
		return nil
	})
	if got := failureText(out); !strings.HasPrefix(got, "cancelled") || len(out.Records) != 2 {
		t.Errorf("%s with %d records, want cancelled with 2", got, len(out.Records))
	}
	if e := to.recordings[0].exchange; e == nil || e.Truncated != fetch.Stopped {
		t.Errorf("%+v, want a record that is truncated because the fetch stopped", e)
	}
}

// TestRecordPanic checks that a recording ends if its fetch panics.
func TestRecordPanic(t *testing.T) {
	t.Parallel()
	w, to := newWire(t), new(tape)
	r := w.request("http", "/s/k/200:size=100000")
	r.Recorder, r.HoldBackBytes = to, 0
	func() {
		defer func() { _ = recover() }()
		w.client.Fetch(t.Context(), r, func(e fetch.Event) error {
			if _, ok := e.(fetch.BodyChunk); ok {
				panic("sink")
			}
			return nil
		})
	}()
	if len(to.recordings) != 1 || !to.recordings[0].discarded {
		t.Errorf("%d recordings, not discarded", len(to.recordings))
	}
}

// TestRecordRedacts checks that a recording gets the name of a field with a credential, for the hops
// to which the credential is sent.
func TestRecordRedacts(t *testing.T) {
	t.Parallel()
	w, to := newWire(t), new(tape)
	r := w.request("http", "/cross/k/302/http-other/200")
	r.Recorder, r.Credentials = to, onlyFor{r.URL.Host}
	if out := w.client.Fetch(t.Context(), r, nil); out.Failure != nil || len(to.recordings) != 2 {
		t.Fatalf("%+v, %d recordings", out.Failure, len(to.recordings))
	}
	if got := to.recordings[0].exchange.Redact; len(got) != 1 || got[0] != "X-Secret" {
		t.Errorf("first hop: redact %q, want X-Secret", got)
	}
	if got := to.recordings[1].exchange.Redact; len(got) != 0 {
		t.Errorf("second hop: redact %q, want nothing", got)
	}
}

// TestRecordRedactsProxy checks that a recording gets the names of the fields of a proxy that has forwarded the
// request.
func TestRecordRedactsProxy(t *testing.T) {
	t.Parallel()
	w, to := newWire(t), new(tape)
	w.client = throughProxy(t, w, "http://"+canned(t, "HTTP/1.1 200 OK\r\nVia: 1.1 inside\r\nA: b\r\nContent-Length: 0\r\n\r\n"), w.origin.CA())
	r := w.request("http", "/s/k/200")
	r.Recorder = to
	if out := w.client.Fetch(t.Context(), r, nil); out.Failure != nil || len(to.recordings) != 1 {
		t.Fatalf("%+v, %d recordings", out.Failure, len(to.recordings))
	}
	if got := to.recordings[0].exchange.RedactResponse; len(got) != 1 || got[0] != "Via" {
		t.Errorf("redact %q, want Via", got)
	}
}

// onlyFor is a credential for one host.
type onlyFor struct{ host string }

func (c onlyFor) Covers(u *url.URL) bool { return u.Host == c.host }
func (onlyFor) Field(context.Context) (name, value string, err error) {
	return "X-Secret", "s3cr3t", nil
}
func (onlyFor) Refresh(context.Context, string) error { return errors.New("no other") }
