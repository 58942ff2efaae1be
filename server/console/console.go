// Package console serves a page to try requests of the service and to see each attempt and decision.
// It calls POST /v1/fetch like other callers.
package console

import (
	"embed"
	"net/http"

	"fetchd/internal/webpage"
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

// Handler serves the page below /console/, and redirects / there. See [webpage.Handler].
func Handler(cfg Config) http.Handler {
	return webpage.Handler("console", page, cfg)
}
