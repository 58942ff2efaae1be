// Package jsontext writes JSON: messages of the contract, in the one form that every API and program
// uses, and text that cannot control a terminal.
package jsontext

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"unicode"
	"unicode/utf16"
	"unicode/utf8"

	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"
)

// options write false, 0, "", empty lists and empty maps, so that a client need not know the
// defaults. Fields that are unset (messages, optional fields, members of a oneof) are omitted.
var options = protojson.MarshalOptions{UseProtoNames: true, EmitDefaultValues: true}

// MarshalMessage returns m as compact JSON, with the field names of the contract and with fields that have default values. The same message always gives the same text.
func MarshalMessage(m proto.Message) ([]byte, error) {
	text, err := options.Marshal(m)
	if err != nil {
		return nil, err
	}
	return compact(text), nil
}

// compact removes the spaces between values, in place. protojson adds them in some builds of a
// program and not in others. For a body chunk, json.Compact takes twice as long as protojson itself.
func compact(text []byte) []byte {
	out := text[:0]
	for len(text) > 0 {
		n := bytes.IndexByte(text, '"') // text is outside a string
		if n < 0 {
			n = len(text)
		}
		for _, c := range text[:n] {
			if c != ' ' {
				out = append(out, c)
			}
		}
		text = text[n:]
		end := stringEnd(text)
		out = append(out, text[:end]...)
		text = text[end:]
	}
	return out
}

// stringEnd returns the length of the string that text starts with.
func stringEnd(text []byte) int {
	for end := 1; end < len(text); {
		quote := bytes.IndexByte(text[end:], '"')
		if quote < 0 {
			break
		}
		escape := bytes.IndexByte(text[end:end+quote], '\\')
		if escape < 0 {
			return end + quote + 1
		}
		end += escape + 2
	}
	return len(text)
}

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
