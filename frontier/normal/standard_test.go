package normal_test

import (
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"unicode"

	"fetchd/frontier/normal"
	"fetchd/test/need"
)

// fact is a fact of the URL standard: what a browser makes of in. The inputs are our own. Each
// result follows from https://url.spec.whatwg.org/#url-parsing and has a counterpart in the
// standard's test data (urltestdata.json).
type fact struct {
	name string
	in   string
	href string // empty if the URL is not valid
	// ours is the normal form if it differs from href, or "-" if our rules reject the URL.
	ours string
}

var hostFacts = []fact{
	{"upper case", "http://ALPHA.Test/", "http://alpha.test/", ""},
	{"no path", "http://alpha.test", "http://alpha.test/", ""},
	{"one label", "http://intranet", "http://intranet/", ""},
	{"escaped letters", "http://%61lph%41.test/", "http://alpha.test/", ""},
	{"underscore", "http://my_host.test/", "http://my_host.test/", ""},
	{"hyphens in third and fourth place", "http://ab--cd.test/", "http://ab--cd.test/", ""},
	{"hyphen first", "http://-a.test/", "http://-a.test/", ""},
	{"hyphen last", "http://a-.test/", "http://a-.test/", ""},
	{"dot at the end", "http://alpha.test./", "http://alpha.test./", "http://alpha.test/"},
	{"two dots at the end", "http://alpha.test../", "http://alpha.test../", "-"},
	{"a dot alone", "http://./x", "http://./x", "-"},
	{"two dots alone", "http://../x", "http://../x", "-"},
	{"an empty label within", "http://a..test/", "http://a..test/", "-"},
	{"a dot first", "http://.a.test/", "http://.a.test/", "-"},
	{"marks that domains may have", "http://a!$&'()*+,;=~b/", "http://a!$&'()*+,;=~b/", ""},
	{"braces", "http://a{b}/", "http://a{b}/", "-"},
	{"backquote", "http://a`b/", "http://a`b/", "-"},

	{"umlaut", "http://bücher.test/", "http://xn--bcher-kva.test/", ""},
	{"umlaut in upper case", "http://BÜCHER.test/", "http://xn--bcher-kva.test/", ""},
	{"umlaut of two code points", "http://bu\u0308cher.test/", "http://xn--bcher-kva.test/", ""},
	{"umlaut escaped", "http://b%C3%BCcher.test/", "http://xn--bcher-kva.test/", ""},
	{"Punycode already", "http://xn--bcher-kva.test/", "http://xn--bcher-kva.test/", ""},
	{"Punycode in upper case", "http://XN--BCHER-KVA.test/", "http://xn--bcher-kva.test/", ""},
	{"sharp s is kept", "http://straße.test/", "http://xn--strae-oqa.test/", ""},
	{"capital sharp s is sharp s", "http://STRAẞE.test/ẞ", "http://xn--strae-oqa.test/%E1%BA%9E", ""},
	{"capital sharp s escaped", "http://stra%e1%BA%9Ee.test/", "http://xn--strae-oqa.test/", ""},
	{"capital sharp s without its last byte", "http://stra%E1%BAe.test/", "", ""},
	{"double s is not sharp s", "http://STRASSE.test/", "http://strasse.test/", ""},
	{"final sigma is kept", "http://βόλος.test/", "http://xn--nxasmm1c.test/", ""},
	{"ideographic full stop", "http://alpha。test/", "http://alpha.test/", ""},
	{"full-width letters", "http://ａｌｐｈａ.test/", "http://alpha.test/", ""},
	{"full-width full stop", "http://alpha．test/", "http://alpha.test/", ""},
	{"soft hyphen goes", "http://al\u00adpha.test/", "http://alpha.test/", ""},
	{"zero-width space goes", "http://al\u200bpha.test/", "http://alpha.test/", ""},
	{"word joiner goes", "http://al\u2060pha.test/", "http://alpha.test/", ""},
	{"a snowman", "http://☃.test/", "http://xn--n3h.test/", ""},
	{"Japanese", "http://日本語.test/", "http://xn--wgv71a119e.test/", ""},
	{"Cyrillic", "http://пример.test/", "http://xn--e1afmkfd.test/", ""},
	{"Arabic", "http://مثال.test/", "http://xn--mgbh0fb.test/", ""},
	{"Punycode of nothing", "http://xn--/", "", ""},
	{"Punycode of nothing at the end", "http://alpha.test.xn--/", "", ""},
	{"Punycode of nothing at the end, in upper case", "http://alpha.test.XN--:80/", "", ""},
	{"Punycode of nothing at the end, escaped", "http://alpha.test.%78n-%2D/", "", ""},
	{"Punycode of nothing at the end, with a soft hyphen", "http://alpha.test.xn-\u00ad-\u00ad/", "", ""},
	{"Punycode of nothing within", "http://alpha.xn--.test/", "", ""},
	{"a soft hyphen after the last dot", "http://alpha.test.\u00ad/", "http://alpha.test./", "http://alpha.test/"},
	{"Punycode that does not decode", "http://xn--pokxncvks.test/", "", ""},
	{"only a soft hyphen", "http://\u00ad/", "", ""},
	{"only an escaped soft hyphen", "http://%C2%AD/", "", ""},
	{"replacement character", "http://\ufffd.test/", "", ""},
	{"escapes that are no UTF-8", "http://a%80.test/", "", ""},
	{"noncharacter", "http://\uffff.test/", "", ""},
	{"full-width percent sign", "http://％41.test/", "", ""},
	{"full-width slash", "http://a／b.test/", "", ""},

	{"NUL in a host", "http://a\x00b/", "", ""},
	{"U+0001 in a host", "http://a\x01b/", "", ""},
	{"U+001F in a host", "http://a\x1fb/", "", ""},
	{"DEL in a host", "http://a\x7fb/", "", ""},
	{"space in a host", "http://a b/", "", ""},
	{"tab in a host goes", "http://a\tb/", "http://ab/", ""},
	{"line feed in a host goes", "http://a\nb/", "http://ab/", ""},
	{"carriage return in a host goes", "http://a\rb/", "http://ab/", ""},
	{"less than", "http://a<b/", "", ""},
	{"greater than", "http://a>b/", "", ""},
	{"caret", "http://a^b/", "", ""},
	{"bar", "http://a|b/", "", ""},
	{"bracket opened within", "http://a[b/", "", ""},
	{"bracket closed within", "http://a]b/", "", ""},
	{"lone percent sign", "http://a%b/", "", ""},
	{"escaped NUL", "http://a%00b/", "", ""},
	{"escaped tab", "http://a%09b/", "", ""},
	{"escaped space", "http://a%20b/", "", ""},
	{"escaped number sign", "http://a%23b/", "", ""},
	{"escaped percent sign", "http://a%25b/", "", ""},
	{"escaped slash", "http://a%2Fb/", "", ""},
	{"escaped colon", "http://a%3A80/", "", ""},
	{"escaped question mark", "http://a%3Fb/", "", ""},
	{"escaped at sign", "http://a%40b/", "", ""},
	{"escaped backslash", "http://a%5Cb/", "", ""},
	{"escaped bar", "http://a%7Cb/", "", ""},
	{"escaped DEL", "http://a%7Fb/", "", ""},

	{"IPv4", "http://192.0.2.1/", "http://192.0.2.1/", ""},
	{"IPv4 with a dot at the end", "http://192.0.2.1./", "http://192.0.2.1/", ""},
	{"IPv4 as one number", "http://3221225985/", "http://192.0.2.1/", ""},
	{"IPv4 as one hexadecimal number", "http://0xC0000201/", "http://192.0.2.1/", ""},
	{"IPv4 as one octal number", "http://030000001001/", "http://192.0.2.1/", ""},
	{"IPv4 of two parts", "http://192.513/", "http://192.0.2.1/", ""},
	{"IPv4 of three parts", "http://192.0.513/", "http://192.0.2.1/", ""},
	{"IPv4 with octal parts", "http://0300.0.02.01/", "http://192.0.2.1/", ""},
	{"IPv4 with hexadecimal parts", "http://0xc0.0x0.0x2.0x1/", "http://192.0.2.1/", ""},
	{"IPv4 in full-width digits", "http://１９２.０.２.１/", "http://192.0.2.1/", ""},
	{"IPv4 escaped", "http://%31%39%32.0.2.1/", "http://192.0.2.1/", ""},
	{"0x is nought", "http://0x.0x.0/", "http://0.0.0.0/", ""},
	{"nought", "http://0/", "http://0.0.0.0/", ""},
	{"the greatest IPv4", "http://4294967295/", "http://255.255.255.255/", ""},
	{"one more than the greatest", "http://4294967296/", "", ""},
	{"hexadecimal too great", "http://0x100000000/", "", ""},
	{"a part too great", "http://256.0.0.1/", "", ""},
	{"the last part too great", "http://192.0.2.256/", "", ""},
	{"five parts", "http://1.2.3.4.5/", "", ""},
	{"an empty part", "http://1..2/", "", ""},
	{"eight in an octal part", "http://1.2.3.08/", "", ""},
	{"a negative number is a name", "http://-1/", "http://-1/", "-"},
	{"a hexadecimal number with a sign is a name", "http://0x-1/", "http://0x-1/", "-"},
	{"an octal number with a sign is a name", "http://0-7/", "http://0-7/", "-"},
	{"a positive number is a name", "http://+1/", "http://+1/", "-"},
	{"a sign that is escaped", "http://%2B1/", "http://+1/", "-"},
	{"a full-width sign", "http://\uff0d1/", "http://-1/", "-"},
	{"a sign in the first part", "http://+127.0.0.1/", "", ""},
	{"a sign in the last part", "http://1.2.3.-4/", "http://1.2.3.-4/", "-"},
	{"a sign after a user", "http://me:pw-1@+127.0.0.1:8080/", "", ""},
	{"a sign in the user", "http://me+:-1@127.0.0.1/-1", "http://127.0.0.1/-1", ""},
	{"a hyphen between digits is a name", "http://7-1/", "http://7-1/", ""},
	{"a name that ends in a number", "http://alpha.7/", "", ""},
	{"a name that ends in 0x", "http://alpha.0x/", "", ""},
	{"a name that ends in hexadecimal", "http://alpha.0xF/", "", ""},
	{"a name that ends in no number", "http://1.2.3.0xg/", "http://1.2.3.0xg/", ""},
	{"a label of digits before a name", "http://7.alpha/", "http://7.alpha/", ""},

	{"IPv6", "http://[2001:db8::1]/", "http://[2001:db8::1]/", ""},
	{"IPv6 in upper case", "http://[2001:DB8::AB]/", "http://[2001:db8::ab]/", ""},
	{"IPv6 with leading noughts", "http://[2001:0db8:0000::0001]/", "http://[2001:db8::1]/", ""},
	{"IPv6 in full", "http://[2001:db8:0:0:0:0:0:1]/", "http://[2001:db8::1]/", ""},
	{"the longer run is cut", "http://[2001:0:0:1:0:0:0:1]/", "http://[2001:0:0:1::1]/", ""},
	{"the first of equal runs is cut", "http://[2001:0:0:1:1:0:0:1]/", "http://[2001::1:1:0:0:1]/", ""},
	{"one nought is not cut", "http://[1:0:1:0:1:0:1:0]/", "http://[1:0:1:0:1:0:1:0]/", ""},
	{"IPv6 of noughts", "http://[::]/", "http://[::]/", ""},
	{"IPv6 that ends in a cut", "http://[2001:db8::]/", "http://[2001:db8::]/", ""},
	{"IPv4 within IPv6", "http://[::ffff:192.0.2.1]/", "http://[::ffff:c000:201]/", ""},
	{"IPv6 and port", "http://[::1]:8080/", "http://[::1]:8080/", ""},
	{"IPv6 and the scheme's port", "http://[::1]:80/", "http://[::1]/", ""},
	{"IPv6 not closed", "http://[::1/", "", ""},
	{"IPv6 with a zone", "http://[fe80::1%25eth0]/", "", ""},
	{"two cuts", "http://[1::2::3]/", "", ""},
	{"seven pieces", "http://[1:2:3:4:5:6:7]/", "", ""},
	{"nine pieces", "http://[1:2:3:4:5:6:7:8:9]/", "", ""},
	{"five digits in a piece", "http://[12345::]/", "", ""},
	{"no hexadecimal digit", "http://[g::1]/", "", ""},
	{"one colon first", "http://[:1]/", "", ""},
	{"one colon last", "http://[1:2:3:4:5:6:7:]/", "", ""},
	{"brackets twice", "http://[[::1]]/", "", ""},
	{"a tab between brackets", "http://[\t[::1]]/", "", ""},
	{"bracket closed twice", "http://[::1]]/", "", ""},
	{"brackets of a user", "http://[[]]@[::1]/", "http://%5B%5B%5D%5D@[::1]/", "http://[::1]/"},
	{"nothing in brackets", "http://[]/", "", ""},
	{"a name in brackets", "http://[alpha.test]/", "", ""},
	{"IPv4 within of three parts", "http://[::192.0.2]/", "", ""},
	{"IPv4 within of five parts", "http://[::1.2.3.4.5]/", "", ""},
	{"IPv4 within too great", "http://[::1.2.3.256]/", "", ""},
	{"IPv4 within with a leading nought", "http://[::1.2.3.04]/", "", ""},
	{"IPv4 within too late", "http://[1:2:3:4:5:6:7:1.2.3.4]/", "", ""},
}

var pathFacts = []fact{
	{"one dot", "http://h/./a", "http://h/a", ""},
	{"one dot last", "http://h/a/.", "http://h/a/", ""},
	{"one dot and a slash last", "http://h/a/./", "http://h/a/", ""},
	{"two dots", "http://h/a/../b", "http://h/b", ""},
	{"two dots last", "http://h/a/b/..", "http://h/a/", ""},
	{"two dots and a slash last", "http://h/a/b/../", "http://h/a/", ""},
	{"more dots than segments", "http://h/a/../../../b", "http://h/b", ""},
	{"dots after a file", "http://h/a.html/../b", "http://h/b", ""},
	{"a name that begins with dots", "http://h/..a/.b", "http://h/..a/.b", ""},
	{"three dots", "http://h/.../a", "http://h/.../a", ""},
	{"escaped dot", "http://h/%2e/a", "http://h/a", ""},
	{"escaped dot in upper case", "http://h/%2E/a", "http://h/a", ""},
	{"two escaped dots", "http://h/a/%2e%2E/b", "http://h/b", ""},
	{"dot and escaped dot", "http://h/a/.%2e/b", "http://h/b", ""},
	{"escaped dot and dot", "http://h/a/%2e./b", "http://h/b", ""},
	{"escaped dot last", "http://h/a/%2e", "http://h/a/", ""},
	{"escaped dot in a name", "http://h/%2ea", "http://h/%2ea", "http://h/.a"},
	{"two dots over an empty segment", "http://h/a//../b", "http://h/a/b", ""},
	{"empty segments", "http://h/a//b///", "http://h/a//b///", ""},
	{"empty segment first", "http://h//a", "http://h//a", ""},
	{"dots in a query", "http://h/?a/../b", "http://h/?a/../b", ""},

	{"backslashes for the authority", `http:\\h\a`, "http://h/a", ""},
	{"backslash in a path", `http://h/a\b`, "http://h/a/b", ""},
	{"backslash before dots", `http://h/a\..\b`, "http://h/b", ""},
	{"backslash after the host", `http://h\@other/`, "http://h/@other/", ""},
	{"backslash in a query", `http://h/?a\b`, `http://h/?a\b`, ""},
	{"escaped backslash", "http://h/a%5Cb", "http://h/a%5Cb", ""},

	{"space", "http://h/a b", "http://h/a%20b", ""},
	{"escaped space", "http://h/a%20b", "http://h/a%20b", ""},
	{"plus", "http://h/a+b", "http://h/a+b", ""},
	{"double quote", `http://h/a"b`, "http://h/a%22b", ""},
	{"angle brackets", "http://h/<a>", "http://h/%3Ca%3E", ""},
	{"backquote", "http://h/`", "http://h/%60", ""},
	{"braces", "http://h/{a}", "http://h/%7Ba%7D", ""},
	{"caret", "http://h/a^b", "http://h/a%5Eb", ""},
	{"bar", "http://h/a|b", "http://h/a|b", "http://h/a%7Cb"},
	{"brackets", "http://h/[a]", "http://h/[a]", ""},
	{"marks that stay", "http://h/!$&'()*+,;=:@-._~", "http://h/!$&'()*+,;=:@-._~", ""},
	{"letters beyond ASCII", "http://h/é/日本", "http://h/%C3%A9/%E6%97%A5%E6%9C%AC", ""},
	{"letters beyond the first plane", "http://h/😀", "http://h/%F0%9F%98%80", ""},
	{"no composition of code points", "http://h/e\u0301", "http://h/e%CC%81", ""},
	{"byte order mark", "http://h/\ufeffa", "http://h/%EF%BB%BFa", ""},
	{"mark for right to left", "http://h/\u202ea", "http://h/%E2%80%AEa", ""},
	{"replacement character", "http://h/\ufffd", "http://h/%EF%BF%BD", ""},
	{"control character of Latin-1", "http://h/\u0091", "http://h/%C2%91", ""},
	{"NUL", "http://h/a\x00b", "http://h/a%00b", ""},
	{"DEL", "http://h/a\x7fb", "http://h/a%7Fb", ""},
	{"tab", "http://h/a\tb", "http://h/ab", ""},
	{"line feed", "http://h/a\nb", "http://h/ab", ""},
	{"carriage return and line feed", "http://h/a\r\nb", "http://h/ab", ""},
	{"escaped tab", "http://h/a%09b", "http://h/a%09b", ""},
	{"escaped NUL", "http://h/a%00b", "http://h/a%00b", ""},
	{"escaped slash", "http://h/a%2Fb", "http://h/a%2Fb", ""},
	{"escaped question mark", "http://h/a%3Fb", "http://h/a%3Fb", ""},
	{"escaped letters", "http://h/%41%7a", "http://h/%41%7a", "http://h/Az"},
	{"escape in lower case", "http://h/%c3%a9", "http://h/%c3%a9", "http://h/%C3%A9"},
	{"escapes that are no UTF-8", "http://h/%91", "http://h/%91", ""},
	{"percent sign last", "http://h/a%", "http://h/a%", "http://h/a%25"},
	{"percent sign and one digit", "http://h/a%2", "http://h/a%2", "http://h/a%252"},
	{"percent sign and no digits", "http://h/a%zz", "http://h/a%zz", "http://h/a%25zz"},
	{"percent sign and a letter beyond ASCII", "http://h/a%2é", "http://h/a%2%C3%A9", "http://h/a%252%C3%A9"},

	{"query", "http://h/?a=b&c=d", "http://h/?a=b&c=d", ""},
	{"query without a path", "http://h?a", "http://h/?a", ""},
	{"empty query", "http://h/?", "http://h/?", "http://h/"},
	{"question mark in a query", "http://h/?a?b", "http://h/?a?b", ""},
	{"two question marks", "http://h/??", "http://h/??", ""},
	{"space in a query", "http://h/?a b", "http://h/?a%20b", ""},
	{"plus in a query", "http://h/?a+b", "http://h/?a+b", ""},
	{"single quote in a query", "http://h/?'", "http://h/?%27", ""},
	{"double quote in a query", `http://h/?"`, "http://h/?%22", ""},
	{"angle brackets in a query", "http://h/?<>", "http://h/?%3C%3E", ""},
	{"marks that stay in a query", "http://h/?`{}|^[]", "http://h/?`{}|^[]", ""},
	{"letters beyond ASCII in a query", "http://h/?é", "http://h/?%C3%A9", ""},
	{"escaped number sign in a query", "http://h/?%23", "http://h/?%23", ""},
	{"escaped ampersand in a query", "http://h/?a%26b", "http://h/?a%26b", ""},
	{"lone percent sign in a query", "http://h/?100%", "http://h/?100%", "http://h/?100%25"},
	{"percent sign and no digits in a query", "http://h/?%GH", "http://h/?%GH", "http://h/?%25GH"},
	{"NUL in a query", "http://h/?a\x00b", "http://h/?a%00b", ""},
	{"DEL in a query", "http://h/?\x7f", "http://h/?%7F", ""},
	{"tab in a query", "http://h/?a\tb", "http://h/?ab", ""},
	{"fragment", "http://h/a#b", "http://h/a#b", "http://h/a"},
	{"empty fragment", "http://h/a?b#", "http://h/a?b#", "http://h/a?b"},
	{"question mark in a fragment", "http://h/#?a", "http://h/#?a", "http://h/"},

	{"the scheme's port", "http://h:80/", "http://h/", ""},
	{"the scheme's port of https", "https://h:443/", "https://h/", ""},
	{"the other scheme's port", "https://h:80/", "https://h:80/", ""},
	{"another port", "http://h:8080/", "http://h:8080/", ""},
	{"port with leading noughts", "http://h:0080/", "http://h/", ""},
	{"no port after the colon", "http://h:/", "http://h/", ""},
	{"port nought", "http://h:0/", "http://h:0/", ""},
	{"the greatest port", "http://h:65535/", "http://h:65535/", ""},
	{"one more than the greatest port", "http://h:65536/", "", ""},
	{"port below nought", "http://h:-80/", "", ""},
	{"port with a letter", "http://h:8a/", "", ""},
	{"port with a space", "http://h: 80/", "", ""},
	{"tab in a port goes", "http://h:8\t1/", "http://h:81/", ""},

	{"scheme in upper case", "HTTPS://h/", "https://h/", ""},
	{"spaces around", "  http://h/a  ", "http://h/a", ""},
	{"control characters around", "\x00\x1fhttp://h/\x01", "http://h/", ""},
	{"line feed in a scheme", "ht\ntp://h/", "http://h/", ""},
	{"no slashes", "http:h/a", "http://h/a", ""},
	{"one slash", "http:/h/a", "http://h/a", ""},
	{"four slashes", "http:////h/a", "http://h/a", ""},
	{"user", "http://me@h/", "http://me@h/", "http://h/"},
	{"user and password", "http://me:pw@h/", "http://me:pw@h/", "http://h/"},
	{"empty user and password", "http://:@h/", "http://h/", ""},
	{"two at signs", "http://a@b@h/", "http://a%40b@h/", "http://h/"},
	{"at sign in a path", "http://h/a@b", "http://h/a@b", ""},
	{"user without a host", "http://me@/", "", ""},
	{"port without a host", "http://:80/", "", ""},
	{"no host", "http://", "", ""},
	{"a query for a host", "http://?a", "", ""},
	{"a fragment for a host", "http://#a", "", ""},
	{"no scheme", "//h/a", "", ""},
	{"a path alone", "/a", "", ""},
	{"nothing", "", "", ""},
	{"a space first in a scheme", "ht tp://h/", "", ""},
	{"a digit first in a scheme", "1http://h/", "", ""},
	{"ftp", "ftp://h/a", "ftp://h/a", "-"},
	{"file", "file:///a", "file:///a", "-"},
	{"mailto", "mailto:me@h", "mailto:me@h", "-"},
	{"javascript", "javascript:void(0)", "javascript:void(0)", "-"},
	{"websocket", "wss://h/", "wss://h/", "-"},
	{"a scheme that begins with http", "httpx://h/", "httpx://h/", "-"},
}

// The tests in this file read the URL test data of github.com/web-platform-tests/wpt from the folder
// $FETCHD_TEST_SETS. frontier/robots/publicsets_test.go says where to get them. Any difference
// without a known reason fails.

// webPlatformCases reads a file of cases, and skips the test if there is no folder.
func webPlatformCases[T any](t *testing.T, name string) []T {
	t.Helper()
	folder := os.Getenv("FETCHD_TEST_SETS")
	if folder == "" {
		need.Request(t, "set FETCHD_TEST_SETS as frontier/robots/publicsets_test.go says", "it reads public test sets")
	}
	data, err := os.ReadFile(filepath.Join(folder, "wpt", "url", "resources", name))
	must(t, err)
	var lines []json.RawMessage
	must(t, json.Unmarshal(data, &lines))
	var cases []T
	for _, line := range lines {
		var c T
		if line[0] == '"' { // a comment
			continue
		}
		must(t, json.Unmarshal(line, &c))
		cases = append(cases, c)
	}
	if len(cases) == 0 {
		t.Fatal("no cases were read")
	}
	return cases
}

// tally counts the cases of a set.
type tally struct {
	same    int            // the standard's result
	both    int            // no URL for both
	reasons map[string]int // differences
}

func newTally() tally { return tally{reasons: map[string]int{}} }

func (n *tally) log(t *testing.T, set string) {
	t.Helper()
	t.Logf("%s: %d equal, %d invalid for both; differences: %v", set, n.same, n.both, n.reasons)
}

// compare counts one case. href is the standard's result, or empty if in is not a URL.
func (n *tally) compare(t *testing.T, resolve func(string) (string, error), in, href string) {
	t.Helper()
	got, err := resolve(in)
	reason := ""
	switch {
	case err != nil && href == "":
		n.both++
		return
	case err == nil && got == href:
		n.same++
		return
	case err != nil:
		reason = rejected(in, href, err)
	case href != "":
		reason = rewritten(got, href)
	}
	if reason == "" {
		t.Errorf("%q is %q, %v; the standard has %q", in, got, err, href)
	}
	n.reasons[reason]++
}

var longNumber = regexp.MustCompile(`[./][0-9]{19,}[a-z]\.?/`)

// rejected says why a URL of the standard is rejected on purpose.
func rejected(in, href string, err error) string {
	scheme, host, _ := strings.Cut(href, ":")
	if scheme != "http" && scheme != "https" {
		return "another scheme"
	}
	host, _, _ = strings.Cut(strings.TrimPrefix(host, "//"), "/")
	trimmed := strings.TrimSuffix(host, ".")
	tooLong := func(label string) bool { return len(label) > 63 }
	switch labels := strings.Split(trimmed, "."); {
	case slices.Contains(labels, ""):
		return "an empty label"
	case len(trimmed) > 253 || slices.ContainsFunc(labels, tooLong):
		return "longer than DNS allows"
	case strings.ContainsAny(host, "{}`"):
		return "net/url rejects the host"
	case longNumber.MatchString(href):
		return "the parser takes a label of 19 digits and a letter for a number"
	case errors.Is(err, normal.ErrHost) && strings.Contains(strings.ToLower(in), "xn--"):
		return "Punycode that IDNA rejects"
	case errors.Is(err, normal.ErrHost) && strings.ContainsFunc(in, func(r rune) bool { return r > unicode.MaxASCII }):
		return "characters that newer tables of IDNA allow"
	}
	return ""
}

// rewritten says why the normal form of a URL is not the standard's.
func rewritten(got, href string) string {
	if form, err := normal.NormalizeURL(href); err != nil || form != got {
		return ""
	}
	return "rewritten by rule F1"
}

func TestWebPlatformURLs(t *testing.T) {
	absolute, relative := newTally(), newTally()
	for _, c := range webPlatformCases[struct {
		Input string
		Base  *string
		Href  string
	}](t, "urltestdata.json") {
		if c.Base == nil || *c.Base == "about:blank" {
			absolute.compare(t, normal.NormalizeURL, c.Input, c.Href)
		} else if base, err := normal.NewBase(*c.Base); err == nil { // the others are no pages
			relative.compare(t, base.Resolve, c.Input, c.Href)
		}
	}
	absolute.log(t, "absolute")
	relative.log(t, "relative")
}

func TestWebPlatformHosts(t *testing.T) {
	for _, file := range []string{"toascii.json", "IdnaTestV2.json"} {
		n := newTally()
		for _, c := range webPlatformCases[struct{ Input, Output string }](t, file) {
			if c.Input == "" { // https:///x has the host x
				continue
			}
			href := ""
			if c.Output != "" {
				href = "https://" + c.Output + "/x"
			}
			n.compare(t, normal.NormalizeURL, "https://"+c.Input+"/x", href)
		}
		n.log(t, file)
	}
}

// must ends the test if there is an error.
func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
