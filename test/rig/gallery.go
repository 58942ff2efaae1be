package rig

import (
	"bytes"
	"image"
	"image/png"
	"net/http"
	"net/http/httptest"
	"path"
	"slices"
	"strings"
	"sync"
	"testing"
)

// Gallery is a page with every usual way to name what it needs, on two hosts. A browser asks for all of [Gallery.Needs] but
// those for browsers without scripts or of other sizes, and for /data.json, which only a script names.
type Gallery struct {
	A, B *httptest.Server

	mu    sync.Mutex
	asked map[string]string // URLs that were requested, with their Referer
	// Break is called with each URL before it is answered, unless it is nil.
	Break func(url string)
}

// galleryDocuments are the documents by host and path. A and B are the origins.
var galleryDocuments = map[string][2]string{
	"A/": {"text/html", `<!doctype html><title>Home</title><meta property="og:image" content="/img/not-og.png">
<link rel=stylesheet href="/css/main.css"><link rel=icon href="/img/icon.png"><link rel=manifest href="/m.webmanifest">
<link rel=preload as=font type=font/woff2 crossorigin href="/font/preload.woff2"><link rel=modulepreload href="/js/module.js">
<link rel=preload as=image href="/img/preload.png" imagesrcset="/img/preload-1.png 1x, /img/preload-2.png 2x">
<style>@import url(/css/inline.css); .a { background: url('/img/style.png') }</style>
<script src="/js/script.js"></script><body background="/img/body.png"><a href="/second">second</a>
<div class=a style="background-image: url(&quot;/img/inline.png&quot;)">x</div><img src="/img/src.png" srcset="/img/1.png 1x, /img/2,x.png 2x">
<picture><source srcset="/img/100.png 100w, /img/200.png 200w" type="image/png"><img src="/img/picture.png"></picture>
<img src="B/img/other.png"><img data-src="/img/lazy.png" class=lazy><noscript><img src="/img/noscript.png"></noscript>
<video poster="/img/poster.png" src="/film.mp4"></video><input type=image src="/img/input.png"><object data="/img/object.png" type=image/png></object>
<svg width=9 height=9><title/><image href="/img/svg.png" width=9 height=9 /></svg><iframe src="/frame"></iframe><p style="font-family: F">text</p>`},
	"A/second":         {"text/html", `<title>Second</title><img src=/img/second.png><a href=/>first</a>`},
	"A/frame":          {"text/html", `<title>Frame</title><img src=/img/frame.png>`},
	"A/css/main.css":   {"text/css", `@import "/css/sub.css"; @font-face { font-family: F; src: url(/font/f.woff2) format("woff2") } body { background-image: image-set(url(/img/set-1.png) 1x, "/img/set-2.png" 2x) } p { cursor: url(/img/cursor.png), auto }`},
	"A/css/sub.css":    {"text/css", `@import url("B/css/deep.css"); p::before { content: url(/img/sub.png) }`},
	"A/css/inline.css": {"text/css", `@import "/css/main.css"; .a::after { content: url(/img/after.png) }`},
	"B/css/deep.css":   {"text/css", `p::after { content: url(img/deep.png) }`},
	"A/m.webmanifest":  {"application/manifest+json", `{"icons":[{"src":"/img/manifest.png","sizes":"1x1"}]}`},
	"A/js/script.js":   {"text/javascript", `addEventListener("load", () => { fetch("/data.json"); const i = document.querySelector(".lazy"); i.src = i.dataset.src })`},
	"A/js/module.js":   {"text/javascript", `export {}`},
	"A/data.json":      {"application/json", `{}`},
}

// galleryFiles are files without text, by host and path.
var galleryFiles = strings.Fields(`A/font/preload.woff2 A/font/f.woff2 A/film.mp4 A/img/icon.png A/img/preload.png A/img/preload-1.png A/img/preload-2.png
	A/img/style.png A/img/body.png A/img/inline.png A/img/src.png A/img/1.png A/img/2,x.png A/img/100.png A/img/200.png A/img/picture.png
	B/img/other.png A/img/lazy.png A/img/noscript.png A/img/poster.png A/img/input.png A/img/object.png A/img/svg.png A/img/second.png A/img/frame.png
	A/img/set-1.png A/img/set-2.png A/img/cursor.png A/img/sub.png A/img/after.png B/css/img/deep.png A/img/manifest.png`)

// NewGallery starts a gallery until the test ends.
func NewGallery(t testing.TB) *Gallery {
	g := &Gallery{asked: make(map[string]string)}
	g.A, g.B = httptest.NewServer(g.handler("A")), httptest.NewServer(g.handler("B"))
	t.Cleanup(g.A.Close)
	t.Cleanup(g.B.Close)
	return g
}

// Needs returns the URLs of both pages and of what they need, sorted.
func (g *Gallery) Needs() (urls []string) {
	for name := range galleryDocuments {
		if name != "A/data.json" {
			urls = append(urls, g.url(name))
		}
	}
	for _, name := range galleryFiles {
		urls = append(urls, g.url(name))
	}
	slices.Sort(urls)
	return urls
}

// Asked returns the URLs that were requested, without robots.txt, sorted, and their last Referer.
func (g *Gallery) Asked() (urls []string, referrers map[string]string) {
	g.mu.Lock()
	defer g.mu.Unlock()
	referrers = make(map[string]string)
	for u, from := range g.asked {
		referrers[u] = from
		urls = append(urls, u)
	}
	slices.Sort(urls)
	return urls, referrers
}

func (g *Gallery) url(name string) string {
	return strings.NewReplacer("A/", g.A.URL+"/", "B/", g.B.URL+"/").Replace(name)
}

func (g *Gallery) handler(host string) http.HandlerFunc {
	var dot bytes.Buffer
	_ = png.Encode(&dot, image.NewGray(image.Rect(0, 0, 1, 1))) // a buffer has no error
	return func(w http.ResponseWriter, r *http.Request) {
		name := host + r.URL.Path
		document, known := galleryDocuments[name]
		body := []byte(strings.NewReplacer("A/", g.A.URL+"/", "B/", g.B.URL+"/").Replace(document[1]))
		if slices.Contains(galleryFiles, name) {
			known, body = true, dot.Bytes()
			document[0] = map[string]string{".png": "image/png", ".woff2": "font/woff2", ".mp4": "video/mp4"}[path.Ext(name)]
		}
		if name == host+"/robots.txt" || !known {
			http.NotFound(w, r)
			return
		}
		g.mu.Lock()
		g.asked[g.url(name)] = r.Referer()
		breaks := g.Break
		g.mu.Unlock()
		if breaks != nil {
			breaks(g.url(name))
		}
		w.Header().Set("Access-Control-Allow-Origin", "*")
		w.Header().Set("Content-Type", document[0])
		w.Header().Set("ETag", `"1"`)
		if r.Header.Get("If-None-Match") != "" {
			w.WriteHeader(http.StatusNotModified)
			return
		}
		for _, part := range [][]byte{body[:len(body)/2], body[len(body)/2:]} { // in chunks
			_, _ = w.Write(part)
			w.(http.Flusher).Flush() //nolint:errcheck,forcetypeassert // net/http has it
		}
	}
}
