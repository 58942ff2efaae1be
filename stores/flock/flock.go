// Package flock locks files, so that a process recognizes those that no living process writes. The
// system releases the locks of a process that dies. A file system without locks returns an error
// other than [ErrLocked].
package flock

import "os"

// Holds reports whether path is still the name of the open file f. Ask after [Lock]: another
// process may have renamed or removed the file before it was locked.
func Holds(path string, f *os.File) bool {
	a, err := f.Stat()
	if err != nil {
		return false
	}
	b, err := os.Lstat(path)
	return err == nil && os.SameFile(a, b)
}
