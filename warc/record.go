package warc

import (
	"errors"
	"fmt"
	"io"
	"net/netip"
	"time"
)

// Type is the type of a record. Other types than those below may occur in a file; a program skips
// records of a type that it does not know.
type Type string

// The types of the standard.
const (
	Warcinfo     Type = "warcinfo"     // describes the records that follow
	Response     Type = "response"     // a response, with its protocol's head
	Resource     Type = "resource"     // a resource, without a protocol's head
	Request      Type = "request"      // a request, with its protocol's head
	Metadata     Type = "metadata"     // describes another record
	Revisit      Type = "revisit"      // content that an earlier record has
	Conversion   Type = "conversion"   // the content of another record in another format
	Continuation Type = "continuation" // a later segment of a record
)

// Truncated is the reason why a block is incomplete. The zero value means that it is complete.
type Truncated string

// The reasons of the standard. Extensions may define others.
const (
	TruncatedLength      Truncated = "length"      // a limit on the length
	TruncatedTime        Truncated = "time"        // a limit on the time
	TruncatedDisconnect  Truncated = "disconnect"  // the connection broke
	TruncatedUnspecified Truncated = "unspecified" // another reason, or an unknown one
)

// The profiles of revisit records: why the record has no payload.
const (
	// IdenticalPayloadDigest: the payload was received, and has the digest of an earlier one. The
	// record must have a PayloadDigest. If it has a block, its Truncated is TruncatedLength.
	IdenticalPayloadDigest = "http://netpreserve.org/warc/1.1/revisit/identical-payload-digest"
	// ServerNotModified: the server asserted that the content has not changed, as with status 304.
	ServerNotModified = "http://netpreserve.org/warc/1.1/revisit/server-not-modified"
)

// Content types of blocks.
const (
	HTTPRequest  = "application/http;msgtype=request"
	HTTPResponse = "application/http;msgtype=response"
	WarcFields   = "application/warc-fields"
)

// Header is the head of a record. A field with the zero value is absent. Identifiers of records are
// URIs without the angle brackets that surround them in a file.
type Header struct {
	Type Type
	// ID is the identifier of the record. Writer generates one if it is empty.
	ID string
	// Date is when the capture began. Records of one capture have the same Date. It is written in
	// UTC with all its digits, down to nanoseconds: truncate it to what is accurate.
	Date time.Time
	// TargetURI is the URI whose capture gave rise to the record.
	TargetURI   string
	ContentType string

	// ConcurrentTo are records of the same capture: the request of a response, for example.
	ConcurrentTo []string
	// RefersTo is the record that a metadata, revisit or conversion record is about. The target URI
	// and the date of that record are in the other two, for revisit records only.
	RefersTo          string
	RefersToTargetURI string
	RefersToDate      time.Time
	// Profile says how to interpret a revisit record. It is a URI.
	Profile string

	BlockDigest   Digest
	PayloadDigest Digest
	Truncated     Truncated
	// IPAddress is the address that was contacted. It has no zone.
	IPAddress netip.Addr
	// Protocol are the protocols of the capture, one value for each layer: "http/1.1", "tls/1.3".
	// CipherSuite is the TLS cipher suite by its name at IANA. The standard has neither field. Both
	// are proposals in the IIPC's list of fields, and other archives write them.
	Protocol    []string
	CipherSuite string
	// IdentifiedPayloadType is the media type of the payload if it was determined from the payload.
	IdentifiedPayloadType string

	// WarcinfoID is the warcinfo record that describes this one.
	WarcinfoID string
	// Filename is the name of the file. Only warcinfo records have it.
	Filename string

	// SegmentNumber counts the segments of a record from 1. SegmentTotalLength is in the last one.
	SegmentNumber      int64
	SegmentOriginID    string
	SegmentTotalLength int64

	// Extra are fields that have no place above, in order.
	Extra []Field
}

// Place is where a record is in its file.
type Place struct {
	ID string
	// Offset and Length count bytes of the file, which are compressed bytes if it is compressed.
	Offset, Length int64
}

// Record is a record that was read. It is valid until the next call of Reader.Next.
type Record struct {
	// Header has the fields as far as they could be understood.
	Header
	// Version is "1.0" or "1.1".
	Version string
	// Fields are all fields in the order of the file. Values that continue on further lines are
	// joined.
	Fields []Field
	// ContentLength is the length of the block.
	ContentLength int64
	// Problems are violations of the standard that do not prevent the reader from going on.
	Problems []error
	// Offset is where the record starts in the file, and where its gzip member starts if the file
	// is compressed.
	Offset int64
	// Block reads the block. An error other than io.EOF is that of the reader: Next returns it too.
	Block io.Reader

	// The fields below are set by Finish.

	// Length is the number of bytes of the file that the record occupies. It is zero if Shared is
	// true.
	Length int64
	// Shared reports whether the record shares its gzip member with other records. It is false for
	// the first record of a member until Finish was called.
	Shared bool
	// BlockVerdict and PayloadVerdict are the results of comparing the digests. They are NotChecked
	// unless ReaderOptions.Verify is set.
	BlockVerdict, PayloadVerdict Verdict

	reader *Reader
	block  *block // Block, unless the caller has replaced it
}

var errMovedOn = errors.New("warc: the block of a record is read after the reader went on")

// block reads the block of the current record.
type block struct {
	record *Record
	left   int64
	sums   *sums // nil if digests are not verified
}

func (b *block) Read(p []byte) (int, error) {
	if b.left == 0 {
		return 0, io.EOF
	}
	r := b.record.reader
	switch {
	case r.current != b.record:
		return 0, errMovedOn
	case r.err != nil:
		return 0, r.err
	}
	n, err := r.in.Read(p[:min(int64(len(p)), b.left)])
	b.left -= int64(n)
	if b.sums != nil {
		b.sums.write(p[:n])
	}
	if err != nil {
		return n, r.fail(err)
	}
	return n, nil
}

var (
	// ErrFormat is in the chain of an Error if the file is not a WARC file at its offset.
	ErrFormat = errors.New("not a WARC record")
	// ErrLimit is in the chain of an Error if a head exceeds a limit.
	ErrLimit = errors.New("limit exceeded")
)

// Error is an error after which a file cannot be read further. Its chain contains
//
//   - io.ErrUnexpectedEOF if the file ends inside a record,
//   - ErrFormat, ErrLimit or an error of gzip if the file is damaged,
//   - the error of the io.Reader if that failed: the file may be whole.
type Error struct {
	// Offset is the length of the whole records before the error. A file that ends inside a record
	// becomes a correct file if it is truncated to this length.
	Offset int64
	// Err is the cause.
	Err error
}

func (e *Error) Error() string {
	return fmt.Sprintf("warc: the record at offset %d cannot be read: %v", e.Offset, e.Err)
}

// Unwrap returns the cause.
func (e *Error) Unwrap() error { return e.Err }
