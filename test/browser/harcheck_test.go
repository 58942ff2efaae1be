//go:build linux

package browser

import (
	"encoding/json"
	"fmt"
	"math"
	"net/netip"
	"net/url"
	"slices"
	"strings"
	"testing"
	"time"
)

// harCheck compares a log with the HAR 1.2 specification: the required fields, their types,
// and times that agree. Custom fields start with _. Other unknown fields are faults.
type harCheck struct{ faults []string }

func (c *harCheck) fault(at, format string, args ...any) {
	c.faults = append(c.faults, at+": "+fmt.Sprintf(format, args...))
}

// The kinds of a field. Fields of the kinds after optional may be missing.
type harKind int

const (
	harString harKind = iota
	harNumber
	harObject
	harArray
	optional harKind = 16
)

// object checks the fields of one object, and returns it.
func (c *harCheck) object(at string, value any, fields map[string]harKind) map[string]any {
	o, ok := value.(map[string]any)
	if !ok {
		c.fault(at, "is %T, want an object", value)
		return map[string]any{}
	}
	for name, kind := range fields {
		v, there := o[name]
		switch {
		case !there && kind < optional:
			c.fault(at, "has no %s", name)
		case there && !harIs(v, kind%optional):
			c.fault(at, "%s is %T", name, v)
		}
	}
	for name := range o {
		if _, known := fields[name]; !known && !strings.HasPrefix(name, "_") {
			c.fault(at, "has %s, which the format does not know", name)
		}
	}
	return o
}

func harIs(v any, kind harKind) bool {
	var ok bool
	switch kind {
	case harString:
		_, ok = v.(string)
	case harNumber:
		_, ok = v.(float64)
	case harObject:
		_, ok = v.(map[string]any)
	default:
		_, ok = v.([]any)
	}
	return ok
}

// list returns the objects of a field.
func (c *harCheck) list(at string, o map[string]any, name string, fields map[string]harKind) []map[string]any {
	items, _ := o[name].([]any) // object has reported a wrong type
	all := make([]map[string]any, 0, len(items))
	for i, item := range items {
		all = append(all, c.object(fmt.Sprintf("%s.%s[%d]", at, name, i), item, fields))
	}
	return all
}

var (
	harPair   = map[string]harKind{"name": harString, "value": harString, "comment": optional + harString}
	harCookie = map[string]harKind{"name": harString, "value": harString, "path": optional + harString, "domain": optional + harString, "expires": optional + harString, "comment": optional + harString}
)

// checkHAR returns the faults of a file, and its entries.
func checkHAR(text []byte) (faults []string, entries []map[string]any) {
	c := new(harCheck)
	var whole any
	if err := json.Unmarshal(text, &whole); err != nil {
		return []string{err.Error()}, nil //nolint:forbidigo // the list is of texts
	}
	file := c.object("file", whole, map[string]harKind{"log": harObject})
	log := c.object("log", file["log"], map[string]harKind{"version": harString, "creator": harObject, "browser": optional + harObject, "pages": optional + harArray, "entries": harArray, "comment": optional + harString})
	if log["version"] != "1.2" {
		c.fault("log", "version %v, want 1.2", log["version"])
	}
	c.object("creator", log["creator"], map[string]harKind{"name": harString, "version": harString, "comment": optional + harString})
	entries = c.list("log", log, "entries", map[string]harKind{"pageref": optional + harString, "startedDateTime": harString, "time": harNumber,
		"request": harObject, "response": harObject, "cache": harObject, "timings": harObject, "serverIPAddress": optional + harString, "connection": optional + harString, "comment": optional + harString})
	var before time.Time
	for i, e := range entries {
		before = c.entry(fmt.Sprintf("entries[%d]", i), e, before)
	}
	return c.faults, entries
}

func (c *harCheck) entry(at string, e map[string]any, before time.Time) time.Time {
	text, _ := e["startedDateTime"].(string)
	began, err := time.Parse(time.RFC3339Nano, text)
	if err != nil {
		c.fault(at, "startedDateTime %q is no ISO 8601 time", text)
	}
	if began.Before(before) { // the format requires the oldest first
		c.fault(at, "begins at %s, before the entry before it", text)
	}
	if ip, ok := e["serverIPAddress"].(string); ok {
		if _, err := netip.ParseAddr(ip); err != nil {
			c.fault(at, "serverIPAddress %q is no address", ip)
		}
	}
	c.timings(at, e)
	c.request(at+".request", e["request"])
	c.response(at+".response", e["response"])
	c.object(at+".cache", e["cache"], map[string]harKind{"beforeRequest": optional + harObject, "afterRequest": optional + harObject, "comment": optional + harString})
	return began
}

// timings checks the times of an entry. -1 means not applicable, connect includes ssl, and
// time is the sum of the others.
func (c *harCheck) timings(at string, e map[string]any) {
	t := c.object(at+".timings", e["timings"], map[string]harKind{"blocked": optional + harNumber, "dns": optional + harNumber, "connect": optional + harNumber,
		"send": harNumber, "wait": harNumber, "receive": harNumber, "ssl": optional + harNumber, "comment": optional + harString})
	var sum float64
	for name, v := range t {
		n, _ := v.(float64)
		required := slices.Contains([]string{"send", "wait", "receive"}, name)
		if n < 0 && (n != -1 || required) {
			c.fault(at+".timings", "%s is %g", name, n)
		}
		if name != "ssl" && n > 0 {
			sum += n
		}
	}
	ssl, _ := t["ssl"].(float64)
	connect, _ := t["connect"].(float64)
	if ssl > connect+0.01 {
		c.fault(at+".timings", "ssl %g is not within connect %g", ssl, connect)
	}
	if took, _ := e["time"].(float64); math.Abs(took-sum) > 0.01 {
		c.fault(at, "time is %g, its parts are %g", took, sum)
	}
}

func (c *harCheck) request(at string, value any) {
	r := c.object(at, value, map[string]harKind{"method": harString, "url": harString, "httpVersion": harString, "cookies": harArray, "headers": harArray,
		"queryString": harArray, "postData": optional + harObject, "headersSize": harNumber, "bodySize": harNumber, "comment": optional + harString})
	address, _ := r["url"].(string)
	if u, err := url.Parse(address); err != nil || !u.IsAbs() || u.Host == "" {
		c.fault(at, "url %q is not absolute", address)
	}
	if strings.Contains(address, "#") {
		c.fault(at, "url %q has a fragment", address)
	}
	if r["method"] == "" || r["httpVersion"] == "" {
		c.fault(at, "method or httpVersion is empty")
	}
	c.list(at, r, "cookies", harCookie)
	c.list(at, r, "headers", harPair)
	c.list(at, r, "queryString", harPair)
}

func (c *harCheck) response(at string, value any) {
	r := c.object(at, value, map[string]harKind{"status": harNumber, "statusText": harString, "httpVersion": harString, "cookies": harArray, "headers": harArray,
		"content": harObject, "redirectURL": harString, "headersSize": harNumber, "bodySize": harNumber, "comment": optional + harString})
	if n, _ := r["status"].(float64); n != 0 && (n < 100 || n > 599) {
		c.fault(at, "status %g", n)
	}
	c.list(at, r, "cookies", harCookie)
	c.list(at, r, "headers", harPair)
	content := c.object(at+".content", r["content"], map[string]harKind{"size": harNumber, "compression": optional + harNumber, "mimeType": harString,
		"text": optional + harString, "encoding": optional + harString, "comment": optional + harString})
	if e, there := content["encoding"]; there && e != "base64" {
		c.fault(at+".content", "encoding %v", e)
	}
}

// TestCheckHAR checks that checkHAR finds one fault per row.
func TestCheckHAR(t *testing.T) {
	const good = `{"log":{"version":"1.2","creator":{"name":"a","version":"1"},"entries":[{"startedDateTime":"2026-01-02T03:04:05.678Z","time":6,
		"request":{"method":"GET","url":"http://a.example/","httpVersion":"HTTP/1.1","cookies":[],"headers":[{"name":"A","value":""}],"queryString":[],"headersSize":-1,"bodySize":0},
		"response":{"status":200,"statusText":"","httpVersion":"HTTP/1.1","cookies":[],"headers":[],"content":{"size":0,"mimeType":"text/plain"},"redirectURL":"","headersSize":-1,"bodySize":-1},
		"cache":{},"timings":{"dns":-1,"connect":3,"ssl":2,"send":0,"wait":2,"receive":1},"serverIPAddress":"127.0.0.1","_attempt":1}]}}`
	if faults, entries := checkHAR([]byte(good)); len(faults) > 0 || len(entries) != 1 {
		t.Fatalf("a good file: %q, %d entries", faults, len(entries))
	}
	for _, row := range []struct{ name, old, now, want string }{
		{"the version", `"1.2"`, `"1.1"`, "version 1.1"},
		{"a field that is missing", `"redirectURL":"",`, ``, "has no redirectURL"},
		{"a number that is text", `"status":200`, `"status":"200"`, "status is string"},
		{"an unknown field", `"cache":{}`, `"cache":{},"attempt":1`, "has attempt"},
		{"a time that is no sum", `"time":6`, `"time":7`, "its parts are 6"},
		{"TLS outside connect", `"ssl":2`, `"ssl":4`, "not within connect"},
		{"a wait that is unknown", `"wait":2`, `"wait":-1`, "wait is -1"},
		{"a date that is none", `2026-01-02T03`, `2026-01-02 03`, "ISO 8601"},
		{"a relative URL", `http://a.example/`, `/a`, "not absolute"},
		{"a fragment", `http://a.example/`, `http://a.example/#a`, "fragment"},
		{"an address with its port", `127.0.0.1`, `127.0.0.1:80`, "no address"},
		{"a header without a value", `"name":"A","value":""`, `"name":"A"`, "has no value"},
		{"another coding", `"mimeType":"text/plain"`, `"mimeType":"text/plain","encoding":"hex"`, "encoding hex"},
	} {
		text := strings.Replace(good, row.old, row.now, 1)
		if faults, _ := checkHAR([]byte(text)); len(faults) == 0 || !strings.Contains(strings.Join(faults, "\n"), row.want) {
			t.Errorf("%s: found %q, want %q", row.name, faults, row.want)
		}
	}
}
