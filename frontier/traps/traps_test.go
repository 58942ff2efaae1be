package traps

import (
	"strings"
	"testing"
)

func TestRefuses(t *testing.T) {
	t.Parallel()
	for _, row := range []struct {
		name, path string
		want       Rule
	}{
		{"the root", "/", ""},
		{"a group of two", "/loop/a/b/a/b/a/b/", Repeated},
		{"without a slash at the end", "/a/b/a/b/a/b", Repeated},
		{"one segment", "/x/a/a/a", Repeated},
		{"twice", "/loop/a/b/a/b/", ""},
		{"a language", "/en/en/", ""},
		{"not in a row", "/a/x/a/y/a/z/a", ""},
		{"a date", "/2026/11/11/x/11", ""},
		{"a short date", "/11/11/11/x", ""},
		{"longer than a date", "/11/11/11/11", Repeated},
		{"a long number", "/2026/2026/2026", Repeated},
		{"slashes", "/x////y", Repeated},
		{"two slashes", "/x//y", ""},
		{"within a query", "/x?a/a/a/a", ""},
		{"20 segments", "/a/b/c/d/e/f/g/h/i/j/k/l/m/n/o/p/q/r/s/t/", ""},
		{"21 segments", "/a/b/c/d/e/f/g/h/i/j/k/l/m/n/o/p/q/r/s/t/u", Segments},
		{"many segments", strings.Repeat("/a", 500), Segments},
		{"a group of three", "/q/a/b/c/a/b/c/a/b/c/x", Repeated},
		{"alike, with a prefix", "/a/ab/a/ab/abc/a/ab", ""},
	} {
		if got, why := Refuses("http://a.test" + row.path); got != row.want || (why == "") != (got == "") {
			t.Errorf("%s: Refuses(%s) = %q, %q, want %q", row.name, row.path, got, why, row.want)
		}
	}
	if got, _ := Refuses("http://a.test"); got != "" {
		t.Errorf("Refuses of a URL without a path = %q", got)
	}
}

func TestKey(t *testing.T) {
	t.Parallel()
	const id = "0123456789abcdefABCDEF0123456789"
	for _, row := range []struct{ name, url, want string }{
		{"no query", "/x", "/x"},
		{"the only parameter", "/x?PHPSESSID=" + id, "/x"},
		{"the first", "/x?sid=" + id + "&a=1", "/x?a=1"},
		{"the last", "/x?a=1&SessionID=" + id, "/x?a=1"},
		{"in between", "/x?a=1&sid=" + id + "&b=2&c", "/x?a=1&b=2&c"},
		{"two", "/x?sid=" + id + "&a=1&phpsessid=" + id, "/x?a=1"},
		{"in the path", "/x;jsessionid=" + id + "?a=1", "/x?a=1"},
		{"in the path, in capitals", "/x;v=1;JSESSIONID=" + id + "/y", "/x;v=1/y"},
		{"31 characters", "/x?sid=" + id[1:], "/x?sid=" + id[1:]},
		{"33 characters", "/x?sid=0" + id, "/x?sid=0" + id},
		{"no letters or digits", "/x?sid=" + id[1:] + "-", "/x?sid=" + id[1:] + "-"},
		{"another name", "/x?insid=" + id, "/x?insid=" + id},
		{"a digest", "/x?md5=" + id, "/x?md5=" + id},
		{"ASP", "/x?ASPSESSIONIDAQBQCRTS=ABCDEFGHIJKLMNOPQRSTUVWX&a=1", "/x?a=1"},
		{"ASP with a digit", "/x?ASPSESSIONIDAQBQCRTS=ABCDEFGHIJKLMNOPQRSTUVW1", "/x?ASPSESSIONIDAQBQCRTS=ABCDEFGHIJKLMNOPQRSTUVW1"},
		{"ColdFusion", "/x?a=1&CFID=12&CFTOKEN=34-ab&b", "/x?a=1&b"},
		{"half of ColdFusion", "/x?CFID=12&b&CFTOKEN=34", "/x?CFID=12&b&CFTOKEN=34"},
		{"empty parameters", "/x?&&a&", "/x?&&a&"},
	} {
		if got := Key("http://a.test" + row.url); got != "http://a.test"+row.want {
			t.Errorf("%s: Key(%s) = %s, want %s", row.name, row.url, got, row.want)
		}
	}
}

func TestPattern(t *testing.T) {
	t.Parallel()
	for _, row := range []struct{ url, want string }{
		{"http://a1.test/cal/12", "/cal/#"},
		{"http://a.test/2026/11/x?day=12&n=a3b", "/#/#/x?day=#&n=a#b"},
		{"http://a1.test/cal", ""},
		{"http://a1.test", ""},
		{"http://a.test/1" + strings.Repeat("x", 400), "/#" + strings.Repeat("x", 253)},
	} {
		if got := Pattern(row.url); got != row.want {
			t.Errorf("Pattern(%s) = %q, want %q", row.url, got, row.want)
		}
	}
}

// TestAllocations checks that a URL without a session id and without a trap costs no allocation.
func TestAllocations(t *testing.T) {
	const url = "http://a.test/en/2026/11/11/x.html?page=2&sort=desc"
	if n := testing.AllocsPerRun(100, func() { Key(url); _, _ = Refuses(url) }); n > 0 {
		t.Errorf("%v allocations", n)
	}
}

func FuzzKey(f *testing.F) {
	f.Add("http://a.test/x;jsessionid=0123456789abcdef0123456789abcdef?a&sid=0123456789abcdef0123456789abcdef&CFID=1&CFTOKEN=2")
	f.Fuzz(func(t *testing.T, url string) {
		key := Key(url)
		if len(key) > len(url) {
			t.Errorf("the key %q is longer than %q", key, url)
		}
		if len(Pattern(url)) > maxPattern {
			t.Errorf("the pattern of %q is too long", url)
		}
		_, _ = Refuses(url)
	})
}
