package judge

import (
	"fmt"
	"net/url"
	"os"
	"path/filepath"
)

// WriteStores writes a stores file for a service in this process, with the store that scenarios name: a new directory
// in dir. It returns the path of the file.
func WriteStores(dir string) (string, error) {
	at := url.URL{Scheme: "file", Path: filepath.ToSlash(filepath.Join(dir, "bodies"))}
	file := filepath.Join(dir, "stores.yaml")
	return file, os.WriteFile(file, fmt.Appendf(nil, "stores: {conformance-bodies: {url: %q}}\n", at.String()), 0o600)
}
