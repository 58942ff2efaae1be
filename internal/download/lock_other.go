//go:build !unix || solaris || illumos || aix

package download

import "os"

// lock does nothing where files have no such locks.
func lock(*os.File) error { return nil }
