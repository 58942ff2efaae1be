package tools

import (
	"bytes"
	"io"
	"mime"
	"net/http"
	"strings"
	"unicode/utf8"

	"golang.org/x/net/html/charset"
	"golang.org/x/text/transform"
)

// mediaType returns the media type of a body, without parameters. If the origin sent none, the
// first bytes decide.
func mediaType(contentType string, body []byte) string {
	media, _, err := mime.ParseMediaType(contentType)
	if media == "" || err != nil && !strings.Contains(media, "/") {
		media, _, _ = mime.ParseMediaType(http.DetectContentType(body))
	}
	return media
}

// textTypes are types of text whose name does not say so.
var textTypes = map[string]bool{
	"application/javascript": true, "application/ecmascript": true, "application/yaml": true, "application/x-yaml": true,
	"application/toml": true, "application/x-sh": true, "application/sql": true, "application/x-ndjson": true, "application/jsonl": true,
	"application/graphql": true, "application/x-www-form-urlencoded": true, "application/x-javascript": true,
}

func isText(media string) bool {
	return strings.HasPrefix(media, "text/") || strings.HasSuffix(media, "json") || strings.HasSuffix(media, "xml") ||
		strings.HasSuffix(media, "+yaml") || textTypes[media]
}

// isDisguised reports whether a body that is labelled as text is none: its text has a NUL, or its first bytes are
// those of another format, such as PDF, and others are of no text.
func isDisguised(body []byte, text string) bool {
	other := !strings.HasPrefix(http.DetectContentType(body), "text/")
	return strings.ContainsRune(text, 0) || other && strings.ContainsFunc(text, func(r rune) bool { return r < '\t' || r > '\r' && r < '\x1b' })
}

// isHTML reports whether a text is HTML. The start of the text counts too, because servers send
// pages as text/plain.
func isHTML(media, text string) bool {
	const start = 100
	return media == "text/html" || media == "application/xhtml+xml" || strings.Contains(text[:min(start, len(text))], "<html")
}

// decode returns a body as UTF-8, at most limit bytes of it, and reports whether that is all. Bytes
// that are not valid in the charset are replaced.
func decode(body []byte, contentType string, limit int64) (text string, whole bool) {
	if media, params, _ := mime.ParseMediaType(contentType); params["charset"] == "" && strings.HasSuffix(media, "json") {
		contentType = "application/json; charset=utf-8" // RFC 8259 §8.1
	}
	encoding, name, certain := charset.DetermineEncoding(body, contentType)
	// windows-1252 is also the guess for a page that declares nothing, and whose first bytes are ASCII.
	if name == "utf-8" || name == "windows-1252" && !certain && utf8.Valid(body) {
		text = strings.ToValidUTF8(string(bytes.TrimPrefix(body, []byte("\ufeff"))), "\ufffd")
	} else {
		decoded, _ := io.ReadAll(io.LimitReader(transform.NewReader(bytes.NewReader(body), encoding.NewDecoder()), limit+utf8.UTFMax))
		text = strings.TrimPrefix(string(decoded), "\ufeff") // a decoder of x/text has no error
	}
	return shorten(text, limit)
}

// shorten returns at most limit bytes of a text, without a part of a character, and reports
// whether that is all of it.
func shorten(text string, limit int64) (short string, whole bool) {
	if int64(len(text)) <= limit {
		return text, true
	}
	end := int(limit)
	for end > 0 && !utf8.RuneStart(text[end]) {
		end--
	}
	return text[:end], false
}
