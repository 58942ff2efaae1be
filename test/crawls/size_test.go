package crawls

import "os"

// all reports whether the long form was asked for: FETCHD_CRAWLS=all.
func all() bool { return os.Getenv("FETCHD_CRAWLS") == "all" }

// sized returns long in the long form of a test, and short in the short form, which the gate
// runs.
func sized[T any](long, short T) T {
	if all() {
		return long
	}
	return short
}
