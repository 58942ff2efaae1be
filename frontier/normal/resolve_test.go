package normal_test

import (
	"errors"
	"strings"
	"testing"

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
