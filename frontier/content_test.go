package frontier

import (
	"encoding/json"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"fetchd/cmd/frontier/site"
	"fetchd/frontier/store"
	pb "fetchd/gen/fetchd/v1"
)

func TestContentType(t *testing.T) {
	t.Parallel()
	long := strings.Repeat("x", 1000)
	for value, want := range map[string]store.Content{
		"":                                    {},
		"text/html":                           {ContentType: "text/html"},
		" Text/HTML ; Charset=\"UTF-8\"; a=b": {ContentType: "text/html", Charset: "utf-8"},
		"text/html; charset":                  {ContentType: "text/html"},
		"text/html; charset=a; charset=b":     {ContentType: "text/html"},
		"Not A Type; charset=utf-8":           {ContentType: "Not A Type"},
		";charset=utf-8":                      {},
		"text/" + long + "; charset=" + long:  {ContentType: "text/" + long[:250] + "…", Charset: long[:64] + "…"},
		"text/html; charset=\x1b[2J":          {ContentType: "text/html"},
	} {
		response := &pb.HttpResponse{Headers: []*pb.Header{{Name: "Content-Type", Value: value}, {Name: "Content-Type", Value: "image/png"}}}
		if value == "" {
			response = nil
		}
		if got := contentOf(response, nil); got != want {
			t.Errorf("%.60q: %+v, want %+v", value, got, want)
		}
	}
}

func TestKeptHeaders(t *testing.T) {
	t.Parallel()
	repeat := func(n int, values ...string) []string {
		var all []string
		for range n {
			all = append(all, values...)
		}
		return all
	}
	kib := strings.Repeat("x", 1<<10)
	for _, row := range []struct {
		name string
		keep []string
		sent map[string][]string
		want map[string][]string
	}{
		{"none is kept", nil, map[string][]string{"Server": {"a"}}, nil},
		{"none is sent", []string{"Server"}, map[string][]string{"Via": {"a"}}, nil},
		{"several", []string{"Server", "Link", "Via"}, map[string][]string{"Server": {"s"}, "Link": {"a, b", "", "c"}, "X-Other": {"x"}},
			map[string][]string{"Server": {"s"}, "Link": {"a, b", "", "c"}}},
		{"8 values", []string{"A"}, map[string][]string{"A": repeat(8, "v")}, map[string][]string{"A": repeat(8, "v")}},
		{"9 values", []string{"A"}, map[string][]string{"A": repeat(9, "v")}, map[string][]string{"A": append(repeat(8, "v"), "…")}},
		{"1 KiB", []string{"A"}, map[string][]string{"A": {kib}}, map[string][]string{"A": {kib}}},
		{"more than 1 KiB", []string{"A"}, map[string][]string{"A": {kib + "y", "z"}}, map[string][]string{"A": {kib + "…", "z"}}},
		{"more than 1 KiB, between two characters", []string{"A"}, map[string][]string{"A": {"a" + strings.Repeat("é", 1000)}}, map[string][]string{"A": {"a" + strings.Repeat("é", 511) + "…"}}},
		{"more than 8 KiB", []string{"A", "B", "C"}, map[string][]string{"A": repeat(7, kib), "B": {kib[:1000], kib}, "C": {"c", "c"}},
			map[string][]string{"A": repeat(7, kib), "B": {kib[:1000], kib[:24] + "…"}, "C": {"…"}}},
	} {
		t.Run(row.name, func(t *testing.T) {
			t.Parallel()
			response := new(pb.HttpResponse)
			for name, values := range row.sent {
				for _, v := range values {
					response.Headers = append(response.Headers, &pb.Header{Name: name, Value: v})
				}
			}
			got := contentOf(response, row.keep).Headers
			want, err := json.Marshal(row.want)
			must(t, err)
			if row.want == nil {
				want = nil
			}
			if got != string(want) {
				t.Errorf("%.200s, want %.200s", got, want)
			}
		})
	}
}

// FuzzKeptHeaders checks that what an origin sends is bounded, is JSON, and cannot control a terminal.
func FuzzKeptHeaders(f *testing.F) {
	f.Add("text/html; charset=\x1b[2J", "a\u202eb\x00\xff", strings.Repeat("\u2028", 500))
	f.Fuzz(func(t *testing.T, kind, one, two string) {
		var headers []*pb.Header
		for range 12 {
			headers = append(headers, &pb.Header{Name: "A", Value: one}, &pb.Header{Name: "B", Value: two})
		}
		c := contentOf(&pb.HttpResponse{Headers: append(headers, &pb.Header{Name: "Content-Type", Value: kind})}, []string{"A", "B"})
		if len(c.ContentType) > maxContentType+len(omitted) || len(c.Charset) > maxCharset+len(omitted) {
			t.Errorf("content type of %d bytes, charset of %d", len(c.ContentType), len(c.Charset))
		}
		var kept map[string][]string
		if err := json.Unmarshal([]byte(c.Headers), &kept); err != nil || !utf8.ValidString(c.Headers) {
			t.Fatalf("%q: %v", c.Headers, err)
		}
		total := 0
		for _, values := range kept {
			for _, v := range values {
				total += len(v)
			}
		}
		// A byte that is not UTF-8 becomes a character of three.
		if most := 3*maxKeptTotal + 2*maxKeptValues*len(omitted); total > most {
			t.Errorf("%d bytes are kept, want at most %d", total, most)
		}
		if strings.ContainsAny(c.Headers, "\x1b\u202e\u009b\x7f\n") {
			t.Errorf("%q could control a terminal", c.Headers)
		}
	})
}

// TestContentIsRecorded checks that successes, failures and redirects are recorded with the content
// type and the kept headers of their response.
func TestContentIsRecorded(t *testing.T) {
	t.Parallel()
	r := newRig(t, time.Millisecond, site.Config{})
	r.config.KeepHeaders = []string{"etag", "location"}
	r.config.Policy.FollowRedirects = false
	page, missing, moved := r.site.URL("a", "/p/1"), r.site.URL("b", "/nothing"), r.site.URL("c", "/go/302/1?to=/p/1")
	r.add(page, missing, moved)
	r.crawl()
	for _, rec := range r.recorded() {
		var kept map[string][]string
		if len(rec.Headers) > 0 {
			must(t, json.Unmarshal(rec.Headers, &kept))
		}
		media, names := "text/plain", 0
		switch rec.URL {
		case page:
			media, names = "text/html", len(kept["Etag"])
		case moved:
			names = len(kept["Location"])
		case missing:
			names = 1
		}
		if rec.ContentType != media || rec.Charset != "utf-8" || names != 1 || rec.URL == missing && len(kept) > 0 {
			t.Errorf("%+v with headers %q", rec, kept)
		}
	}
	for f, err := range r.store.Fetches(t.Context()) {
		if err != nil || f.Charset != "utf-8" || f.URL == page && !strings.HasPrefix(f.Headers, `{"Etag":["\"`) {
			t.Errorf("row %+v, %v", f, err)
		}
	}
}
