//go:build !unix || solaris || illumos || aix

package download

import "os"

// lock does nothing on systems without such locks.
func lock(*os.File) error { return nil }
