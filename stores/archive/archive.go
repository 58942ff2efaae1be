package archive

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"math"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"fetchd/internal/budget"
	"fetchd/warc"
)

// The defaults of a [Config].
const (
	DefaultMaxFileBytes  = 1_000_000_000
	DefaultMaxFileAge    = time.Hour
	DefaultMaxSpoolBytes = 8 << 30
)

// maxOpen is how many files are written at the same time, so that a long record does not stop others.
const maxOpen = 8

// maxLong is how many of the commits that encode at the same time may have an exchange with more than
// 64 KiB in one direction. Short ones do not wait for them.
const maxLong = maxOpen - 2

// Config configures an archive.
type Config struct {
	// Dir is where files and spools are written. It is created if it is missing.
	Dir string
	// File is the path of the only file of the archive. Records are appended to it, it does not
	// rotate, and Dir is ignored. It is compressed if its name ends in .gz. If File is empty, files
	// are named by convention in Dir, and rotate.
	File string
	// Upload stores a whole file elsewhere. It is called again, with pauses, until it returns nil.
	// Then the file is removed. Nil means that files stay in Dir.
	Upload func(ctx context.Context, name string, f *os.File, size int64) error
	// MaxFileBytes and MaxFileAge limit a file. The last record may exceed the first. Zero means the
	// default.
	MaxFileBytes int64
	MaxFileAge   time.Duration
	// MaxSpoolBytes limits the bytes that exchanges in flight have in temporary files, plus those of
	// whole files that wait for their upload. Callers share it as they share a [budget.Budget]. Zero
	// means the default.
	MaxSpoolBytes int64
	// FileMode is the mode of new files, whatever the umask is. Zero means 0600, because records may
	// contain secrets.
	FileMode fs.FileMode
	// Redact are names of header fields whose values are not recorded, neither of requests nor of
	// responses.
	Redact []string
	// Software and Operator are written to the warcinfo record of each file. They may be empty.
	Software, Operator string
	// Logger is nil for no log.
	Logger *slog.Logger
}

// times are how long the archive waits. Tests have shorter ones.
type times struct {
	scan                   time.Duration // between two looks for files of dead processes
	firstPause, longest    time.Duration // before another try of an upload; doubled each time
	breakerPause, forgiven time.Duration // see breaker
}

var usual = times{scan: time.Minute, firstPause: time.Second, longest: time.Minute, breakerPause: 5 * time.Second, forgiven: time.Minute}

// Archive writes WARC files. It is safe for concurrent use.
type Archive struct {
	name   string
	config Config
	times  times
	logger *slog.Logger
	host   string         // for names of files
	limit  int            // of open files
	slots  chan struct{}  // of commits that encode
	long   chan struct{}  // of those with a long exchange
	pool   sync.Pool      // of *encoder
	spools *budget.Budget // MaxSpoolBytes without files that wait: temporary files of exchanges in flight

	described []warc.Field // see Describe

	mu       sync.Mutex
	changed  *sync.Cond // a file or a commit has ended
	closed   bool
	settled  bool    // after closed: no file is open any more
	commits  int     // in flight
	free     []*file // that no commit uses; the last one was used last
	open     int     // files, with those that are being created or made whole
	brief    int     // files in use for one short write
	infoID   string  // of the warcinfo record of the file that was taken last
	serial   int
	waiting  []waiting // for their upload, the oldest first
	waits    int64     // bytes of them
	breaker  breaker
	stats    Stats // the counters
	closeErr error
	reported bool // Close has reported files that wait

	closeOnce sync.Once
	finishing sync.WaitGroup // files that are being made whole
	looking   sync.Mutex     // held while the directory is searched
	context   context.Context
	cancel    context.CancelFunc
	wake      chan struct{} // a file waits for its upload, or the archive is closed
	done      chan struct{} // closed when the background work has ended
}

// Stats are counters of an archive.
type Stats struct {
	Up bool // false while records are refused, because the last writes failed or the space is used up

	Requests, Responses, Revisits uint64 // records that were written
	Bytes                         uint64 // of these records, in the files
	Errors                        uint64 // operations on files, and uploads, that failed

	SpoolBytes    int64         // of exchanges in flight, in temporary files
	OpenFiles     int           // files that are not whole
	WaitingFiles  int           // whole files that wait for their upload
	WaitingBytes  int64         // of these files
	OldestWaiting time.Duration // how long the oldest of them has waited
}

// Open opens an archive. Files that a dead process left are made whole in the background, except
// for [Config].File, which continues at once. Temporary files are removed.
func Open(name string, c Config) (*Archive, error) {
	a, err := open(name, c, usual)
	if err != nil {
		return nil, fmt.Errorf("store %s: %w", name, err)
	}
	return a, nil
}

func open(name string, c Config, t times) (*Archive, error) {
	if c.MaxFileBytes < 0 || c.MaxFileAge < 0 || c.MaxSpoolBytes < 0 {
		return nil, errors.New("a limit is negative: give zero or more")
	}
	if c.File != "" && c.Upload != nil {
		return nil, errors.New("a single file is not uploaded: give a directory")
	}
	c.MaxFileBytes = cmp.Or(c.MaxFileBytes, DefaultMaxFileBytes)
	c.MaxFileAge = cmp.Or(c.MaxFileAge, DefaultMaxFileAge)
	c.MaxSpoolBytes = cmp.Or(c.MaxSpoolBytes, DefaultMaxSpoolBytes)
	c.Redact = slices.Clone(c.Redact)
	for i, field := range c.Redact {
		c.Redact[i] = http.CanonicalHeaderKey(field)
	}
	a := &Archive{name: name, config: c, times: t, logger: cmp.Or(c.Logger, slog.New(slog.DiscardHandler)), host: hostName(), limit: maxOpen,
		slots: make(chan struct{}, maxOpen), long: make(chan struct{}, maxLong), wake: make(chan struct{}, 1), done: make(chan struct{})}
	a.spools = budget.New(c.MaxSpoolBytes)
	a.changed = sync.NewCond(&a.mu)
	a.context, a.cancel = context.WithCancel(context.Background())
	if _, err := a.info(c.File, "", time.Now()); err != nil { // a text that the file cannot contain
		return nil, err
	}
	if c.File != "" {
		if err := a.openSingle(); err != nil {
			return nil, err
		}
		close(a.done)
		return a, nil
	}
	if err := a.openDir(); err != nil {
		return nil, err
	}
	go a.work()
	return a, nil
}

// openDir creates the directory, and checks that files can be created there.
func (a *Archive) openDir() error {
	dir, err := filepath.Abs(a.config.Dir)
	if err != nil {
		return err
	}
	a.config.Dir = dir
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	f, err := createSpool(dir)
	if err != nil {
		return err
	}
	return f.Close()
}

// openSingle opens the only file.
func (a *Archive) openSingle() error {
	a.limit, a.config.Dir = 1, filepath.Dir(a.config.File)
	a.config.MaxFileBytes, a.config.MaxFileAge = math.MaxInt64, math.MaxInt64
	f, err := a.config.openSingle()
	if err != nil {
		return err
	}
	a.free, a.open = []*file{f}, 1
	return nil
}

// plain reports whether files are not compressed.
func (a *Archive) plain() bool {
	return a.config.File != "" && !strings.HasSuffix(a.config.File, ".gz")
}

// Name returns the name given to [Open].
func (a *Archive) Name() string { return a.name }

// Describe adds fields to the warcinfo record of each file. They replace fields of the same name that
// the archive sets, but http-header-NAME is left out if the field NAME is redacted. It is called before
// the first capture.
func (a *Archive) Describe(fields []warc.Field) error {
	if _, err := warc.FormatFields(fields); err != nil {
		return err
	}
	for _, f := range fields {
		if header, ok := strings.CutPrefix(strings.ToLower(f.Name), "http-header-"); !ok || !slices.Contains(a.config.Redact, http.CanonicalHeaderKey(header)) {
			a.described = append(a.described, f)
		}
	}
	return nil
}

// Ready returns nil, or an [*Error] if records would be refused now.
func (a *Archive) Ready() error {
	a.mu.Lock()
	defer a.mu.Unlock()
	switch {
	case a.closed:
		return a.refusal(ReasonUnavailable, errClosed)
	case !a.breaker.ready(time.Now()):
		return a.refusal(a.breaker.reason, errPause)
	case a.isFull():
		return a.refusal(ReasonFull, errFull)
	}
	return nil
}

// Begin returns a capture of one exchange. It makes no system call. What the capture holds is charged
// to memory.
func (a *Archive) Begin(memory *budget.Lease) *Capture { return &Capture{archive: a, memory: memory} }

// Stats returns the counters.
func (a *Archive) Stats() Stats {
	a.mu.Lock()
	defer a.mu.Unlock()
	s := a.stats
	now := time.Now()
	s.Up = a.breaker.up(now, a.times.forgiven) && !a.isFull()
	s.SpoolBytes, s.OpenFiles, s.WaitingFiles = a.spools.Usage().Total(), a.open, len(a.waiting)
	s.WaitingBytes = a.waits
	if len(a.waiting) > 0 {
		s.OldestWaiting = max(now.Sub(a.waiting[0].since), 0)
	}
	return s
}

// isFull reports whether MaxSpoolBytes is used up.
func (a *Archive) isFull() bool { return a.spools.Usage().Total() >= a.spools.Limit() }

// addWaitsLocked counts n more bytes of whole files that wait. Exchanges in flight share what is left.
func (a *Archive) addWaitsLocked(n int64) {
	a.waits += n
	a.spools.Resize(-n)
}

// Close waits for commits in flight, makes every open file whole, and waits for uploads until ctx
// ends. The next [Open] uploads the rest. Close may be called again; the context that ends first
// ends the uploads. Each error is returned once.
func (a *Archive) Close(ctx context.Context) error {
	a.closeOnce.Do(a.closeFiles)
	select {
	case <-a.done:
	case <-ctx.Done():
	}
	a.cancel()
	<-a.done
	a.mu.Lock()
	defer a.mu.Unlock()
	err := a.closeErr
	a.closeErr = nil
	if n := len(a.waiting); n > 0 && !a.reported {
		a.reported = true
		err = errors.Join(err, fmt.Errorf("store %s: %d files in %s wait for their upload until the store is opened again", a.name, n, a.config.Dir))
	}
	return err
}

func (a *Archive) closeFiles() {
	a.mu.Lock()
	a.closed = true
	for a.commits > 0 {
		a.changed.Wait()
	}
	for _, f := range a.free {
		a.finishing.Go(func() { a.finish(f) })
	}
	a.free = nil
	a.mu.Unlock()
	a.finishing.Wait()
	a.mu.Lock()
	a.settled = true
	a.mu.Unlock()
	if a.config.Upload == nil {
		a.cancel()
	}
	a.awake()
}

// enter counts a commit in flight.
func (a *Archive) enter() error {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.closed {
		return a.refusal(ReasonUnavailable, errClosed)
	}
	a.commits++
	return nil
}

func (a *Archive) leave() {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.commits--; a.commits == 0 && a.closed {
		a.changed.Broadcast()
	}
}
