package download

import (
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"unicode"
	"unicode/utf8"
)

func TestCleanName(t *testing.T) {
	t.Parallel()
	long := strings.Repeat("a", 300)
	for _, tt := range []struct{ name, in, want string }{
		{"plain", "image-1.2.iso", "image-1.2.iso"},
		{"other scripts", "grüße 漢字.txt", "grüße 漢字.txt"},
		{"a path", "../../etc/passwd", "_.._etc_passwd"},
		{"a path of Windows", `C:\boot.ini`, "C__boot.ini"},
		{"dots alone", "..", ""},
		{"a dot file", ".bashrc", "bashrc"},
		{"dots and spaces around", " . name . ", "name"},
		{"a flag", "-rf", "_rf"},
		{"controls", "a\x00b\nc\x1b[2Jd\x7f", "a_b_c_[2Jd_"},
		{"C1 control", "a\u009bb", "a_b"},
		{"direction override", "invoice\u202efdp.exe", "invoice_fdp.exe"},
		{"other bidi controls", "a\u200e\u200f\u061c\u2066\u2069b", "a_____b"},
		{"zero width", "a\u200bb\ufeffc", "a_b_c"},
		{"line separator", "a\u2028b", "a_b"},
		{"spaces of other kinds", "a\u00a0b\u3000c", "a b c"},
		{"not UTF-8", "a\xffb", "a_b"},
		{"device", "CON", "_CON"},
		{"device with an ending", "nul.txt", "_nul.txt"},
		{"device with a space", "aux .txt", "_aux .txt"},
		{"ports", "COM1.tar.gz", "_COM1.tar.gz"},
		{"a port in superscript", "lpt².x", "_lpt².x"},
		{"no port", "COM10", "COM10"},
		{"no device", "console", "console"},
		{"a stream of NTFS", "file.txt:evil", "file.txt_evil"},
		{"our own endings", "a.part", "a.part_"},
		{"our own sidecar", "a.PART.json", "a.PART.json_"},
		{"too long", long + ".tar.gz", long[:maxName-3] + ".gz"},
		{"too long, of wide characters", strings.Repeat("漢", 100), strings.Repeat("漢", 80)},
		{"too long an ending", "a." + long, ("a." + long)[:maxName]},
		{"nothing", "", ""},
	} {
		if got := cleanName(tt.in); got != tt.want {
			t.Errorf("%s: cleanName(%q) = %q, want %q", tt.name, tt.in, got, tt.want)
		}
	}
}

// wantClean holds a name against every promise.
func wantClean(t *testing.T, from, name string) {
	t.Helper()
	stem, _, _ := strings.Cut(name, ".")
	switch {
	case name == "": // the caller has another
	case len(name)+len(freshEnding) > 255, !utf8.ValidString(name), strings.ContainsAny(name, `/\:`),
		strings.ContainsFunc(name, func(r rune) bool { return !unicode.IsGraphic(r) }),
		name[0] == '.', name[0] == '-', name[0] == ' ', strings.HasSuffix(name, "."), strings.HasSuffix(name, " "),
		slices.Contains(devices, strings.ToUpper(strings.TrimSpace(stem))),
		strings.HasSuffix(name, partEnding), strings.HasSuffix(name, sidecarEnding), strings.HasSuffix(name, freshEnding),
		!filepath.IsLocal(name), filepath.Base(name) != name, cleanName(name) != name:
		t.Errorf("%q became %q", from, name)
	}
}

func FuzzCleanName(f *testing.F) {
	for _, seed := range []string{"", "a.txt", "..", "../a", "con.", ". con .part", "-\u202e", "a\xff", strings.Repeat(". ", 150), strings.Repeat("é", 130) + ".part.json.new"} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, s string) {
		wantClean(t, s, cleanName(s))
		wantClean(t, s, ownName(cleanName("x"+s), s))
	})
}

func TestURLName(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct{ url, want string }{
		{"http://origin.test/a/b.iso", "b.iso"},
		{"http://origin.test/b.iso?token=secret#part", "b.iso"},
		{"http://origin.test", "index.html"},
		{"http://origin.test/", "index.html"},
		{"http://origin.test/a/", "index.html"},
		{"http://origin.test/a/..", "index.html"},
		{"http://origin.test/%2e%2e", "index.html"},
		{"http://origin.test/..%2F..%2Fetc%2Fpasswd", "_.._etc_passwd"},
		{"http://origin.test/gr%C3%BC%C3%9Fe.txt", "grüße.txt"},
		{"http://origin.test/a%00b", "a_b"},
		{"http://origin.test/a;b=c", "a;b=c"},
	} {
		if got := urlName(tt.url); got != tt.want {
			t.Errorf("urlName(%q) = %q, want %q", tt.url, got, tt.want)
		}
	}
}

func TestDispositionName(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct{ name, value, want string }{
		{"none", "", ""},
		{"no name", "attachment", ""},
		{"a token", "attachment; filename=a.txt", "a.txt"},
		{"quoted", `attachment; filename="a b.txt"`, "a b.txt"},
		{"inline", `inline; filename="a.txt"`, "a.txt"},
		{"escaped", `attachment; filename="a\"b.txt"`, "a_b.txt"},
		{"extended", "attachment; filename*=UTF-8''gr%c3%bc%c3%9fe.txt", "grüße.txt"},
		{"extended goes first", "attachment; filename=\"old.txt\"; filename*=UTF-8''new.txt", "new.txt"},
		{"extended goes first, in the other order", "attachment; filename*=UTF-8''new.txt; filename=\"old.txt\"", "new.txt"},
		{"a charset we do not read", "attachment; filename=\"old.txt\"; filename*=KOI8-R''new.txt", "old.txt"},
		{"capitals", "ATTACHMENT; FileName=a.txt", "a.txt"},
		{"a path", `attachment; filename="../../etc/passwd"`, "passwd"},
		{"a path of Windows", `attachment; filename="..\\..\\boot.ini"`, "boot.ini"},
		{"an extended path", "attachment; filename*=UTF-8''..%2f..%2fetc%2fpasswd", "passwd"},
		{"an absolute path", `attachment; filename="/etc/passwd"`, "passwd"},
		{"a folder", `attachment; filename="a/"`, ""},
		{"dots", `attachment; filename=".."`, ""},
		{"a dot file", `attachment; filename=".ssh"`, "ssh"},
		{"NUL", "attachment; filename*=UTF-8''a%00.txt", "a_.txt"},
		{"line ends", "attachment; filename*=UTF-8''a%0d%0ab", "a__b"},
		{"direction override", "attachment; filename*=UTF-8''a%e2%80%aetxt.exe", "a_txt.exe"},
		{"ISO-8859-1 raw", "attachment; filename=\"caf\xe9.txt\"", "café.txt"},
		{"UTF-8 raw", "attachment; filename=\"café.txt\"", "café.txt"},
		{"named twice", "attachment; filename=a; filename=b", ""},
		{"broken", "attachment; filename=\"a", ""},
		{"no type", "filename=a.txt", ""},
		{"device", "attachment; filename=nul", "_nul"},
		{"a sidecar", "attachment; filename=other.part.json", "other.part.json_"},
		{"too long", "attachment; filename=" + strings.Repeat("a", 5000) + ".txt", strings.Repeat("a", maxName-4) + ".txt"},
	} {
		if got := dispositionName(tt.value); got != tt.want {
			t.Errorf("%s: dispositionName(%q) = %q, want %q", tt.name, tt.value, got, tt.want)
		}
	}
}

func FuzzDispositionName(f *testing.F) {
	for _, seed := range []string{"", "attachment; filename=a", `attachment; filename="../a"; filename*=UTF-8''%2e%2e%2fb`, "x; filename*0=a; filename*1*=''%ff"} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, s string) { wantClean(t, s, dispositionName(s)) })
}

func TestParseList(t *testing.T) {
	t.Parallel()
	const text = "\ufeff# all of it\n\nhttp://a.test/1\r\n  http://a.test/2#x  \nhttp://a.test/3\tthree 3.txt \n#http://a.test/4\n"
	var got []string
	for _, e := range parseList("list", text) {
		got = append(got, e.where+" "+e.url+" "+e.name)
	}
	want := []string{"list:3 http://a.test/1 ", "list:4 http://a.test/2#x ", "list:5 http://a.test/3 three 3.txt"}
	if !slices.Equal(got, want) {
		t.Errorf("parseList: %q, want %q", got, want)
	}
	for _, name := range []string{"../x", "a/b", ".x", "x.part", "nul"} {
		if checkEntry(parseList("list", "http://a.test/ "+name)[0]) == nil {
			t.Errorf("the name %q is taken", name)
		}
	}
}

func TestParseSums(t *testing.T) {
	t.Parallel()
	a, b := strings.Repeat("a", 64), strings.Repeat("b", 64)
	for _, tt := range []struct {
		name, text string
		want       map[string]string
		line       int
	}{
		{name: "text and binary", text: a + "  x\n" + b + " *y z\n", want: map[string]string{"x": a, "y z": b}},
		{name: "capitals, a path, no last line end", text: strings.ToUpper(a) + "  ./dir/x", want: map[string]string{"x": a}},
		{name: "escaped", text: `\` + a + `  a\\b\nc`, want: map[string]string{"a\\b\nc": a}},
		{name: "comments and blank lines", text: "# x\n\n" + a + "  x\r\n", want: map[string]string{"x": a}},
		{name: "the same twice", text: a + "  x\n" + a + "  d/x\n", want: map[string]string{"x": a}},
		{name: "contradiction", text: a + "  x\n" + b + "  d/x\n", line: 2},
		{name: "too short", text: a[1:] + "  x\n", line: 1},
		{name: "no hex", text: "g" + a[1:] + "  x\n", line: 1},
		{name: "one space", text: a + " x\n", line: 1},
		{name: "no name", text: a + "  \n", line: 1},
	} {
		got, line := parseSums(tt.text)
		if line != tt.line || line == 0 && len(got) != len(tt.want) {
			t.Errorf("%s: %q, line %d; want %q, line %d", tt.name, got, line, tt.want, tt.line)
		}
		for name, digest := range tt.want {
			if got[name] != digest {
				t.Errorf("%s: %q has %q, want %q", tt.name, name, got[name], digest)
			}
		}
	}
}

func FuzzParseSums(f *testing.F) {
	f.Add(strings.Repeat("a", 64) + "  x\n")
	f.Add(`\` + strings.Repeat("a", 64) + " *x\\n\n# \n")
	f.Fuzz(func(t *testing.T, s string) {
		if sums, line := parseSums(s); (sums == nil) != (line > 0) {
			t.Errorf("parseSums(%q) = %v, %d", s, sums, line)
		}
	})
}
