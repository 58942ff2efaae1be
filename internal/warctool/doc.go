// Package warctool indexes WARC files and checks them. It is what "fetchctl warc" does.
//
// Every file may come from a stranger. The package holds one line of a head, fixed buffers and
// [SortMemory], whatever a file contains. The values that it returns are quoted or escaped: they
// are safe to print.
package warctool
