// Package console serves a page to try requests of the service and to see each attempt and decision.
// The page is plain HTML, CSS and JavaScript modules. It calls POST /v1/fetch like other callers.
package console

import (
	"embed"
	"encoding/json"
	"net/http"
	"path"
	"strings"
)

//go:embed page
var page embed.FS

// Config describes the service to the page. Everyone who can open the page can read it.
type Config struct {
	// GRPC is the address of the gRPC port, for the commands that the page shows. Empty means
	// unknown.
	GRPC string `json:"grpc"`
	// TLS reports whether the ports use TLS.
	TLS bool `json:"tls"`
	// Token reports whether callers need a token, so that the page asks for one.
	Token bool `json:"token"`
	// Version is the version of the service. Empty means unknown.
	Version string `json:"version"`
}

// policy is the Content-Security-Policy of every response. The page cannot load from or call another
// origin, run inline scripts, or turn text into markup.
const policy = "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src 'self'; " +
	"base-uri 'none'; form-action 'none'; frame-ancestors 'none'; require-trusted-types-for 'script'; trusted-types 'none'"

// types maps file extensions to media types, independent of the table of the system.
var types = map[string]string{
	".html": "text/html; charset=utf-8", ".css": "text/css; charset=utf-8",
	".js": "text/javascript; charset=utf-8", ".svg": "image/svg+xml",
}

// Handler serves GET and HEAD below /console/, and redirects / there. Its caller must refuse requests
// whose Host does not belong to the service. The handler is safe for concurrent use.
func Handler(cfg Config) http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /{$}", func(rw http.ResponseWriter, _ *http.Request) {
		rw.Header().Set("Location", "console/") // relative, because a proxy in front may add a path
		rw.WriteHeader(http.StatusFound)
	})
	mux.HandleFunc("GET /console/service.json", func(rw http.ResponseWriter, _ *http.Request) {
		text, err := json.Marshal(cfg)
		if err != nil {
			http.Error(rw, "internal error", http.StatusInternalServerError)
			return
		}
		rw.Header().Set("Content-Type", "application/json")
		_, _ = rw.Write(text) // an error means that the client is gone
	})
	mux.HandleFunc("GET /console/{file...}", serveFile)
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

// serveFile serves a file of the page. The page has no subfolders.
func serveFile(rw http.ResponseWriter, r *http.Request) {
	name := r.PathValue("file")
	if name == "" {
		name = "index.html"
	}
	text, err := page.ReadFile("page/" + name)
	kind, known := types[path.Ext(name)]
	if err != nil || !known || strings.Contains(name, "/") {
		http.Error(rw, "there is no such file in the console", http.StatusNotFound)
		return
	}
	rw.Header().Set("Content-Type", kind)
	_, _ = rw.Write(text) // an error means that the client is gone
}
