// Package page serves a page that shows the state of a crawl. It calls the API of the frontier like
// other callers.
package page

import (
	"embed"
	"net/http"

	"fetchd/internal/webpage"
)

//go:embed page
var files embed.FS

// Config describes the service to the page. Everyone who can open the page can read it.
type Config struct {
	// Token reports whether callers need a token, so that the page asks for one.
	Token bool `json:"token"`
	// Version is the version of the service. Empty means unknown.
	Version string `json:"version"`
}

// Handler serves the page below /console/, and redirects / there. See [webpage.Handler].
func Handler(cfg Config) http.Handler {
	return webpage.Handler("console", files, cfg)
}
