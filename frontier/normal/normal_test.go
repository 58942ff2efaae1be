package normal_test

import (
	"encoding/hex"
	"errors"
	"net/url"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"unicode/utf8"

	whatwg "github.com/nlnwa/whatwg-url/url"

	"fetchd/frontier/normal"
	"fetchd/test/must"
)

var sentinels = []error{normal.ErrTooLong, normal.ErrScheme, normal.ErrHost, normal.ErrPort, normal.ErrAmbiguous}

func TestStandard(t *testing.T) {
	for group, facts := range map[string][]fact{"host": hostFacts, "path": pathFacts} {
		for _, f := range facts {
			t.Run(group+"/"+f.name, func(t *testing.T) { checkNormal(t, f.in, f.want()) })
		}
	}
}

// want returns the normal form, or an empty text if there is none.
func (f fact) want() string {
	if f.ours == "" {
		return f.href
	}
	return strings.TrimPrefix(f.ours, "-")
}

// TestConcurrentUse gives the race detector goroutines that share the parser.
func TestConcurrentUse(t *testing.T) {
	var group sync.WaitGroup
	for range 4 {
		group.Go(func() {
			for _, f := range slices.Concat(hostFacts, pathFacts) {
				if got, _ := normal.NormalizeURL(f.in); got != f.want() {
					t.Errorf("NormalizeURL(%q) = %q, want %q", f.in, got, f.want())
				}
			}
		})
	}
	group.Wait()
}

// checkNormal wants an error if want is empty.
func checkNormal(t *testing.T, in, want string) {
	t.Helper()
	got, err := normal.NormalizeURL(in)
	if got != want && err == nil || want != "" && err != nil {
		t.Errorf("Normalize(%q) = %q, %v; want %q", in, got, err, want)
	}
	if err != nil && !slices.ContainsFunc(sentinels, func(s error) bool { return errors.Is(err, s) }) {
		t.Errorf("Normalize(%q): error %v is none of the package's", in, err)
	}
}

func TestRulesOnTop(t *testing.T) {
	for _, row := range []struct {
		name     string
		in, want string
	}{
		{"everything at once", " HTTP://Me:Pw@ALPHA.test.:80/a/./b/../%7euser%2f%c3%a9?#top", "http://alpha.test/a/~user%2F%C3%A9"},
		{"every unreserved mark is decoded", "http://h/a%2D%2E%5F%7Eb", "http://h/a-._~b"},
		{"reserved characters stay escaped", "http://h/%21%24%26%27%28%29%2a%2B%2c%3a%3B%3D%40", "http://h/%21%24%26%27%28%29%2A%2B%2C%3A%3B%3D%40"},
		{"plus signs stay escaped", "http://h/c%2B%2B?q=c%2B%2B", "http://h/c%2B%2B?q=c%2B%2B"},
		{"an escape is decoded once", "http://h/%2541", "http://h/%2541"},
		{"a lone percent sign makes no escape of what follows", "http://h/%%34%31", "http://h/%2541"},
		{"half an escape makes no escape of what follows", "http://h/%4%31", "http://h/%2541"},
		{"decoded dots are segments like others", "http://h/a/%2e%2e/%2e%2e%2e", "http://h/..."},
		{"a bar spares the escaped slash", "http://h/a%2Fb|c", "http://h/a%2Fb%7Cc"},
		{"a bar in a query stays", "http://h/?a|b", "http://h/?a|b"},
		{"the dot goes before the port", "http://alpha.test.:8080/", "http://alpha.test:8080/"},
		{"an ideographic dot goes", "http://alpha.test。/", "http://alpha.test/"},
		{"a query of one ampersand stays", "http://h/?&", "http://h/?&"},
		{"an empty value stays apart from no value", "http://h/?a=", "http://h/?a="},
		{"an empty query before a fragment goes", "http://h/a?#b", "http://h/a"},
		{"bytes that are not UTF-8", "http://h/\xe4?\xf6=\xfc", "http://h/%E4?%F6=%FC"},
		{"bytes that are not UTF-8 in a host", "http://h\xe4/", ""},
		{"the order of parameters stays", "http://h/?b&a", "http://h/?b&a"},
		{"double slashes stay", "http://h//a//b", "http://h//a//b"},
	} {
		t.Run(row.name, func(t *testing.T) { checkNormal(t, row.in, row.want) })
	}
}

func TestErrorsNameTheFault(t *testing.T) {
	for _, row := range []struct {
		name, in string
		want     error
		text     string
	}{
		{"too long", "http://h/" + strings.Repeat("a", normal.MaxURLBytes-8), normal.ErrTooLong, "8193 bytes"},
		{"too long once escaped", "http://h/" + strings.Repeat(" a", 2100), normal.ErrTooLong, "once escaped"},
		{"too long a user", "http://" + strings.Repeat("@", 257) + "h/", normal.ErrTooLong, "user information has 256 bytes"},
		{"too many segments", "http://h" + strings.Repeat("/", 511), normal.ErrTooLong, "513 slashes"},
		{"too many backslashes", "http://h" + strings.Repeat(`\`, 511), normal.ErrTooLong, "513 slashes"},
		{"no scheme", "alpha.test/a", normal.ErrScheme, "it has none"},
		{"another scheme", "ftp://alpha.test/", normal.ErrScheme, "neither http nor https"},
		{"a host taken for a scheme", "alpha.test:80/", normal.ErrScheme, "neither http nor https"},
		{"no host", "http:///", normal.ErrHost, "it has none"},
		{"user without a host", "http://me@/", normal.ErrHost, "it has none"},
		{"bad Punycode", "http://xn--pokxncvks/", normal.ErrHost, "IDNA"},
		{"a space in a host", "http://a b/", normal.ErrHost, "character"},
		{"a brace in a host", "http://a{b/", normal.ErrHost, "character"},
		{"an empty label", "http://a..b/", normal.ErrHost, "a label is empty"},
		{"too long a name", "http://" + strings.Repeat("a.", 126) + "ab/", normal.ErrHost, "it has 254 bytes, the limit is 253"},
		{"too long a label", "http://a." + strings.Repeat("b", 64) + ".test/", normal.ErrHost, "a label has 64 bytes, the limit is 63"},
		{"a label too long in Punycode", "http://" + strings.Repeat("ü", 62) + ".test/", normal.ErrHost, "a label has"},
		{"bad IPv4", "http://1.2.3.256/", normal.ErrHost, "IPv4"},
		{"bad IPv6", "http://[::g]/", normal.ErrHost, "IPv6"},
		{"port out of range", "http://h:70000/", normal.ErrPort, "greater than 65535"},
		{"port without digits", "http://h:http/", normal.ErrPort, "not a number"},
	} {
		t.Run(row.name, func(t *testing.T) {
			got, err := normal.NormalizeURL(row.in)
			if got != "" || !errors.Is(err, row.want) {
				t.Fatalf("NormalizeURL(%.60q) = %q, %v; want %v", row.in, got, err, row.want)
			}
			for _, other := range sentinels {
				if !errors.Is(row.want, other) && errors.Is(err, other) {
					t.Errorf("NormalizeURL(%.60q): %v is also %v", row.in, err, other)
				}
			}
			if text := err.Error(); !strings.Contains(text, row.text) { //nolint:forbidigo // the text itself is under test
				t.Errorf("NormalizeURL(%.60q): text %q lacks %q", row.in, text, row.text)
			}
		})
	}
}

func TestErrorsKeepSecrets(t *testing.T) {
	for _, in := range []string{"http://me:hunter2@h:http/", "http://me:hunter2@[::g]/", "http://me:hunter2@a{b/", "ftp://me:hunter2@h/", "http://me:hunter2@xn--/"} {
		_, err := normal.NormalizeURL(in)
		if err == nil {
			t.Fatalf("NormalizeURL(%q): no error", in)
		}
		if text := err.Error(); strings.Contains(text, "hunter2") { //nolint:forbidigo // the text itself is under test
			t.Errorf("NormalizeURL(%q): error shows the password: %s", in, text)
		}
	}
}

func TestLongestURL(t *testing.T) {
	longest := "http://h/" + strings.Repeat("a", normal.MaxURLBytes-len("http://h/"))
	checkNormal(t, longest, longest)
	checkNormal(t, longest+"a", "")
}

func TestLongestHost(t *testing.T) {
	label := strings.Repeat("a", 63)
	name := strings.Repeat(label+".", 3) + label[:61]
	for _, row := range []struct{ name, in, want string }{
		{"a label", "http://" + label + ".test/", "http://" + label + ".test/"},
		{"a name", "http://" + name + "/", "http://" + name + "/"},
		{"a name with the root's dot and a port", "http://" + name + ".:8080/", "http://" + name + ":8080/"},
		{"a longer name", "http://" + name + "a/", ""},
		{"a longer label", "http://" + label + "a/", ""},
		{"an address", "http://[1111:2222:3333:4444:5555:6666:7777:8888]/", "http://[1111:2222:3333:4444:5555:6666:7777:8888]/"},
	} {
		t.Run(row.name, func(t *testing.T) { checkNormal(t, row.in, row.want) })
	}
}

func TestLongestUser(t *testing.T) {
	checkNormal(t, "http://"+strings.Repeat("a", 255)+"@h/", "http://h/")
	checkNormal(t, "http://h"+strings.Repeat("/", 510)+"?"+strings.Repeat("/", 600)+"#"+strings.Repeat("/", 600), "http://h"+strings.Repeat("/", 510)+"?"+strings.Repeat("/", 600))
	checkNormal(t, "http://h/"+strings.Repeat("@", 2000), "http://h/"+strings.Repeat("@", 2000))
	checkNormal(t, "http://h?"+strings.Repeat("@", 2000), "http://h/?"+strings.Repeat("@", 2000))
}

func TestURLHash(t *testing.T) {
	// printf http://h/ | sha256sum
	const in, want = "http://h/", "ad8295a7a69d6f00bcbec158f753e9310e81a0ffc377dbe0d6d40de0b76d7142"
	hash := normal.URLHash(in)
	if got := hex.EncodeToString(hash[:]); got != want {
		t.Errorf("URLHash(%q) = %s, want %s", in, got, want)
	}
}

func TestExtractHost(t *testing.T) {
	for _, row := range []struct{ name, in, want string }{
		{"name", "http://alpha.test/a", "alpha.test"},
		{"port", "http://alpha.test:8080/a", "alpha.test:8080"},
		{"https shares the name", "https://alpha.test/", "alpha.test"},
		{"the other scheme's port is another key", "http://alpha.test:443/", "alpha.test:443"},
		{"IPv6 and port", "http://[2001:db8::1]:81/", "[2001:db8::1]:81"},
		{"not normal: case and port", "HTTP://ALPHA.test:80/", "alpha.test"},
		{"not normal: port of https", "https://alpha.test:443/", "alpha.test"},
		{"no host", "http:///a", ""},
		{"another scheme", "ftp://alpha.test/", ""},
		{"not a URL", "http://[", ""},
	} {
		t.Run(row.name, func(t *testing.T) {
			got, err := normal.ExtractHost(row.in)
			if got != row.want || (err == nil) != (row.want != "") {
				t.Errorf("ExtractHost(%q) = %q, %v; want %q", row.in, got, err, row.want)
			}
			if err != nil && !errors.Is(err, normal.ErrHost) {
				t.Errorf("ExtractHost(%q): error %v is not ErrHost", row.in, err)
			}
		})
	}
}

func TestResolve(t *testing.T) {
	t.Parallel()
	const base = "http://a.test/b/c/d?q"
	for _, row := range []struct{ name, base, reference, want string }{
		{"a path", base, "/x", "http://a.test/x"},
		{"a relative path", base, "x", "http://a.test/b/c/x"},
		{"up", base, "../x", "http://a.test/b/x"},
		{"up too far", base, "../../../../x", "http://a.test/x"},
		{"this folder", base, ".", "http://a.test/b/c/"},
		{"a query", base, "?y=1", "http://a.test/b/c/d?y=1"},
		{"only a fragment", base, "#top", "http://a.test/b/c/d?q"},
		{"empty", base, "", "http://a.test/b/c/d?q"},
		{"another host", base, "//e.test/x", "http://e.test/x"},
		{"another host with backslashes", base, `\\e.test\x`, "http://e.test/x"},
		{"the scheme of the base", "https://a.test/", "//e.test/x", "https://e.test/x"},
		{"absolute", base, "https://E.test:443/%7ex#f", "https://e.test/~x"},
		{"the same scheme without slashes", base, "http:x", "http://a.test/b/c/x"},
		{"the same scheme before a segment like one", base, "http:ftp:x", "http://a.test/b/c/ftp:x"},
		{"another scheme without slashes", base, "https:e.test", "https://e.test/"},
		{"spaces around and line ends within", base, " \n/a\tb\n ", "http://a.test/ab"},
		{"not ASCII", base, "/ü?ü", "http://a.test/%C3%BC?%C3%BC"},
		{"a colon in a path", base, "./a:b", "http://a.test/b/c/a:b"},
		{"a colon after a digit", base, "1:b", "http://a.test/b/c/1:b"},
		{"user information", base, "//u:p@e.test/x", "http://e.test/x"},
	} {
		t.Run(row.name, func(t *testing.T) {
			t.Parallel()
			b, err := normal.NewBase(row.base)
			must.Succeed(t, err)
			got, err := b.Resolve(row.reference)
			if err != nil || got != row.want {
				t.Errorf("Resolve(%q) = %q, %v; want %q", row.reference, got, err, row.want)
			}
		})
	}
}

func TestResolveErrors(t *testing.T) {
	t.Parallel()
	b, err := normal.NewBase("http://a.test/")
	must.Succeed(t, err)
	for _, row := range []struct {
		name, reference string
		want            error
	}{
		{"javascript", "javascript:void(0)", normal.ErrScheme},
		{"mail", "mailto:a@b.test", normal.ErrScheme},
		{"data", "data:text/html,x", normal.ErrScheme},
		{"a file", "file:///etc/passwd", normal.ErrScheme},
		{"too long", "/" + strings.Repeat("x", 500<<10), normal.ErrTooLong},
		{"too long with its base", "/" + strings.Repeat("x", normal.MaxURLBytes-1), normal.ErrTooLong},
		{"many segments", strings.Repeat("../a/", 300), normal.ErrTooLong},
		{"much user information", "//" + strings.Repeat("@", 2000) + "e.test/", normal.ErrTooLong},
		{"a bad host", "//[/x", normal.ErrHost},
		{"a bad port", "http://e.test:99999/", normal.ErrPort},
	} {
		if got, err := b.Resolve(row.reference); !errors.Is(err, row.want) {
			t.Errorf("%s: Resolve = %q, %v; want %v", row.name, got, err, row.want)
		}
	}
	if _, err := normal.NewBase("/x"); !errors.Is(err, normal.ErrScheme) {
		t.Errorf("NewBase of a path: %v", err)
	}
}

// FuzzResolve checks that a resolved reference is a normal form, and that an absolute URL does not
// depend on the base.
func FuzzResolve(f *testing.F) {
	for _, s := range []string{"", "x", "//e.test", "http:x", "https://e.test/x", "../?#", "javascript:0", "\\\\e", "?%zz", "a:b"} {
		f.Add(s)
	}
	f.Add("http:0//")
	f.Fuzz(func(t *testing.T, reference string) {
		for _, scheme := range []string{"http:", "https:"} {
			b, err := normal.NewBase(scheme + "//a.test/b/?c")
			must.Succeed(t, err)
			got, err := b.Resolve(reference)
			if err != nil {
				continue
			}
			if again, err := normal.NormalizeURL(got); err != nil || again != got {
				t.Errorf("Resolve(%q) = %q, whose normal form is %q, %v", reference, got, again, err)
			}
			// "http:page" has a normal form too, but is relative to a base with the same scheme.
			absolute, err := normal.NormalizeURL(reference)
			if err == nil && absolute != got && !strings.HasPrefix(absolute, scheme) {
				t.Errorf("Resolve(%q) with a base of %s = %q, without a base %q", reference, scheme, got, absolute)
			}
		}
	})
}

// FuzzStandard compares paths, queries and the resolving of references with an implementation of the
// URL standard: what it makes of a reference has the same normal form.
func FuzzStandard(f *testing.F) {
	for _, fact := range slices.Concat(hostFacts, pathFacts) {
		f.Add(fact.in, "http://a.test/b/c?d")
	}
	for _, s := range []string{"", "?", "#", "?/'^|", "./%2e%2e/..", "/a/../%2E", "a/b/..", `..\.`, "//e.test:080", "http:x", "http:ftp:x", "http: x", "https:x"} {
		f.Add(s, "http://h/a/b/../c?x=1#y")
	}
	standard := whatwg.NewParser(whatwg.WithPreParseHostFunc(func(_ *whatwg.Url, host string) string {
		return regexp.MustCompile(`ẞ|(?i:%E1%BA%9E)`).ReplaceAllString(host, "ß") // older tables of idna have ss
	}))
	f.Fuzz(func(t *testing.T, reference, base string) {
		if !utf8.ValidString(reference) { // the standard knows no other references
			return
		}
		b, err := normal.NewBase(base)
		if err != nil {
			return
		}
		got, err := b.Resolve(reference)
		if err != nil {
			return // it may be one of our limits
		}
		u, err := standard.ParseRef(b.String(), reference)
		if err != nil {
			t.Fatalf("Resolve(%q) with the base %q = %q, by the standard %v", reference, base, got, err)
		}
		if want, err := normal.NormalizeURL(u.Href(true)); err != nil || got != want {
			t.Errorf("Resolve(%q) with the base %q = %q, by the standard %q, %v", reference, base, got, want, err)
		}
	})
}

// TestCost checks that the work for a reference does not grow with the number of segments, and that a
// host that IDNA has to read costs more. It counts allocations: a parser that adds up a path allocates
// once for each segment or character.
func TestCost(t *testing.T) {
	deep := "http://a.test" + strings.Repeat("/"+strings.Repeat("b", 14), 500) + "/"
	const base = "http://a.test/"
	for _, row := range []struct {
		name, base, reference string
		cost, allocations     int // at most
	}{
		{"a query, and a base of 500 segments", deep, "?x", 8_000, 5},
		{"a path, and a base of 500 segments", deep, "x", 8_000, 5},
		{"a path of 500 segments", base, strings.Repeat("a/", 500), 2_300, 5},
		{"a path of 500 dot segments", base, strings.Repeat("a/../", 170), 2_000, 5},
		{"a path of 2,500 bytes outside ASCII", base, strings.Repeat("ü", 1250), 5_300, 8},
		{"a query of escapes", base, "?" + strings.Repeat("%2f", 2000), 12_300, 5},
		{"a host of 60 umlauts", base, "//" + strings.Repeat("ü", 60) + ".test/", 7_000, 100},
		{"a host of 1,000 bytes", base, "//" + strings.Repeat("%C3%BC", 170) + "/", 40_000, 100},
		{"a host of 4,000 bytes", base, "//" + strings.Repeat("ü", 2000) + "/", 8_500, 10},
		{"a host of 2,000 numbers", base, "//" + strings.Repeat("1.", 2000) + "/", 8_500, 10},
		{"another scheme", base, "data:" + strings.Repeat("x", 8000), 17_000, 5},
		{"more bytes than a URL has", base, strings.Repeat("x", 1<<20), 300, 5},
	} {
		t.Run(row.name, func(t *testing.T) {
			b, err := normal.NewBase(row.base)
			must.Succeed(t, err)
			if cost := b.Cost(row.reference); cost > row.cost {
				t.Errorf("cost %d, want at most %d", cost, row.cost)
			}
			got := testing.AllocsPerRun(20, func() {
				_, _ = b.Resolve(row.reference) // some have no normal form
			})
			if int(got) > row.allocations {
				t.Errorf("%.0f allocations, want at most %d", got, row.allocations)
			}
		})
	}
}

// TestCostOfHosts checks that the last host costs nothing again.
func TestCostOfHosts(t *testing.T) {
	t.Parallel()
	b, err := normal.NewBase("http://a.test/")
	must.Succeed(t, err)
	const plain, odd = "http://b.test/", "http://ü.test/"
	first := b.Cost(odd)
	if got := b.Cost(plain); first < 5*got {
		t.Errorf("cost %d of %s, and %d of %s", first, odd, got, plain)
	}
	for range 2 {
		if got, err := b.Resolve(odd); got != "http://xn--tda.test/" || err != nil {
			t.Fatalf("Resolve(%q) = %q, %v", odd, got, err)
		}
	}
	if got := b.Cost(odd); got*5 > first {
		t.Errorf("cost %d of a host that was read, %d before", got, first)
	}
	if got := normal.Cost(odd); got < first/2 {
		t.Errorf("cost %d without a base, want about %d", got, first)
	}
}

// FuzzNormalize checks the properties of every normal form.
func FuzzNormalize(f *testing.F) {
	for _, fact := range slices.Concat(hostFacts, pathFacts) {
		f.Add(fact.in)
	}
	f.Add("http://h//a?b&a")
	f.Add("http://h/\xe4%%32%65/%2e%2E/|^?\xff&%")
	f.Fuzz(func(t *testing.T, raw string) {
		got, err := normal.NormalizeURL(raw)
		if err != nil {
			return
		}
		if again, err := normal.NormalizeURL(got); err != nil || again != got {
			t.Errorf("Normalize(%q) = %q, whose normal form is %q, %v", raw, got, again, err)
		}
		if len(got) > normal.MaxURLBytes {
			t.Errorf("Normalize(%q) has %d bytes", raw, len(got))
		}
		u, err := url.Parse(got)
		if err != nil {
			t.Fatalf("Normalize(%q) = %q, which net/url refuses: %v", raw, got, err)
		}
		// Split without a parser, so that no parser checks itself.
		_, rest, _ := strings.Cut(got, "://")
		authority, _, _ := strings.Cut(rest, "/")
		if u.Host != authority || u.User != nil || u.Fragment != "" || u.String() != got {
			t.Errorf("Normalize(%q) = %q, which net/url reads as %#v", raw, got, u)
		}
		host, err := normal.ExtractHost(got)
		if err != nil || host != authority || host != strings.ToLower(host) {
			t.Errorf("ExtractHost(%q) = %q, %v; want %q", got, host, err, authority)
		}
		for i := range len(got) {
			if got[i] <= ' ' || got[i] >= 0x7f {
				t.Fatalf("Normalize(%q) = %q has byte %#x", raw, got, got[i])
			}
		}
	})
}
