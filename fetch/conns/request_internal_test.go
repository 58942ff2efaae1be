package conns

import (
	"bytes"
	"net/http"
	"net/url"
	"strings"
	"testing"
)

// TestAppendHead checks which heads are written without http.Request.Write, and that they have the same bytes.
func TestAppendHead(t *testing.T) {
	t.Parallel()
	agent := func(more ...string) http.Header {
		h := http.Header{"User-Agent": {"a"}}
		for i := 0; i < len(more); i += 2 {
			h[more[i]] = append(h[more[i]], more[i+1])
		}
		return h
	}
	many := agent()
	for i := range maxOwnFields {
		many[string(rune('a'+i))] = []string{"x"}
	}
	for name, row := range map[string]struct {
		req  http.Request
		rare bool
	}{
		"GET":                      {req: http.Request{Host: "a.test:8080", Header: agent("Accept", "*/*", "X", "1", "Accept", "b", "Accept-Encoding", "gzip")}},
		"HEAD":                     {req: http.Request{Method: "HEAD"}},
		"blanks around a value":    {req: http.Request{Header: agent("X", " \t1 \t")}},
		"no value":                 {req: http.Request{Header: agent("X", "")}},
		"non-canonical name":       {req: http.Request{Header: agent("x-ab", "1", "X-Aa", "2", "connection", "close")}},
		"empty agent":              {req: http.Request{Header: http.Header{"User-Agent": {""}, "X": {"1"}}}},
		"two agents":               {req: http.Request{Header: http.Header{"User-Agent": {" a ", "b"}}}},
		"query":                    {req: http.Request{URL: &url.URL{Path: "/a b/%", RawQuery: "a=b&c"}}},
		"empty query":              {req: http.Request{URL: &url.URL{Path: "/", ForceQuery: true}}},
		"escaped path":             {req: http.Request{URL: &url.URL{Path: "/a/b", RawPath: "/a%2Fb"}}},
		"connection that closes":   {req: http.Request{Close: true, Header: agent("A", "1")}},
		"IPv6":                     {req: http.Request{Host: "[::1]:80"}},
		"name in Unicode":          {req: http.Request{Host: "bücher.test"}, rare: true},
		"zone":                     {req: http.Request{Host: "[fe80::1%25eth0]:80"}, rare: true},
		"no host":                  {req: http.Request{Host: " "}, rare: true},
		"no agent":                 {req: http.Request{Header: http.Header{"X": {"1"}}}, rare: true},
		"POST":                     {req: http.Request{Method: "POST"}, rare: true},
		"body":                     {req: http.Request{Body: http.NoBody}, rare: true},
		"length":                   {req: http.Request{ContentLength: 1}, rare: true},
		"transfer coding":          {req: http.Request{TransferEncoding: []string{"chunked"}}, rare: true},
		"trailer":                  {req: http.Request{Trailer: http.Header{"X": nil}}, rare: true},
		"Connection":               {req: http.Request{Header: agent("Connection", "close")}, rare: true},
		"Host":                     {req: http.Request{Header: agent("Host", "b.test")}, rare: true},
		"opaque":                   {req: http.Request{URL: &url.URL{Opaque: "x", Path: "/"}}, rare: true},
		"empty path":               {req: http.Request{URL: &url.URL{}}, rare: true},
		"path with two slashes":    {req: http.Request{URL: &url.URL{Scheme: "http", Path: "//a"}}, rare: true},
		"blank in the query":       {req: http.Request{URL: &url.URL{Path: "/", RawQuery: "a b"}}, rare: true},
		"control in the query":     {req: http.Request{URL: &url.URL{Path: "/", RawQuery: "a\x7f"}}, rare: true},
		"more fields than we sort": {req: http.Request{Header: many}, rare: true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			req := row.req
			if req.Method == "" {
				req.Method = "GET"
			}
			if req.Host == "" {
				req.Host = "a.test"
			}
			if req.URL == nil {
				req.URL = &url.URL{Path: "/"}
			}
			if req.Header == nil {
				req.Header = agent()
			}
			if own := sameHead(t, &req); own == row.rare {
				t.Errorf("appendHead reports %t", own)
			}
		})
	}
}

// sameHead reports whether appendHead writes a head, which must be that of http.Request.Write.
func sameHead(t *testing.T, req *http.Request) bool {
	t.Helper()
	got, own := appendHead([]byte("before"), req)
	var want bytes.Buffer
	want.WriteString("before")
	if own {
		if err := req.Write(&want); err != nil {
			t.Fatalf("http.Request.Write: %v; appendHead wrote %q", err, got)
		}
	}
	if !bytes.Equal(got, want.Bytes()) {
		t.Fatalf("appendHead wrote %q, http.Request.Write %q", got, want.Bytes())
	}
	return own
}

// FuzzAppendHead compares heads with those of http.Request.Write.
func FuzzAppendHead(f *testing.F) {
	f.Add("GET", "a.test", "/", "", "", "a=b", "User-Agent: x\nAccept: */*", byte(0))
	f.Add("HEAD", "[::1]:8", "/a/b", "/a%2Fb", "", "", "User-Agent:  \nb: \nB: c\t", byte(3))
	f.Add("GET", "a%b", "", "", "o", "", "Host: x\nConnection: close\nUser-Agent: x", byte(4))
	f.Fuzz(func(t *testing.T, method, host, path, rawPath, opaque, query, fields string, flags byte) {
		req := &http.Request{Method: method, Host: host, Header: http.Header{}, Close: flags&1 != 0,
			URL: &url.URL{Scheme: "http", Host: host, Path: path, RawPath: rawPath, Opaque: opaque, RawQuery: query, ForceQuery: flags&2 != 0}}
		for line := range strings.SplitSeq(fields, "\n") {
			name, value, _ := strings.Cut(line, ":")
			req.Header[name] = append(req.Header[name], value)
		}
		if flags&4 != 0 {
			req.Header["User-Agent"] = append(req.Header["User-Agent"], "fetchd")
		}
		if checkRequest(req) == nil {
			sameHead(t, req)
		}
	})
}
