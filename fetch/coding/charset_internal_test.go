package coding

import (
	"strings"
	"testing"

	"fetchd/fetch/fault"
)

// ways are the ways to write a body.
var ways = []struct {
	name  string
	piece func(int) int // how much of n bytes goes out next
}{
	{"at once", func(n int) int { return n }},
	{"byte by byte", func(int) int { return 1 }},
	{"in threes", func(n int) int { return min(n, 3) }},
}

// checkCharset returns the reason why a body is not valid, or "".
func checkCharset(contentType, body string, piece func(int) int) string {
	c := NewCharset(contentType)
	for rest := []byte(body); len(rest) > 0; {
		n := piece(len(rest))
		if _, err := c.Write(rest[:n]); err != nil {
			return fault.ReasonOf(err)
		}
		rest = rest[n:]
	}
	if err := c.Close(); err != nil {
		return fault.ReasonOf(err)
	}
	return ""
}

// TestCharsets checks whether a body is valid in its charset. The way in which it is written makes no
// difference.
func TestCharsets(t *testing.T) {
	t.Parallel()
	const invalid, unknown = "invalid_charset", "unknown_charset"
	for _, row := range []struct{ name, contentType, body, want string }{
		{"nothing", "text/html; charset=utf-8", "", ""},
		{"ASCII", "text/html; charset=utf-8", "hello", ""},
		{"UTF-8", "text/html; charset=utf-8", "héllo €𝄞", ""},
		{"UTF-8, the label in upper case and quotes", `text/html; Charset="UTF-8"`, "é", ""},
		{"UTF-8, another label", "text/plain; charset=utf8", "\xff", invalid},
		{"UTF-8, a lone byte", "text/html; charset=utf-8", "caf\xe9!", invalid},
		{"UTF-8, a lone byte at the end", "text/html; charset=utf-8", "caf\xe9", invalid},
		{"UTF-8, a truncated character", "text/html; charset=utf-8", "€"[:2], invalid},
		{"UTF-8, too long a form", "text/html; charset=utf-8", "\xc0\xaf", invalid},
		{"UTF-8, a surrogate", "text/html; charset=utf-8", "\xed\xa0\x80", invalid},
		{"UTF-8, past the last character", "text/html; charset=utf-8", "\xf4\x90\x80\x80", invalid},
		{"UTF-8, the replacement character itself", "text/html; charset=utf-8", "\uFFFD", ""},
		{"JSON is UTF-8 where it does not say", "application/json", "\"caf\xe9\"", invalid},
		{"JSON that is", "application/json", "\"café\"", ""},
		{"UTF-8, NUL", "text/html; charset=utf-8", "a\x00b", ""},

		{"Latin-1 takes every byte", "text/html; charset=iso-8859-1", everyByte(), ""},
		{"windows-1252 takes every byte", "text/html; charset=windows-1252", everyByte(), ""},
		{"Shift_JIS", "text/html; charset=shift_jis", "\x83\x65\x83\x58\x83\x67", ""},
		{"Shift_JIS, a second byte that is none", "text/html; charset=shift_jis", "\x83\x65\x83\xff!", invalid},
		{"Shift_JIS, truncated", "text/html; charset=shift_jis", "\x83\x65\x83", invalid},
		{"Shift_JIS, a byte that begins nothing", "text/html; charset=shift_jis", "\xff", invalid},
		{"EUC-JP", "text/html; charset=euc-jp", "\xc6\xfc\xcb\xdc", ""},
		{"EUC-JP, truncated", "text/html; charset=euc-jp", "\xc6\xfc\xcb", invalid},
		{"GB 18030, four bytes", "text/html; charset=gb18030", "\x81\x30\x81\x30", ""},
		{"Big5, a second byte that is none", "text/html; charset=big5", "\xa4\x20", invalid},
		{"ISO 8859-2 with control characters", "text/html; charset=iso-8859-2", "\x80\x9f\xa1\xff", ""},
		{"windows-1250 takes every byte", "text/html; charset=windows-1250", everyByte(), ""},
		{"KOI8-R takes every byte", "text/html; charset=koi8-r", everyByte(), ""},
		{"no label, every byte", "text/html", everyByte(), ""},
		{"windows-1253, bytes that are in it", "text/html; charset=windows-1253", "\x80\x81\x9f\xa9\xab", ""},
		{"windows-1253, a byte that is not in it", "text/html; charset=windows-1253", "\xaa", invalid},
		{"UTF-16, by its label", "text/html; charset=utf-16le", "h\x00i\x00", ""},
		{"UTF-16, an odd byte", "text/html; charset=utf-16le", "h\x00i", invalid},
		{"UTF-16, half a pair", "text/html; charset=utf-16le", "\x00\xd8h\x00", invalid},
		{"a charset that browsers refuse", "text/html; charset=iso-2022-kr", "hello", invalid},

		{"an unknown label", "text/html; charset=x-nonsense", "hello", unknown},
		{"an unknown label and no body", "text/html; charset=x-nonsense", "", unknown},
		{"an unknown label on a binary type", "image/png; charset=x-nonsense", "\x89PNG", unknown},
		{"an empty label", `text/html; charset=""`, "caf\xe9", ""},

		{"meta", "text/html", "<meta charset=utf-8>caf\xe9", invalid},
		{"meta, valid", "text/html", "<meta charset=utf-8>café", ""},
		{"meta http-equiv", "text/html", `<meta http-equiv="Content-Type" content="text/html; charset=shift_jis">` + "\xff", invalid},
		{"meta http-equiv, valid", "text/html", `<meta http-equiv="Content-Type" content="text/html; charset=shift_jis">` + "\x83\x65", ""},
		{"meta of an unknown charset", "text/html", "<meta charset=x-nonsense>caf\xe9", ""},
		{"meta in a comment", "text/html", "<!-- <meta charset=utf-8> -->caf\xe9", ""},
		{"the header before meta", "text/html; charset=utf-8", "<meta charset=iso-8859-1>caf\xe9", invalid},
		{"the header before meta, the other way", "text/html; charset=iso-8859-1", "<meta charset=utf-8>caf\xe9", ""},
		{"meta past the first 1024 bytes", "text/html", strings.Repeat(" ", 1024) + "<meta charset=utf-8>caf\xe9", ""},
		{"meta within the first 1024 bytes", "text/html", strings.Repeat(" ", 1000) + "<meta charset=utf-8>caf\xe9", invalid},

		{"the mark of UTF-8", "text/html", "\xef\xbb\xbfcaf\xe9", invalid},
		{"the mark of UTF-8, valid", "text/html", "\xef\xbb\xbfcafé", ""},
		{"a mark before the header", "text/html; charset=iso-8859-1", "\xef\xbb\xbfcaf\xe9", invalid},
		{"the mark of UTF-16", "text/html", "\xff\xfeh\x00i\x00", ""},
		{"the mark of UTF-16, and an odd byte", "text/html", "\xff\xfeh\x00i", invalid},
		{"the mark of UTF-16, the other way round", "text/html", "\xfe\xff\x00h\x00i", ""},

		{"no label, ASCII", "text/plain", "hello", ""},
		{"no label, UTF-8", "text/plain", "café", ""},
		{"no label, Latin-1", "text/plain", "caf\xe9", ""},
		{"no type, Latin-1", "", "caf\xe9", ""},
		{"no type, meta", "", "<meta charset=utf-8>caf\xe9", invalid},
		{"a type that is none", ";;", "caf\xe9", ""},

		{"binary without a charset", "application/octet-stream", "\xef\xbb\xbf\xff\x00", ""},
		{"an image", "image/png", "\x89PNG\r\n\xff", ""},
		{"binary with what looks like meta", "application/pdf", "<meta charset=utf-8>\xff", ""},
		{"binary with a charset", "application/octet-stream; charset=utf-8", "\xff", invalid},
		{"JSON with a charset", "application/json; charset=utf-8", "\"\xff\"", invalid},
		{"XML by its suffix, with a mark", "image/svg+xml", "\xef\xbb\xbf\xff", invalid},
		{"JSON by its suffix, with a mark", "application/ld+json", "\xef\xbb\xbf\xff", invalid},
		{"JavaScript with a mark", "application/javascript", "\xef\xbb\xbf\xff", invalid},
	} {
		t.Run(row.name, func(t *testing.T) {
			t.Parallel()
			for _, way := range ways {
				if got := checkCharset(row.contentType, row.body, way.piece); got != row.want {
					t.Errorf("%q as %q %s: %q, want %q", row.body, row.contentType, way.name, got, row.want)
				}
			}
		})
	}
}

func everyByte() string {
	b := make([]byte, 256)
	for i := range b {
		b[i] = byte(i)
	}
	return string(b)
}

// TestCharsetPlaces puts a bad and a good character at every place around the end of the
// first 1,024 bytes, where the kept bytes are checked.
func TestCharsetPlaces(t *testing.T) {
	t.Parallel()
	for _, contentType := range []string{"text/html; charset=utf-8", "text/html; charset=shift_jis"} {
		good, bad := "é", "\xff"
		if strings.Contains(contentType, "jis") {
			good = "\x83\x65"
		}
		for _, before := range []int{0, 1, 500, 1021, 1022, 1023, 1024, 1025, 5000} {
			for _, behind := range []int{0, 1, 2, 5000} {
				for _, way := range ways {
					start, end := strings.Repeat("a", before), strings.Repeat("b", behind)
					if got := checkCharset(contentType, start+good+end, way.piece); got != "" {
						t.Errorf("%s, a character between %d and %d bytes, %s: %q, want none", contentType, before, behind, way.name, got)
					}
					if got := checkCharset(contentType, start+bad+end, way.piece); got != "invalid_charset" {
						t.Errorf("%s, a bad byte between %d and %d bytes, %s: %q, want invalid_charset", contentType, before, behind, way.name, got)
					}
				}
			}
		}
	}
}
