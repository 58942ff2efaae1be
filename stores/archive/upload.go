package archive

import (
	"errors"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"time"

	"fetchd/stores/flock"
)

// waiting is a whole file that waits for its upload.
type waiting struct {
	name  string
	size  int64
	since time.Time
}

// queue adds a whole file to those that wait.
func (a *Archive) queue(name string, size int64, since time.Time) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.queueLocked(name, size, since)
}

func (a *Archive) queueLocked(name string, size int64, since time.Time) {
	if a.config.Upload == nil {
		return
	}
	// It replaces an entry that is being tried, because that may just have found the file locked by finish.
	if i := slices.IndexFunc(a.waiting, func(w waiting) bool { return w.name == name }); i >= 0 {
		a.addWaitsLocked(-a.waiting[i].size)
		a.waiting = slices.Delete(a.waiting, i, i+1)
	}
	a.waiting = append(a.waiting, waiting{name, size, since})
	slices.SortStableFunc(a.waiting, func(x, y waiting) int { return x.since.Compare(y.since) })
	a.addWaitsLocked(size)
	a.awake()
}

// upload uploads files until none waits or the context ends. After a failure it pauses.
func (a *Archive) upload() {
	pause := a.times.firstPause
	tries := 0 // since the last success: a file that cannot be read does not stop the others
	for a.context.Err() == nil {
		a.mu.Lock()
		if len(a.waiting) == 0 {
			a.mu.Unlock()
			return
		}
		next := a.waiting[tries%len(a.waiting)]
		a.mu.Unlock()
		err := a.uploadFile(next)
		if err == nil {
			a.unqueue(next)
			pause, tries = a.times.firstPause, 0
			continue
		}
		if a.context.Err() != nil {
			return // closed
		}
		tries++
		a.mu.Lock()
		a.stats.Errors++
		a.mu.Unlock()
		a.logger.Warn("a WARC file was not uploaded, and is tried again", slog.String("store", a.name), slog.String("file", next.name),
			slog.Float64("pause_seconds", pause.Seconds()), slog.Any("error", err))
		wait := time.NewTimer(pause)
		select {
		case <-wait.C:
		case <-a.context.Done():
		}
		wait.Stop()
		pause = min(2*pause, a.times.longest)
	}
}

// uploadFile uploads and removes a file. One that another process uploads is left to it: if that
// fails, the next look finds the file again.
func (a *Archive) uploadFile(w waiting) error {
	path := filepath.Join(a.config.Dir, w.name)
	f, err := os.Open(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	defer func() { _ = f.Close() }() // it was read only
	if errors.Is(flock.Lock(f), flock.ErrLocked) || !flock.Holds(path, f) {
		return nil
	}
	info, err := f.Stat()
	if err != nil {
		return err
	}
	if err := a.config.Upload(a.context, w.name, f, info.Size()); err != nil {
		return err
	}
	if !flock.Supported {
		_ = f.Close() // Windows does not remove open files
	}
	a.logger.Info("a WARC file was uploaded", slog.String("store", a.name), slog.String("file", w.name), slog.Int64("bytes", info.Size()))
	return os.Remove(path)
}

func (a *Archive) unqueue(w waiting) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if i := slices.Index(a.waiting, w); i >= 0 {
		a.waiting = slices.Delete(a.waiting, i, i+1)
		a.addWaitsLocked(-w.size)
	}
}
