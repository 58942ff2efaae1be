package archive

import (
	"bytes"
	"crypto/rand"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	"fetchd/stores/flock"
	"fetchd/warc"
)

const (
	prefix    = "fetchd-"
	extension = ".warc.gz"
	openEnd   = ".open" // of the name of a file that is not whole
)

// file is an open file. One commit uses it at a time.
type file struct {
	file    *os.File
	name    string // without openEnd
	path    string // without openEnd
	size    int64  // of the whole records
	records int    // that this archive has written, without warcinfo
	kept    bool   // it had records before
	info    string // the identifier of the warcinfo record of this archive; empty if it has none yet
	created time.Time
	brief   bool // it is used for one write
	full    bool // it takes no more records
	broken  bool // it has a part of a record that could not be removed
}

var errBroken = errors.New("it cannot be used after an error")

// take returns a file for the use of one commit: the one used last, or a new one if all are used for
// long writes. brief reports whether the commit needs one write only.
func (a *Archive) take(brief bool) (*file, error) {
	a.mu.Lock()
	for len(a.free) == 0 && (a.brief > 0 || a.open == a.limit) {
		a.changed.Wait()
	}
	var f *file
	if n := len(a.free); n > 0 {
		f = a.free[n-1]
		a.free = a.free[:n-1]
		if f.brief = brief; brief {
			a.brief++
		}
		a.mu.Unlock()
		if _, err := f.file.Stat(); err == nil && !flock.Holds(f.path+openEnd, f.file) { // its records would have no name
			a.logger.Error("a file was removed or replaced by another program: its records are lost", slog.String("store", a.name), slog.String("file", f.name))
			f.full = true
			a.release(f)
			return a.take(brief)
		}
	} else {
		a.open++
		a.brief++ // others wait while it is created
		a.serial++
		serial := a.serial
		a.mu.Unlock()
		created, err := a.create(serial)
		a.mu.Lock()
		if err != nil || !brief {
			a.brief--
		}
		if err != nil {
			a.open--
		}
		a.changed.Broadcast()
		a.mu.Unlock()
		if err != nil {
			return nil, a.fail("create file", err)
		}
		f = created
		f.brief = brief
	}
	if f.info == "" {
		if err := a.writeInfo(f); err != nil {
			a.undo(f)
			return nil, a.fail("write warcinfo", err)
		}
	}
	a.mu.Lock()
	a.infoID = f.info
	a.mu.Unlock()
	return f, nil
}

// nextInfo returns the identifier of the warcinfo record of the file that take will probably return.
func (a *Archive) nextInfo() string {
	a.mu.Lock()
	defer a.mu.Unlock()
	if n := len(a.free); n > 0 && a.free[n-1].info != "" {
		return a.free[n-1].info
	}
	return a.infoID
}

// release ends the use of a file.
func (a *Archive) release(f *file) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if f.brief {
		f.brief = false
		a.brief--
	}
	if f.broken || f.full || f.size >= a.config.MaxFileBytes || time.Since(f.created) >= a.config.MaxFileAge {
		a.finishing.Go(func() { a.finish(f) })
	} else {
		a.free = append(a.free, f)
	}
	a.changed.Broadcast() // Close waits, too
}

// undo removes what a failed commit has written, and ends its use of the file.
func (a *Archive) undo(f *file) {
	end, err := f.file.Seek(0, 2)
	switch {
	case err == nil && end > f.size:
		err = f.file.Truncate(f.size)
		// A file that cannot grow may be at the limit of a file's size. A new one can then be written.
		f.full = f.records > 0 && !a.single()
	case err == nil && end < f.size:
		err = errors.New("the file was truncated by another program")
	case f.records == 0 && !a.single():
		f.full = true // an empty file is removed
	}
	if err != nil {
		a.logger.Error("a file cannot be used any more", slog.String("store", a.name), slog.String("file", f.name), slog.Any("error", err))
		f.broken = true
	}
	a.release(f)
}

func (a *Archive) single() bool { return a.config.File != "" }

// wrote counts records that were written.
func (a *Archive) wrote(records []Record) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.breaker.succeeded()
	for _, r := range records {
		a.stats.Bytes += uint64(r.Length)
		switch r.Type {
		case warc.Request:
			a.stats.Requests++
		case warc.Response:
			a.stats.Responses++
		default:
			a.stats.Revisits++
		}
	}
}

// create creates a file and locks it. A single file is not replaced.
func (a *Archive) create(serial int) (*file, error) {
	if a.single() {
		return nil, &fs.PathError{Op: "write", Path: a.config.File, Err: errBroken}
	}
	for {
		now := time.Now().UTC()
		name := fmt.Sprintf("%s%s%03d-%05d-%s~%s%s", prefix, now.Format("20060102150405"), now.Nanosecond()/1e6, serial, a.host,
			strings.ToLower(rand.Text()[:8]), extension)
		f := &file{name: name, path: filepath.Join(a.config.Dir, name), created: time.Now()}
		var err error
		if f.file, err = a.config.newFile(f.path + openEnd); err != nil {
			return nil, err
		}
		// Another process may take the file for that of a dead process before it is locked.
		if !errors.Is(flock.Lock(f.file), flock.ErrLocked) && flock.Holds(f.path+openEnd, f.file) {
			return f, nil
		}
		_ = f.file.Close() // the other process removes it
	}
}

// newFile creates a file.
func (c *Config) newFile(path string) (*os.File, error) {
	f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil || c.FileMode == 0 {
		return f, err
	}
	if err := f.Chmod(c.FileMode); err != nil {
		return nil, errors.Join(err, f.Close(), os.Remove(path))
	}
	return f, nil
}

// hostName returns the name of this host as a part of a file name.
func hostName() string {
	name, err := os.Hostname()
	if err != nil || name == "" {
		return "localhost"
	}
	name = strings.Map(func(c rune) rune {
		if c < 0x80 && (c >= '0' && c <= '9' || c|0x20 >= 'a' && c|0x20 <= 'z' || c == '.') {
			return c
		}
		return '_'
	}, name)
	return name[:min(len(name), 64)]
}

// writeInfo writes the warcinfo record of a file.
func (a *Archive) writeInfo(f *file) error {
	id := warc.NewID()
	record, err := a.info(f.name, id, f.created)
	if err != nil {
		return err
	}
	if _, err := f.file.WriteAt(record, f.size); err != nil {
		return err
	}
	f.size += int64(len(record))
	f.info = id
	return nil
}

// info returns a warcinfo record.
func (a *Archive) info(name, id string, date time.Time) ([]byte, error) {
	fields := []warc.Field{{Name: "software", Value: a.config.Software}, {Name: "operator", Value: a.config.Operator},
		{Name: "hostname", Value: a.host}, {Name: "format", Value: "WARC File Format 1.1"},
		{Name: "conformsTo", Value: "https://iipc.github.io/warc-specifications/specifications/warc-format/warc-1.1/"},
		{Name: "digest-algorithm", Value: string(warc.SHA1)}}
	fields = slices.DeleteFunc(fields, func(f warc.Field) bool {
		return f.Value == "" || slices.ContainsFunc(a.described, func(d warc.Field) bool { return strings.EqualFold(d.Name, f.Name) })
	})
	var record bytes.Buffer
	w, err := warc.NewWriter(&record, warc.WriterOptions{Plain: a.plain(), Level: gzipLevel})
	if err != nil {
		return nil, err
	}
	_, err = w.WriteInfo(&warc.Header{ID: id, Date: date.UTC().Truncate(time.Microsecond), Filename: filepath.Base(name)}, append(fields, a.described...))
	return record.Bytes(), err
}

// finish makes a file whole, or removes it if it has no records. A file that cannot be made whole
// keeps its name: a later look for files of dead processes takes it up.
func (a *Archive) finish(f *file) {
	err := a.complete(f)
	if err != nil {
		err = a.failed("make file whole", err)
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	a.open--
	a.closeErr = errors.Join(a.closeErr, err)
	a.changed.Broadcast()
	if err == nil && f.size > 0 {
		a.queueLocked(f.name, f.size, time.Now())
	}
}

func (a *Archive) complete(f *file) error {
	if f.broken {
		return errors.Join(f.file.Close(), errors.New("it has a part of a record: its whole records are kept under the name that ends in .open"))
	}
	if f.records == 0 && !f.kept {
		f.size = 0
		return errors.Join(os.Remove(f.path+openEnd), f.file.Close())
	}
	return makeWhole(f.file, f.path)
}

// makeWhole gives a locked file the name of a whole one, and closes it. It does not replace a file.
func makeWhole(f *os.File, path string) error {
	defer func() { _ = f.Close() }() // it is synced
	if err := f.Sync(); err != nil {
		return err
	}
	if _, err := os.Lstat(path); !errors.Is(err, fs.ErrNotExist) {
		return errors.Join(err, fmt.Errorf("%s exists", path))
	}
	if !flock.Supported {
		_ = f.Close() // Windows does not rename open files
	}
	if err := os.Rename(path+openEnd, path); err != nil {
		return err
	}
	return syncDir(filepath.Dir(path))
}

// syncDir writes the names in a directory to the disk.
func syncDir(dir string) error {
	f, err := os.Open(dir)
	if err != nil {
		return err
	}
	err = f.Sync()
	if errors.Is(err, syscall.EINVAL) || errors.Is(err, fs.ErrPermission) || errors.Is(err, fs.ErrInvalid) {
		err = nil // some systems cannot
	}
	return errors.Join(err, f.Close())
}
