package judge

import (
	"fmt"
	"net/url"
	"os"
	"path/filepath"

	"fetchd/stores"
)

// Stores returns the store that scenarios name, for a service in this process. It is a new directory
// in dir. The caller closes it.
func Stores(dir string) (*stores.Set, error) {
	at := url.URL{Scheme: "file", Path: filepath.ToSlash(filepath.Join(dir, "bodies"))}
	file := filepath.Join(dir, "stores.yaml")
	if err := os.WriteFile(file, fmt.Appendf(nil, "stores: {conformance-bodies: {url: %q}}\n", at.String()), 0o600); err != nil {
		return nil, err
	}
	return stores.ReadFile(file, new(stores.Set))
}
