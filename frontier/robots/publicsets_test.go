package robots_test

import (
	"bytes"
	"fmt"
	"io/fs"
	"net/url"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"fetchd/frontier/normal"
	"fetchd/frontier/robots"
	"fetchd/test/need"
)

// The tests in this file read public test sets from the folder $FETCHD_TEST_SETS, and those of
// frontier/normal the URL test data of the Web Platform Tests. Any difference without a known reason
// fails. To get the sets:
//
//	mkdir sets && cd sets
//	git clone --depth 1 https://github.com/google/robotstxt
//	git clone --depth 1 https://github.com/google/robotstxt-spec-test
//	git clone --depth 1 https://github.com/scrapy/protego
//	git clone --depth 1 --filter=blob:none --sparse https://github.com/web-platform-tests/wpt
//	git -C wpt sparse-checkout set url/resources
//	cd -
//	FETCHD_TEST_SETS=$PWD/sets go test -v -run 'TestGoogle|TestReal|TestWebPlatform' ./frontier/robots ./frontier/normal

// publicSet returns the path of a set, and skips the test if there is no folder.
func publicSet(t *testing.T, path string) string {
	t.Helper()
	folder := os.Getenv("FETCHD_TEST_SETS")
	if folder == "" {
		need.Request(t, "set FETCHD_TEST_SETS as frontier/robots/publicsets_test.go says", "it reads public test sets")
	}
	return filepath.Join(folder, filepath.FromSlash(path))
}

// verdict is a case of a set: whether agent may fetch target by file.
type verdict struct {
	file, agent, target string
	allowed             bool
}

// quoted is one or more string literals, which C and textproto concatenate.
const quoted = `(?:"(?:[^"\\]|\\.)*"\s*)+`

var literals = regexp.MustCompile(`"(?:[^"\\]|\\.)*"`)

func unquote(t *testing.T, text string) string {
	t.Helper()
	var out strings.Builder
	for _, literal := range literals.FindAllString(text, -1) {
		s, err := strconv.Unquote(literal)
		if err != nil {
			t.Fatalf("%s: %v", literal, err)
		}
		out.WriteString(s)
	}
	return out.String()
}

// TestGoogleParser runs the cases of robots_test.cc of github.com/google/robotstxt.
func TestGoogleParser(t *testing.T) {
	source, err := os.ReadFile(publicSet(t, "robotstxt/robots_test.cc"))
	if err != nil {
		t.Fatal(err)
	}
	const argument = `\s*(\w+|` + quoted + `)`
	statement := regexp.MustCompile(`(?:string_view|string) (\w+)\s*=\s*(` + quoted + `);` +
		`|EXPECT_(TRUE|FALSE)\(\s*IsUserAgentAllowed\(` + argument + `,` + argument + `,` + argument + `\)\)`)
	texts := map[string]string{}
	text := func(argument string) string {
		if strings.HasPrefix(argument, `"`) {
			return unquote(t, argument)
		}
		return texts[argument]
	}
	var cases []verdict
	for _, m := range statement.FindAllStringSubmatch(string(source), -1) {
		if m[1] != "" {
			texts[m[1]] = unquote(t, m[2])
			continue
		}
		cases = append(cases, verdict{file: text(m[4]), agent: text(m[5]), target: text(m[6]), allowed: m[3] == "TRUE"})
	}
	// The other calls are the function itself and the lines of 16 KiB that the source computes.
	if calls := strings.Count(string(source), "IsUserAgentAllowed(") - 1; calls-len(cases) > 5 {
		t.Errorf("%d of %d calls were read", len(cases), calls)
	}
	checkVerdicts(t, cases)
}

// TestGoogleSpecification runs the cases of github.com/google/robotstxt-spec-test.
func TestGoogleSpecification(t *testing.T) {
	var cases []verdict
	field := regexp.MustCompile(`(robotstxt|testurl|useragent|expected_outcome):\s*(` + quoted + `|[A-Z]+)`)
	for _, path := range filesBelow(t, publicSet(t, "robotstxt-spec-test/src/main/resources/CTC")) {
		if filepath.Ext(path) != ".textproto" {
			continue
		}
		source, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		var next verdict
		for _, m := range field.FindAllStringSubmatch(string(source), -1) {
			switch m[1] {
			case "robotstxt":
				next = verdict{file: unquote(t, m[2])}
			case "testurl":
				next.target = unquote(t, m[2])
			case "useragent":
				next.agent = unquote(t, m[2])
			case "expected_outcome":
				next.allowed = m[2] == "ALLOWED"
				cases = append(cases, next)
				next = verdict{file: next.file}
			}
		}
	}
	checkVerdicts(t, cases)
}

// checkVerdicts compares the cases with what a worker decides: it normalizes each URL first.
func checkVerdicts(t *testing.T, cases []verdict) {
	t.Helper()
	if len(cases) == 0 {
		t.Fatal("no cases were read")
	}
	agreed, reasons := 0, map[string]int{}
	for _, c := range cases {
		target := c.target
		if form, err := normal.NormalizeURL(c.target); err == nil {
			target = requestURI(t, form)
		}
		if got := robots.Parse([]byte(c.file), c.agent).Decide(target); got.Allowed == c.allowed {
			agreed++
		} else if reason := c.knownReason(); reason != "" {
			reasons[reason]++
		} else {
			t.Errorf("agent %q, target %q: got %+v, want allowed %t; file:\n%s", c.agent, c.target, got, c.allowed, c.file)
		}
	}
	t.Logf("%d cases, %d agree; differences: %v", len(cases), agreed, reasons)
}

// knownReason says why a case differs from this package on purpose.
func (c verdict) knownReason() string {
	switch {
	case !c.allowed && strings.HasSuffix(c.target, "/robots.txt"):
		return "robots.txt itself is always allowed: RFC 9309 §2.2.2"
	case strings.ContainsAny(c.agent, " 0123456789"):
		return "the crawler's name is shortened like that of a line, Google's caller must do it"
	case !c.allowed && strings.Contains(c.target, "ツ"):
		return "the URL is escaped before it is compared, Google's caller must do it"
	case !c.allowed && strings.Contains(c.file, "%62%61%7A"):
		return "%62%61%7A is baz: RFC 9309 §2.2.2"
	case c.allowed && strings.Contains(c.file, "/index.html"):
		return "Google alone reads index.html as the folder"
	}
	return ""
}

// TestRealFiles reads the files of github.com/scrapy/protego, which are those of popular sites. For
// each user-agent line, the file must have a group for that crawler. For each rule without a
// wildcard, some rule must match a URL that starts with its path.
func TestRealFiles(t *testing.T) {
	line := regexp.MustCompile(`(?im)^[ \t]*(user-agent|disallow)[ \t]*:[ \t]*([^\r\n#]*)`)
	files, agents, rules, reasons := 0, 0, 0, map[string]int{}
	for _, path := range filesBelow(t, publicSet(t, "protego/tests/test_data")) {
		file, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		if len(file) > robots.MaxBytes {
			continue
		}
		files++
		parsed, agent := (*robots.Rules)(nil), ""
		for _, m := range line.FindAllStringSubmatch(string(file), -1) {
			value := strings.TrimSpace(m[2])
			if strings.EqualFold(m[1], "user-agent") {
				agent, parsed = value, nil
				if token := productOf(agent); token != "" {
					agents++
					if got := robots.Parse(file, agent).Group; got != strings.ToLower(token) {
						t.Errorf("%s: agent %q has the group %q", path, agent, got)
					}
				}
				continue
			}
			if !strings.HasPrefix(value, "/") || strings.ContainsAny(value, "*$") || agent == "" {
				continue
			}
			if parsed == nil {
				name := agent
				if name == "*" {
					name = "crawler-without-a-group"
				}
				parsed = robots.Parse(file, name)
			}
			rules++
			form, err := normal.NormalizeURL("http://h" + value + "x")
			if err != nil {
				t.Errorf("%s: rule %q: %v", path, value, err)
				continue
			}
			switch got := parsed.Decide(requestURI(t, form)); {
			case got.Reason != robots.NoRule:
			case strings.Contains(value, `\`):
				reasons["a backslash in a rule is not a slash"]++
			default:
				t.Errorf("%s: agent %q, rule %q matches nothing; URL %s", filepath.Base(path), agent, value, form)
			}
		}
	}
	t.Logf("%d files, %d names, %d rules; differences: %v", files, agents, rules, reasons)
}

// productOf returns the letters, _ and - at the start of a name.
func productOf(name string) string {
	return regexp.MustCompile(`^[A-Za-z_-]*`).FindString(name)
}

func requestURI(t *testing.T, form string) string {
	t.Helper()
	u, err := url.Parse(form)
	if err != nil {
		t.Fatal(err)
	}
	return u.RequestURI()
}

func filesBelow(t *testing.T, folder string) []string {
	t.Helper()
	var paths []string
	err := filepath.WalkDir(folder, func(path string, entry fs.DirEntry, err error) error {
		if err == nil && entry.Type().IsRegular() {
			paths = append(paths, path)
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return paths
}

// FuzzParse checks that any bytes are a valid file, that the kind of line ends does not matter, and
// that the deciding line is one of the file.
func FuzzParse(f *testing.F) {
	f.Add([]byte(fourGroups), "foobot", "/example/page.html")
	f.Add([]byte("\ufeffUser-agent: *\nDisallow: /*%2a$ # a\nCrawl-delay: 1.5\nSitemap: s"), "a/1", "/%2A?q=%")
	f.Add([]byte("User-agent *\rAllow\t/\r\nDisallow:\x00\xff**$$"), "*", "\xff")
	f.Fuzz(func(t *testing.T, body []byte, agent, target string) {
		rules := robots.Parse(body, agent)
		if most := robots.MaxSize + 200; rules.Size() > most {
			t.Errorf("%d bytes, want at most %d", rules.Size(), most)
		}
		got := rules.Decide(target)
		if got.Reason != robots.ByRule && (!got.Allowed || got.Line != robots.Line{}) {
			t.Errorf("without a rule: %+v", got)
		}
		if got.Reason == robots.ByRule && (got.Line.Number < 1 || !bytes.Contains(body, []byte(got.Line.Text))) {
			t.Errorf("line %+v is not in the file %q", got.Line, body)
		}
		if len(body) > robots.MaxBytes/2 || bytes.Contains(body, []byte("\r")) {
			return
		}
		other := robots.Parse(bytes.ReplaceAll(body, []byte("\n"), []byte("\r\n")), agent).Decide(target)
		if other != got {
			t.Errorf("with LF %+v, with CR LF %+v; file %q", got, other, body)
		}
	})
}

// FuzzMatch compares the matcher with the simplest one.
func FuzzMatch(f *testing.F) {
	f.Add("/*a*b$", "/aab")
	f.Add("*ab*ab", "/abab")
	f.Add("/$a*$", "/$a")
	f.Add("/**a***b**$", "/xaxb")
	f.Add("*0", "/`")
	f.Fuzz(func(t *testing.T, pattern, target string) {
		pattern, target = plain(pattern), "/"+plain(target)
		if pattern == "" || len(pattern)*len(target) > 1<<20 || target == "/robots.txt" {
			return
		}
		got := robots.Parse([]byte("User-agent: *\nDisallow: "+pattern), "a").Decide(target)
		if want := slowMatch(escaped(pattern), escaped(target)); got.Allowed == want {
			t.Errorf("pattern %q, target %q: match %t, want %t", pattern, target, !got.Allowed, want)
		}
	})
}

// FuzzPrecedence compares the decision between two rules with the definition: of the
// rules that match, the one with the most octets as escaped. Each star of a run counts.
func FuzzPrecedence(f *testing.F) {
	f.Add("/a***b", "/a*bc", "/abc")
	f.Add("/a*b", "/a***", "/ab")
	f.Add("**", "/a", "/abc")
	f.Add("/*$", "/****", "/a")
	f.Add("/a{*", "/a***", "/a{b")
	f.Add("0", "*0", "/`")
	f.Fuzz(func(t *testing.T, allow, disallow, target string) {
		allow, disallow, target = plain(allow), plain(disallow), "/"+plain(target)
		if allow == "" || disallow == "" || (len(allow)+len(disallow))*len(target) > 1<<20 || target == "/robots.txt" {
			return
		}
		path := escaped(target)
		allows, disallows := slowMatch(escaped(allow), path), slowMatch(escaped(disallow), path)
		want := !disallows || allows && len(escaped(allow)) >= len(escaped(disallow))
		file := "User-agent: *\nDisallow: " + disallow + "\nAllow: " + allow
		if got := robots.Parse([]byte(file), "a").Decide(target); got.Allowed != want {
			t.Errorf("target %q: %+v, want allowed %t; file:\n%s", target, got, want, file)
		}
	})
}

// plain returns s without escapes, comments and space.
func plain(s string) string {
	return strings.Map(func(r rune) rune {
		if r <= ' ' || r > '~' || r == '%' || r == '#' {
			return -1
		}
		return r
	}, s)
}

// escaped returns a plain pattern or target in the form that is compared (RFC 9309 §2.2.2).
func escaped(s string) string {
	var out strings.Builder
	for i := range len(s) {
		if strings.IndexByte("\"<>\\^`{|}", s[i]) >= 0 {
			fmt.Fprintf(&out, "%%%02X", s[i])
		} else {
			out.WriteByte(s[i])
		}
	}
	return out.String()
}

// slowMatch fills in, star by star, which beginnings of s the pattern so far
// can have matched. Its time is the product of the lengths.
func slowMatch(pattern, s string) bool {
	pattern, end := strings.CutSuffix(pattern, "$")
	reached := make([]bool, len(s)+1)
	reached[0] = true
	for i := range len(pattern) {
		next := make([]bool, len(s)+1)
		for j := range next {
			if pattern[i] == '*' {
				next[j] = reached[j] || j > 0 && next[j-1]
			} else {
				next[j] = j > 0 && reached[j-1] && s[j-1] == pattern[i]
			}
		}
		reached = next
	}
	if end {
		return reached[len(s)]
	}
	for _, r := range reached {
		if r {
			return true
		}
	}
	return false
}

// manyStars is a pattern of n stars that fits nowhere in a path of a's. A
// matcher that goes back to each star in turn would be at it for ever.
func manyStars(n int) string { return "/" + strings.Repeat("*a", n) + "*b$" }

func TestManyStars(t *testing.T) {
	rules := robots.Parse([]byte("User-agent: *\nDisallow: "+manyStars(4000)), "a")
	if got := rules.Decide("/" + strings.Repeat("a", 8000)); !got.Allowed {
		t.Errorf("a path without b: %+v", got)
	}
	if got := rules.Decide("/" + strings.Repeat("a", 8000) + "b"); got.Allowed {
		t.Errorf("a path with b last: %+v", got)
	}
}

// BenchmarkManyStars doubles path and pattern: the time for a byte must not grow.
func BenchmarkManyStars(b *testing.B) {
	for n := 1000; n <= 8000; n *= 2 {
		b.Run(fmt.Sprintf("path=%d/stars=%d", n, n/2), func(b *testing.B) {
			rules := robots.Parse([]byte("User-agent: *\nDisallow: "+manyStars(n/2)), "a")
			path := "/" + strings.Repeat("a", n)
			for b.Loop() {
				rules.Decide(path)
			}
			b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/float64(n), "ns/byte")
		})
	}
}

// full returns a file of the maximum size with different rules, of which as many as fit
// must all be compared.
func full() []byte {
	var out bytes.Buffer
	out.WriteString("User-agent: *\n")
	for i := 0; out.Len() < robots.MaxBytes-20; i++ {
		fmt.Fprintf(&out, "Disallow: *a%db\n", i)
	}
	return out.Bytes()
}

func BenchmarkParse(b *testing.B) {
	for _, row := range []struct {
		name string
		file []byte
	}{
		{"small", []byte(fourGroups)},
		{"full", full()},
	} {
		b.Run(row.name, func(b *testing.B) {
			b.SetBytes(int64(len(row.file)))
			b.ReportAllocs()
			for b.Loop() {
				robots.Parse(row.file, "a")
			}
		})
	}
}

func BenchmarkDecide(b *testing.B) {
	small, worst := robots.Parse([]byte(fourGroups), "foobot"), robots.Parse(full(), "a")
	for _, row := range []struct {
		name   string
		rules  *robots.Rules
		target string
	}{
		{"small", small, "/example/some/page.html?id=42"},
		{"escapes", small, "/ex%61mple/%E3%83%84?u=https%3A%2F%2Fa"},
		{"full/short path", worst, "/example/some/page.html?id=42"},
		{"full/path of 8 KiB", worst, "/" + strings.Repeat("a", 8<<10)},
	} {
		b.Run(row.name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				row.rules.Decide(row.target)
			}
		})
	}
}
