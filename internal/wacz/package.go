package wacz

import (
	"archive/zip"
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"path"
	"strconv"
	"strings"

	"github.com/klauspost/compress/gzip"

	"fetchd/warc"
)

// The limits of a package that is checked.
const (
	maxDirectory = 8 << 20  // bytes of the directory of the ZIP file, which is held in memory with several times the space
	maxManifest  = 32 << 20 // bytes of datapackage.json
	maxText      = 64 << 20 // bytes of the files that are compressed in the ZIP file, together
	maxIndexLine = 64 << 10
	maxPageLine  = 16 << 20 // a page may have its text
	maxEmpty     = 1000     // lines without text in a file, or in a block of the index
)

var errDirectory = fmt.Errorf("the directory of the ZIP file is longer than %d bytes", maxDirectory)

// directory limits what is read of a file to open it.
type directory struct {
	io.ReaderAt
	left int64 // negative: no limit
}

// ReadAt implements io.ReaderAt.
func (d *directory) ReadAt(p []byte, at int64) (int, error) {
	if d.left >= 0 {
		if int64(len(p)) > d.left {
			return 0, errDirectory
		}
		d.left -= int64(len(p))
	}
	return d.ReaderAt.ReadAt(p, at)
}

// pack is a package that is checked.
type pack struct {
	*Check
	name      string
	zip       *zip.Reader
	files     map[string]*zip.File
	sha256    map[string]string // of the files that were read
	text      int64             // bytes that are left of maxText
	records   sorter            // of records and lines of the index
	captures  int               // records that the index should have
	originals originals
}

// IsPackage reports whether a file begins as a ZIP file.
func IsPackage(file io.ReaderAt) bool {
	start := make([]byte, 4)
	_, err := file.ReadAt(start, 0)
	return err == nil && string(start) == "PK\x03\x04"
}

// Package checks a WACZ package, and the WARC files in it. It returns errors as [Check.File] does.
func (c *Check) Package(name string, file io.ReaderAt, size int64) error {
	c.Packages++
	in := &directory{file, maxDirectory + 256<<10}
	z, err := zip.NewReader(in, size)
	in.left = -1
	p := &pack{Check: c, name: name, zip: z, files: map[string]*zip.File{}, sha256: map[string]string{}, text: maxText}
	if err != nil {
		p.fault("", "the ZIP file cannot be read: %v", err)
		return nil
	}
	p.records.memory, p.originals.sorter.memory = sortMemory, sortMemory
	defer p.records.close()
	defer p.originals.sorter.close()
	if !p.directory(size) {
		return nil
	}
	for _, step := range []func() error{p.archives, p.indexes, p.pages, p.manifest, p.compare} {
		if err := step(); err != nil {
			return err
		}
	}
	return p.originals.missing(func(file string, r reference) error {
		p.problem(Problem{File: p.name + "/" + archiveFolder + file, Offset: r.Offset, ID: r.ID, Type: r.Type,
			Text: fmt.Sprintf("refers to a record that is in none of the files, so %s cannot be replayed", r.URL)})
		return nil
	})
}

// fault reports a problem of a file of the package, or of the package.
func (p *pack) fault(file, format string, args ...any) {
	name := p.name
	if file != "" {
		name += "/" + file
	}
	p.problem(Problem{File: name, Offset: noOffset, Text: fmt.Sprintf(format, args...)})
}

// directory checks the names and the sizes in the ZIP file. It reports whether the files may be read.
func (p *pack) directory(size int64) bool {
	sum := uint64(0)
	for _, f := range p.zip.File {
		switch base := path.Base(f.Name); {
		case f.Name != path.Clean(f.Name) || strings.HasPrefix(f.Name, "/") || strings.HasPrefix(f.Name, "../") || strings.ContainsAny(f.Name, "\\\x00") || base == "..":
			p.fault(f.Name, "is not a name in a package")
			continue
		case p.files[f.Name] != nil:
			p.fault(f.Name, "is there twice")
			continue
		case f.Method != zip.Store && (strings.HasPrefix(f.Name, archiveFolder) || strings.HasSuffix(f.Name, ".gz")):
			p.fault(f.Name, "is compressed in the ZIP file, so no part of it can be read: it must be stored")
		}
		p.files[f.Name] = f
		if sum += f.CompressedSize64; sum > uint64(size) || f.CompressedSize64 > uint64(size) { //nolint:gosec // a length
			p.fault("", "the files overlap in the ZIP file: none is read")
			return false
		}
	}
	return true
}

// open opens a file. One that is compressed is read up to a limit, because it can have any length.
func (p *pack) open(f *zip.File) (io.Reader, func(), error) {
	in, err := f.Open()
	if err != nil {
		return nil, nil, err
	}
	closeFile := func() { _ = in.Close() } // it was only read
	if f.Method == zip.Store {
		return in, closeFile, nil
	}
	return &limited{in: in, left: &p.text}, closeFile, nil
}

var errText = fmt.Errorf("the files that are compressed in the ZIP file have more than %d bytes", maxText)

// limited is a reader with a limit that it shares with others.
type limited struct {
	in   io.Reader
	left *int64
}

// Read implements io.Reader.
func (l *limited) Read(b []byte) (int, error) {
	n, err := l.in.Read(b)
	if *l.left -= int64(n); *l.left < 0 {
		return 0, errText
	}
	return n, err
}

// read reads a file with f, and then what is left of it for its digest. It reports whether that could be read.
func (p *pack) read(name string, f func(in io.Reader) error) (bool, error) {
	file := p.files[name]
	in, closeFile, err := p.open(file)
	if err != nil {
		p.fault(name, "cannot be read: %v", err)
		return false, nil
	}
	defer closeFile()
	t := newTotals()
	all := &kept{in: io.TeeReader(in, t)}
	if err := f(all); err != nil && all.err == nil {
		return false, err
	}
	if all.err == nil {
		_, _ = io.Copy(io.Discard, all)
	}
	if all.err != nil {
		if err := p.stopped(); err != nil {
			return false, err
		}
		p.fault(name, "cannot be read: %v", all.err)
		return false, nil
	}
	p.sha256[name] = t.sum().sha256
	return true, nil
}

// kept keeps the error of a reader, other than io.EOF.
type kept struct {
	in  io.Reader
	err error
}

// Read implements io.Reader.
func (k *kept) Read(b []byte) (int, error) {
	n, err := k.in.Read(b)
	if err != nil && !errors.Is(err, io.EOF) {
		k.err = err
	}
	return n, err
}

// stopped returns the error of the context of the check.
func (p *pack) stopped() error {
	if p.Stopped == nil {
		return nil
	}
	return p.Stopped()
}

// archives checks the WARC files.
func (p *pack) archives() error {
	found := false
	for _, f := range p.zip.File {
		base, ok := strings.CutPrefix(f.Name, archiveFolder)
		if !ok || p.files[f.Name] != f {
			continue
		}
		found = true
		p.seen = func(rec *warc.Record) error {
			if err := p.originals.add(base, rec); err != nil {
				return err
			}
			if !indexed(rec) || rec.Shared {
				return nil
			}
			p.captures++
			return p.records.add(position(base, strconv.FormatInt(rec.Offset, 10)) + "\t" + kindRecord + strconv.FormatInt(rec.Length, 10) + " " + strconv.Quote(rec.TargetURI))
		}
		_, err := p.read(f.Name, func(in io.Reader) error { return p.File(p.name+"/"+f.Name, in) })
		p.seen = nil
		if err != nil {
			return err
		}
	}
	if !found {
		p.fault("", "there is no WARC file in %s", archiveFolder)
	}
	return nil
}

func position(file, offset string) string { return strconv.Quote(file) + " " + offset }

// indexes checks the index.
func (p *pack) indexes() error {
	switch {
	case p.files[indexFolder+idxName] != nil:
		return p.blocks()
	case p.files[indexFolder+"index.cdx"] != nil:
		_, err := p.read(indexFolder+"index.cdx", func(in io.Reader) error {
			return p.lines(indexFolder+"index.cdx", in, new(index))
		})
		return err
	}
	p.fault("", "there is neither %s nor index.cdx in %s", idxName, indexFolder)
	return nil
}

// index is what was read of an index.
type index struct {
	last   string // line
	first  string // key of the first line since it was set to ""
	lines  int
	broken bool
}

// lines checks lines of an index.
func (p *pack) lines(name string, in io.Reader, x *index) error {
	err := eachLine(in, maxIndexLine, func(line string, err error) error {
		_, text, ok := strings.Cut(line, " {")
		var e entry
		switch {
		case err != nil:
			p.fault(name, "line %d cannot be read: %v", x.lines+1, err)
		case !ok || json.Unmarshal([]byte("{"+text), &e) != nil:
			p.fault(name, "line %d is not a line of CDXJ", x.lines+1)
		case line < x.last:
			p.fault(name, "line %d is not in the order of bytes", x.lines+1)
		case x.lines == p.captures:
			p.fault(name, "it has more lines than the WARC files have records: the rest is not read")
		default:
			if x.first == "" {
				x.first = keyOf(line)
			}
			x.last = line
			x.lines++
			p.Lines++
			return p.records.add(position(e.Filename, e.Offset) + "\t" + kindConcurrent + e.Length + " " + strconv.Quote(e.URL))
		}
		x.broken = true
		return errBroken
	})
	if errors.Is(err, errBroken) {
		return nil
	}
	return err
}

// errBroken ends the lines of an index after the first problem, so that nothing behind it is decompressed.
var errBroken = errors.New("the rest is not read")

// eachLine calls f for each line, without its end, or with an error that ends the lines.
func eachLine(in io.Reader, limit int, f func(line string, err error) error) error {
	r := bufio.NewReaderSize(in, 64<<10)
	var long []byte
	empty := 0
	for {
		part, err := r.ReadSlice('\n')
		long = append(long, part...)
		switch {
		case len(long) > limit:
			return f("", fmt.Errorf("it is longer than %d bytes", limit))
		case errors.Is(err, bufio.ErrBufferFull):
			continue
		case err != nil && !errors.Is(err, io.EOF):
			return f("", err)
		}
		line := strings.TrimRight(string(long), "\r\n")
		if line == "" {
			if empty++; empty > maxEmpty {
				return f("", fmt.Errorf("there are more than %d empty lines", maxEmpty))
			}
		} else if err := f(line, nil); err != nil {
			return err
		}
		if err != nil {
			return nil
		}
		long = long[:0]
	}
}

// blocks checks an index that is compressed, block by block.
func (p *pack) blocks() error {
	const name, gz = indexFolder + idxName, indexFolder + indexName
	file := p.files[gz]
	if file == nil || file.Method != zip.Store {
		p.fault(gz, "is missing, or not stored")
		return nil
	}
	if _, err := p.read(gz, func(io.Reader) error { return nil }); err != nil {
		return err
	}
	start, err := file.OpenRaw()
	if err != nil {
		p.fault(gz, "cannot be read: %v", err)
		return nil
	}
	x, at, number := new(index), int64(0), 0
	_, err = p.read(name, func(in io.Reader) error {
		return eachLine(in, maxIndexLine, func(line string, err error) error {
			number++
			if err != nil {
				p.fault(name, "line %d cannot be read: %v", number, err)
				return nil
			}
			if number == 1 {
				var h idxHeader
				if text, ok := strings.CutPrefix(line, idxStart); !ok || json.Unmarshal([]byte(text), &h) != nil || h.Format != idxFormat || h.Filename != indexName {
					p.fault(name, "the first line does not say that the format of %s is %s", indexName, idxFormat)
				}
				return nil
			}
			if x.broken {
				return nil
			}
			key, text, _ := strings.Cut(line, " {")
			var b idxLine
			switch {
			case json.Unmarshal([]byte("{"+text), &b) != nil || b.Filename != indexName:
				p.fault(name, "line %d is not about a block of %s", number, indexName)
			case b.Offset != at || b.Length <= 0 || b.Length > int64(min(file.UncompressedSize64, math.MaxInt64))-at: //nolint:gosec // not above
				p.fault(name, "line %d: the block does not follow the one before it, or ends beyond the file", number)
			default:
				at += b.Length
				return p.block(number, key, b, io.LimitReader(start, b.Length), x)
			}
			x.broken = true
			return nil
		})
	})
	if err == nil && !x.broken && at != int64(min(file.UncompressedSize64, math.MaxInt64)) { //nolint:gosec // not above
		p.fault(name, "%d bytes of %s are in its blocks, not all", at, indexName)
	}
	return err
}

// block checks a block of the index.
func (p *pack) block(number int, key string, b idxLine, in io.Reader, x *index) error {
	const name = indexFolder + idxName
	t := newTotals()
	all := bufio.NewReader(io.TeeReader(in, t))
	gz, err := gzip.NewReader(all)
	if err == nil {
		gz.Multistream(false)
		x.first = ""
		err = p.lines(indexFolder+indexName, gz, x)
		if err != nil {
			return err
		}
	} else {
		p.fault(name, "line %d: the block cannot be decompressed: %v", number, err)
		x.broken = true
		return nil
	}
	if x.broken {
		return nil
	}
	_, _ = io.Copy(io.Discard, all)
	if s := t.sum(); b.Digest != "" && s.sha256 != b.Digest {
		p.fault(name, "line %d: the block has another digest", number)
	}
	if x.first != key && !strings.HasPrefix(x.first, key+" ") {
		p.fault(name, "line %d has another key than the first line of its block", number)
	}
	return nil
}

// pages checks the lists of pages.
func (p *pack) pages() error {
	if p.files[pagesFolder+"pages.jsonl"] == nil {
		p.fault("", "there is no %spages.jsonl", pagesFolder)
	}
	for _, f := range p.zip.File {
		if !strings.HasPrefix(f.Name, pagesFolder) || p.files[f.Name] != f {
			continue
		}
		number := 0
		_, err := p.read(f.Name, func(in io.Reader) error {
			return eachLine(in, maxPageLine, func(line string, err error) error {
				number++
				var h pageHeader
				var page pageLine
				switch {
				case err != nil:
					p.fault(f.Name, "line %d cannot be read: %v", number, err)
				case number == 1 && (json.Unmarshal([]byte(line), &h) != nil || h.Format != pagesFormat):
					p.fault(f.Name, "the first line does not say that the format is %s", pagesFormat)
				case number > 1 && (json.Unmarshal([]byte(line), &page) != nil || page.URL == "" || page.Time.IsZero()):
					p.fault(f.Name, "line %d has no page with a url and a ts", number)
				case number > 1:
					p.Pages++
				}
				return nil
			})
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// manifest checks that the manifest lists every file with its digest.
func (p *pack) manifest() error {
	var m manifest
	if p.files[manifestName] == nil {
		p.fault("", "there is no %s", manifestName)
		return nil
	}
	ok, err := p.read(manifestName, p.decode(manifestName, &m))
	if err != nil || !ok {
		return err
	}
	if m.Profile != "data-package" || m.Version == "" {
		p.fault(manifestName, "its profile is %q and its wacz_version is %q", m.Profile, m.Version)
	}
	listed := map[string]bool{manifestName: true, digestName: true}
	for _, r := range m.Resources {
		f := p.files[r.Path]
		if f == nil || listed[r.Path] {
			p.fault(manifestName, "lists %q, which is not in the package, or twice", r.Path)
			continue
		}
		listed[r.Path] = true
		if p.sha256[r.Path] == "" {
			if ok, err := p.read(r.Path, func(io.Reader) error { return nil }); err != nil {
				return err
			} else if !ok {
				continue
			}
		}
		if r.Name != strings.ToLower(r.Name) {
			p.fault(manifestName, "the name %q is not in lower case", r.Name)
		}
		if sum := p.sha256[r.Path]; sum != r.Hash || uint64(r.Bytes) != f.UncompressedSize64 { //nolint:gosec // negative: no size
			p.fault(r.Path, "has %d bytes with the digest %s, and %s says %d with %s", f.UncompressedSize64, sum, manifestName, r.Bytes, r.Hash)
		}
	}
	for _, f := range p.zip.File {
		if !listed[f.Name] {
			p.fault(f.Name, "is not listed in %s", manifestName)
		}
	}
	return p.manifestDigest()
}

// manifestDigest checks the digest of the manifest. It should be there, and need not.
func (p *pack) manifestDigest() error {
	if p.files[digestName] == nil {
		return nil
	}
	var d manifestDigest
	ok, err := p.read(digestName, p.decode(digestName, &d))
	if ok && (d.Path != manifestName || d.Hash != p.sha256[manifestName]) {
		p.fault(digestName, "has another digest than %s", manifestName)
	}
	return err
}

// decode returns a function that reads JSON.
func (p *pack) decode(name string, v any) func(io.Reader) error {
	return func(in io.Reader) error {
		text, err := io.ReadAll(io.LimitReader(in, maxManifest+1))
		if err != nil {
			return err
		}
		// A list of 10 million empty objects would take 2 GB.
		if most := 4*len(p.files) + maxEmpty; bytes.Count(text, []byte("{")) > most {
			p.fault(name, "has more than %d objects, for %d files: it is not read", most, len(p.files))
		} else if len(text) > maxManifest {
			p.fault(name, "is longer than %d bytes", maxManifest)
		} else if err := json.NewDecoder(bytes.NewReader(text)).Decode(v); err != nil {
			p.fault(name, "is not JSON: %v", err)
		}
		return nil
	}
}

// compare compares the lines of the index with the records.
func (p *pack) compare() error {
	last, record, read := "", "", true
	missing := func() {
		if !read {
			p.fault("", "the record at %s is not in the index", last)
		}
	}
	err := p.records.each(func(line string) error {
		at, value, _ := strings.Cut(line, "\t")
		kind, value := value[:1], value[1:]
		if at != last {
			missing()
			last, record, read = at, "", true
		}
		switch {
		case kind == kindRecord:
			record, read = value, false
		case record == "":
			p.fault("", "a line of the index is about %s, where no record is", at)
		case record != value:
			p.fault("", "a line of the index says that the record at %s has the length and URL %s, but it has %s", at, value, record)
			read = true
		default:
			read = true
		}
		return nil
	})
	missing()
	return err
}
