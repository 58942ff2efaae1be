package origin_test

import (
	"bytes"
	"compress/flate"
	"compress/gzip"
	"compress/zlib"
	"encoding/json"
	"io"
	"net/http"
	"testing"
	"testing/synctest"
	"time"
	"unicode/utf8"

	"github.com/andybalholm/brotli"
	"github.com/google/go-cmp/cmp"
	"github.com/klauspost/compress/zstd"
	"google.golang.org/grpc/test/bufconn"

	"fetchd/conformance/origin"
)

func decode(t *testing.T, coding string, p []byte) ([]byte, error) {
	t.Helper()
	var r io.Reader
	var err error
	switch coding {
	case "gzip":
		r, err = gzip.NewReader(bytes.NewReader(p))
	case "deflate":
		r, err = zlib.NewReader(bytes.NewReader(p))
	case "rawdeflate":
		r = flate.NewReader(bytes.NewReader(p))
	case "br":
		r = brotli.NewReader(bytes.NewReader(p))
	case "zstd":
		var d *zstd.Decoder
		d, err = zstd.NewReader(bytes.NewReader(p))
		if err == nil {
			t.Cleanup(d.Close)
			r = d
		}
	}
	if err != nil {
		return nil, err
	}
	return io.ReadAll(r)
}

func TestCodings(t *testing.T) {
	t.Parallel()
	o := start(t)
	c := newClient(t, o)
	for coding, announced := range map[string]string{
		"gzip": "gzip", "deflate": "deflate", "rawdeflate": "deflate", "br": "br", "zstd": "zstd",
	} {
		for _, tc := range []struct {
			name, params string
			want         []byte
			ok           bool
		}{
			{"whole", "size=5000", o.Body(5000), true},
			{"bomb", "bomb=300000", make([]byte, 300_000), true},
			{"cut", "size=5000,coding-cut=100", nil, false},
		} {
			g := mustGet(t, c, o.URL("http", "/s/"+coding+tc.name+"/200:coding="+coding+","+tc.params))
			if g.Header.Get("Content-Encoding") != announced || g.err != nil || g.ContentLength != int64(len(g.body)) {
				t.Errorf("%s %s: coding %q, error %v, length %d of %d", coding, tc.name, g.Header.Get("Content-Encoding"), g.err, g.ContentLength, len(g.body))
			}
			plain, err := decode(t, coding, g.body)
			if (err == nil) != tc.ok || tc.ok && !bytes.Equal(plain, tc.want) {
				t.Errorf("%s %s: decodes to %d bytes, %v; want ok %v and %d bytes", coding, tc.name, len(plain), err, tc.ok, len(tc.want))
			}
		}
	}
	g := mustGet(t, c, o.URL("http", "/s/lie/200:coding-lie=gzip,body=plain"))
	if g.Header.Get("Content-Encoding") != "gzip" || string(g.body) != "plain" {
		t.Errorf("coding-lie: %q, %q; want gzip, plain", g.Header.Get("Content-Encoding"), g.body)
	}
}

func TestConditionsAndRanges(t *testing.T) {
	t.Parallel()
	o := start(t)
	c := newClient(t, o)
	const old, modified, newer = "Sat, 01 Jan 2000 00:00:00 GMT", "Sun, 02 Jan 2000 00:00:00 GMT", "Mon, 03 Jan 2000 00:00:00 GMT"
	step := `200:size=10,etag=%22a%22,last-modified=Sun%2C%2002%20Jan%202000%2000:00:00%20GMT,cond,range`
	whole := string(o.Body(10))
	for _, tc := range []struct {
		name         string
		header       []string
		status       int
		body         string
		contentRange string
	}{
		{"plain", nil, 200, whole, ""},
		{"same tag", []string{"If-None-Match", `"x", W/"a"`}, 304, "", ""},
		{"any tag", []string{"If-None-Match", `*`}, 304, "", ""},
		{"other tag, same date", []string{"If-None-Match", `"b"`, "If-Modified-Since", modified}, 200, whole, ""},
		{"same date", []string{"If-Modified-Since", modified}, 304, "", ""},
		{"newer date", []string{"If-Modified-Since", newer}, 304, "", ""},
		{"older date", []string{"If-Modified-Since", old}, 200, whole, ""},
		{"range", []string{"Range", "bytes=2-4"}, 206, whole[2:5], "bytes 2-4/10"},
		{"open range", []string{"Range", "bytes=7-"}, 206, whole[7:], "bytes 7-9/10"},
		{"suffix", []string{"Range", "bytes=-3"}, 206, whole[7:], "bytes 7-9/10"},
		{"long range", []string{"Range", "bytes=8-99"}, 206, whole[8:], "bytes 8-9/10"},
		{"outside", []string{"Range", "bytes=10-"}, 416, "", "bytes */10"},
		{"two ranges", []string{"Range", "bytes=1-2,4-5"}, 200, whole, ""},
		{"backwards", []string{"Range", "bytes=4-2"}, 200, whole, ""},
		{"no range", []string{"Range", "lines=1-2"}, 200, whole, ""},
		{"If-Range same", []string{"Range", "bytes=2-4", "If-Range", `"a"`}, 206, whole[2:5], "bytes 2-4/10"},
		{"If-Range other", []string{"Range", "bytes=2-4", "If-Range", `"b"`}, 200, whole, ""},
		{"If-Range weak", []string{"Range", "bytes=2-4", "If-Range", `W/"a"`}, 200, whole, ""},
		{"If-Range date", []string{"Range", "bytes=2-4", "If-Range", modified}, 206, whole[2:5], "bytes 2-4/10"},
		{"If-Range old date", []string{"Range", "bytes=2-4", "If-Range", old}, 200, whole, ""},
	} {
		for _, listener := range []string{"http", "https"} {
			g := mustGet(t, c, o.URL(listener, "/s/k/"+step), tc.header...)
			if g.StatusCode != tc.status || string(g.body) != tc.body || g.Header.Get("Content-Range") != tc.contentRange || g.err != nil {
				t.Errorf("%s on %s: %d %q %q %v; want %d %q %q", tc.name, listener, g.StatusCode, g.body,
					g.Header.Get("Content-Range"), g.err, tc.status, tc.body, tc.contentRange)
			}
		}
	}
}

func TestRequire(t *testing.T) {
	t.Parallel()
	o := start(t)
	c := newClient(t, o)
	for _, tc := range []struct {
		step   string
		header []string
		status int
	}{
		{"200:require=Authorization", nil, 401},
		{"200:require=Authorization", []string{"authorization", "x"}, 200},
		{"200:require=Authorization=Bearer%20new", []string{"Authorization", "Bearer old"}, 401},
		{"200:require=Authorization=Bearer%20new", []string{"Authorization", "Bearer new"}, 200},
	} {
		g := mustGet(t, c, o.URL("http", "/s/k/"+tc.step), tc.header...)
		if g.StatusCode != tc.status || (tc.status == 401) != (g.Header.Get("WWW-Authenticate") != "") {
			t.Errorf("%s with %v: %d, %v; want %d", tc.step, tc.header, g.StatusCode, g.Header, tc.status)
		}
	}
}

func TestBodies(t *testing.T) {
	t.Parallel()
	o := start(t)
	c := newClient(t, o)
	latin1 := mustGet(t, c, o.URL("http", "/s/a/200:charset-bytes=latin1"))
	if utf8.Valid(latin1.body) || latin1.Header.Get("Content-Type") != "text/plain; charset=iso-8859-1" {
		t.Errorf("latin1: %q %q", latin1.Header.Get("Content-Type"), latin1.body)
	}
	if bad := mustGet(t, c, o.URL("http", "/s/b/200:charset-bytes=badutf8")); utf8.Valid(bad.body) {
		t.Errorf("badutf8: %q is valid", bad.body)
	}
	if g := mustGet(t, c, o.URL("http", "/s/c/206:size=5,offset=7")); string(g.body) != string(o.Body(12)[7:]) {
		t.Errorf("offset: %q, want %q", g.body, o.Body(12)[7:])
	}
	resp, err := c.Head(o.URL("http", "/s/d/200:size=12345"))
	if err != nil || resp.ContentLength != 12345 {
		t.Fatalf("HEAD: %v, %v; want length 12345", resp, err)
	}
	_ = resp.Body.Close()
	// The connection must still work.
	if g := mustGet(t, c, o.URL("http", "/s/d/404")); g.StatusCode != 404 {
		t.Errorf("after HEAD: %d, want 404", g.StatusCode)
	}
}

// TestSeededBytes checks the documented rule, by which other languages compute the body.
func TestSeededBytes(t *testing.T) {
	t.Parallel()
	o := origin.New(origin.Config{Seed: 0})
	const want = "v-ZNvdGn_p3vB1Yq"
	if got := string(o.Body(16)); got != want {
		t.Errorf("Body(16) with seed 0 = %q, want %q", got, want)
	}
}

func TestEcho(t *testing.T) {
	t.Parallel()
	o := start(t)
	g := mustGet(t, newClient(t, o), o.URL("http", "/s/k/200:echo?q=1"), "X-B", "1", "X-A", "2")
	var seen struct {
		Method, URL string
		Headers     []origin.Field
	}
	if err := json.Unmarshal(g.body, &seen); err != nil {
		t.Fatalf("echo %q: %v", g.body, err)
	}
	want := []string{"Host", "User-Agent", "X-A", "X-B"} // as net/http sends them
	var names []string
	for _, f := range seen.Headers {
		names = append(names, f.Name)
	}
	if diff := cmp.Diff(want, names); diff != "" || seen.URL != "/s/k/200:echo?q=1" || seen.Method != "GET" {
		t.Errorf("echo %s; names (-want +got):\n%s", g.body, diff)
	}
}

// TestDates uses a bubble to set the origin's clock.
func TestDates(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o := origin.New(origin.Config{})
		l := bufconn.Listen(64 << 10)
		served := make(chan error, 1)
		go func() { served <- o.Serve(l) }()
		transport := &http.Transport{DialContext: dialer(l)}
		c := &http.Client{Transport: transport}
		for _, tc := range []struct {
			step, date string
			retryAfter []string
		}{
			{"503:retry-after-date=90", "Sat, 01 Jan 2000 00:00:00 GMT", []string{"Sat, 01 Jan 2000 00:01:30 GMT"}},
			{"503:retry-after-date=90,form=rfc850", "Saturday, 01-Jan-00 00:00:00 GMT", []string{"Saturday, 01-Jan-00 00:01:30 GMT"}},
			{"503:retry-after-date=-60,form=asctime,date=x", "x", []string{"Fri Dec 31 23:59:00 1999"}},
			{"503:retry-after=5,retry-after-date2=1,date-offset=3600", "Sat, 01 Jan 2000 01:00:00 GMT", []string{"5", "Sat, 01 Jan 2000 00:00:01 GMT"}},
			{"503:date=none", "", nil},
		} {
			g := mustGet(t, c, o.URL("http", "/s/"+tc.step+"/"+tc.step))
			if diff := cmp.Diff(tc.retryAfter, g.Header.Values("Retry-After")); diff != "" || g.Header.Get("Date") != tc.date {
				t.Errorf("%s: Date %q, want %q; Retry-After (-want +got):\n%s", tc.step, g.Header.Get("Date"), tc.date, diff)
			}
		}
		if now := time.Now(); !now.Equal(time.Date(2000, 1, 1, 0, 0, 0, 0, time.UTC)) {
			t.Errorf("the clock moved to %v", now)
		}
		transport.CloseIdleConnections()
		_ = o.Close()
		if err := <-served; err != nil {
			t.Errorf("Serve = %v, want nil", err)
		}
	})
}
