package jsontext

import (
	"bytes"
	"encoding/json"
	"errors"
	"strings"
	"testing"
	"unicode"
	"unicode/utf8"

	"github.com/google/go-cmp/cmp"

	"fetchd/test/must"
)

func TestEscape(t *testing.T) {
	t.Parallel()
	for _, row := range []struct{ name, text, want string }{
		{"nothing", ``, ``},
		{"text", `{"a":"b & c <d>"}`, `{"a":"b & c <d>"}`},
		{"indented", "{\n\t\"a\": 1\r\n}\n", "{\n\t\"a\": 1\r\n}\n"},
		{"letters and signs of other scripts", `"ä 日本 😀 é"`, `"ä 日本 😀 é"`},
		{"escaped already", `"\u009b \\u202e \n"`, `"\u009b \\u202e \n"`},
		{"DEL", "\"\x7f\"", `"\u007f"`},
		{"the first C1 control", "\"\u0080\"", `"\u0080"`},
		{"CSI", "{\"\u009b2J\":\"\u009b31m\"}", `{"\u009b2J":"\u009b31m"}`},
		{"the last C1 control", "\"\u009f\u00a0\"", "\"\\u009f\u00a0\""},
		{"direction override", "\"a\u202eb\"", `"a\u202eb"`},
		{"isolate, joiner, byte order mark", "\"\u2066\u200d\ufeff\"", `"\u2066\u200d\ufeff"`},
		{"above U+FFFF", "\"\U000e0041\"", `"\udb40\udc41"`},
		{"the replacement character", "\"\ufffd\"", "\"\ufffd\""},
		{"no UTF-8", "\"\x9b\"", `"\ufffd"`},
		{"after a backslash", "\"\\\\\u009b\"", `"\\\u009b"`},
	} {
		t.Run(row.name, func(t *testing.T) {
			if got := string(Escape([]byte(row.text))); got != row.want {
				t.Errorf("Escape(%q) = %q, want %q", row.text, got, row.want)
			}
		})
	}
}

// FuzzEscape checks that any JSON keeps its value, and has no character left that could
// control a terminal.
func FuzzEscape(f *testing.F) {
	f.Add([]byte("{\"a\u009b\":[\"\u202e\",1.5,null,\"\U000e0041\\u009b\"]}"))
	f.Add([]byte("\"\x9b\\\\\x7f\""))
	f.Add([]byte("not JSON, but text: \u009b\xff"))
	f.Fuzz(func(t *testing.T, text []byte) {
		check(t, text)
		quoted, err := json.Marshal(string(text))
		must.Succeed(t, err)
		check(t, quoted)
	})
}

func check(t *testing.T, text []byte) {
	t.Helper()
	before := bytes.Clone(text)
	got := Escape(text)
	if !bytes.Equal(before, text) {
		t.Errorf("Escape(%q) changed its argument", before)
	}
	if !utf8.Valid(got) || bytes.ContainsFunc(got, func(r rune) bool { return r >= ' ' && !unicode.IsGraphic(r) }) {
		t.Errorf("Escape(%q) = %q", text, got)
	}
	var is, want any
	if json.Unmarshal(text, &want) != nil {
		return
	}
	if err := json.Unmarshal(got, &is); err != nil {
		t.Fatalf("Escape(%q) = %q: %v", text, got, err)
	}
	if diff := cmp.Diff(want, is); diff != "" {
		t.Errorf("Escape(%q) = %q is another value (-want +got):\n%s", text, got, diff)
	}
}

func TestEncoder(t *testing.T) {
	t.Parallel()
	var out strings.Builder
	enc := NewEncoder(&out)
	for _, v := range []string{"http://a.example/?b&c=\u202e", "\u009b"} {
		must.Succeed(t, enc.Encode(v))
	}
	if want := "\"http://a.example/?b&c=\\u202e\"\n\"\\u009b\"\n"; out.String() != want {
		t.Errorf("%q, want %q", out.String(), want)
	}
	broken := errors.New("broken")
	if err := NewEncoder(failing{broken}).Encode(1); !errors.Is(err, broken) {
		t.Errorf("a writer that fails: %v", err)
	}
}

type failing struct{ err error }

func (f failing) Write([]byte) (int, error) { return 0, f.err }
