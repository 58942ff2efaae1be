package hartest

import (
	"math"
	"slices"
	"strings"
	"time"
)

func (c *checker) log(at string, v any) {
	if object, ok := v.(map[string]any); ok {
		if pages, ok := object["pages"].([]any); ok {
			c.collect(pages)
		}
	}
	program := c.shape(field{name: "name", is: c.text}, field{name: "version", is: c.text})
	c.shaped(at, v,
		field{name: "version", is: c.version},
		field{name: "creator", is: program},
		field{name: "browser", optional: true, is: program},
		field{name: "pages", optional: true, is: c.list(c.page)},
		field{name: "entries", is: c.list(c.entry)})
}

func (c *checker) version(at string, v any) {
	if v != "1.2" {
		c.fault(at, `is %v: want "1.2"`, v)
	}
}

// collect notes the names of the pages, each of which is there once.
func (c *checker) collect(pages []any) {
	for _, v := range pages {
		p, _ := v.(map[string]any)
		id, ok := p["id"].(string)
		if !ok {
			continue
		}
		if slices.Contains(c.pages, id) {
			c.fault("log.pages", "has %q twice", id)
		}
		c.pages = append(c.pages, id)
	}
}

func (c *checker) page(at string, v any) {
	c.shaped(at, v,
		field{name: "startedDateTime", is: c.date},
		field{name: "id", is: c.text},
		field{name: "title", is: c.text},
		field{name: "pageTimings", is: c.shape(
			field{name: "onContentLoad", optional: true, is: c.spentOrNone},
			field{name: "onLoad", optional: true, is: c.spentOrNone})})
}

func (c *checker) entry(at string, v any) {
	before := len(c.faults)
	e := c.shaped(at, v,
		field{name: "pageref", optional: true, is: c.pageRef},
		field{name: "startedDateTime", is: c.date},
		field{name: "time", is: c.spent},
		field{name: "request", is: c.request},
		field{name: "response", is: c.response},
		field{name: "cache", is: c.cache},
		field{name: "timings", is: c.timings},
		field{name: "serverIPAddress", optional: true, is: c.address},
		field{name: "connection", optional: true, is: c.text})
	if e != nil && len(c.faults) == before { // else the sum would only repeat a fault
		c.sum(at, e)
		text, _ := e["startedDateTime"].(string)
		began, _ := time.Parse(time.RFC3339Nano, text) // it has no fault
		if began.Before(c.began) {
			c.fault(at+".startedDateTime", "is before that of the entry before it")
		}
		c.began = began
	}
}

func (c *checker) pageRef(at string, v any) {
	id, ok := v.(string)
	if !ok || !slices.Contains(c.pages, id) {
		c.fault(at, "is %v: no page has that id", v)
	}
}

// sum compares the time of an entry with its timings. ssl is inside connect.
func (c *checker) sum(at string, e map[string]any) {
	total, _ := e["time"].(float64)
	parts, _ := e["timings"].(map[string]any)
	sum := 0.0
	for _, name := range []string{"blocked", "dns", "connect", "send", "wait", "receive"} {
		if n, ok := parts[name].(float64); ok && n > 0 {
			sum += n
		}
	}
	if math.Abs(sum-total) > sumTolerance {
		c.fault(at+".time", "is %v, but its timings are %v together", total, sum)
	}
}

func (c *checker) timings(at string, v any) {
	t := c.shaped(at, v,
		field{name: "blocked", optional: true, is: c.spentOrNone},
		field{name: "dns", optional: true, is: c.spentOrNone},
		field{name: "connect", optional: true, is: c.spentOrNone},
		field{name: "send", is: c.spent},
		field{name: "wait", is: c.spent},
		field{name: "receive", is: c.spent},
		field{name: "ssl", optional: true, is: c.spentOrNone})
	ssl, ok := t["ssl"].(float64)
	connect, there := t["connect"].(float64)
	if ok && there && ssl > connect+sumTolerance {
		c.fault(at+".ssl", "is %v, which is not inside connect, %v", ssl, connect)
	}
}

func (c *checker) pair(at string, v any) {
	c.shaped(at, v, field{name: "name", is: c.text}, field{name: "value", is: c.text})
}

func (c *checker) cookie(at string, v any) {
	c.shaped(at, v, field{name: "name", is: c.text}, field{name: "value", is: c.text},
		field{name: "path", optional: true, is: c.text},
		field{name: "domain", optional: true, is: c.text},
		field{name: "expires", optional: true, is: c.date},
		field{name: "httpOnly", optional: true, is: c.flag},
		field{name: "secure", optional: true, is: c.flag})
}

func (c *checker) request(at string, v any) {
	c.shaped(at, v,
		field{name: "method", is: c.text},
		field{name: "url", is: c.absoluteURL},
		field{name: "httpVersion", is: c.text},
		field{name: "cookies", is: c.list(c.cookie)},
		field{name: "headers", is: c.list(c.pair)},
		field{name: "queryString", is: c.list(c.pair)},
		field{name: "postData", optional: true, is: c.post},
		field{name: "headersSize", is: c.whole},
		field{name: "bodySize", is: c.whole})
}

// post is the body of a request. Of params and text at least one is left out or
// empty.
func (c *checker) post(at string, v any) {
	p := c.shaped(at, v,
		field{name: "mimeType", is: c.text},
		field{name: "params", optional: true, is: c.list(c.param)},
		field{name: "text", optional: true, is: c.text})
	params, _ := p["params"].([]any)
	if text, ok := p["text"].(string); ok && text != "" && len(params) > 0 {
		c.fault(at, "has params and text: one excludes the other")
	}
}

func (c *checker) param(at string, v any) {
	c.shaped(at, v, field{name: "name", is: c.text},
		field{name: "value", optional: true, is: c.text},
		field{name: "fileName", optional: true, is: c.text},
		field{name: "contentType", optional: true, is: c.text})
}

func (c *checker) response(at string, v any) {
	r := c.shaped(at, v,
		field{name: "status", is: c.whole},
		field{name: "statusText", is: c.text},
		field{name: "httpVersion", is: c.text},
		field{name: "cookies", is: c.list(c.cookie)},
		field{name: "headers", is: c.list(c.pair)},
		field{name: "content", is: c.content},
		field{name: "redirectURL", is: c.text},
		field{name: "headersSize", is: c.whole},
		field{name: "bodySize", is: c.whole})
	if n, ok := r["status"].(float64); ok && n < 0 {
		c.fault(at+".status", "is %v: want 0 or more", n)
	}
}

func (c *checker) content(at string, v any) {
	o := c.shaped(at, v,
		field{name: "size", is: c.whole},
		field{name: "compression", optional: true, is: c.number},
		field{name: "mimeType", is: c.text},
		field{name: "text", optional: true, is: c.text},
		field{name: "encoding", optional: true, is: c.coding})
	if mime, ok := o["mimeType"].(string); ok && strings.TrimSpace(mime) == "" {
		c.fault(at+".mimeType", "is empty: write x-unknown where it is not known")
	}
}

func (c *checker) coding(at string, v any) {
	if v != "base64" {
		c.fault(at, "is %v: want base64", v)
	}
}

func (c *checker) number(at string, v any) {
	if _, ok := v.(float64); !ok {
		c.fault(at, "is no number")
	}
}

func (c *checker) cache(at string, v any) {
	state := func(at string, v any) {
		if v == nil {
			return // the specification allows null
		}
		c.shaped(at, v,
			field{name: "expires", optional: true, is: c.date},
			field{name: "lastAccess", is: c.date},
			field{name: "eTag", is: c.text},
			field{name: "hitCount", is: c.whole})
	}
	c.shaped(at, v, field{name: "beforeRequest", optional: true, is: state}, field{name: "afterRequest", optional: true, is: state})
}
