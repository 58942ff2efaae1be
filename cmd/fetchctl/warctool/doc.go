// Package warctool indexes WARC files and checks them. It is what "fetchctl warc" does.
//
// Every file may come from a stranger. The package holds one head, fixed buffers and [sortMemory],
// whatever a file contains. A line of an index is safe to print. The values in a [Problem] are not:
// quote or escape them before they reach a terminal.
package warctool
