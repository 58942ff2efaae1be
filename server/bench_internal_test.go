package server

import (
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"testing"

	"fetchd/classify"
	"fetchd/fetch"
	pb "fetchd/gen/fetchd/v1"
	"fetchd/server/internal/conversion"
	"fetchd/server/observe"
	"fetchd/stores"
	"fetchd/test/must"
)

// BenchmarkHandler calls the method FetchUnary as gRPC does, but without gRPC and a client. The
// difference to BenchmarkFetchUnary is their share.
func BenchmarkHandler(b *testing.B) {
	origin := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		_, _ = w.Write(make([]byte, 1<<10))
	}))
	b.Cleanup(origin.Close)
	observer, err := observe.New(observe.Config{})
	must.Succeed(b, err)
	s, err := New(Config{
		Fetch:   fetch.Config{Egress: fetch.Egress{Unrestricted: true}},
		Observe: observer,
		Logger:  slog.New(slog.NewJSONHandler(io.Discard, nil)),
	})
	must.Succeed(b, err)
	b.Cleanup(func() { _ = s.Shutdown(b.Context()) })
	in := new(pb.FetchRequest)
	b.ReportAllocs()
	for b.Loop() {
		in.Url = origin.URL // the method empties the request
		resp, err := s.service.FetchUnary(b.Context(), in)
		if err != nil || len(resp.GetOutcome().GetInlineBody()) != 1<<10 {
			b.Fatalf("%v, %v; want 1 KiB", resp, err)
		}
	}
}

// BenchmarkConvert converts a request with few fields, and makes its effective request.
func BenchmarkConvert(b *testing.B) {
	limits, _ := new(Limits).split(0)
	in := &pb.FetchRequest{Url: "https://www.example.com/some/path?with=a&query=too"}
	b.ReportAllocs()
	for b.Loop() {
		p, err := conversion.Convert(in, "", conversion.FetchMode, limits, &conversion.Configured{Stores: new(stores.Set)})
		must.Succeed(b, err)
		p.Effective()
	}
}

// BenchmarkOutcome converts a success with six header fields.
func BenchmarkOutcome(b *testing.B) {
	req := fetch.NewRequest(classify.Standard)
	const url = "https://www.example.com/some/path"
	out := &fetch.Outcome{
		Kind: classify.Success, Rule: "H0", FinalURL: url, Attempts: 1, Exchanges: 1, ResponseAttempt: 1,
		Response: &fetch.Response{StatusCode: http.StatusOK, Protocol: "HTTP/1.1", ContentLength: 1 << 10, Header: http.Header{
			"Content-Type": {"text/html; charset=utf-8"}, "Content-Length": {"1024"}, "Etag": {`"1"`},
			"Date": {"Mon, 02 Mar 2026 07:00:00 GMT"}, "Server": {"origin"}, "Vary": {"Accept-Encoding"},
		}},
		Hops:       []fetch.Hop{{Method: http.MethodGet, URL: url, StatusCode: http.StatusOK}},
		InlineBody: make([]byte, 1<<10),
		Body:       fetch.BodySummary{Size: 1 << 10, EncodedSize: 1 << 10, LengthKnown: true},
	}
	b.ReportAllocs()
	for b.Loop() {
		conversion.Outcome(out, req, nil)
	}
}
