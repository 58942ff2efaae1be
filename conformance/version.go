package conformance

import (
	_ "embed"
	"strings"
)

//go:embed VERSION
var version string

// Version returns the version of the rules as data and of the program fetch-conformance, such as "0.1.0". It is not
// that of fetchd.
func Version() string { return strings.TrimSpace(version) }
