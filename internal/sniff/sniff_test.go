package sniff_test

import (
	"encoding/binary"
	"strings"
	"testing"
	"unicode/utf16"

	"golang.org/x/text/encoding"
	"golang.org/x/text/encoding/charmap"
	"golang.org/x/text/encoding/japanese"
	"golang.org/x/text/encoding/simplifiedchinese"

	"fetchd/internal/sniff"
)

const (
	russian   = "<p>Съешь ещё этих мягких французских булок, да выпей же чаю. ГЛАВА 1"
	ukrainian = "Усі люди народжуються вільними і рівними у своїй гідності та правах."
	bulgarian = "Всички хора се раждат свободни и равни по достойнство и права."
	german    = "Größe, Äpfel, Öl und Übermaß: früher süß"
	french    = "Où êtes-vous né? À l'été, créée, préférée, là-bas, déjà"
	portugal  = "ações, informação, não, coração, órgãos"
	chinese   = "人人生而自由，在尊严和权利上一律平等。"
)

func TestText(t *testing.T) {
	t.Parallel()
	for _, row := range []struct {
		name, contentType, body, want string
	}{
		{"windows-1251", "text/html", in(charmap.Windows1251, russian), russian},
		{"windows-1251, labelled as UTF-8", "text/html; charset=utf-8", in(charmap.Windows1251, russian), russian},
		{"windows-1251, UTF-8 in meta", "text/html", "<meta charset=utf-8>" + in(charmap.Windows1251, russian), "<meta charset=utf-8>" + russian},
		{"windows-1251, Ukrainian", "text/plain", in(charmap.Windows1251, ukrainian), ukrainian},
		{"windows-1251, Bulgarian", "text/plain", in(charmap.Windows1251, bulgarian), bulgarian},
		{"windows-1251, far into a page", "text/html", strings.Repeat(" ", 2000) + in(charmap.Windows1251, russian), strings.Repeat(" ", 2000) + russian},
		{"KOI8-R", "text/html", in(charmap.KOI8R, russian), russian},
		{"capitals in KOI8-R", "text/plain", in(charmap.KOI8R, strings.ToUpper(russian)), strings.ToUpper(russian)},
		{"German", "text/html", in(charmap.Windows1252, german), german},
		{"French, labelled as UTF-8", "text/html; charset=utf-8", in(charmap.Windows1252, french), french},
		{"Portuguese", "text/html", in(charmap.Windows1252, portugal), portugal},
		{"a charset in the page", "text/html", "<meta charset=windows-1251><p>\xcf\xf0\xe8", "<meta charset=windows-1251><p>При"},
		{"latin-1", "text/plain; charset=iso-8859-1", "\xe9\xe8", "éè"},
		{"latin-1, the last byte alone", "text/plain; charset=iso-8859-1", "caf\xe9", "café"},
		{"the last byte alone, without a label", "text/plain", "caf\xe9", "café"},
		{"latin-1, labelled as UTF-8, the last byte alone", "text/html; charset=utf-8", "caf\xe9", "café"},
		{"GBK with a broken end", "text/plain; charset=gbk", in(simplifiedchinese.GBK, chinese) + "\xb0", chinese + "\ufffd"},
		{"UTF-8, labelled as latin-1", "text/html; charset=iso-8859-1", russian, russian},
		{"UTF-8 that is cut", "text/plain", "aé\xc3", "aé\ufffd"},
		{"UTF-8 with a fault, labelled as latin-1", "text/html; charset=iso-8859-1", "é\xc3(", "é\ufffd("},
		{"ASCII, labelled as UTF-16", "text/plain; charset=utf-16le", "abc", "abc"},
		{"a mark against a label", "text/html; charset=iso-8859-1", "\ufeffé", "é"},
		{"UTF-16 with a mark", "text/plain", "\xfe\xff" + utf16BE("aé€😀"), "aé€😀"},
		{"UTF-16", "text/plain; charset=utf-16be", utf16BE("a"), "a"},
		{"ISO-2022-JP", "text/plain; charset=iso-2022-jp", in(japanese.ISO2022JP, "漢字"), "漢字"},
		{"JSON", "application/json", `{"a":"é"}`, `{"a":"é"}`},
		{"a text that begins like a bitmap", "text/plain", "BMW is a car", "BMW is a car"},
		{"PDF as HTML", "text/html", "%PDF-1.4\n%\xe2\xe3\xcf\xd3\n1 0 obj <</Length 4>> stream\n\x01\x02\x00\x03", ""},
		{"PNG as plain text", "text/plain", "\x89PNG\r\n\x1a\n\x00\x00", ""},
		{"bytes as HTML", "text/html", "<p>a\x00b", ""},
		{"another type", "image/png", "a", ""},
	} {
		t.Run(row.name, func(t *testing.T) {
			t.Parallel()
			got, whole, ok := sniff.Text(row.contentType, []byte(row.body), 1<<12)
			if got != row.want || ok != (row.want != "") || whole != ok {
				t.Errorf("%q, %t, %t; want %q", got, whole, ok, row.want)
			}
		})
	}
}

func in(e encoding.Encoding, text string) string {
	out, err := e.NewEncoder().String(text)
	if err != nil {
		panic(err)
	}
	return out
}

func utf16BE(s string) string {
	var out []byte
	for _, u := range utf16.Encode([]rune(s)) {
		out = binary.BigEndian.AppendUint16(out, u)
	}
	return string(out)
}
