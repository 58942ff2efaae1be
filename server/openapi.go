package server

import (
	"bytes"
	"crypto/sha256"
	_ "embed"
	"fmt"
	"net/http"
	"sync"
	"time"

	"fetchd/internal/version"
)

// openapi describes the HTTP API. Package server/openapi makes it.
//
//go:embed openapi.json
var openapi []byte

// openapiPage returns the description with the version of this build, and its ETag.
var openapiPage = sync.OnceValues(func() (page []byte, etag string) {
	page = bytes.Replace(openapi, []byte(`"version": "devel"`), fmt.Appendf(nil, `"version": %q`, version.String()), 1)
	return page, fmt.Sprintf(`"%x"`, sha256.Sum256(page))
})

// serveOpenAPI serves the description to programs that generate clients, and to people.
func serveOpenAPI(rw http.ResponseWriter, r *http.Request) {
	page, etag := openapiPage()
	rw.Header().Set("Content-Type", "application/json")
	rw.Header().Set("Etag", etag)
	http.ServeContent(rw, r, "", time.Time{}, bytes.NewReader(page))
}
