// Package version has the version of the program. It is the same for all programs of a build.
package version

import (
	"fmt"
	"runtime"
	"runtime/debug"
)

// version is set by the build:
// -ldflags "-X fetchd/internal/version.version=v1.2.3".
var version string

// unknown is the version of a build without a version and without data of a repository.
const unknown = "devel"

// String returns the version that was set by the build, or the one that Go derives from the
// repository, such as v0.0.0-20261122140000-0123456789ab, or "devel".
func String() string {
	info, _ := debug.ReadBuildInfo() // nil in a build without modules
	return of(version, info)
}

func of(set string, info *debug.BuildInfo) string {
	switch {
	case set != "":
		return set
	case info == nil || info.Main.Version == "" || info.Main.Version == "(devel)":
		return unknown
	}
	return info.Main.Version
}

// Long returns the version with that of Go and the platform, for --version and reports.
func Long() string {
	return fmt.Sprintf("%s %s %s/%s", String(), runtime.Version(), runtime.GOOS, runtime.GOARCH)
}
