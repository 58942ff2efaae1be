package download

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"

	"fetchd/internal/cli"
	"fetchd/stores/flock"
)

// noteEvery is how many bytes are written before the sidecar is updated.
const noteEvery = 256 << 10

// part is an unfinished file: NAME.part, with a sidecar that records how much of it is
// certainly on disk. The order of its operations keeps it consistent wherever the run is
// killed:
//
//   - The part is created empty and locked, and then the sidecar. The part is removed last, so that its lock keeps
//     other runs from both. A part without a sidecar is not ours, unless it is empty, or also has the name of the file.
//   - The sidecar records bytes only after they have been flushed.
//   - Before old bytes are overwritten, the sidecar records that the part starts again.
//   - Before the file gets its name, the record of URLs has no other URL for that.
type part struct {
	dir  *folder
	name string // of the finished file
	file *os.File
	said sidecar // the content of the sidecar

	written  int64 // bytes in the file
	finished bool
}

// openPart opens or creates the part of a file. Bytes of another representation, or beyond the
// offset in the sidecar, are dropped. Errors are output errors.
func openPart(dir *folder, name, url string, force bool) (*part, error) {
	p := &part{dir: dir, name: name, said: sidecar{URL: url, Total: -1}}
	if err := p.open(force); err != nil {
		if p.file != nil {
			_ = p.file.Close() // nothing was written
		}
		return nil, cli.OutputError(err)
	}
	return p, nil
}

func (p *part) open(force bool) error {
	said, err := p.dir.readSidecar(p.name)
	ours := err == nil && (said.URL == p.said.URL || said.URL == "")
	switch {
	case ours, errors.Is(err, fs.ErrNotExist):
	case !force && err == nil:
		return fmt.Errorf("%s is of another URL: finish that one, remove it, or give --force", p.name+partEnding)
	case !force:
		return err
	}
	info, err := p.dir.lstat(p.name + partEnding)
	switch there := err == nil; {
	case !there && !errors.Is(err, fs.ErrNotExist):
		return err
	case there && (!ours && force || p.dir.same(p.name, p.name+partEnding)): // the last run was killed while it named the file
		if err := p.dir.removeUnlocked(p.name + partEnding); err != nil {
			return err
		}
		return p.begin()
	case there && !ours && info.Size() > 0:
		return fmt.Errorf("%s %w", p.name+partEnding, errForeign)
	case there:
		return p.resume(said)
	}
	return p.begin()
}

// begin creates an empty part.
func (p *part) begin() (err error) {
	if p.file, err = p.dir.create(p.name+partEnding, 0o666); errors.Is(err, fs.ErrExist) {
		return errBusy
	} else if err != nil {
		return err
	}
	if err := p.lock(); err != nil {
		return err
	}
	return p.dir.writeSidecar(p.name, p.said, true)
}

// lock prevents other runs from using the part until it is closed or this process ends. It fails if another run has
// renamed or removed the part before.
func (p *part) lock() error {
	if flock.Lock(p.file) != nil {
		return errBusy
	}
	if !p.holds() {
		return errBusy
	}
	return nil
}

// holds reports whether the name of the part is still that of the open file.
func (p *part) holds() bool {
	info, err := p.file.Stat()
	now, errNow := p.dir.lstat(p.name + partEnding)
	return err == nil && errNow == nil && os.SameFile(info, now)
}

// resume opens the part up to the offset in the sidecar.
func (p *part) resume(said sidecar) (err error) {
	if p.file, err = p.dir.open(p.name+partEnding, os.O_RDWR); errors.Is(err, fs.ErrNotExist) {
		return errBusy // another run was faster
	} else if err != nil {
		return err
	}
	if err := p.lock(); err != nil {
		return err
	}
	info, err := p.file.Stat()
	if err != nil {
		return err
	}
	now, err := p.dir.readSidecar(p.name)
	if errors.Is(err, fs.ErrNotExist) && info.Size() == 0 { // the last run was killed before it wrote one
		return p.dir.writeSidecar(p.name, p.said, true)
	}
	if err != nil || now != said { // it changed before we had the lock
		return errBusy
	}
	said.URL = p.said.URL
	at := min(info.Size(), said.Offset)
	if said.Validator == "" {
		at = 0
	}
	if at < said.Offset {
		return p.restart(at, said.Validator, said.Total)
	}
	p.said, p.written = said, at
	return p.truncate(at)
}

func (p *part) truncate(at int64) error {
	return p.dir.change("truncate", func() error { return p.file.Truncate(at) })
}

// restart goes back to an offset, with a new validator and total. It updates the sidecar
// first, which must never cover overwritten bytes.
func (p *part) restart(at int64, validator string, total int64) error {
	p.said = sidecar{URL: p.said.URL, Validator: validator, Offset: at, Total: total}
	if at == 0 && p.written == 0 { // nothing is lost
		info, err := p.file.Stat()
		if err != nil {
			return err
		}
		if info.Size() == 0 {
			return p.dir.writeSidecar(p.name, p.said, false)
		}
	}
	if err := p.dir.writeSidecar(p.name, p.said, true); err != nil {
		return err
	}
	p.written = at
	return p.truncate(at)
}

// write appends b, and updates the sidecar every noteEvery bytes.
func (p *part) write(b []byte) error {
	err := p.dir.change("write part", func() error {
		n, err := p.file.WriteAt(b, p.written)
		p.written += int64(n)
		return err
	})
	if err != nil || p.written-p.said.Offset < noteEvery || !p.resumable() {
		return err
	}
	return p.note()
}

// resumable reports whether a later run can continue the part.
func (p *part) resumable() bool { return p.said.Validator != "" && p.written > 0 }

// note flushes the part and then updates the sidecar.
func (p *part) note() error {
	if p.written == p.said.Offset {
		return nil
	}
	if err := p.flush(); err != nil {
		return err
	}
	said := p.said
	said.Offset = p.written
	if err := p.dir.writeSidecar(p.name, said, false); err != nil {
		return err
	}
	p.said = said
	return nil
}

func (p *part) flush() error { return p.dir.change("sync part", p.file.Sync) }

// reader returns a reader for the bytes written so far.
func (p *part) reader() io.Reader { return io.NewSectionReader(p.file, 0, p.written) }

// finish gives the complete file its name. The name must be free, unless force is set.
func (p *part) finish(force bool) error {
	if err := p.flush(); err != nil {
		return err
	}
	there, err := p.dir.exists(p.name)
	if err == nil && (force || !there) {
		err = p.dir.forget(p.name, p.said.URL, there)
	}
	switch {
	case err != nil:
	case force:
		err = p.dir.replace(p.name+partEnding, p.name+freshEnding, p.name)
	default:
		err = p.dir.place(p.name+partEnding, p.name)
	}
	if err != nil {
		return err
	}
	if err := p.dir.sync(); err != nil {
		return err
	}
	p.finished = true
	p.dir.record(p.name, p.said.URL)
	return errors.Join(p.remove(), p.file.Close())
}

// remove removes the sidecar and then the part. If the part has lost its name, both may be those of another run, so
// that only a sidecar of this run is removed.
func (p *part) remove() error {
	if p.holds() {
		return p.dir.removeAll(p.name+freshEnding, p.name+sidecarEnding, p.name+partEnding)
	}
	last := p.said
	last.Version = sidecarVersion
	if now, err := p.dir.readSidecar(p.name); err != nil || now != last {
		return nil // not ours
	}
	return p.dir.remove(p.name + sidecarEnding)
}

// leave closes an unfinished part. It is kept if a later run can continue it; kept is its
// size.
func (p *part) leave() (kept int64, err error) {
	if p.finished {
		return 0, nil
	}
	if !p.resumable() {
		return 0, p.drop()
	}
	err = p.note()
	return p.said.Offset, errors.Join(err, p.file.Close())
}

// drop removes the part. It is empty before the sidecar is removed.
func (p *part) drop() (err error) {
	p.finished = true
	if p.holds() && !p.dir.same(p.name, p.name+partEnding) {
		err = p.truncate(0)
	}
	return errors.Join(err, p.remove(), p.file.Close())
}

// tidy removes the leftovers of a run that was killed while it named the file, and records what is then known
// of its URL.
func tidy(dir *folder, name, url string) error {
	said, err := dir.readSidecar(name)
	ours, linked := err == nil && said.URL == url, dir.same(name, name+partEnding)
	there, errThere := dir.exists(name + partEnding)
	switch {
	case errThere != nil, there && !linked, !ours && !(linked && errors.Is(err, fs.ErrNotExist)):
		return errThere // not ours
	case !there:
		return dir.removeAll(name+freshEnding, name+sidecarEnding)
	case ours:
		dir.record(name, url)
	}
	if err := dir.removeUnlocked(name+partEnding, name+freshEnding, name+sidecarEnding); !errors.Is(err, errBusy) {
		return err
	}
	return nil // the run that named it does so
}
