package origin_test

import (
	"encoding/json"
	"net/http"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/grpc/test/bufconn"

	"fetchd/conformance/origin"
)

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
