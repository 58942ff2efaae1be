package download

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"

	"fetchd/internal/cli"
)

// noteEvery is how many bytes are written before the sidecar says so.
const noteEvery = 256 << 10

// part is a file under way: NAME.part, with a sidecar that says how much of it is
// surely there. The order of what is done keeps it right wherever the run is
// killed:
//
//   - the sidecar comes first and goes last, so a part without one is not ours;
//   - it says that bytes are there when they have been flushed, not before;
//   - it says that a part begins again before the first old byte is lost.
type part struct {
	dir  *folder
	name string // of the finished file
	file *os.File
	said sidecar // what the sidecar says

	written  int64 // bytes in the file
	finished bool
}

// openPart opens the part of a name, or begins it. What it has of another
// representation, or nobody vouches for, is dropped. Errors are outputErrors.
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
	there, err := p.dir.exists(p.name + partEnding)
	switch {
	case err != nil:
		return err
	case there && !ours && !force:
		return fmt.Errorf("%s %w", p.name+partEnding, errForeign)
	case there && (!ours || p.dir.same(p.name, p.name+partEnding)): // the last run was killed as it gave the file its name
		if err := p.dir.remove(p.name + partEnding); err != nil {
			return err
		}
		there = false
	}
	if !there {
		return p.begin()
	}
	return p.resume(said)
}

// begin makes a part that is empty.
func (p *part) begin() (err error) {
	if err := p.dir.writeSidecar(p.name, p.said, true); err != nil {
		return err
	}
	if p.file, err = p.dir.create(p.name+partEnding, 0o666); err != nil {
		return err
	}
	return lock(p.file)
}

// resume opens the part as far as the sidecar vouches for it.
func (p *part) resume(said sidecar) (err error) {
	if p.file, err = p.dir.open(p.name+partEnding, os.O_RDWR); err != nil {
		return err
	}
	if err := lock(p.file); err != nil {
		return err
	}
	if now, err := p.dir.readSidecar(p.name); err != nil || now != said { // before we had the lock
		return errors.Join(errBusy, err)
	}
	info, err := p.file.Stat()
	if err != nil {
		return err
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

// restart goes back to an offset, of the representation that is named. The
// sidecar says so first: it must never vouch for bytes that are overwritten.
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

// write appends, and notes how far it has come, often enough.
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

// resumable tells whether a later run can continue the part.
func (p *part) resumable() bool { return p.said.Validator != "" && p.written > 0 }

// note flushes what was written, and then says so.
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

// reader reads what was written.
func (p *part) reader() io.Reader { return io.NewSectionReader(p.file, 0, p.written) }

// finish gives the whole file its name: a free one, unless force replaces what
// has it.
func (p *part) finish(force bool) error {
	if err := p.flush(); err != nil {
		return err
	}
	var err error
	if force {
		err = p.dir.rename(p.name+partEnding, p.name)
	} else {
		err = p.dir.place(p.name+partEnding, p.name)
	}
	if err != nil {
		return err
	}
	if err := p.dir.sync(); err != nil {
		return err
	}
	p.finished = true
	return errors.Join(p.dir.clear(p.name), p.file.Close())
}

// leave closes a part that is not finished. It stays if a later run can continue
// it; kept is how much of it.
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

// drop removes the part.
func (p *part) drop() error {
	p.finished = true
	return errors.Join(p.dir.clear(p.name), p.file.Close())
}

// tidy removes what a run leaves that was killed as it gave a file its name.
func tidy(dir *folder, name, url string) error {
	said, err := dir.readSidecar(name)
	if err != nil || said.URL != url {
		return nil // not ours
	}
	there, err := dir.exists(name + partEnding)
	if err != nil || there && !dir.same(name, name+partEnding) {
		return err
	}
	return dir.clear(name)
}
