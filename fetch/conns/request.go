package conns

import (
	"net/http"
	"net/textproto"
	"slices"
	"strings"

	"golang.org/x/net/http/httpguts"
)

// maxOwnFields is the number of field names up to which appendHead writes a head.
const maxOwnFields = 16

// appendHead appends the bytes that http.Request.Write writes for a request that [checkRequest] has accepted. It
// reports false, and appends nothing, for what is rare: another method than GET and HEAD, a body, a host or
// target that needs a change, and fields with a meaning for http.Request.Write.
func appendHead(b []byte, req *http.Request) ([]byte, bool) {
	path := req.URL.EscapedPath()
	if !isCommon(req, path) {
		return b, false
	}
	var room [maxOwnFields]string
	names := room[:0]
	for name := range req.Header {
		switch name {
		case "Host", "Content-Length", "Transfer-Encoding", "Trailer", "Connection":
			return b, false
		case "User-Agent":
		default:
			names = append(names, name)
		}
	}
	slices.Sort(names)
	b = append(append(append(b, req.Method...), ' '), path...)
	if req.URL.ForceQuery || req.URL.RawQuery != "" {
		b = append(append(b, '?'), req.URL.RawQuery...)
	}
	b = append(append(append(b, " HTTP/1.1\r\nHost: "...), req.Host...), "\r\n"...)
	if agent := req.Header["User-Agent"][0]; agent != "" {
		b = appendField(b, "User-Agent", agent)
	}
	if req.Close {
		b = append(b, "Connection: close\r\n"...)
	}
	for _, name := range names {
		for _, value := range req.Header[name] {
			b = appendField(b, name, value)
		}
	}
	return append(b, "\r\n"...), true
}

// isCommon reports whether appendHead may write the head of a request with this path, unless a field forbids it.
func isCommon(req *http.Request, path string) bool {
	switch {
	case req.Method != http.MethodGet && req.Method != http.MethodHead, req.Body != nil, req.ContentLength != 0,
		len(req.TransferEncoding) > 0, len(req.Trailer) > 0, len(req.Header["User-Agent"]) == 0, len(req.Header) > maxOwnFields:
		return false
	case req.Host == "" || !isPlain(req.Host) || strings.Contains(req.Host, "%") || !httpguts.ValidHostHeader(req.Host):
		return false
	}
	return req.URL.Opaque == "" && strings.HasPrefix(path, "/") && !strings.HasPrefix(path, "//") && isPlain(path) && isPlain(req.URL.RawQuery)
}

func appendField(b []byte, name, value string) []byte {
	b = append(append(b, name...), ": "...)
	return append(append(b, textproto.TrimString(value)...), "\r\n"...)
}

// isPlain reports whether s is ASCII without blanks and control characters.
func isPlain(s string) bool {
	for i := range len(s) {
		if s[i] <= ' ' || s[i] >= 0x7f {
			return false
		}
	}
	return true
}
