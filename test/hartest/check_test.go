package hartest_test

import (
	"fmt"
	"strings"
	"testing"

	"fetchd/test/hartest"
)

// least is an archive with no field that the specification leaves optional.
const least = `{"log": {"version": "1.2", "creator": {"name": "n", "version": "v"}, "entries": [{
	"startedDateTime": "2009-07-24T19:20:30.45+01:00", "time": 6.5,
	"request": {"method": "GET", "url": "http://h/?a=b", "httpVersion": "HTTP/1.1", "cookies": [], "headers": [{"name": "A", "value": "b"}],
		"queryString": [{"name": "a", "value": "b"}], "headersSize": -1, "bodySize": 0},
	"response": {"status": 200, "statusText": "OK", "httpVersion": "HTTP/1.1", "cookies": [], "headers": [],
		"content": {"size": 3, "mimeType": "text/plain"}, "redirectURL": "", "headersSize": -1, "bodySize": 3},
	"cache": {}, "timings": {"send": 1, "wait": 2.5, "receive": 3}}]}}`

// first is the entry of least.
var first = least[strings.Index(least, "[{")+1 : strings.LastIndex(least, "]")]

// full adds every optional field.
const full = `{"log": {"version": "1.2", "creator": {"name": "n", "version": "v", "comment": "c"}, "browser": {"name": "n", "version": "v"},
	"pages": [{"startedDateTime": "2009-07-24T19:20:30Z", "id": "p", "title": "t", "pageTimings": {"onContentLoad": -1, "onLoad": 5, "comment": ""}}],
	"comment": "c", "_own": {"x": 1}, "entries": [{
	"pageref": "p", "startedDateTime": "2009-07-24T19:20:30.450001Z", "time": 21, "_x": [],
	"request": {"method": "POST", "url": "http://h/", "httpVersion": "h2", "cookies": [{"name": "a", "value": "b", "path": "/", "domain": "h",
		"expires": "2009-07-24T19:20:30Z", "httpOnly": true, "secure": false}], "headers": [], "queryString": [],
		"postData": {"mimeType": "text/plain", "params": [], "text": "x"}, "headersSize": 20, "bodySize": 1},
	"response": {"status": 0, "statusText": "", "httpVersion": "", "cookies": [], "headers": [],
		"content": {"size": 3, "compression": -2, "mimeType": "text/plain", "text": "abc", "encoding": "base64"}, "redirectURL": "http://h/",
		"headersSize": -1, "bodySize": -1},
	"cache": {"beforeRequest": null, "afterRequest": {"lastAccess": "2009-07-24T19:20:30Z", "eTag": "e", "hitCount": 1}},
	"timings": {"blocked": -1, "dns": 1, "connect": 14, "send": 1, "wait": 2, "receive": 3, "ssl": 9},
	"serverIPAddress": "2001:db8::1", "connection": "443"}]}}`

func TestCheckAccepts(t *testing.T) {
	for name, data := range map[string]string{"least": least, "full": full, "with a byte order mark": "\xef\xbb\xbf" + least} {
		if err := hartest.Check([]byte(data)); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// Each row breaks one rule of the specification, and is refused for it alone.
func TestCheckRefuses(t *testing.T) {
	for _, row := range []struct{ name, from, old, new, want string }{
		{"another version", least, `"1.2"`, `"1.1"`, `log.version is 1.1`},
		{"no creator's name", least, `"name": "n", `, ``, `log.creator.name is missing`},
		{"a creator that is a string", least, `{"name": "n", "version": "v"}`, `"n"`, `log.creator is no object`},
		{"entries that are an object", least, `"headers": [],`, `"headers": {},`, `log.entries[0].response.headers is no array`},
		{"a date without zone", least, `+01:00`, ``, `log.entries[0].startedDateTime is`},
		{"a date that is a number", least, `"2009-07-24T19:20:30.45+01:00"`, `1248459630`, `log.entries[0].startedDateTime is no string`},
		{"a page's date", full, `19:20:30Z", "id"`, `25:20:30Z", "id"`, `log.pages[0].startedDateTime is`},
		{"time that is too long", least, `6.5`, `7`, `log.entries[0].time is 7, but its timings are 6.5 together`},
		{"time below 0", least, `6.5`, `-6.5`, `log.entries[0].time is -6.5`},
		{"ssl counted twice", full, `"time": 21`, `"time": 30`, `log.entries[0].time is 30`},
		{"-1 counted", full, `"time": 21`, `"time": 20`, `log.entries[0].time is 20`},
		{"ssl outside connect", full, `"ssl": 9`, `"ssl": 15`, `log.entries[0].timings.ssl is 15`},
		{"send is -1", least, `"send": 1`, `"send": -1`, `log.entries[0].timings.send is -1`},
		{"wait is missing", least, `"wait": 2.5, `, ``, `log.entries[0].timings.wait is missing`},
		{"dns is -2", full, `"dns": 1`, `"dns": -2`, `log.entries[0].timings.dns is -2`},
		{"a page that is not there", full, `"pageref": "p"`, `"pageref": "q"`, `log.entries[0].pageref is q: no page has that id`},
		{"a page, but none at all", least, `"time": 6.5`, `"time": 6.5, "pageref": "p"`, `log.entries[0].pageref is p`},
		{"no method", least, `"method": "GET", `, ``, `log.entries[0].request.method is missing`},
		{"a relative URL", least, `http://h/?a=b`, `/a`, `log.entries[0].request.url is "/a"`},
		{"a URL with a fragment", least, `http://h/?a=b`, `http://h/#a`, `log.entries[0].request.url is`},
		{"a header without value", least, `, "value": "b"}],
		"queryString"`, `}],
		"queryString"`, `log.entries[0].request.headers[0].value is missing`},
		{"a status that is text", least, `"status": 200`, `"status": "200"`, `log.entries[0].response.status is 200`},
		{"a status below 0", least, `"status": 200`, `"status": -1`, `log.entries[0].response.status is -1`},
		{"half a byte", least, `"bodySize": 3`, `"bodySize": 3.5`, `log.entries[0].response.bodySize is 3.5`},
		{"no redirectURL", least, `"redirectURL": "", `, ``, `log.entries[0].response.redirectURL is missing`},
		{"no content type", least, `, "mimeType": "text/plain"}`, `}`, `log.entries[0].response.content.mimeType is missing`},
		{"an empty content type", least, `"mimeType": "text/plain"}`, `"mimeType": ""}`, `log.entries[0].response.content.mimeType is empty`},
		{"another coding", full, `"base64"`, `"hex"`, `log.entries[0].response.content.encoding is hex`},
		{"the later entry first", least, `"receive": 3}}`, `"receive": 3}}, ` + strings.Replace(first, "2009", "2008", 1), `log.entries[1].startedDateTime is before`},
		{"no cache", least, `"cache": {}, `, ``, `log.entries[0].cache is missing`},
		{"half a cache", full, `"eTag": "e", `, ``, `log.entries[0].cache.afterRequest.eTag is missing`},
		{"params and text", full, `"params": []`, `"params": [{"name": "a"}]`, `log.entries[0].request.postData has params and text`},
		{"a field of its own without underscore", full, `"_own"`, `"own"`, `log.own is not in the specification`},
		{"an address that is a name", full, `2001:db8::1`, `h.example`, `log.entries[0].serverIPAddress is h.example`},
		{"a cookie's flag that is text", full, `"httpOnly": true`, `"httpOnly": "true"`, `log.entries[0].request.cookies[0].httpOnly is no boolean`},
		{"no log", `{}`, `{}`, `{}`, `log is missing`},
	} {
		t.Run(row.name, func(t *testing.T) {
			if strings.Count(row.from, row.old) == 0 {
				t.Fatalf("%q is not in the archive", row.old)
			}
			err := hartest.Check([]byte(strings.Replace(row.from, row.old, row.new, 1)))
			if err == nil || !strings.HasPrefix(fmt.Sprint(err), row.want) || strings.Contains(fmt.Sprint(err), "\n") {
				t.Errorf("Check: %v, want %s and nothing else", err, row.want)
			}
		})
	}
}

func TestCheckRefusesOther(t *testing.T) {
	for _, row := range []struct{ name, data, want string }{
		{"nothing", "", "no JSON"}, {"a list", "[]", "no object"}, {"half", least[:100], "no JSON"}, {"two", least + least, "follows"},
		{"not UTF-8", strings.Replace(least, `"OK"`, "\"\xff\"", 1), "not UTF-8"},
	} {
		if err := hartest.Check([]byte(row.data)); err == nil || !strings.Contains(fmt.Sprint(err), row.want) {
			t.Errorf("%s: %v, want %q", row.name, err, row.want)
		}
	}
	many := `{"log": {"version": "1.2", "creator": {"name": "n", "version": "v"}, "entries": [` + strings.Repeat(`1,`, 99) + `1]}}`
	if err := hartest.Check([]byte(many)); err == nil || strings.Count(fmt.Sprint(err), "\n") != 19 {
		t.Errorf("a hundred faults: %v, want 20 lines", err)
	}
}
