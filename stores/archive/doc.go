// Package archive records exchanges of HTTP/1.1 in WARC files. docs/warc.md describes the files, and
// decision 21 says why they are made in this way.
//
// [Open] returns an [Archive], which owns files in a directory, or one file. [Archive.Begin] returns
// a [Capture] that takes the bytes of one exchange as they are on the connection, above TLS.
// [Capture.Commit] finds the final response in them, redacts fields, and writes the records.
//
// # Files
//
// A file is named fetchd-TIME-SERIAL-HOST~RANDOM.warc.gz, and ends in .open while it is written. The
// process that writes it has it locked. A file becomes whole by fsync and rename. A process that
// dies leaves .open files: any process that has the directory open cuts them to their last whole
// record and makes them whole.
//
// A commit writes one exchange at a time to a file, at the end of its whole records, and counts them
// when the last byte is written. After an error the file is truncated to what was counted.
//
// # Memory
//
// A capture holds up to 64 KiB of each direction, charged to its lease, and a file without a name for
// what is longer. At most 8 commits encode at the same time, each with about 1.5 MiB that is not
// charged. Idle memory is left to the garbage collector.
package archive
