package webapi

import (
	"bytes"
	"compress/gzip"
	"context"
	"maps"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"sync"
	"time"
)

// pageLife is how long a page is served before it is made again.
const pageLife = time.Second

// Cached returns a handler for a page that is the same for every client, as inner answers a GET without
// header fields and query. The page is made, and compressed, at most once a second, however many clients ask for
// it, because making it costs much more than asking for it. A page with an ETag is not compressed.
func Cached(inner http.Handler) http.HandlerFunc {
	c := &cache{inner: inner}
	return func(rw http.ResponseWriter, r *http.Request) { c.page(r).serve(rw, r) }
}

// cache has the last page of a handler.
type cache struct {
	inner http.Handler

	mu   sync.Mutex // held while the page is made: other clients wait for the same page
	last *page
}

func (c *cache) page(r *http.Request) *page {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.last == nil || time.Since(c.last.made) >= pageLife {
		c.last = newPage(c.inner, r)
	}
	return c.last
}

// page is an answer. It is an [http.ResponseWriter] while it is made, and does not change afterwards.
type page struct {
	made   time.Time
	header http.Header
	code   int
	plain  bytes.Buffer
	zipped func() []byte
}

func newPage(inner http.Handler, r *http.Request) *page {
	p := &page{header: make(http.Header), code: http.StatusOK}
	r = r.Clone(context.WithoutCancel(r.Context())) // the client may leave
	r.Method, r.URL, r.Header, r.Body = http.MethodGet, &url.URL{Path: r.URL.Path}, make(http.Header), http.NoBody
	inner.ServeHTTP(p, r)
	p.made = time.Now()
	p.zipped = sync.OnceValue(func() []byte {
		var out bytes.Buffer
		z := gzip.NewWriter(&out)
		_, _ = z.Write(p.plain.Bytes()) // a buffer accepts everything
		_ = z.Close()
		return out.Bytes()
	})
	return p
}

// Header implements http.ResponseWriter.
func (p *page) Header() http.Header { return p.header }

// WriteHeader implements http.ResponseWriter.
func (p *page) WriteHeader(code int) { p.code = code }

// Write implements http.ResponseWriter.
func (p *page) Write(b []byte) (int, error) { return p.plain.Write(b) }

// serve answers a request.
func (p *page) serve(rw http.ResponseWriter, r *http.Request) {
	header := rw.Header()
	maps.Copy(header, p.header)
	if header.Get("Etag") != "" && p.code == http.StatusOK {
		http.ServeContent(rw, r, "", time.Time{}, bytes.NewReader(p.plain.Bytes()))
		return
	}
	header.Add("Vary", "Accept-Encoding")
	body := p.plain.Bytes()
	if p.code == http.StatusOK && acceptsGzip(r.Header) {
		header.Set("Content-Encoding", "gzip")
		body = p.zipped()
	}
	header.Set("Content-Length", strconv.Itoa(len(body)))
	rw.WriteHeader(p.code)
	_, _ = rw.Write(body) // an error means that the client is gone
}

// acceptsGzip reports whether a client names gzip as a coding that it accepts (RFC 9110 §12.5.3).
func acceptsGzip(header http.Header) bool {
	for _, line := range header.Values("Accept-Encoding") {
		for coding := range strings.SplitSeq(line, ",") {
			name, params, _ := strings.Cut(coding, ";")
			if !strings.EqualFold(strings.TrimSpace(name), "gzip") {
				continue
			}
			q, given := strings.CutPrefix(strings.TrimSpace(strings.ToLower(params)), "q=")
			weight, err := strconv.ParseFloat(q, 64)
			return !given || err == nil && weight > 0
		}
	}
	return false
}
