package normal_test

import (
	"errors"
	"regexp"
	"slices"
	"strings"
	"testing"
	"unicode/utf8"

	whatwg "github.com/nlnwa/whatwg-url/url"

	"fetchd/frontier/normal"
)

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
		{"a space within", base, "/a b", "http://a.test/a%20b"},
		{"not ASCII", base, "/ü?ü", "http://a.test/%C3%BC?%C3%BC"},
		{"not UTF-8", base, "/\xfc", "http://a.test/%FC"},
		{"a colon in a path", base, "./a:b", "http://a.test/b/c/a:b"},
		{"a colon after a digit", base, "1:b", "http://a.test/b/c/1:b"},
		{"user information", base, "//u:p@e.test/x", "http://e.test/x"},
	} {
		t.Run(row.name, func(t *testing.T) {
			t.Parallel()
			b, err := normal.NewBase(row.base)
			if err != nil {
				t.Fatal(err)
			}
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
	if err != nil {
		t.Fatal(err)
	}
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
			if err != nil {
				t.Fatal(err)
			}
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
			if err != nil {
				t.Fatal(err)
			}
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
	if err != nil {
		t.Fatal(err)
	}
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
