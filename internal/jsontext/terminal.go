package jsontext

import (
	"encoding/json"
	"fmt"
	"io"
	"unicode"
	"unicode/utf16"
	"unicode/utf8"
)

// Escape returns the JSON text with every character that is not graphic, such as controls
// and direction overrides, as \uXXXX, so that it cannot control a terminal. Other encoders pass an
// origin's U+009B (CSI) and U+202E (direction override) through. The value is unchanged. Text
// without such characters is returned as it is.
func Escape(text []byte) []byte {
	for i := 0; i < len(text); {
		r, n := utf8.DecodeRune(text[i:])
		if !plain(r, n) {
			return appendEscaped(append(make([]byte, 0, len(text)+16), text[:i]...), text[i:])
		}
		i += n
	}
	return text
}

// plain reports whether a character of n bytes may stay. Line ends and tabs are only
// between values: JSON does not allow them in strings.
func plain(r rune, n int) bool {
	return r < utf8.RuneSelf && r != 0x7f || unicode.IsGraphic(r) && (r != utf8.RuneError || n > 1)
}

func appendEscaped(dst, text []byte) []byte {
	for len(text) > 0 {
		r, n := utf8.DecodeRune(text)
		switch high, low := utf16.EncodeRune(r); {
		case plain(r, n):
			dst = append(dst, text[:n]...)
		case high != utf8.RuneError:
			dst = fmt.Appendf(dst, `\u%04x\u%04x`, high, low)
		default: // also a byte that is not UTF-8, which decoders read as U+FFFD
			dst = fmt.Appendf(dst, `\u%04x`, r)
		}
		text = text[n:]
	}
	return dst
}

// NewEncoder returns an encoder whose output is escaped. It does not escape HTML, so URLs
// keep their &.
func NewEncoder(w io.Writer) *json.Encoder {
	enc := json.NewEncoder(writer{w})
	enc.SetEscapeHTML(false)
	return enc
}

// writer escapes what an encoder writes, a value in one call.
type writer struct{ w io.Writer }

// Write implements io.Writer.
func (w writer) Write(p []byte) (int, error) {
	if _, err := w.w.Write(Escape(p)); err != nil {
		return 0, err
	}
	return len(p), nil
}
