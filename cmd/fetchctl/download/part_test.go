package download

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"fetchd/test/clitest"
)

var errKilled = errors.New("killed")

// tempFolder is a folder for parts.
func tempFolder(t *testing.T, dir string) *folder {
	t.Helper()
	d, err := openFolder(dir)
	must(t, err)
	t.Cleanup(d.close)
	return d
}

// only checks the names in a folder. The record of the URLs of finished files may be there too.
func only(t *testing.T, dir string, names ...string) {
	t.Helper()
	if _, err := os.Stat(filepath.Join(dir, urlsName)); err == nil {
		names = append([]string{urlsName}, names...)
	}
	clitest.Only(t, dir, names...)
}

// world is an origin's file that may change between runs.
type world struct {
	body      []byte
	validator string
}

// pull does with a part what a transfer does: it continues if the validator is
// the same, else it starts over, in pieces.
func pull(d *folder, w world, force bool) (err error) {
	const piece = 31 << 10
	p, err := openPart(d, "file", "http://origin.test/file", force)
	if err != nil {
		return err
	}
	defer func() { _ = p.file.Close() }() // so that the lock ends with the run
	if p.written == 0 || p.said.Validator != w.validator {
		if err := p.restart(0, w.validator, int64(len(w.body))); err != nil {
			return err
		}
	}
	for p.written < int64(len(w.body)) {
		if err := p.write(w.body[p.written:min(p.written+piece, int64(len(w.body)))]); err != nil {
			return err
		}
	}
	return p.finish(force)
}

// Whatever the step at which runs are killed, one after the other, the last one
// ends with the right file, and of each no more than a note's worth is lost.
//
// It is not parallel: a program that another test starts holds, for a moment, the
// locks of all files that are open.
func TestPartKilledAnywhere(t *testing.T) {
	old := world{bytes.Repeat([]byte("old "), 150_000), `"old"`}
	changed := world{bytes.Repeat([]byte("new! "), 130_000), `"new"`}
	for _, tt := range []struct {
		name                string
		first, second, last world
		force               bool
	}{
		{"the same file", old, old, old, false},
		{"a file that changed", old, changed, changed, false},
		{"a file that changed and changed back", old, changed, old, false},
		{"over a file that is there", old, changed, old, true},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			for first := 1; ; first += 3 {
				dir := t.TempDir()
				if tt.force {
					must(t, os.WriteFile(filepath.Join(dir, "file"), []byte("there"), 0o600))
				}
				if !killedAt(t, dir, first, tt.first, tt.force) {
					break
				}
				for second := range 1 + first%2 {
					if !killedAt(t, dir, 1+first%7+20*second, tt.second, tt.force) {
						break
					}
					wantUntouched(t, dir, tt.first, tt.second)
				}
				d := tempFolder(t, dir)
				if there, _ := d.exists("file"); !there || tt.force {
					if err := pull(d, tt.last, tt.force); err != nil {
						t.Fatalf("killed at step %d: then %v", first, err)
					}
				}
				must(t, tidy(d, "file", "http://origin.test/file"))
				got, _ := os.ReadFile(filepath.Join(dir, "file"))
				if !bytes.Equal(got, tt.first.body) && !bytes.Equal(got, tt.second.body) && !bytes.Equal(got, tt.last.body) {
					t.Errorf("killed at step %d: %d bytes that are no file of the origin's", first, len(got))
				}
				if known := d.urlOf("file"); known == "" && !tt.force {
					t.Errorf("killed at step %d: the URL of the file is not known", first)
				}
				only(t, dir, "file")
			}
		})
	}
}

// Of runs that download the same name by force at the same time, each fails because another one is there, or leaves
// its whole file. It is not parallel, for the same reason.
func TestPartRace(t *testing.T) {
	dir := t.TempDir()
	var runs sync.WaitGroup
	for n := range 6 {
		runs.Go(func() {
			d, w := tempFolder(t, dir), world{bytes.Repeat([]byte{byte('a' + n)}, 40_000), fmt.Sprintf(`"%d"`, n)}
			for range 100 {
				p, err := openPart(d, "file", fmt.Sprintf("http://origin.test/%d", n%2), true)
				if err == nil {
					err = errors.Join(p.restart(0, w.validator, -1), p.write(w.body[:20_000]), p.write(w.body[20_000:]), p.finish(true))
				}
				if err != nil && !errors.Is(err, errBusy) {
					t.Error(err)
				}
				if got, err := os.ReadFile(filepath.Join(dir, "file")); err == nil && (len(got) != len(w.body) || bytes.Count(got, got[:1]) != len(got)) {
					t.Errorf("%d bytes, or a mixture", len(got))
				}
			}
		})
	}
	runs.Wait()
	only(t, dir, "file")
}

// Whatever the step at which a run that ends a part is when another one begins, the other one is refused, or keeps its
// part and its sidecar. The file is moved away as soon as it has its name, so that nothing else stops the other run. It
// is not parallel, for the same reason.
func TestPartMeetsTheEndOfAnother(t *testing.T) {
	const url = "http://origin.test/file"
	w := world{[]byte("body"), `"v"`}
	named := func(d *folder) { // as if the run were killed at the end
		d.step = func(what string) error {
			if what == "sync folder" && d.same("file", "file"+partEnding) {
				return errKilled
			}
			return nil
		}
		_ = pull(d, w, false)
		d.step = nil
	}
	for _, tt := range []struct {
		name   string
		before func(*folder)
		end    func(*folder) error
	}{
		{"finish", nil, func(d *folder) error { return pull(d, w, false) }},
		{"finish by force", nil, func(d *folder) error { return pull(d, w, true) }},
		{"tidy", named, func(d *folder) error { return tidy(d, "file", url) }},
		{"drop", nil, func(d *folder) error {
			p, err := openPart(d, "file", url, false)
			if err == nil {
				err = errors.Join(p.write(w.body), p.drop())
			}
			return err
		}},
	} {
		for step, ran := 1, true; ran; step++ {
			ran = false
			dir := t.TempDir()
			first, second, n := tempFolder(t, dir), tempFolder(t, dir), 0
			if tt.before != nil {
				tt.before(first)
			}
			var p *part
			first.step = func(string) error {
				if n++; n != step {
					return nil
				}
				ran = true
				_ = os.Rename(filepath.Join(dir, "file"), filepath.Join(dir, "moved")) // it need not be there yet
				p, _ = openPart(second, "file", url, true)
				return nil
			}
			if err := tt.end(first); err != nil && !errors.Is(err, errBusy) {
				t.Errorf("%s, the other one begins at step %d: %v", tt.name, step, err)
			}
			if p == nil {
				continue
			}
			if _, err := second.readSidecar("file"); err != nil || !p.holds() {
				t.Errorf("%s: the part of the one that begins at step %d is there: %v, its sidecar: %v", tt.name, step, p.holds(), err)
			}
			_ = p.file.Close()
		}
	}
}

// A finished file that is moved away at once leaves nothing behind.
func TestPartMovedAway(t *testing.T) {
	dir := t.TempDir()
	d := tempFolder(t, dir)
	d.step = func(what string) error {
		if what == "write "+urlsName {
			return os.Rename(filepath.Join(dir, "file"), filepath.Join(t.TempDir(), "file"))
		}
		return nil
	}
	must(t, pull(d, world{[]byte("body"), `"v"`}, false))
	only(t, dir)
}

// A run that was killed as it gave the file its name leaves a part that is the
// same file. Nothing is written into that. It is not parallel, for the same reason.
func TestPartKilledAtTheEnd(t *testing.T) {
	old, changed := world{bytes.Repeat([]byte("old "), 150_000), `"v"`}, world{bytes.Repeat([]byte("new! "), 150_000), `"v"`}
	for step := 1; ; step++ {
		dir := t.TempDir()
		d := tempFolder(t, dir)
		d.step = func(what string) error {
			if what == "sync folder" {
				if there, _ := d.exists("file"); there {
					return errKilled
				}
			}
			return nil
		}
		if err := pull(d, old, false); !errors.Is(err, errKilled) || !d.same("file", "file"+partEnding) {
			t.Fatalf("the first run: %v", err)
		}
		killed := killedAt(t, dir, step, changed, true)
		wantUntouched(t, dir, old, changed)
		if !killed {
			return
		}
	}
}

// Whatever the step at which a run ends, a file that replaced another one does not have that one's URL.
func TestPartReplaces(t *testing.T) {
	t.Parallel()
	const before = "http://origin.test/before"
	for _, tt := range []struct {
		name         string
		there, force bool
		noRecord     bool // the record cannot be written, but the run goes on
	}{
		{"by force", true, true, false},
		{"one that was removed", false, false, false},
		{"by force, without a record", true, true, true},
		{"one that was removed, without a record", false, false, true},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			for step, running := 1, true; running; step++ {
				dir := t.TempDir()
				if tt.there {
					must(t, os.WriteFile(filepath.Join(dir, "file"), []byte("there"), 0o600))
				}
				tempFolder(t, dir).record("file", before)
				d, n := tempFolder(t, dir), 0
				d.step = func(what string) error {
					if n++; !tt.noRecord && n >= step || tt.noRecord && what == "write "+urlsName {
						return errKilled
					}
					return nil
				}
				running = pull(d, world{[]byte("new"), `"v"`}, tt.force) != nil && !tt.noRecord
				got, _ := os.ReadFile(filepath.Join(dir, "file"))
				if known := tempFolder(t, dir).urlOf("file"); string(got) == "new" && known == before {
					t.Errorf("ended at step %d: the new file has the URL of the one before", step)
				}
			}
		})
	}
}

// Two runs write one record. Each reads it as it is now.
func TestRecordOfTwoRuns(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	a, b := tempFolder(t, dir), tempFolder(t, dir)
	for _, tt := range []struct {
		run  *folder
		url  string
		name string
	}{
		{a, "http://origin.test/u", "the first run"},
		{b, "http://origin.test/v", "the second run"},
		{a, "http://origin.test/u", "the first run again"},
		{b, "http://origin.test/w", "the second run again"},
	} {
		tt.run.record("file", tt.url)
		for _, d := range []*folder{a, b, tempFolder(t, dir)} {
			if got := d.urlOf("file"); got != tt.url {
				t.Errorf("%s: the file is of %q, want %q", tt.name, got, tt.url)
			}
		}
	}
	must(t, os.Remove(filepath.Join(dir, urlsName)))
	if got := a.urlOf("file"); got != "" {
		t.Errorf("without the record the file is of %q", got)
	}
}

// killedAt runs until the step, and reports whether the run was still running.
func killedAt(t *testing.T, dir string, step int, w world, force bool) bool {
	t.Helper()
	d := tempFolder(t, dir)
	if there, _ := d.exists("file"); there && !force {
		return false
	}
	n := 0
	d.step = func(string) error {
		if n++; n >= step { // and nothing after it either
			return errKilled
		}
		return nil
	}
	err := pull(d, w, force)
	if err != nil && !errors.Is(err, errKilled) {
		t.Fatalf("step %d: %v", step, err)
	}
	return err != nil
}

// wantUntouched: what has the name is one of the two files, or was there before.
func wantUntouched(t *testing.T, dir string, a, b world) {
	t.Helper()
	got, err := os.ReadFile(filepath.Join(dir, "file"))
	if err == nil && string(got) != "there" && !bytes.Equal(got, a.body) && !bytes.Equal(got, b.body) {
		t.Errorf("%d bytes have the name, and are neither file", len(got))
	}
}

// A part says what it has after every write that was killed: at most what one
// note covers is lost.
func TestPartLosesLittle(t *testing.T) {
	t.Parallel()
	w := world{make([]byte, 2<<20), `"v"`}
	for step := 20; ; step += 7 {
		dir := t.TempDir()
		if !killedAt(t, dir, step, w, false) {
			return
		}
		d := tempFolder(t, dir)
		there, _ := d.exists("file")
		info, err := d.lstat("file" + partEnding)
		if there || err != nil {
			continue
		}
		p, err := openPart(d, "file", "http://origin.test/file", false)
		must(t, err)
		if lost := info.Size() - p.written; lost > noteEvery+64<<10 {
			t.Errorf("killed at step %d: %d of %d bytes are lost", step, lost, info.Size())
		}
		_ = p.file.Close()
	}
}

// What a part is opened with, and what comes of it.
func TestOpenPart(t *testing.T) {
	t.Parallel()
	const url = "http://origin.test/file"
	said := func(url, validator string, offset int64) string {
		return fmt.Sprintf(`{"version":1,"url":%q,"validator":%q,"offset":%d,"total":-1}`, url, validator, offset)
	}
	for _, tt := range []struct {
		name, part, sidecar string // "-": none
		force               bool
		at                  int64
		fails               string
	}{
		{name: "nothing", part: "-", sidecar: "-"},
		{name: "a part that goes on", part: "0123456789", sidecar: said(url, `"v"`, 10), at: 10},
		{name: "a torn tail", part: "0123456789", sidecar: said(url, `"v"`, 4), at: 4},
		{name: "a part that is shorter", part: "0123", sidecar: said(url, `"v"`, 10), at: 4},
		{name: "no part", part: "-", sidecar: said(url, `"v"`, 10)},
		{name: "no validator", part: "0123", sidecar: said(url, "", 4)},
		{name: "a weak validator", part: "0123", sidecar: said(url, `W/"v"`, 4)},
		{name: "a validator that is none", part: "0123", sidecar: said(url, "\"a\r\nb\"", 4)},
		{name: "a date", part: "0123", sidecar: said(url, "Mon, 05 Jan 2026 10:00:00 GMT", 4), at: 4},
		{name: "an empty sidecar", part: "0123", sidecar: ""},
		{name: "a sidecar of zeros", part: "0123", sidecar: "\x00\x00\x00"},
		{name: "a part without a sidecar", part: "0123", sidecar: "-", fails: "not of this program"},
		{name: "the same by force", part: "0123", sidecar: "-", force: true},
		{name: "another URL", part: "0123", sidecar: said("http://origin.test/other", `"v"`, 4), fails: "another URL"},
		{name: "another URL by force", part: "0123", sidecar: said("http://origin.test/other", `"v"`, 4), force: true},
		{name: "a sidecar that is none", part: "0123", sidecar: "my notes", fails: "not of this program"},
		{name: "a negative offset", part: "0123", sidecar: said(url, `"v"`, -4), fails: "not of this program"},
		{name: "another version", part: "0123", sidecar: `{"version":2,"url":"x","offset":4}`, fails: "not of this program"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			dir := t.TempDir()
			for ending, text := range map[string]string{partEnding: tt.part, sidecarEnding: tt.sidecar} {
				if text == "-" {
					continue
				}
				must(t, os.WriteFile(filepath.Join(dir, "file"+ending), []byte(text), 0o600))
			}
			p, err := openPart(tempFolder(t, dir), "file", url, tt.force)
			if tt.fails != "" {
				if err == nil || !strings.Contains(fmt.Sprint(err), tt.fails) {
					t.Fatalf("%v, want an error with %q", err, tt.fails)
				}
				if got, _ := os.ReadFile(filepath.Join(dir, "file"+partEnding)); string(got) != tt.part {
					t.Errorf("the part is now %q", got)
				}
				return
			}
			must(t, err)
			defer p.file.Close()
			if info, err := p.file.Stat(); err != nil || p.written != tt.at || info.Size() != tt.at {
				t.Errorf("continues at %d with %d bytes, want %d", p.written, info.Size(), tt.at)
			}
			if _, err := openPart(tempFolder(t, dir), "file", url, tt.force); !errors.Is(err, errBusy) {
				t.Errorf("a second run gets it: %v, want %v", err, errBusy)
			}
		})
	}
}

// No link is followed, wherever it leads.
func TestPartLinks(t *testing.T) {
	t.Parallel()
	outside := filepath.Join(t.TempDir(), "outside")
	for _, ending := range []string{"", partEnding, sidecarEnding, freshEnding} {
		for _, target := range []string{outside, "inside"} {
			t.Run(ending+" to "+filepath.Base(target), func(t *testing.T) {
				dir := t.TempDir()
				must(t, os.WriteFile(filepath.Join(dir, "inside"), []byte("mine"), 0o600))
				must(t, os.Symlink(target, filepath.Join(dir, "file"+ending)))
				for _, force := range []bool{false, true} {
					_ = pull(tempFolder(t, dir), world{[]byte("theirs"), `"v"`}, force) // it may well fail
				}
				if got, _ := os.ReadFile(filepath.Join(dir, "inside")); string(got) != "mine" {
					t.Errorf("a link inside was followed: %q", got)
				}
				if _, err := os.Stat(outside); err == nil {
					t.Error("a link to the outside was followed")
				}
			})
		}
	}
}
