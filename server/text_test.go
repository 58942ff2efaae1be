package server_test

import (
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/protobuf/testing/protocmp"

	"fetchd/fetch"
	pb "fetchd/gen/fetchd/v1"
	"fetchd/server"
)

// TestText delivers the text of a page by every method, and by the raw path (B10).
func TestText(t *testing.T) {
	t.Parallel()
	const page, text = "<title>Title</title><nav>Menu</nav><main><p>Über uns</p></main>", "Über uns\n"
	answers := map[string][2]string{
		"/page":  {"text/html; charset=utf-8", page},
		"/image": {"image/png", "\x89PNG"},
		"/long":  {"text/" + strings.Repeat("a", 300), text},
	}
	origin := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		answer := answers[r.URL.Path]
		w.Header().Set("Content-Type", answer[0])
		_, _ = io.WriteString(w, answer[1])
	}))
	t.Cleanup(origin.Close)
	r := newRig(t, func(c *server.Config) { c.Fetch.Egress = fetch.Egress{Unrestricted: true} })
	in := &pb.FetchRequest{Url: origin.URL + "/page", TextPolicy: &pb.TextPolicy{}}
	want := &pb.TextSummary{MediaType: "text/markdown", Title: "Title", SizeBytes: int64(len(text)), CharacterCount: 9, LeftOut: true}
	check := func(method string, o *pb.FetchOutcome) {
		t.Helper()
		if diff := cmp.Diff(want, o.GetTextSummary(), protocmp.Transform()); diff != "" || string(o.GetInlineBody()) != text {
			t.Errorf("%s: text %q, summary (-want +got)\n%s", method, o.GetInlineBody(), diff)
		}
		if size := o.GetBodySummary().GetSizeBytes(); size != int64(len(page)) {
			t.Errorf("%s: the body has %d bytes, want those of the page, %d", method, size, len(page))
		}
	}
	unary := r.mustUnary(in)
	check("FetchUnary", unary.GetOutcome())
	effective := unary.GetEffectiveRequest()
	if got := effective.GetTextPolicy().GetContent(); got != pb.TextContent_TEXT_CONTENT_MARKED || effective.GetBodyPolicy().GetInline() == nil || effective.GetBodyPolicy().GetMaxSizeBytes() != 16<<20 {
		t.Errorf("effective request %v, want content MARKED, delivery inline and 16 MiB", effective)
	}
	check("Fetch", r.mustFetch(in).outcome)
	in.BodyPolicy = &pb.BodyPolicy{Delivery: &pb.BodyPolicy_Auto{Auto: new(pb.StreamDelivery)}}
	check("Fetch with auto", r.mustFetch(in).outcome)

	for _, row := range []struct {
		name, path, accept string
		status             int
		contentType, body  string
	}{
		{"text", "/page", "text/html;q=0.5, text/markdown", 200, "text/markdown; charset=utf-8", text},
		{"bytes", "/page", "text/markdown;q=0, */*", 200, "text/html; charset=utf-8", page},
		{"a type too long for a header", "/long", "text/markdown", 200, "application/octet-stream", text},
		{"no text", "/image", "text/markdown", 424, "application/problem+json", ""},
	} {
		resp := r.post(t.Context(), "/v1/raw?url="+url.QueryEscape(origin.URL+row.path), "", func(req *http.Request) {
			req.Method = http.MethodGet
			req.Header.Set("Fetchd-Request", "{}")
			req.Header.Set("Accept", row.accept)
		})
		body, err := io.ReadAll(resp.Body)
		must(t, err)
		if resp.StatusCode != row.status || resp.Header.Get("Content-Type") != row.contentType || row.body != "" && string(body) != row.body {
			t.Errorf("%s: status %d, type %q, body %q, want %d, %q, %q", row.name, resp.StatusCode, resp.Header.Get("Content-Type"), body, row.status, row.contentType, row.body)
		}
	}
}
