// Package sniff decides what a body is, and which encoding it has. An origin may say nothing about it, or
// something that is not so.
package sniff

import (
	"bytes"
	"io"
	"mime"
	"net/http"
	"strings"
	"unicode"
	"unicode/utf8"

	"golang.org/x/net/html/charset"
	"golang.org/x/text/encoding"
	"golang.org/x/text/encoding/charmap"
	encodings "golang.org/x/text/encoding/unicode"
	"golang.org/x/text/transform"
)

// Media returns the media type of a body, without parameters. If the origin sent none, the first bytes decide.
func Media(contentType string, body []byte) string {
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

// MayBeText reports whether a label does not say that a body is no text.
func MayBeText(contentType string) bool { return isText(Media(contentType, nil)) }

func isText(media string) bool {
	return strings.HasPrefix(media, "text/") || strings.HasSuffix(media, "json") || strings.HasSuffix(media, "xml") ||
		strings.HasSuffix(media, "+yaml") || textTypes[media]
}

// IsHTML reports whether a text is HTML. Servers send pages as text/plain, so the start of such a text counts too.
func IsHTML(media, text string) bool {
	const start = 512
	if media == "text/plain" {
		begin := strings.ToLower(strings.TrimSpace(text[:min(start, len(text))]))
		return strings.HasPrefix(begin, "<") && (strings.Contains(begin, "<html") || strings.HasPrefix(begin, "<!doctype html"))
	}
	return media == "text/html" || media == "application/xhtml+xml"
}

// Text returns a body as UTF-8, at most limit bytes of it, and whether that is all. Bytes that are not valid in
// its encoding are replaced. It returns false for ok if the body is no text: its type is another, its text has
// a NUL, or its first bytes are those of another format, such as PDF, and others are of no text.
func Text(contentType string, body []byte, limit int64) (text string, whole, ok bool) {
	if !isText(Media(contentType, body)) {
		return "", false, false
	}
	decoded := body
	if e := Encoding(contentType, body); e != encodings.UTF8 && e != encoding.Nop || !utf8.Valid(body) {
		decoded, _ = io.ReadAll(io.LimitReader(transform.NewReader(bytes.NewReader(body), e.NewDecoder()), limit+utf8.UTFMax)) // it has no error
	}
	text = strings.TrimPrefix(string(decoded[:min(int64(len(decoded)), limit+utf8.UTFMax)]), "\ufeff")
	other := !strings.HasPrefix(http.DetectContentType(body), "text/")
	if strings.ContainsRune(text, 0) || other && strings.ContainsFunc(text, func(r rune) bool { return r < '\t' || r > '\r' && r < '\x1b' }) {
		return "", false, false
	}
	text, whole = Shorten(text, limit)
	return text, whole, true
}

// Shorten returns at most limit bytes of a text, without a part of a character, and reports whether that is all
// of it.
func Shorten(text string, limit int64) (short string, whole bool) {
	if int64(len(text)) <= limit {
		return text, true
	}
	end := int(limit)
	for end > 0 && !utf8.RuneStart(text[end]) {
		end--
	}
	return text[:end], false
}

// HeadBytes is the length of the start of a body in which an encoding may be declared, as in the HTML standard.
const HeadBytes = 1024

// Declared returns the encoding that a body declares, and its name in the Encoding standard: a byte order mark,
// then Content-Type, then the first [HeadBytes]. known is false if nothing declares it, and the encoding is a guess.
func Declared(contentType string, body []byte) (e encoding.Encoding, name string, known bool) {
	if media, params, _ := mime.ParseMediaType(contentType); params["charset"] == "" && strings.HasSuffix(media, "json") {
		contentType = "application/json; charset=utf-8" // RFC 8259 §8.1
	}
	head := body[:min(HeadBytes, len(body))]
	e, name, certain := charset.DetermineEncoding(head, contentType)
	return e, name, certain || bytes.Contains(bytes.ToLower(head), []byte("charset"))
}

// Encoding returns the encoding of a whole body: that of its byte order mark; UTF-8, if most characters above
// ASCII are valid in it; the one that it declares. If it declares none, or UTF-8 that it is not, its letters decide.
func Encoding(contentType string, body []byte) encoding.Encoding {
	if e, _, marked := charset.DetermineEncoding(body, ""); marked {
		return e
	}
	characters, faults := countUTF8(body)
	if characters+faults == 0 && !utf8.Valid(body) { // its only byte above ASCII is the last one
		faults++
	}
	e, name, known := Declared(contentType, body)
	known = known && name != "utf-8"
	switch ascii := characters+faults == 0; {
	case known && ascii && bytes.ContainsAny(body, "\x00\x1b"): // UTF-16 or ISO-2022-JP
		return e
	case characters >= faults:
		return encodings.UTF8
	case known:
		return e
	}
	return guess(body)
}

// countUTF8 returns how many characters in UTF-8 are above ASCII, and how many bytes are not UTF-8. A character
// that the end of the body cuts is neither.
func countUTF8(body []byte) (characters, faults int) {
	for len(body) > 0 {
		r, size := utf8.DecodeRune(body)
		switch {
		case r != utf8.RuneError || size > 1:
			if size > 1 {
				characters++
			}
		case utf8.FullRune(body):
			faults++
		}
		body = body[size:]
	}
	return characters, faults
}

// frequent are the ten letters that make up two thirds of a text in Russian, and about half of one in another
// language with Cyrillic letters.
const frequent = "оеаинтсрвл"

// guess returns the encoding of a text that is not UTF-8: windows-1251, KOI8-R or windows-1252. In all of them, letters
// are bytes from 0xC0 on. In Western languages few of those follow each other. In the texts of Debian's programs
// (40 a language), the frequent letters after another one are 0.42 to 0.66 of them in Cyrillic, and 0.17 at most in
// Western languages.
func guess(body []byte) encoding.Encoding {
	best, most := charmap.Windows1252, 0
	for _, table := range []*charmap.Charmap{charmap.Windows1251, charmap.KOI8R} {
		letters, hits := 0, 0
		for i, b := range body {
			if b >= 0xc0 {
				letters++
				if i > 0 && body[i-1] >= 0xc0 && strings.ContainsRune(frequent, unicode.ToLower(table.DecodeByte(b))) {
					hits++
				}
			}
		}
		if hits > most && 10*hits > 3*letters {
			best, most = table, hits
		}
	}
	return best
}
