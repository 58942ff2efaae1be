package normal_test

import (
	"encoding/hex"
	"errors"
	"slices"
	"strings"
	"sync"
	"testing"

	"fetchd/frontier/normal"
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
		{"IPv6", "http://[2001:db8::1]/", "[2001:db8::1]"},
		{"IPv6 and port", "http://[2001:db8::1]:81/", "[2001:db8::1]:81"},
		{"not normal: case and port", "HTTP://ALPHA.test:80/", "alpha.test"},
		{"not normal: port of https", "https://alpha.test:443/", "alpha.test"},
		{"no host", "http:///a", ""},
		{"no scheme", "alpha.test/a", ""},
		{"another scheme", "ftp://alpha.test/", ""},
		{"not a URL", "http://[", ""},
		{"nothing", "", ""},
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
