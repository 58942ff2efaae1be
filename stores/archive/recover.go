package archive

import (
	"context"
	"errors"
	"io"
	"io/fs"
	"log/slog"
	"math"
	"os"
	"path/filepath"
	"strings"
	"time"

	"fetchd/stores/flock"
	"fetchd/warc"
)

// work looks for files of dead processes, makes files whole that are old, and uploads whole files,
// until the archive is closed.
func (a *Archive) work() {
	defer close(a.done)
	age := time.NewTicker(min(max(a.config.MaxFileAge/10, time.Millisecond), a.times.scan))
	defer age.Stop()
	rotating := make(chan struct{})
	go func() { // an upload may take longer than a file may become old
		defer close(rotating)
		for {
			select {
			case <-age.C:
				a.rotate()
			case <-a.context.Done():
				return
			}
		}
	}()
	for a.context.Err() == nil {
		if _, err := a.recover(a.context); err != nil && a.context.Err() == nil {
			_ = a.failed("list files", err)
		}
		a.upload()
		if a.ended() {
			break
		}
		wait := time.NewTimer(a.times.scan)
		select {
		case <-wait.C:
		case <-a.wake:
		case <-a.context.Done():
		}
		wait.Stop()
	}
	a.cancel()
	<-rotating
}

// ended reports whether the archive is closed and no file waits.
func (a *Archive) ended() bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.settled && len(a.waiting) == 0
}

// awake makes work go on.
func (a *Archive) awake() {
	select {
	case a.wake <- struct{}{}:
	default:
	}
}

// rotate makes files whole that are old and that no commit uses.
func (a *Archive) rotate() {
	a.mu.Lock()
	defer a.mu.Unlock()
	young := a.free[:0]
	for _, f := range a.free {
		if time.Since(f.created) < a.config.MaxFileAge {
			young = append(young, f)
			continue
		}
		a.finishing.Go(func() { a.finish(f) })
	}
	a.free = young
}

// Clean makes files of dead processes whole, and removes their temporary files, as [Open] does in
// the background. It returns how many files there were.
func (a *Archive) Clean(ctx context.Context) (int, error) {
	if a.single() {
		return 0, nil
	}
	return a.recover(ctx)
}

// recover looks through the directory. Whole files are queued for their upload.
func (a *Archive) recover(ctx context.Context) (n int, err error) {
	a.looking.Lock()
	defer a.looking.Unlock()
	entries, err := os.ReadDir(a.config.Dir)
	if err != nil {
		return 0, err
	}
	for _, entry := range entries {
		name := entry.Name()
		path := filepath.Join(a.config.Dir, name)
		whole, open := strings.CutSuffix(name, openEnd)
		switch {
		case ctx.Err() != nil:
			return n, context.Cause(ctx)
		case !entry.Type().IsRegular():
		case strings.HasPrefix(name, spoolPrefix):
			if os.Remove(path) == nil { // its process is dead, or needs no name
				n++
			}
		case !strings.HasPrefix(name, prefix) || !strings.HasSuffix(whole, extension):
		case open && flock.Supported: // else a file that another process writes looks the same
			switch done, err := a.recoverFile(ctx, filepath.Join(a.config.Dir, whole)); {
			case ctx.Err() != nil:
				return n, context.Cause(ctx)
			case err != nil:
				_ = a.failed("recover file", err)
			case done:
				n++
			}
		case !open && a.config.Upload != nil:
			if info, err := entry.Info(); err == nil {
				a.queue(whole, info.Size(), info.ModTime())
			}
		}
	}
	return n, nil
}

// recoverFile makes the file of a dead process whole. It reports false if the process lives.
func (a *Archive) recoverFile(ctx context.Context, path string) (bool, error) {
	f, err := os.OpenFile(path+openEnd, os.O_RDWR, 0)
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil // another process was faster
	}
	if err != nil {
		return false, err
	}
	defer func() { _ = f.Close() }() // after makeWhole it is closed already
	switch err := flock.Lock(f); {
	case errors.Is(err, flock.ErrLocked) || err == nil && !flock.Holds(path+openEnd, f):
		return false, nil
	case err != nil:
		return false, err
	}
	info, err := f.Stat()
	if err != nil {
		return false, err
	}
	size, records, err := cut(ctx, f, path)
	if err != nil {
		return false, err
	}
	a.logger.Warn("the file of a process that has died was recovered", slog.String("store", a.name), slog.String("file", filepath.Base(path)),
		slog.Int("records", records), slog.Int64("bytes_removed", info.Size()-size))
	if records == 0 {
		return true, os.Remove(path + openEnd)
	}
	if err := makeWhole(f, path); err != nil {
		return false, err
	}
	if a.config.Upload != nil {
		a.queue(filepath.Base(path), size, info.ModTime())
	}
	return true, nil
}

// cut truncates a file to its last whole record. It returns its size, and the number of records
// other than warcinfo. An error of the disk does not truncate it. If the file is damaged there, and
// does not only end, the rest may have whole records: it is kept in a file beside it.
func cut(ctx context.Context, f *os.File, path string) (size int64, records int, err error) {
	in := &source{ctx: ctx, from: f}
	r := warc.NewReader(in, warc.ReaderOptions{})
	for {
		var record *warc.Record
		record, err = r.Next()
		if err == nil {
			err = record.Finish()
		}
		if err != nil {
			break
		}
		if record.Type != warc.Warcinfo {
			records++
		}
	}
	if in.err != nil {
		return 0, 0, in.err
	}
	if !errors.Is(err, io.EOF) && !errors.Is(err, io.ErrUnexpectedEOF) {
		if err := keepRest(f, r.Whole(), path+damagedEnd); err != nil {
			return 0, 0, err
		}
	}
	return r.Whole(), records, f.Truncate(r.Whole())
}

// damagedEnd is the end of the name of a file that has what followed damage in a WARC file.
const damagedEnd = ".damaged"

// keepRest copies a file from an offset on.
func keepRest(f *os.File, offset int64, to string) error {
	_ = os.Remove(to) // of a copy that a crash has ended, or somebody's link
	rest, err := os.OpenFile(to, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return err
	}
	_, err = io.Copy(rest, io.NewSectionReader(f, offset, math.MaxInt64-offset))
	return errors.Join(err, rest.Sync(), rest.Close())
}

// source reads until ctx ends, and keeps the error.
type source struct {
	ctx  context.Context
	from io.Reader
	err  error // other than io.EOF
}

// Read implements io.Reader.
func (s *source) Read(p []byte) (int, error) {
	if s.ctx.Err() != nil {
		s.err = context.Cause(s.ctx)
		return 0, s.err
	}
	n, err := s.from.Read(p)
	if err != nil && !errors.Is(err, io.EOF) {
		s.err = err
	}
	return n, err
}
