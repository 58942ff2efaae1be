package download

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"math"
	"os"
	"strings"
	"sync"

	"fetchd/internal/cli"
	"fetchd/stores/flock"
)

// folder is the directory of the downloads. Nothing outside it is accessed, and no symbolic
// link in it is followed: every opened file was either created here, or is a regular file
// under its own name.
type folder struct {
	root *os.Root
	// step is called before each change; an error prevents the change. It may be nil.
	// Tests use it to end a run at any point.
	step func(string) error

	// say reports the first error of the record of URLs to the user. Nil reports nothing.
	say func(error)

	mu   sync.Mutex
	said bool
	urls map[string]string // URL of each finished file, by name, as far as the record was read; "" if not known
	file fs.FileInfo       // the record that was read
	read int64             // its bytes that need not be read again
}

// openFolder opens a directory, and creates it if it does not exist.
func openFolder(name string) (*folder, error) {
	if err := os.MkdirAll(name, 0o777); err != nil {
		return nil, cli.OutputError(err)
	}
	root, err := os.OpenRoot(name)
	if err != nil {
		return nil, cli.OutputError(err)
	}
	return &folder{root: root}, nil
}

func (d *folder) close() { _ = d.root.Close() } // nothing was written through it

// change does something that changes the folder or a file in it.
func (d *folder) change(what string, do func() error) error {
	if d.step != nil {
		if err := d.step(what); err != nil {
			return err
		}
	}
	return do()
}

func (d *folder) lstat(name string) (fs.FileInfo, error) { return d.root.Lstat(name) }

// exists reports whether the name exists, even as a symbolic link without a target.
func (d *folder) exists(name string) (bool, error) {
	_, err := d.lstat(name)
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	return err == nil, err
}

// create creates a file that does not exist.
func (d *folder) create(name string, mode fs.FileMode) (f *os.File, err error) {
	err = d.change("create "+name, func() error {
		f, err = d.root.OpenFile(name, os.O_RDWR|os.O_CREATE|os.O_EXCL, mode)
		return err
	})
	return f, err
}

// open opens an existing regular file.
func (d *folder) open(name string, flag int) (*os.File, error) {
	before, err := d.lstat(name)
	if err != nil {
		return nil, err
	}
	if !before.Mode().IsRegular() {
		return nil, fmt.Errorf("%s is not a regular file", name)
	}
	f, err := d.root.OpenFile(name, flag, 0)
	if err != nil {
		return nil, err
	}
	if info, err := f.Stat(); err != nil || !os.SameFile(before, info) {
		return nil, errors.Join(err, f.Close(), errBusy)
	}
	return f, nil
}

// remove removes a file, which need not exist.
func (d *folder) remove(name string) error {
	return d.change("remove "+name, func() error {
		if err := d.root.Remove(name); !errors.Is(err, fs.ErrNotExist) {
			return err
		}
		return nil
	})
}

// removeAll removes files in this order. They need not exist.
func (d *folder) removeAll(names ...string) error {
	for _, name := range names {
		if err := d.remove(name); err != nil {
			return err
		}
	}
	return nil
}

// removeUnlocked removes a file that no other run is writing, and others before it.
func (d *folder) removeUnlocked(name string, others ...string) error {
	f, err := d.open(name, os.O_RDWR)
	switch {
	case errors.Is(err, fs.ErrNotExist), errors.Is(err, errBusy): // another run was faster
		return errBusy
	case err == nil:
		defer func() { _ = f.Close() }() // nothing was written
		if errors.Is(flock.Lock(f), flock.ErrLocked) {
			return errBusy
		}
		info, err := f.Stat()
		now, errNow := d.lstat(name)
		if err != nil || errNow != nil || !os.SameFile(info, now) {
			return errBusy
		}
	}
	return d.removeAll(append(others, name)...)
}

func (d *folder) rename(from, to string) error {
	return d.change("rename "+from, func() error { return d.root.Rename(from, to) })
}

// place renames a file to a name that must be free. It uses a hard link, which never replaces
// a file. File systems without links get a check and a rename.
func (d *folder) place(from, to string) error {
	err := d.change("link "+from, func() error { return d.root.Link(from, to) })
	if err == nil || errors.Is(err, fs.ErrExist) {
		return err
	}
	if there, statErr := d.exists(to); there || statErr != nil {
		return errors.Join(fs.ErrExist, statErr)
	}
	return d.rename(from, to)
}

// replace gives a file a second name, which may be that of another file, by way of a third. The first name stays, and
// with it the lock. File systems without links get a rename.
func (d *folder) replace(from, via, to string) error {
	if err := d.remove(via); err != nil {
		return err
	}
	if err := d.change("link "+from, func() error { return d.root.Link(from, via) }); err != nil {
		return d.rename(from, to)
	}
	return d.rename(via, to)
}

// sync flushes the directory, so that the names survive a crash of the system.
func (d *folder) sync() error {
	return d.change("sync folder", func() error {
		f, err := d.root.Open(".")
		if err != nil {
			return err
		}
		defer func() { _ = f.Close() }() // nothing was written through it
		return f.Sync()
	})
}

// same reports whether two names belong to the same file.
func (d *folder) same(a, b string) bool {
	x, errX := d.lstat(a)
	y, errY := d.lstat(b)
	return errX == nil && errY == nil && os.SameFile(x, y)
}

// sidecar records how far a part has come. It is a JSON file next to the part.
type sidecar struct {
	Version   int    `json:"version"`
	URL       string `json:"url"`
	Validator string `json:"validator,omitempty"` // empty if the part cannot be continued
	Offset    int64  `json:"offset"`              // bytes that are certainly on disk
	Total     int64  `json:"total"`               // of the complete file; -1 if unknown
}

const (
	sidecarVersion = 1
	maxSidecar     = 64 << 10
)

// errForeign reports that a name that we need belongs to another program.
var errForeign = errors.New("exists, but is not of this program: remove it, or give --force")

// readSidecar reads the sidecar of a file. After a crash of the system a sidecar may be empty
// or consist of zeros. Such a sidecar has no information, but it is ours.
func (d *folder) readSidecar(name string) (sidecar, error) {
	f, err := d.open(name+sidecarEnding, os.O_RDONLY)
	if err != nil {
		return sidecar{}, err
	}
	defer func() { _ = f.Close() }() // it was only read
	text, err := io.ReadAll(io.LimitReader(f, maxSidecar+1))
	if err != nil {
		return sidecar{}, err
	}
	s := sidecar{Total: -1}
	if strings.Trim(string(text), "\x00") == "" {
		return s, nil
	}
	if err := json.Unmarshal(text, &s); err != nil || s.Version != sidecarVersion || s.Offset < 0 || s.URL == "" {
		return sidecar{}, fmt.Errorf("%s %w", name+sidecarEnding, errForeign)
	}
	if !isStrongValidator(s.Validator) {
		s.Validator = ""
	}
	return s, nil
}

// writeSidecar replaces the sidecar of a file atomically. If lasting is set, it survives a
// crash of the system.
func (d *folder) writeSidecar(name string, s sidecar, lasting bool) error {
	s.Version = sidecarVersion
	text, err := json.Marshal(s)
	if err != nil {
		return err
	}
	fresh := name + freshEnding
	if err := d.remove(fresh); err != nil {
		return err
	}
	f, err := d.create(fresh, 0o600) // a URL may contain a secret
	if err != nil {
		return err
	}
	err = d.change("write "+fresh, func() error {
		_, err := f.Write(append(text, '\n'))
		return err
	})
	if err == nil && lasting {
		err = f.Sync()
	}
	if err := errors.Join(err, f.Close()); err != nil {
		return err
	}
	if err := d.rename(fresh, name+sidecarEnding); err != nil || !lasting {
		return err
	}
	return d.sync()
}

// urlsName is the record: a file that has a line of JSON for each finished file. Lines are only appended, so
// that several runs can write it.
const urlsName = ".fetchctl-urls"

// fileURL is a line of it. The last line of a name counts.
type fileURL struct {
	Name string `json:"name"`
	URL  string `json:"url"` // empty if it is not known
}

// readURLs reads what the record has got since it was last read. Its error is also said. The caller holds mu.
func (d *folder) readURLs() error {
	f, err := d.open(urlsName, os.O_RDONLY)
	if err != nil {
		if d.urls = nil; errors.Is(err, fs.ErrNotExist) {
			return nil
		}
		return d.trouble("read", err)
	}
	defer func() { _ = f.Close() }() // it was only read
	info, err := f.Stat()
	if err != nil {
		return d.trouble("read", err)
	}
	if d.urls == nil || !os.SameFile(info, d.file) || info.Size() < d.read {
		d.urls, d.file, d.read = make(map[string]string), info, 0
	}
	lines := bufio.NewReaderSize(io.NewSectionReader(f, d.read, math.MaxInt64-d.read), maxSidecar)
	for at, long := d.read, false; ; {
		text, err := lines.ReadSlice('\n')
		at += int64(len(text))
		if errors.Is(err, bufio.ErrBufferFull) {
			long = true // no line of ours
			continue
		}
		var line fileURL
		if !long && json.Unmarshal(text, &line) == nil && cleanName(line.Name) == line.Name {
			d.urls[line.Name] = line.URL
		}
		switch {
		case errors.Is(err, io.EOF): // the last line may be incomplete
			return nil
		case err != nil:
			d.urls = nil
			return d.trouble("read", err)
		}
		d.read, long = at, false
	}
}

// trouble says once that the record cannot be used.
func (d *folder) trouble(what string, err error) error {
	if e, ok := errors.AsType[*fs.PathError](err); ok {
		err = e.Err
	}
	err = fmt.Errorf("%s %s: %w", what, urlsName, err)
	if d.say != nil && !d.said {
		d.say(err)
	}
	d.said = true
	return err
}

// finished returns the URLs of the finished files that are still there, by name.
func (d *folder) finished() map[string]string {
	d.mu.Lock()
	defer d.mu.Unlock()
	finished := make(map[string]string)
	if d.readURLs() != nil {
		return finished
	}
	for name, url := range d.urls {
		if there, err := d.exists(name); url != "" && err == nil && there {
			finished[name] = url
		}
	}
	return finished
}

// urlOf returns the URL of a finished file, or "" if it is not known.
func (d *folder) urlOf(name string) string {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.readURLs() != nil {
		return ""
	}
	return d.urls[name]
}

// record notes the URL of a finished file. The file counts also if that fails, but then its URL is not known.
func (d *folder) record(name, url string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	_ = d.appendURL(name, url) // it was said
}

// forget ensures that the record does not have another URL for a name that is about to get the file of this one.
// A record that cannot be read may have one for a file that is there.
func (d *folder) forget(name, url string, there bool) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	err := d.readURLs()
	if known := d.urls[name]; known != "" && known != url || err != nil && there {
		return d.appendURL(name, "")
	}
	return nil
}

// appendURL adds a line to the record. It begins with a line end, because a killed run may have left the last line
// without one. It also reports its error with say. The caller holds mu.
func (d *folder) appendURL(name, url string) error {
	line, err := json.Marshal(fileURL{name, url})
	if err != nil {
		return err
	}
	err = d.change("write "+urlsName, func() error {
		f, err := d.open(urlsName, os.O_WRONLY|os.O_APPEND)
		if errors.Is(err, fs.ErrNotExist) {
			f, err = d.root.OpenFile(urlsName, os.O_WRONLY|os.O_APPEND|os.O_CREATE, 0o600) // a URL may contain a secret
		}
		if err != nil {
			return err
		}
		_, err = f.Write(append([]byte("\n"), line...))
		return errors.Join(err, f.Sync(), f.Close())
	})
	if err != nil {
		return d.trouble("write", err)
	}
	return nil
}

// unfinished returns the URLs of the unfinished files, by name.
func (d *folder) unfinished() (map[string]string, error) {
	f, err := d.root.Open(".")
	if err != nil {
		return nil, cli.OutputError(err)
	}
	defer func() { _ = f.Close() }() // it was only read
	names, err := f.Readdirnames(-1)
	if err != nil {
		return nil, cli.OutputError(err)
	}
	unfinished := make(map[string]string)
	for _, n := range names {
		name, ok := strings.CutSuffix(n, sidecarEnding)
		if !ok || cleanName(name) != name {
			continue
		}
		if s, err := d.readSidecar(name); err == nil && s.URL != "" {
			unfinished[name] = s.URL
		}
	}
	return unfinished, nil
}

// errBusy reports that another run is downloading the file.
var errBusy = errors.New("another run is downloading it")
