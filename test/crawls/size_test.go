package crawls

import "os"

// all reports whether the long form was asked for: FETCHD_CRAWLS=all.
func all() bool { return os.Getenv("FETCHD_CRAWLS") == "all" }

// sized returns the size of a test in the long form and in the short one, which is
// that of the gate.
func sized[T any](long, short T) T {
	if all() {
		return long
	}
	return short
}
