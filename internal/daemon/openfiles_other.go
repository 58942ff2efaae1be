//go:build !unix

package daemon

// OpenFiles returns [UnlimitedFiles].
func OpenFiles() FileLimit { return UnlimitedFiles }
