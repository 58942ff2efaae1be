package client

import (
	"net/http"
	"testing"

	pb "fetchd/gen/fetchd/v1"
)

// TestCookiesOfFinalURL checks which cookies a Jar may keep for the first URL.
func TestCookiesOfFinalURL(t *testing.T) {
	for _, row := range []struct {
		name, first, final string
		kept               bool
	}{
		{"the same URL", "https://a.example/", "https://a.example/", true},
		{"another path", "https://a.example/", "https://A.example/b", true},
		{"another port", "http://a.example/", "http://a.example:8080/", true},
		{"TLS from now on", "http://a.example/", "https://a.example/", true},
		{"no TLS any more", "https://a.example/", "http://a.example/", false},
		{"another host", "https://a.example/", "https://b.a.example/", false},
	} {
		t.Run(row.name, func(t *testing.T) {
			req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, row.first, nil)
			if err != nil {
				t.Fatal(err)
			}
			resp, err := httpResponse(req, new(pb.FetchRequest), &Response{StatusCode: 200, FinalURL: row.final, Header: http.Header{"Set-Cookie": {"a=b"}}, Body: http.NoBody})
			if err != nil {
				t.Fatal(err)
			}
			if kept := resp.Header.Get("Set-Cookie") != ""; kept != row.kept {
				t.Errorf("Set-Cookie kept: %t, want %t", kept, row.kept)
			}
		})
	}
}
