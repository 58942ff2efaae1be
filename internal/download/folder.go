package download

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"strings"

	"fetchd/internal/cli"
)

// folder is where downloads go. Nothing outside it is reached, and no symbolic
// link in it is followed: what is opened was made new, or is a regular file by
// its own name.
type folder struct {
	root *os.Root
	// step is asked before each change; an error stops it. Nil lets all pass. Tests
	// end a run with it at any moment.
	step func(string) error
}

// openFolder opens a directory, and makes it where it is missing.
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

func (d *folder) close() { _ = d.root.Close() } // it was only looked through

// change is a step that alters the folder or a file in it.
func (d *folder) change(what string, do func() error) error {
	if d.step != nil {
		if err := d.step(what); err != nil {
			return err
		}
	}
	return do()
}

func (d *folder) lstat(name string) (fs.FileInfo, error) { return d.root.Lstat(name) }

// exists tells whether anything has the name, a link that leads nowhere included.
func (d *folder) exists(name string) (bool, error) {
	_, err := d.lstat(name)
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	return err == nil, err
}

// create makes a file that was not there.
func (d *folder) create(name string, mode fs.FileMode) (f *os.File, err error) {
	err = d.change("create "+name, func() error {
		f, err = d.root.OpenFile(name, os.O_RDWR|os.O_CREATE|os.O_EXCL, mode)
		return err
	})
	return f, err
}

// open opens a regular file that is there.
func (d *folder) open(name string, flag int) (*os.File, error) {
	before, err := d.lstat(name)
	if err != nil {
		return nil, err
	}
	if !before.Mode().IsRegular() {
		return nil, fmt.Errorf("%s is no regular file", name)
	}
	f, err := d.root.OpenFile(name, flag, 0)
	if err != nil {
		return nil, err
	}
	if info, err := f.Stat(); err != nil || !os.SameFile(before, info) {
		return nil, errors.Join(err, f.Close(), fmt.Errorf("%s was changed meanwhile", name))
	}
	return f, nil
}

// remove removes a file that may be gone already.
func (d *folder) remove(name string) error {
	return d.change("remove "+name, func() error {
		if err := d.root.Remove(name); !errors.Is(err, fs.ErrNotExist) {
			return err
		}
		return nil
	})
}

// clear removes what belongs to a file under way, the sidecar last: without it
// the others would not be ours.
func (d *folder) clear(name string) error {
	for _, ending := range []string{partEnding, freshEnding, sidecarEnding} {
		if err := d.remove(name + ending); err != nil {
			return err
		}
	}
	return nil
}

func (d *folder) rename(from, to string) error {
	return d.change("rename "+from, func() error { return d.root.Rename(from, to) })
}

// place gives a file a second name that was free. A file system without links
// gives it the name instead.
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

// sync makes names last.
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

// same tells whether two names are those of one file.
func (d *folder) same(a, b string) bool {
	x, errX := d.lstat(a)
	y, errY := d.lstat(b)
	return errX == nil && errY == nil && os.SameFile(x, y)
}

// sidecar says how far a part has come. It stands beside it as JSON.
type sidecar struct {
	Version   int    `json:"version"`
	URL       string `json:"url"`
	Validator string `json:"validator,omitempty"` // empty: it cannot be continued
	Offset    int64  `json:"offset"`              // bytes that are surely there
	Total     int64  `json:"total"`               // of the whole file; -1: not told
}

const (
	sidecarVersion = 1
	maxSidecar     = 64 << 10
)

// errForeign says that a name we would use belongs to somebody else.
var errForeign = errors.New("is there, and not of this program: remove it, or give --force")

// readSidecar reads the sidecar of a name. One that is empty, or zeros alone, is
// what a crash of the system may leave; it says nothing, but it is ours.
func (d *folder) readSidecar(name string) (sidecar, error) {
	f, err := d.open(name+sidecarEnding, os.O_RDONLY)
	if err != nil {
		return sidecar{}, err
	}
	defer func() { _ = f.Close() }() // it was only read from
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

// writeSidecar replaces the sidecar of a name at once. A lasting one is there
// after a crash of the system too.
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
	f, err := d.create(fresh, 0o600) // a URL may hold a secret
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

// begun lists the files that were begun and not finished: name → URL.
func (d *folder) begun() (map[string]string, error) {
	f, err := d.root.Open(".")
	if err != nil {
		return nil, cli.OutputError(err)
	}
	defer func() { _ = f.Close() }() // it was only read from
	names, err := f.Readdirnames(-1)
	if err != nil {
		return nil, cli.OutputError(err)
	}
	begun := make(map[string]string)
	for _, n := range names {
		name, ok := strings.CutSuffix(n, sidecarEnding)
		if !ok || cleanName(name) != name {
			continue
		}
		if s, err := d.readSidecar(name); err == nil && s.URL != "" {
			begun[name] = s.URL
		}
	}
	return begun, nil
}

// errBusy says that another run is at work on a part.
var errBusy = errors.New("another run is downloading it")
