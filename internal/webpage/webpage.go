// Package webpage serves pages of plain HTML, CSS and JavaScript modules that call the API of their
// own origin. Every page has the shared files base.css, text.js and icon.svg.
package webpage

import (
	"embed"
	"encoding/json"
	"io/fs"
	"net/http"
	"path"
	"strings"
)

//go:embed shared
var shared embed.FS

// policy is the Content-Security-Policy of every response. A page cannot load from or call another
// origin, run inline scripts, or turn text into markup.
const policy = "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src 'self'; " +
	"base-uri 'none'; form-action 'none'; frame-ancestors 'none'; require-trusted-types-for 'script'; trusted-types 'none'"

// types maps file extensions to media types, independent of the table of the system.
var types = map[string]string{
	".html": "text/html; charset=utf-8", ".css": "text/css; charset=utf-8",
	".js": "text/javascript; charset=utf-8", ".svg": "image/svg+xml",
}

// Handler serves GET and HEAD of the files in the folder "page" of files, which has no subfolders,
// below /name/. It redirects / to /name/. The page reads settings as /name/service.json, as can
// everyone who can open it. The caller must refuse requests whose Host does not belong to the
// service. The handler is safe for concurrent use.
func Handler(name string, files fs.FS, settings any) http.Handler {
	prefix := "/" + name + "/"
	mux := http.NewServeMux()
	mux.HandleFunc("GET /{$}", func(rw http.ResponseWriter, _ *http.Request) {
		rw.Header().Set("Location", name+"/") // relative, because a proxy in front may add a path
		rw.WriteHeader(http.StatusFound)
	})
	mux.HandleFunc("GET "+prefix+"service.json", func(rw http.ResponseWriter, _ *http.Request) {
		text, err := json.Marshal(settings)
		if err != nil {
			http.Error(rw, "internal error", http.StatusInternalServerError)
			return
		}
		rw.Header().Set("Content-Type", "application/json")
		_, _ = rw.Write(text) // an error means that the client is gone
	})
	mux.HandleFunc("GET "+prefix+"{file...}", func(rw http.ResponseWriter, r *http.Request) {
		serveFile(rw, files, r.PathValue("file"))
	})
	return http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
		protect(rw.Header())
		mux.ServeHTTP(rw, r)
	})
}

// protect sets the headers of every response.
func protect(h http.Header) {
	h.Set("Content-Security-Policy", policy)
	h.Set("X-Content-Type-Options", "nosniff")
	h.Set("X-Frame-Options", "DENY")
	h.Set("Referrer-Policy", "no-referrer")
	h.Set("Cross-Origin-Opener-Policy", "same-origin")
	h.Set("Cross-Origin-Resource-Policy", "same-origin")
	h.Set("Cache-Control", "no-store")
}

func serveFile(rw http.ResponseWriter, files fs.FS, name string) {
	if name == "" {
		name = "index.html"
	}
	text, err := fs.ReadFile(files, "page/"+name)
	if err != nil {
		text, err = shared.ReadFile("shared/" + name)
	}
	kind, known := types[path.Ext(name)]
	if err != nil || !known || strings.Contains(name, "/") {
		http.Error(rw, "the page has no such file", http.StatusNotFound)
		return
	}
	rw.Header().Set("Content-Type", kind)
	_, _ = rw.Write(text) // an error means that the client is gone
}
