// Package wacz indexes and checks WARC files, and packs them for replay as WACZ 1.1.1. It is what
// "fetchctl warc" and "frontier export --wacz" do.
//
// Every file may come from a stranger. The package holds one head, fixed buffers and [sortMemory] for
// each sorter, whatever a file contains. A line of an index is safe to print. The values in a [Problem]
// are not: quote or escape them before they reach a terminal.
package wacz
