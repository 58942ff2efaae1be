// Package archive records exchanges of HTTP/1.1 in WARC files.
package archive

import (
	"context"
	"log/slog"
	"net/netip"
	"os"
	"path/filepath"
	"sync"
	"time"

	"fetchd/internal/budget"
	"fetchd/warc"
)

// Config configures an archive.
type Config struct {
	// Dir is where files and spools are written. It is created if it is missing.
	Dir string
	// File is the path of the one file of this archive. Records are appended to it, and Dir is
	// ignored. If it is empty, files are named by convention in Dir, and rotate. A file whose name
	// does not end in .gz is not compressed.
	File string
	// Upload takes a whole file away. It is called again, with pauses, until it returns nil. The file
	// is then removed. Nil means that files stay in Dir.
	Upload func(ctx context.Context, name string, f *os.File, size int64) error
	// MaxFileBytes and MaxFileAge are when a file is full: a record that begins below both is still
	// written to it. The defaults are 1000000000 and an hour.
	MaxFileBytes int64
	MaxFileAge   time.Duration
	// MaxSpoolBytes limits what is spooled for exchanges that have not ended, and files that wait for
	// their upload. The default is 8 GiB.
	MaxSpoolBytes int64
	// Redact are header fields whose values are not recorded.
	Redact []string
	// Software and Operator are for the warcinfo record of each file.
	Software, Operator string
	// Logger is nil for no log.
	Logger *slog.Logger
}

// Archive writes WARC files. It is safe for concurrent use.
type Archive struct {
	name string
	c    Config

	mu     sync.Mutex
	file   *os.File
	writer *warc.Writer
}

// Stats are counters of an archive.
type Stats struct {
	Up bool // false while records are refused

	Requests, Responses, Revisits uint64 // records written
	Bytes                         uint64 // of these records, in the files
	Errors                        uint64 // operations on files, and uploads, that failed

	SpoolBytes    int64         // of exchanges that have not ended
	OpenFiles     int           // that records are written to
	WaitingFiles  int           // that wait for their upload
	WaitingBytes  int64         // of these files
	OldestWaiting time.Duration // how long the oldest of them has waited
}

// Open opens an archive.
func Open(name string, c Config) (*Archive, error) {
	a := &Archive{name: name, c: c}
	path := c.File
	if path == "" {
		if err := os.MkdirAll(c.Dir, 0o755); err != nil {
			return nil, err
		}
		path = filepath.Join(c.Dir, "fetchd.warc.gz")
	}
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_APPEND, 0o644)
	if err != nil {
		return nil, err
	}
	end, err := f.Seek(0, 2)
	if err != nil {
		return nil, err
	}
	a.file = f
	a.writer, err = warc.NewWriter(f, warc.WriterOptions{Plain: filepath.Ext(path) != ".gz", Level: 1, Offset: end})
	return a, err
}

// Name returns the name given to [Open].
func (a *Archive) Name() string { return a.name }

// Ready returns nil, or an [*Error] if nothing can be recorded now.
func (a *Archive) Ready() error { return nil }

// Stats returns the counters.
func (a *Archive) Stats() Stats { return Stats{Up: true} }

// Close ends every open file, and waits for uploads until ctx ends. Files that are not uploaded by
// then are uploaded by the next [Open].
func (a *Archive) Close(context.Context) error { return a.file.Close() }

// Exchange describes a request and its response.
type Exchange struct {
	URL, Method   string
	Date          time.Time // when the exchange began
	Address       netip.Addr
	Protocol, TLS string   // such as "HTTP/1.1" and "TLS 1.3"
	Redact        []string // request fields that the service added, such as Authorization
	Whole         bool     // the response was read to its end
	// Length is the length of the body, as the head says, or negative. Bytes after it are not part
	// of the response.
	Length   int64
	Chunked  bool
	Bodyless bool // the response has no body: to HEAD, and 204, 205 and 304
	// Truncated is the reason if the response is not whole.
	Truncated warc.Truncated
	Earlier   *Earlier // nil: none
}

// Earlier is the record of an earlier response.
type Earlier struct {
	ID, URL       string
	Date          time.Time
	PayloadDigest warc.Digest
}

// Record says where a record is. File is the name that the file has when it is whole.
type Record struct {
	Type           warc.Type
	ID, File       string
	Offset, Length int64
	Date           time.Time
	PayloadDigest  warc.Digest
}

// Begin returns a Capture of one exchange. It makes no system call.
func (a *Archive) Begin(memory *budget.Lease) *Capture { return &Capture{archive: a} }
