package fetch_test

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"math/rand/v2"
	"net/url"
	"slices"
	"strings"
	"testing"

	"fetchd/classify"
	"fetchd/fetch"
)

// assembled joins chunks as a caller does: a chunk at a lower offset replaces everything after it.
type assembled struct {
	body   []byte
	begins []int64 // offsets in ResponseStarted
}

func (a *assembled) sink(e fetch.Event) error {
	switch e := e.(type) {
	case fetch.ResponseStarted:
		a.begins = append(a.begins, e.BodyOffset)
	case fetch.BodyChunk:
		if e.Offset > int64(len(a.body)) {
			return fmt.Errorf("chunk at %d after %d bytes", e.Offset, len(a.body))
		}
		a.body = append(a.body[:e.Offset], e.Data...)
	}
	return nil
}

// TestResume checks that interrupted bodies are resumed, or why they are not.
func TestResume(t *testing.T) {
	t.Parallel()
	const (
		size = resumeSize
		tag  = `,etag=%22v1%22`
		date = ",last-modified=Mon%2C 05 Jan 2026 10:00:00 GMT"
	)
	cut := func(params string, at int) string { return fmt.Sprintf("200:size=%d,cut=%d%s", size, at, params) }
	whole := func(params string) string { return fmt.Sprintf("200:size=%d%s", size, params) }
	const parts = "206:size=700000,offset=300000,chunked" + tag + ",type=multipart%2Fbyteranges;boundary=x,header=Content-Range=bytes 300000-999999%2F1000000"
	signed := url.QueryEscape("/s/signed/" + cut(tag+",range", 300_000) + "/" + whole(tag+",range") + "?signature=")
	rows := []resumeRow{
		{"by a strong tag", cut(tag+",range", 300_000) + "/" + whole(tag+",range"), nil, "ok", size, []string{"", "bytes=300000-"}, []int64{0, 300_000}},
		{"by a date", cut(date+",range", 300_000) + "/" + whole(date+",range"), nil, "ok", size, []string{"", "bytes=300000-"}, []int64{0, 300_000}},
		{"twice", cut(tag+",range", 300_000) + "/" + cut(tag+",range", 200_000) + "/" + whole(tag+",range"), nil, "ok", size, []string{"", "bytes=300000-", "bytes=500000-"}, []int64{0, 300_000, 500_000}},
		{"over other failures", cut(tag+",range", 300_000) + "/503/" + whole(tag+",range"), nil, "ok", size, []string{"", "bytes=300000-", "bytes=300000-"}, []int64{0, 300_000, 300_000}},
		{"in chunks", cut(tag+",range,chunked", 300_000) + "/" + whole(tag+",range,chunked"), nil, "ok", size, []string{"", "bytes=300000-"}, nil},
		{"nothing of the hold-back was sent", cut(tag+",range", 300_000) + "/" + whole(tag+",range"), func(r *fetch.Request) { r.HoldBackBytes = 512 << 10 }, "ok", size, []string{"", ""}, []int64{0, 0}},

		{"a weak tag", cut(",etag=W%2F%22v1%22,range", 300_000) + "/" + whole(tag), nil, "body_interrupted cut body_committed", 300_000, []string{""}, nil},
		{"no validator", cut(",range", 300_000) + "/" + whole(""), nil, "body_interrupted cut body_committed", 300_000, []string{""}, nil},
		{"a date of the same second", cut(",last-modified=Thu%2C 01 Jan 2026 00:00:00 GMT,date=Thu%2C 01 Jan 2026 00:00:00 GMT,range", 300_000), nil, "body_interrupted cut body_committed", 300_000, []string{""}, nil},
		{"an origin without ranges", cut(tag+",header=Accept-Ranges=none", 300_000), nil, "body_interrupted cut body_committed", 300_000, []string{""}, nil},
		{"coded", cut(tag+",range,coding=gzip", 300_000), patient, "body_interrupted cut body_committed", -1, []string{""}, nil},
		{"no recovery", cut(tag+",range", 300_000) + "/" + whole(tag+",range"), func(r *fetch.Request) { r.Recovery = fetch.NoRecovery }, "body_interrupted cut body_committed", 300_000, []string{""}, nil},

		{"another tag", cut(tag+",range", 300_000) + "/" + whole(",etag=%22v2%22,range"), nil, "body_interrupted resume_mismatch body_committed", 300_000, []string{"", "bytes=300000-"}, nil},
		{"a 200 to the range", cut(tag, 300_000) + "/" + whole(tag), nil, "body_interrupted resume_mismatch body_committed", 300_000, []string{"", "bytes=300000-"}, nil},
		{"a 206 of another range", cut(tag+",range", 300_000) + "/206:size=700000,offset=300001,header=Content-Range=bytes 300001-1000000%2F1000001", nil, "body_interrupted resume_mismatch body_committed", 300_000, []string{"", "bytes=300000-"}, nil},
		{"a 206 of another size", cut(tag+",range", 300_000) + "/206:size=700001,offset=300000,header=Content-Range=bytes 300000-1000000%2F1000001", nil, "body_interrupted resume_mismatch body_committed", 300_000, []string{"", "bytes=300000-"}, nil},
		{"a 206 of a part", cut(tag+",range", 300_000) + "/206:size=1000,offset=300000,header=Content-Range=bytes 300000-300999%2F1000000", nil, "body_interrupted resume_mismatch body_committed", 300_000, []string{"", "bytes=300000-"}, nil},
		{"a 206 with another tag", cut(tag+",range", 300_000) + "/206:size=700000,offset=300000,etag=%22v2%22,header=Content-Range=bytes 300000-999999%2F1000000", nil, "body_interrupted resume_mismatch body_committed", 300_000, []string{"", "bytes=300000-"}, nil},
		{"a 206 without a range", cut(tag+",range", 300_000) + "/206:size=700000,offset=300000", nil, "body_interrupted resume_mismatch body_committed", 300_000, []string{"", "bytes=300000-"}, nil},
		{"a 206 that is coded", cut(tag+",range", 300_000) + "/206:size=700000,coding=gzip,header=Content-Range=bytes 300000-999999%2F1000000", patient, "body_interrupted resume_mismatch body_committed", 300_000, []string{"", "bytes=300000-"}, nil},
		{"a 206 without a tag", cut(tag+",range", 300_000) + "/206:size=700000,offset=300000,header=Content-Range=bytes 300000-999999%2F1000000", nil, "body_interrupted resume_mismatch body_committed", 300_000, []string{"", "bytes=300000-"}, nil},
		{"a 206 shorter than its range", cut(tag+",range", 300_000) + "/206:size=1000,offset=300000,no-length" + tag + ",header=Content-Range=bytes 300000-999999%2F1000000/" + whole(tag+",range"), nil, "ok", size, []string{"", "bytes=300000-", "bytes=301000-"}, nil},
		{"a 206 longer than its range", cut(tag+",range", 300_000) + "/206:size=700001,offset=300000,no-length" + tag + ",header=Content-Range=bytes 300000-999999%2F1000000", nil, "body_interrupted resume_mismatch body_committed", -1, []string{"", "bytes=300000-"}, nil},
		{"a 206 of parts", cut(tag+",range", 300_000) + "/" + parts, nil, "body_interrupted resume_mismatch body_committed", 300_000, []string{"", "bytes=300000-"}, []int64{0, 300_000}},
		{"a 206 of parts, and no boundary", cut(tag+",range", 300_000) + "/" + strings.Replace(parts, "multipart%2Fbyteranges;boundary=x", "Multipart%2FByteRanges", 1), nil, "body_interrupted resume_mismatch body_committed", 300_000, []string{"", "bytes=300000-"}, nil},
		{"a 206 of another type of parts", cut(tag+",range", 300_000) + "/" + strings.Replace(parts, "byteranges", "mixed", 1), nil, "ok", size, []string{"", "bytes=300000-"}, nil},
		{"parts, restarted", cut(tag+",range", 300_000) + "/" + parts + "/" + whole(tag+",range"), func(r *fetch.Request) { r.Recovery = fetch.Restart }, "ok", size, []string{"", "bytes=300000-", ""}, []int64{0, 300_000, 0}},
		{"a resume point answered with parts", parts, func(r *fetch.Request) { r.ResumePoint = fetch.ResumePoint{Offset: 300_000, Validator: `"v1"`} }, "body_interrupted resume_mismatch body_committed", 300_000, []string{"bytes=300000-"}, nil},
		{"a 206 at another URL", cut(tag+",range", 300_000) + "/302:to=%2Fs%2Fother%2F" + url.QueryEscape(whole(tag+",range")), nil, "body_interrupted resume_mismatch body_committed", 300_000, []string{"", "bytes=300000-"}, nil},
		{"by signed URLs", "302:to=" + signed + "1/302:to=" + signed + "2", nil, "ok", size, []string{"", "bytes=300000-"}, []int64{0, 300_000}},
		{"a 404", cut(tag+",range", 300_000) + "/404", nil, "body_interrupted resume_mismatch body_committed", 300_000, []string{"", "bytes=300000-"}, nil},

		{"restart at a 200", cut(tag, 300_000) + "/" + whole(tag), func(r *fetch.Request) { r.Recovery = fetch.Restart }, "ok", size, []string{"", "bytes=300000-"}, []int64{0, 0}},
		{"restart without a validator", cut("", 300_000) + "/" + whole(""), func(r *fetch.Request) { r.Recovery = fetch.Restart }, "ok", size, []string{"", ""}, []int64{0, 0}},
		{"restart after a wrong 206", cut(tag+",range", 300_000) + "/206:size=1000/" + whole(tag+",range"), func(r *fetch.Request) { r.Recovery = fetch.Restart }, "ok", size, []string{"", "bytes=300000-", ""}, []int64{0, 300_000, 0}},
		{"continue although restart is allowed", cut(tag+",range", 300_000) + "/" + whole(tag+",range"), func(r *fetch.Request) { r.Recovery = fetch.Restart }, "ok", size, []string{"", "bytes=300000-"}, []int64{0, 300_000}},

		{"a resume point", whole(tag + ",range"), func(r *fetch.Request) { r.ResumePoint = fetch.ResumePoint{Offset: 600_000, Validator: `"v1"`} }, "ok", size, []string{"bytes=600000-"}, []int64{600_000}},
		{"a resume point, interrupted", cut(tag+",range", 100_000) + "/" + whole(tag+",range"), func(r *fetch.Request) { r.ResumePoint = fetch.ResumePoint{Offset: 600_000, Validator: `"v1"`} }, "ok", size, []string{"bytes=600000-", "bytes=700000-"}, nil},
		{"a resume point after a 503", "503/" + whole(tag+",range"), func(r *fetch.Request) {
			r.ResumePoint, r.Recovery = fetch.ResumePoint{Offset: 600_000, Validator: `"v1"`}, fetch.NoRecovery
		}, "ok", size, []string{"bytes=600000-", "bytes=600000-"}, nil},
		{"a resume point of another body", whole(",etag=%22v2%22,range"), func(r *fetch.Request) { r.ResumePoint = fetch.ResumePoint{Offset: 600_000, Validator: `"v1"`} }, "body_interrupted resume_mismatch body_committed", 600_000, []string{"bytes=600000-"}, nil},
		{"a resume point of another body, restarted", whole(",etag=%22v2%22,range"), func(r *fetch.Request) {
			r.ResumePoint, r.Recovery = fetch.ResumePoint{Offset: 600_000, Validator: `"v1"`}, fetch.Restart
		}, "ok", size, []string{"bytes=600000-"}, []int64{0}},
		{"a resume point at the end", whole(tag + ",range"), func(r *fetch.Request) { r.ResumePoint = fetch.ResumePoint{Offset: size, Validator: `"v1"`} }, "ok", size, []string{"bytes=1000000-"}, nil},
		{"a resume point at the end of another body", "416:header=Content-Range=bytes *%2F1000000,etag=%22v2%22", func(r *fetch.Request) { r.ResumePoint = fetch.ResumePoint{Offset: size, Validator: `"v1"`} }, "body_interrupted resume_mismatch body_committed", size, []string{"bytes=1000000-"}, nil},
		{"a resume point past the end", whole(tag + ",range"), func(r *fetch.Request) { r.ResumePoint = fetch.ResumePoint{Offset: size + 1, Validator: `"v1"`} }, "body_interrupted resume_mismatch body_committed", size + 1, []string{"bytes=1000001-"}, nil},
		{"statuses that may pass", cut(tag+",range", 300_000) + "/408/425/429/503/" + whole(tag+",range"), attempts(6, fetch.Resume), "ok", size,
			[]string{"", "bytes=300000-", "bytes=300000-", "bytes=300000-", "bytes=300000-", "bytes=300000-"}, nil},
		{"statuses that may pass, restart", cut(tag+",range", 300_000) + "/429/503/" + whole(tag+",range"), attempts(6, fetch.Restart), "ok", size, []string{"", "bytes=300000-", "bytes=300000-", ""}, nil},
		{"not in a row, restart", cut(tag+",range", 300_000) + "/503/" + cut(tag+",range", 200_000) + "/503/" + whole(tag+",range"), attempts(6, fetch.Restart), "ok", size,
			[]string{"", "bytes=300000-", "bytes=300000-", "bytes=500000-", "bytes=500000-"}, nil},
		{"a 401", cut(tag+",range", 300_000) + "/401", attempts(6, fetch.Restart), "auth_required  not_retried", 300_000, []string{"", "bytes=300000-"}, nil},
		{"a cut at the last byte", "200:size=1000000,chunked" + tag + ",range,chunk-fault=no-last/" + whole(tag+",range"), nil, "ok", size, []string{"", "bytes=1000000-"}, nil},
	}
	for _, status := range []int{400, 403, 404, 405, 410, 412, 413, 416, 422, 431, 451} { // the origin refuses ranges only
		rows = append(rows, resumeRow{fmt.Sprintf("a %d, restart", status), fmt.Sprintf("%s/%d/%s", cut(tag+",range", 300_000), status, whole(tag)), attempts(3, fetch.Restart), "ok", size,
			[]string{"", "bytes=300000-", ""}, nil})
	}
	for _, row := range rows {
		for _, listener := range []string{"http", "https"} {
			if listener == "https" && (strings.Contains(row.script, "chunk") || strings.Contains(row.script, "no-length")) {
				continue // HTTP/1.1 alone has them
			}
			t.Run(row.name+" "+listener, func(t *testing.T) {
				t.Parallel()
				newWire(t).resumes(listener, row)
			})
		}
	}
}

func attempts(n int, recovery fetch.Recovery) func(*fetch.Request) {
	return func(r *fetch.Request) { r.Policy.MaxAttempts, r.Policy.BaseDelay, r.Recovery = n, 0, recovery }
}

// resumeSize is the length of the bodies of TestResume.
const resumeSize = 1_000_000

type resumeRow struct {
	name, script string
	change       func(*fetch.Request)
	want         string // "ok", or the failure's class, reason and stop reason
	delivered    int
	ranges       []string // as the origin saw them
	begins       []int64
}

func (w *wire) resumes(listener string, row resumeRow) {
	w.Helper()
	r := w.request(listener, "/s/k/"+strings.ReplaceAll(row.script, " ", "%20"))
	r.HoldBackBytes = 1000
	if row.change != nil {
		row.change(r)
	}
	a := new(assembled)
	if n := r.ResumePoint.Offset; n > 0 {
		a.body = w.origin.Body(resumeSize + 1)[:n]
	}
	out := w.client.Fetch(w.Context(), r, a.sink)
	got := "ok"
	if f := out.Failure; f != nil {
		reason := f.Reason
		if f.Class == classify.BodyInterrupted && reason != "resume_mismatch" {
			reason = "cut" // HTTP/1.1 and HTTP/2 name it differently
		}
		got = fmt.Sprintf("%s %s %s", f.Class, reason, out.StopReason)
	}
	if got != row.want {
		w.Errorf("%s (%+v), want %s", got, out.Failure, row.want)
	}
	if row.delivered >= 0 && (len(a.body) != row.delivered || !bytes.Equal(a.body, w.origin.Body(resumeSize + 1)[:row.delivered])) {
		w.Errorf("%d bytes, want the first %d of the origin", len(a.body), row.delivered)
	}
	w.wantRanges(row.ranges)
	if row.begins != nil && !slices.Equal(a.begins, row.begins) {
		w.Errorf("bodies start at %d, want %d", a.begins, row.begins)
	}
	if got == "ok" && (out.Body.Size != resumeSize || r.ResumePoint.Offset == 0 && out.Body.SHA256 != digest(w.origin.Body(resumeSize))) {
		w.Errorf("summary %+v, want %d bytes and their digest", out.Body, resumeSize)
	}
}

// wantRanges compares the Range headers that the origin received.
func (w *wire) wantRanges(want []string) {
	w.Helper()
	var ranges []string
	for _, q := range w.origin.Requests("k") {
		ranges = append(ranges, q.Header.Get("Range"))
		if (q.Header.Get("Range") == "") != (q.Header.Get("If-Range") == "") {
			w.Errorf("Range %q with If-Range %q", q.Header.Get("Range"), q.Header.Get("If-Range"))
		}
	}
	if !slices.Equal(ranges, want) {
		w.Errorf("ranges %q, want %q", ranges, want)
	}
}

func digest(body []byte) string {
	sum := sha256.Sum256(body)
	return hex.EncodeToString(sum[:])
}

// TestResumeAtRandom interrupts 64 MiB at ten random places in one fetch, and at twenty over several
// fetches with resume points.
func TestResumeAtRandom(t *testing.T) {
	t.Parallel()
	const size = 64 << 20
	for _, listener := range []string{"http", "https"} {
		t.Run(listener, func(t *testing.T) {
			t.Parallel()
			w := newWire(t)
			want := w.origin.Body(size)
			random := rand.New(rand.NewPCG(1, 2)) //nolint:gosec // a test's
			script := func(cuts int) string {
				steps := make([]string, cuts, cuts+1)
				for i := range steps { // each cuts the bytes that are left
					steps[i] = fmt.Sprintf("200:size=%d,etag=%%22v%%22,range,cut=%d", size, 1+random.IntN(size/(cuts+1)))
				}
				return strings.Join(append(steps, fmt.Sprintf("200:size=%d,etag=%%22v%%22,range", size)), "/")
			}
			request := func(key, script string) *fetch.Request {
				r := w.request(listener, "/s/"+key+"/"+script)
				r.MaxBodyBytes, r.HoldBackBytes, r.Policy.MaxAttempts, r.TotalTimeout, r.AttemptTimeout = size, 0, 11, 0, 0
				return r
			}
			one := new(assembled)
			out := w.client.Fetch(t.Context(), request("one", script(10)), one.sink)
			if out.Kind != classify.Success || out.Attempts != 11 || out.Body.SHA256 != digest(want) || !bytes.Equal(one.body, want) {
				t.Errorf("one fetch: %s after %d attempts, %d bytes: %+v", out.Kind, out.Attempts, len(one.body), out.Failure)
			}
			joined, fetches := new(assembled), 0
			for steps := script(20); out.Kind != classify.Success || fetches == 0; fetches++ {
				r := request("many", steps)
				r.Policy.MaxAttempts = 5
				if n := int64(len(joined.body)); n > 0 {
					r.ResumePoint = fetch.ResumePoint{Offset: n, Validator: `"v"`}
				}
				if out = w.client.Fetch(t.Context(), r, joined.sink); fetches > 20 {
					t.Fatalf("no end: %+v", out.Failure)
				}
			}
			if fetches != 5 || !bytes.Equal(joined.body, want) {
				t.Errorf("%d fetches, %d bytes; want 5, and all of the origin's", fetches, len(joined.body))
			}
			for _, key := range []string{"one", "many"} {
				w.wantSeams(key, size)
			}
		})
	}
}

// wantSeams checks that each range starts at the first byte that was not delivered.
func (w *wire) wantSeams(key string, size int64) {
	w.Helper()
	var delivered int64
	for i, q := range w.origin.Requests(key) {
		want := ""
		if i > 0 {
			want = fmt.Sprintf("bytes=%d-", delivered)
		}
		if got := q.Header.Get("Range"); got != want {
			w.Errorf("%s: request %d asks for %q, want %q", key, i+1, got, want)
		}
		steps := strings.Split(q.Path, "/")[3:]
		step := steps[min(i, len(steps)-1)]
		var cut int64
		if _, params, ok := strings.Cut(step, "cut="); ok {
			_, _ = fmt.Sscan(params, &cut)
		}
		if delivered += cut; delivered > size {
			w.Fatalf("%s: %d bytes of %d", key, delivered, size)
		}
	}
}
