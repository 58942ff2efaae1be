package main

import (
	"net/http"
	"strconv"
	"strings"
	"time"

	pb "fetchd/gen/fetchd/v1"
)

// headersOf are the headers of a response that are text.
func headersOf(r *pb.HttpResponse) http.Header {
	h := make(http.Header)
	for _, f := range r.GetHeaders() {
		if len(f.GetRawValue()) == 0 {
			h.Add(f.GetName(), f.GetValue())
		}
	}
	return h
}

// validatorOf is what the rest of a body can be asked for with: a strong tag, or
// a date that is old enough to be strong (RFC 9110 §8.8.2.2). It is "" where the
// body cannot be continued, as the service sees it too (spec B2).
func validatorOf(r *pb.HttpResponse) string {
	h := headersOf(r)
	if r.GetStatusCode() != http.StatusOK || codingOf(r) != "" || strings.EqualFold(h.Get("Accept-Ranges"), "none") {
		return ""
	}
	if tag := h.Get("Etag"); tag != "" {
		if isStrongTag(tag) {
			return tag
		}
		return ""
	}
	modified, err := http.ParseTime(h.Get("Last-Modified"))
	if err != nil {
		return ""
	}
	if date, err := http.ParseTime(h.Get("Date")); err != nil || date.Sub(modified) < time.Second {
		return ""
	}
	return h.Get("Last-Modified")
}

// isStrongValidator tells what the service takes for a resume point.
func isStrongValidator(v string) bool {
	_, err := http.ParseTime(v)
	return err == nil || isStrongTag(v)
}

// isStrongTag tells a strong entity tag (RFC 9110 §8.8.3).
func isStrongTag(v string) bool {
	if len(v) < 2 || len(v) > 1024 || v[0] != '"' || v[len(v)-1] != '"' {
		return false
	}
	for i := 1; i < len(v)-1; i++ {
		if c := v[i]; c <= ' ' || c == '"' || c == 0x7f {
			return false
		}
	}
	return true
}

// totalOf is the length of the whole body, or -1 where the response does not
// tell it.
func totalOf(r *pb.HttpResponse) int64 {
	switch {
	case codingOf(r) != "": // its length is that of the coded bytes
		return -1
	case r.GetStatusCode() == http.StatusPartialContent:
		return totalOfRange(headersOf(r).Get("Content-Range"))
	case r.ContentLength == nil:
		return -1
	}
	return r.GetContentLength()
}

// totalOfRange reads the length of the whole from "bytes FIRST-LAST/TOTAL".
func totalOfRange(s string) int64 {
	_, size, _ := strings.Cut(s, "/")
	if n, err := strconv.ParseInt(size, 10, 64); err == nil && n >= 0 {
		return n
	}
	return -1
}
