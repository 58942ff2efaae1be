package frontier

import (
	"fmt"
	"mime"
	"net/http"
	"strings"
	"unicode/utf8"

	"golang.org/x/net/http/httpguts"

	"fetchd/frontier/store"
	pb "fetchd/gen/fetchd/v1"
	"fetchd/internal/jsontext"
)

// An origin chooses what its headers contain, so what is kept of a response is limited.
const (
	maxKeptHeaders = 32
	maxKeptName    = 100     // bytes of a name
	maxKeptValues  = 8       // of one name
	maxKeptValue   = 1 << 10 // bytes of one value
	maxKeptTotal   = 8 << 10 // bytes of all values
	maxContentType = 255     // bytes of a media type: RFC 6838 §4.2
	maxCharset     = 64      // bytes of a charset
	omitted        = "…"     // stands for what is left out
)

// CheckKeepHeaders returns an error if names cannot be Config.KeepHeaders.
func CheckKeepHeaders(names []string) error {
	if len(names) > maxKeptHeaders {
		return fmt.Errorf("has %d names: give at most %d", len(names), maxKeptHeaders)
	}
	for _, name := range names {
		if len(name) > maxKeptName || !httpguts.ValidHeaderFieldName(name) {
			return fmt.Errorf("%.60q is not the name of a header, of at most %d bytes", name, maxKeptName)
		}
	}
	return nil
}

// contentOf returns what a response says about its content, and the headers to keep. names are in
// canonical form.
func contentOf(response *pb.HttpResponse, names []string) store.Content {
	all := make(http.Header)
	for _, h := range response.GetHeaders() {
		all.Add(h.GetName(), h.GetValue())
	}
	media, params, err := mime.ParseMediaType(all.Get("Content-Type"))
	if err != nil && media == "" { // no media type, or none that is valid
		media, _, _ = strings.Cut(all.Get("Content-Type"), ";")
	}
	c := store.Content{ContentType: shorten(strings.TrimSpace(media), maxContentType), Charset: shorten(strings.ToLower(params["charset"]), maxCharset)}
	kept := make(map[string][]string)
	left := maxKeptTotal
	for _, name := range names {
		if values := keep(all[name], &left); len(values) > 0 {
			kept[name] = values
		}
	}
	if len(kept) > 0 {
		var text strings.Builder
		_ = jsontext.NewEncoder(&text).Encode(kept) // cannot fail
		c.Headers = strings.TrimSuffix(text.String(), "\n")
	}
	return c
}

// keep returns the values that fit into left bytes, which it reduces. Where something is left out,
// the last value ends in "…".
func keep(values []string, left *int) (kept []string) {
	for i, value := range values {
		if i == maxKeptValues || *left <= 0 {
			return append(kept, omitted)
		}
		value = shorten(value, min(maxKeptValue, *left))
		*left -= len(value)
		kept = append(kept, value)
	}
	return kept
}

// shorten returns s if it fits into limit bytes, or its first characters that do, and "…".
func shorten(s string, limit int) string {
	if len(s) <= limit {
		return s
	}
	for limit > 0 && !utf8.RuneStart(s[limit]) {
		limit--
	}
	return s[:limit] + omitted
}
