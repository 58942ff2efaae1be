package fetch_test

import (
	"fmt"
	"net/url"
	"slices"
	"strings"
	"testing"

	"fetchd/fetch"
)

// TestResumeShowsOneResponse checks that the events and the outcome of a resumed body have the
// response that started it, and that the attempts have their own responses (B2, I5).
func TestResumeShowsOneResponse(t *testing.T) {
	t.Parallel()
	const (
		size = 1000
		tag  = "200:size=1000,etag=%22v1%22,range"
		cut  = tag + ",cut=300"
		part = "206:size=700,offset=300,etag=%22v1%22,header=Content-Range=bytes%20300-999%2F1000"
	)
	signed := url.QueryEscape("/s/signed/" + cut + "/" + tag + "?signature=")
	resume := func(r *fetch.Request) { r.ResumePoint = fetch.ResumePoint{Offset: 600, Validator: `"v1"`} }
	restart := func(r *fetch.Request) { r.Recovery = fetch.Restart }
	for _, row := range []struct {
		name, script string
		change       func(*fetch.Request)
		started      []int  // statuses that ResponseStarted shows
		finished     []int  // statuses that AttemptFinished shows; 0: no response
		want         string // outcome: kind, status, length, attempt
		lacks        bool   // the response has no Content-Range
		final        string // end of the final URL; empty: any
	}{
		{"continued", cut + "/" + tag, nil, []int{200, 200}, []int{200, 206}, "success 200 1000 1", true, ""},
		{"continued twice", cut + "/" + tag + ",cut=100/" + tag, nil, []int{200, 200, 200}, []int{200, 206, 206}, "success 200 1000 1", true, ""},
		{"continued after a reset", cut + "/reset/" + tag, nil, []int{200, 200}, []int{200, 0, 206}, "success 200 1000 1", true, ""},
		{"continued after a 503", cut + "/503/" + tag, nil, []int{200, 503, 200}, []int{200, 503, 206}, "success 200 1000 1", true, ""},
		{"started after a 503", "503/" + cut + "/" + tag, nil, []int{503, 200, 200}, []int{503, 200, 206}, "success 200 1000 2", true, ""},
		{"nothing was missing", "200:size=1000,etag=%22v1%22,chunked,chunk-fault=no-last/" + tag, nil, []int{200}, []int{200, 416}, "success 200 -1 1", true, ""},
		{"the rest is interrupted too", cut + "/" + tag + ",cut=0", nil, []int{200, 200, 200}, []int{200, 206, 206}, "failed 200 1000 1", true, ""},
		{"by signed URLs", "302:to=" + signed + "1/302:to=" + signed + "2", nil, []int{200, 200}, []int{200, 206}, "success 200 1000 1", true, "?signature=1"},

		// A body that cannot be resumed: the response is still that of the delivered bytes.
		{"another version", cut + "/200:size=900,etag=%22v2%22,range", nil, []int{200, 200}, []int{200, 200}, "failed 200 1000 1", true, ""},
		{"another range", cut + "/206:size=600,offset=400,etag=%22v1%22,header=Content-Range=bytes%20400-999%2F1000", nil, []int{200, 200}, []int{200, 206}, "failed 200 1000 1", true, ""},
		{"parts", cut + "/" + part + ",type=multipart%2Fbyteranges;boundary=x", nil, []int{200, 200}, []int{200, 206}, "failed 200 1000 1", true, ""},

		// A failed status is the last response, with its own body (I5).
		{"then a 404", cut + "/404:size=9", nil, []int{200, 404}, []int{200, 404}, "failed 404 9 2", true, ""},
		{"then 503 in every attempt", cut + "/503:size=9", nil, []int{200, 503, 503}, []int{200, 503, 503}, "failed 503 9 3", true, ""},

		// A body that restarts has another response.
		{"restarted", cut + "/200:size=1000,etag=%22v2%22", restart, []int{200, 200}, []int{200, 200}, "success 200 1000 2", true, ""},
		{"restarted after a wrong range", cut + "/206:size=10/" + tag, restart, []int{200, 200, 200}, []int{200, 206, 200}, "success 200 1000 3", true, ""},

		// With a resume point the first response of this fetch is the response.
		{"a resume point", tag, resume, []int{206}, []int{206}, "success 206 400 1", false, ""},
		{"a resume point, continued", tag + ",cut=100/" + tag, resume, []int{206, 206}, []int{206, 206}, "success 206 400 1", false, ""},
		{"a resume point after a 503", "503/" + tag, resume, []int{503, 206}, []int{503, 206}, "success 206 400 2", false, ""},
		{"a resume point at the end", tag, func(r *fetch.Request) { resume(r); r.ResumePoint.Offset = size }, nil, []int{416}, "success 416 0 1", false, ""},
		{"a resume point at the end, after a 503", "503/" + tag, func(r *fetch.Request) { resume(r); r.ResumePoint.Offset = size }, []int{503}, []int{503, 416}, "success 416 0 2", false, ""},
		{"a resume point of another version", "200:size=900,etag=%22v2%22,range", resume, []int{200}, []int{200}, "failed 200 900 1", true, ""},
		{"a resume point, restarted", "200:size=900,etag=%22v2%22,range", func(r *fetch.Request) { resume(r); restart(r) }, []int{200}, []int{200}, "success 200 900 1", true, ""},
	} {
		t.Run(row.name, func(t *testing.T) {
			t.Parallel()
			w := newWire(t)
			r := w.request("http", "/s/k/"+row.script)
			r.HoldBackBytes, r.Policy.BaseDelay = 0, 0
			if row.change != nil {
				row.change(r)
			}
			var started, finished []int
			shown := "" // URL in the last ResponseStarted
			out := w.client.Fetch(t.Context(), r, func(e fetch.Event) error {
				switch e := e.(type) {
				case fetch.ResponseStarted:
					started = append(started, e.Response.StatusCode)
					shown = e.URL
				case fetch.AttemptFinished:
					status := 0
					if e.Response != nil {
						status = e.Response.StatusCode
					}
					finished = append(finished, status)
				}
				return nil
			})
			if !slices.Equal(started, row.started) || !slices.Equal(finished, row.finished) {
				t.Errorf("responses %d, attempts %d; want %d and %d", started, finished, row.started, row.finished)
			}
			if got := fmt.Sprintf("%s %d %d %d", out.Kind, out.Response.StatusCode, out.Response.ContentLength, out.ResponseAttempt); got != row.want {
				t.Errorf("outcome %s (%+v), want %s", got, out.Failure, row.want)
			}
			if lacks := out.Response.Header.Get("Content-Range") == ""; lacks != row.lacks {
				t.Errorf("no Content-Range: %t, want %t", lacks, row.lacks)
			}
			if !strings.HasSuffix(out.FinalURL, row.final) || shown != "" && shown != out.FinalURL {
				t.Errorf("final URL %s, and %s in ResponseStarted; want one that ends in %s in both", out.FinalURL, shown, row.final)
			}
		})
	}
}
