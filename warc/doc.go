// Package warc reads and writes WARC files, the format of web archives: WARC/1.1 (ISO 28500:2017).
// The reader also accepts WARC/1.0.
//
// A WARC file is a list of records. Each has a head of named fields and a block of bytes, for
// example an HTTP response as it was received. A compressed file has one gzip member for each
// record, so a record can be read alone if its offset and length are known.
//
// # Write
//
// [NewWriter] writes records to an [io.Writer]. [Writer.WriteRecord] takes a block and its
// length, because the head precedes the block and contains its length and digests. The writer never
// holds a whole block. If the length is not known, spool the block to a file and call
// [Writer.WriteSeeker], or compute the digests with a [Digester] while you spool. Each call returns
// the [Place] of the record: what an index needs.
//
// The writer checks each head against the standard and refuses what the standard forbids. No name
// or value can start another line. [EscapeURI] turns any URL into a URI that the writer accepts.
//
// # Read
//
// [NewReader] reads records one by one from an [io.Reader], and finds out itself whether the file
// is compressed. It holds one head, within [Limits], and fixed buffers, whatever the file contains.
// A fault in a value is listed in [Record.Problems] and does not stop the reader. A fault after
// which the next record cannot be found is an [Error]. Its Offset is the length of the whole
// records before it. Truncate the file to that length, and it is a correct file again: that is how
// to recover a file after a crash.
//
// A file that contains all its records in one gzip member is read too, but [Record.Shared] is true
// and no record can be read alone.
//
// # Digests
//
// A digest is written as archives usually write it: SHA-1 in upper-case base32, and SHA-256 in
// lower-case hexadecimal. The grammar of the standard does not allow "=", and SHA-256 in base32
// needs it as padding. The reader accepts base32 and hexadecimal for both, in either case.
//
// The payload of an HTTP message is everything after its first empty line, as it is in the block.
// If the body was sent in chunks, the framing of the chunks is part of the payload. So the digest
// can be checked without an HTTP parser, and it is what wget writes. It also means that the same
// body in different chunks has different digests. Do not put an interim response (1xx) in front of
// a response: its head would end at the first empty line, and readers would take the interim
// response for the final one.
//
// # Values are not safe to print
//
// The values of a record that was read come from strangers. Quote them, for example with %q, before
// they reach a terminal or a log.
package warc
