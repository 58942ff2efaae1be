package conns

import (
	"net/http"
	"net/textproto"
	"strconv"
	"strings"
)

// FinalHeader returns a copy of the header of a request that HTTP/1.1 and HTTP/2 send alike: without
// the fields in without, values without blanks around them, one User-Agent, and cookies in one line.
func FinalHeader(req *http.Request, without []string) http.Header {
	h := make(http.Header, len(req.Header)+4) // room for a signature
	n := 0
	for _, values := range req.Header {
		n += len(values)
	}
	all := make([]string, 0, n)
	for name, values := range req.Header {
		start := len(all)
		for _, value := range values {
			all = append(all, textproto.TrimString(value))
		}
		h[name] = all[start:len(all):len(all)]
	}
	for _, name := range without {
		delete(h, name)
	}
	h["User-Agent"] = []string{h.Get("User-Agent")} // an empty one is not sent
	if cookies := h["Cookie"]; len(cookies) > 1 {
		h["Cookie"] = []string{strings.Join(cookies, "; ")}
	}
	return h
}

// SentHeader returns the fields that RoundTrip sends for a request whose header is of [FinalHeader],
// except Connection.
func SentHeader(req *http.Request) http.Header {
	h := make(http.Header, len(req.Header)+2)
	for name, values := range req.Header {
		if len(values) > 0 && (name != "User-Agent" || values[0] != "") {
			h[name] = values
		}
	}
	h["Host"] = []string{req.Host}
	if req.ContentLength > 0 || req.Method == http.MethodPost || req.Method == http.MethodPut || req.Method == http.MethodPatch {
		h["Content-Length"] = []string{strconv.FormatInt(req.ContentLength, 10)}
	}
	return h
}
