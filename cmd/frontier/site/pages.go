package site

import (
	"fmt"
	"hash/fnv"
	"io"
	"net"
	"net/http"
	"strconv"
	"strings"
	"time"
)

const (
	typeHTML  = "text/html; charset=utf-8"
	typePlain = "text/plain; charset=utf-8"
	// maxSlow is the maximum that /slow waits.
	maxSlow = time.Hour
)

// call is one request that is being answered.
type call struct {
	entry
	w    http.ResponseWriter
	r    *http.Request
	host string
}

func (s *Site) serve(w http.ResponseWriter, r *http.Request) {
	if !s.enter() {
		w.WriteHeader(http.StatusServiceUnavailable)
		return
	}
	defer s.running.Done()
	target, host := targetOf(r), hostOf(r.Host)
	c := &call{entry: s.journal.open(host, target, r.Method), w: w, r: r, host: host}
	defer c.finish()
	path, _, _ := strings.Cut(target, "?")
	if path == robotsPath {
		c.robots(s.robots(host))
		return
	}
	s.route(c, path)
}

// route chooses the handler by the first part of the path.
func (s *Site) route(c *call, path string) {
	first, rest, _ := strings.Cut(strings.TrimPrefix(path, "/"), "/")
	switch first {
	case "":
		c.page(0)
	case "x":
		s.made(c)
	case "p":
		c.numbered(rest, c.page)
	case "slow":
		c.slow(rest)
	case "go":
		c.redirect(rest)
	case "s":
		s.fault(c, rest)
	case "r", "loop", "loop2":
		s.origin.ServeHTTP(&marker{ResponseWriter: c.w, entry: c.entry}, c.r)
	default:
		c.missing()
	}
}

// targetOf returns path and query as they were sent.
func targetOf(r *http.Request) string {
	if strings.HasPrefix(r.RequestURI, "/") {
		return r.RequestURI
	}
	return r.URL.RequestURI()
}

// hostOf returns a Host field in lower case, without port and trailing dot.
func hostOf(field string) string {
	host := field
	if strings.Contains(field, ":") {
		if name, _, err := net.SplitHostPort(field); err == nil {
			host = name
		}
	}
	return strings.ToLower(strings.TrimSuffix(host, "."))
}

// answer sends a complete answer. It records the end of the visit before the last byte, because the
// client may have the whole body while the handler still runs.
func (c *call) answer(status int, kind, body string) {
	if status == http.StatusNoContent || status == http.StatusNotModified {
		body = ""
	} else {
		header := c.w.Header()
		header.Set("Content-Type", kind)
		header.Set("Content-Length", strconv.Itoa(len(body)))
	}
	c.w.WriteHeader(status)
	last := max(len(body)-1, 0)
	_, _ = io.WriteString(c.w, body[:last]) // the client may have left
	c.end()
	_, _ = io.WriteString(c.w, body[last:])
}

// made answers with a page of Config.Page.
func (s *Site) made(c *call) {
	var p Page
	if s.page != nil {
		p = s.page(c.host, targetOf(c.r))
	}
	if p.Type == "" {
		c.missing()
		return
	}
	for name, value := range p.Header {
		c.w.Header().Set(name, value)
	}
	if tag := p.Header["ETag"]; tag != "" && matches(c.r.Header["If-None-Match"], tag) {
		c.answer(http.StatusNotModified, p.Type, "")
		return
	}
	c.answer(http.StatusOK, p.Type, p.Body)
}

func (c *call) missing() {
	c.answer(http.StatusNotFound, typePlain, "site: no such path\n")
}

func (c *call) robots(status int, body string) {
	switch {
	case status == 0:
		c.answer(http.StatusOK, typePlain, body)
	case status < 200 || status > 599:
		c.answer(http.StatusInternalServerError, typePlain,
			fmt.Sprintf("site: Config.Robots returned status %d; it must be from 200 to 599\n", status))
	case redirects(status):
		c.moved(status, body)
	default:
		c.answer(status, typePlain, body)
	}
}

// redirects reports whether a status has a Location.
func redirects(status int) bool {
	switch status {
	case http.StatusMovedPermanently, http.StatusFound, http.StatusSeeOther,
		http.StatusTemporaryRedirect, http.StatusPermanentRedirect:
		return true
	}
	return false
}

func (c *call) moved(status int, to string) {
	c.w.Header().Set("Location", withMark(to))
	c.answer(status, typePlain, "moved\n")
}

// numbered calls with with the number in rest.
func (c *call) numbered(rest string, with func(n uint64)) {
	n, err := strconv.ParseUint(rest, 10, 64)
	if err != nil {
		c.missing()
		return
	}
	with(n)
}

// page answers with page n of the host, or with 304.
func (c *call) page(n uint64) {
	tag := c.tag(n)
	c.w.Header().Set("ETag", tag)
	if matches(c.r.Header["If-None-Match"], tag) {
		c.answer(http.StatusNotModified, typeHTML, "")
		return
	}
	number := strconv.FormatUint(n, 10)
	title := c.host + " " + number
	c.answer(http.StatusOK, typeHTML, "<!DOCTYPE html>\n<html lang=\"en\">\n<head><title>"+title+"</title></head>\n<body>\n<h1>"+title+"</h1>\n<p>"+
		strings.Repeat("Page "+number+" of "+c.host+". ", 8)+"</p>\n</body>\n</html>\n")
}

// tag returns a strong validator: host and n determine the page.
func (c *call) tag(n uint64) string {
	h := fnv.New64a()
	_, _ = io.WriteString(h, c.host) // never fails
	return `"` + strconv.FormatUint(h.Sum64(), 16) + "-" + strconv.FormatUint(n, 10) + `"`
}

// matches uses the weak comparison, as If-None-Match requires (RFC 9110 §13.1.2). The site's tags
// contain no comma.
func matches(fields []string, tag string) bool {
	for _, field := range fields {
		for one := range strings.SplitSeq(field, ",") {
			one = strings.TrimSpace(one)
			if one == "*" || strings.TrimPrefix(one, "W/") == tag {
				return true
			}
		}
	}
	return false
}

// slow waits for the time in MS/N, then answers with the page.
func (c *call) slow(rest string) {
	wait, number, _ := strings.Cut(rest, "/")
	ms, err := strconv.ParseInt(wait, 10, 64)
	if err != nil || ms < 0 || ms > maxSlow.Milliseconds() {
		c.missing()
		return
	}
	c.numbered(number, func(n uint64) {
		if c.pause(time.Duration(ms) * time.Millisecond) {
			c.page(n)
		}
	})
}

// pause waits for d. It returns false, and ends the visit, if the client left first.
func (c *call) pause(d time.Duration) bool {
	// The server notices that the client left only after the body was read.
	_, _ = io.Copy(io.Discard, c.r.Body)
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-c.r.Context().Done():
		c.endAt(c.journal.now(), true)
		return false
	}
}

// redirect answers STATUS/N with a redirect to the parameter to.
func (c *call) redirect(rest string) {
	code, number, _ := strings.Cut(rest, "/")
	status, err := strconv.Atoi(code)
	if err != nil || !redirects(status) {
		c.missing()
		return
	}
	c.numbered(number, func(uint64) {
		to := c.r.URL.Query().Get("to")
		if to == "" {
			c.answer(http.StatusBadRequest, typePlain, "site: the parameter to is missing: use ?to=URL\n")
			return
		}
		c.moved(status, to)
	})
}
