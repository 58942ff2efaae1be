package links

import (
	"errors"
	"strconv"
	"strings"
	"unicode/utf8"

	"golang.org/x/text/encoding"
	"golang.org/x/text/encoding/htmlindex"
	"golang.org/x/text/transform"

	"fetchd/frontier/percent"
)

// queryEncoding is the charset of a document whose queries are not UTF-8.
type queryEncoding struct {
	encoding.Encoding
	replaced *strings.Replacer // before the encoder; may be nil
	// stateful means that the bytes of a character depend on those before it.
	stateful bool
}

// newQueryEncoding returns the encoding of queries in a document, by the name of its charset in the
// Encoding standard, or nil for UTF-8: URL standard, get an output encoding.
func newQueryEncoding(name string) *queryEncoding {
	switch name {
	case "utf-8", "utf-16le", "utf-16be", "replacement":
		return nil
	}
	found, err := htmlindex.Get(name) // the encoder of package charset replaces characters itself
	if err != nil {
		return nil
	}
	return &queryEncoding{Encoding: found, replaced: replaced[name], stateful: name == "iso-2022-jp"}
}

// replaced are characters that the encoders of the Encoding standard map and ours do not, and those
// that the encoder of ISO-2022-JP has to reject.
var replaced = map[string]*strings.Replacer{
	"shift_jis":   strings.NewReplacer("\u00a5", `\`, "\u203e", "~", "\u2212", "\uff0d"),
	"euc-jp":      strings.NewReplacer("\u00a5", `\`, "\u203e", "~", "\u2212", "\uff0d"),
	"iso-2022-jp": strings.NewReplacer("\u2212", "\uff0d", "\x0e", "\ufffd", "\x0f", "\ufffd", "\x1b", "\ufffd"),
}

// inReference encodes the query of a reference in the charset of its document, as browsers do: URL
// standard, query state. The path and the fragment are always UTF-8. e may be nil.
func (e *queryEncoding) inReference(reference string) string {
	if e == nil {
		return reference
	}
	rest, fragment, hasFragment := strings.Cut(reference, "#")
	before, query, _ := strings.Cut(rest, "?")
	if query == "" || !e.stateful && isASCII(query) {
		return reference
	}
	if e.replaced != nil {
		query = e.replaced.Replace(query)
	}
	out := append(append(make([]byte, 0, len(reference)+64), before...), '?')
	out = appendEncoded(out, e.NewEncoder(), []byte(query))
	if hasFragment {
		out = append(append(out, '#'), fragment...)
	}
	return string(out)
}

func isASCII(s string) bool {
	for i := range len(s) {
		if s[i] >= utf8.RuneSelf {
			return false
		}
	}
	return true
}

// appendEncoded appends a query: URL standard, percent-encode after encoding. A character that the
// charset does not have becomes &#N;, escaped.
func appendEncoded(out []byte, encoder *encoding.Encoder, query []byte) []byte {
	var piece [512]byte
	for {
		written, read, err := encoder.Transformer.Transform(piece[:], query, true)
		for _, c := range piece[:written] {
			if c >= 0x7f || strings.IndexByte(`"#<>'`, c) >= 0 {
				out = percent.Append(out, c)
			} else {
				out = append(out, c)
			}
		}
		query = query[read:]
		switch {
		case err == nil:
			return out
		case !errors.Is(err, transform.ErrShortDst):
			r, size := utf8.DecodeRune(query)
			out = append(strconv.AppendInt(append(out, "%26%23"...), int64(r), 10), "%3B"...)
			query = query[size:]
		}
	}
}
