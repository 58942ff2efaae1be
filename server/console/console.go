// Package console is a page on which a person tries requests of the service, and
// sees what happened and why. It is plain HTML, CSS and JavaScript modules, and
// calls POST /v1/fetch as any caller does.
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

// Config is what the page is told of the service around it. All of it can be read
// by whoever can open the page.
type Config struct {
	// GRPC is the address of the gRPC port, for the commands that the page
	// writes. Empty means that it is not known.
	GRPC string `json:"grpc"`
	// TLS reports whether the ports use TLS.
	TLS bool `json:"tls"`
	// Token reports whether callers need a token, so that the page asks for one.
	Token bool `json:"token"`
	// Version of the service. Empty means that it is not known.
	Version string `json:"version"`
}

// policy is the Content-Security-Policy of every answer. Nothing of another origin
// is loaded or called, nothing in the page is a script, and no text becomes markup.
const policy = "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src 'self'; " +
	"base-uri 'none'; form-action 'none'; frame-ancestors 'none'; require-trusted-types-for 'script'; trusted-types 'none'"

// types are the media types of the files, whatever the system's table says.
var types = map[string]string{
	".html": "text/html; charset=utf-8", ".css": "text/css; charset=utf-8",
	".js": "text/javascript; charset=utf-8", ".svg": "image/svg+xml",
}

// Handler answers GET and HEAD below /console/, and sends / there. Whoever mounts
// it must refuse hosts that are not the service's own. It is safe for concurrent
// use.
func Handler(cfg Config) http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /{$}", func(rw http.ResponseWriter, _ *http.Request) {
		rw.Header().Set("Location", "console/") // relative, for what stands in front may have a path of its own
		rw.WriteHeader(http.StatusFound)
	})
	mux.HandleFunc("GET /console/service.json", func(rw http.ResponseWriter, _ *http.Request) {
		text, err := json.Marshal(cfg)
		if err != nil {
			http.Error(rw, "internal error", http.StatusInternalServerError)
			return
		}
		rw.Header().Set("Content-Type", "application/json")
		_, _ = rw.Write(text) // who asked is gone
	})
	mux.HandleFunc("GET /console/{file...}", serveFile)
	return http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
		protect(rw.Header())
		mux.ServeHTTP(rw, r)
	})
}

// protect sets what every answer has, whatever it is.
func protect(h http.Header) {
	h.Set("Content-Security-Policy", policy)
	h.Set("X-Content-Type-Options", "nosniff")
	h.Set("X-Frame-Options", "DENY")
	h.Set("Referrer-Policy", "no-referrer")
	h.Set("Cross-Origin-Opener-Policy", "same-origin")
	h.Set("Cross-Origin-Resource-Policy", "same-origin")
	h.Set("Cache-Control", "no-store")
}

// serveFile answers with a file of the page. There are no folders.
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
	_, _ = rw.Write(text) // who asked is gone
}
