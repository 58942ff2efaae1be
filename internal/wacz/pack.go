package wacz

import (
	"archive/zip"
	"bufio"
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"iter"
	"math"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/klauspost/compress/gzip"
)

// The names in a package. The folders are those of the standard.
const (
	archiveFolder = "archive/"
	indexFolder   = "indexes/"
	pagesFolder   = "pages/"
	indexName     = "index.cdx.gz"
	idxName       = "index.idx"
	manifestName  = "datapackage.json"
	digestName    = "datapackage-digest.json"

	version   = "1.1.1"
	idxFormat = "cdxj-gzip-1.0"
	// blockLines is how many lines of the index are in one member of gzip.
	blockLines = 1024
)

// Package is a WACZ package that is to be written.
type Package struct {
	Files    []string // paths of compressed WARC files; their last elements differ
	Title    string
	Software string
	Created  time.Time
	Pages    iter.Seq2[Page, error] // what is known about URLs
}

// InputError is an error about a WARC file that cannot be packed.
type InputError struct{ Err error }

func (e *InputError) Error() string { return e.Err.Error() }

// Unwrap returns the cause.
func (e *InputError) Unwrap() error { return e.Err }

func inputError(format string, args ...any) error { return &InputError{fmt.Errorf(format, args...)} }

// packer writes a package.
type packer struct {
	*Package
	ctx       context.Context
	zip       *zip.Writer
	index     *Index
	originals originals
	pages     pages
	sums      []sum // of Files
	resources []resource
}

// sum describes the bytes of a file.
type sum struct {
	size   int64
	crc    uint32
	sha256 string
}

// resource is an entry of the manifest.
type resource struct {
	Name  string `json:"name"`
	Path  string `json:"path"`
	Hash  string `json:"hash"`
	Bytes int64  `json:"bytes"`
}

// manifest is datapackage.json.
type manifest struct {
	Profile      string     `json:"profile"`
	Version      string     `json:"wacz_version"`
	Title        string     `json:"title,omitempty"`
	Software     string     `json:"software,omitempty"`
	Created      time.Time  `json:"created"`
	MainPageURL  string     `json:"mainPageUrl,omitempty"`
	MainPageDate *time.Time `json:"mainPageDate,omitempty"`
	Resources    []resource `json:"resources"`
}

// manifestDigest is datapackage-digest.json.
type manifestDigest struct {
	Path string `json:"path"`
	Hash string `json:"hash"`
}

// Write writes the package. It returns an *InputError if a file cannot be packed.
func (p *Package) Write(ctx context.Context, out io.Writer) error {
	w := &packer{Package: p, ctx: ctx, zip: zip.NewWriter(out), index: NewIndex()}
	w.originals.sorter.memory, w.pages.sorter.memory = sortMemory, sortMemory
	defer w.index.Close()
	defer w.originals.sorter.close()
	defer w.pages.sorter.close()
	w.index.seen, w.index.captured = w.originals.add, w.pages.capture
	for _, step := range []func() error{w.scan, w.checkRevisits, w.know, w.archives, w.writeIndex, w.writePages, w.writeManifest, w.zip.Close} {
		if err := step(); err != nil {
			return err
		}
	}
	return nil
}

// scan reads the files for the first time: it indexes them, and computes what their heads in the ZIP file say.
func (w *packer) scan() error {
	for _, path := range w.Files {
		s, err := w.scanFile(path)
		if err != nil {
			return err
		}
		w.sums = append(w.sums, s)
	}
	return nil
}

func (w *packer) scanFile(path string) (sum, error) {
	f, err := os.Open(path)
	if err != nil {
		return sum{}, &InputError{err}
	}
	defer func() { _ = f.Close() }() // it is only read
	t := newTotals()
	in := bufio.NewReader(io.TeeReader(&source{w.ctx, f}, t))
	start, _ := in.Peek(2)
	if err := w.ctx.Err(); err != nil {
		return sum{}, err
	}
	if string(start) != "\x1f\x8b" {
		return sum{}, inputError("%s is not compressed with gzip, as a package needs it: compress each record alone, with warcio recompress for example", path)
	}
	shared, err := w.index.Add(filepath.Base(path), in)
	if unread, ok := Unreadable(err); ok && w.ctx.Err() == nil {
		return sum{}, inputError("%s: offset %d: %s: look at it with \"fetchctl warc check\"", path, unread.Offset, unread.Text)
	}
	if err != nil {
		return sum{}, err
	}
	if shared > 0 {
		return sum{}, inputError("%s has records that share a gzip member, and cannot be read alone: compress each record alone, with warcio recompress for example", path)
	}
	return t.sum(), nil
}

// source reads a file until the context ends.
type source struct {
	ctx context.Context
	in  io.Reader
}

// Read implements io.Reader.
func (s *source) Read(p []byte) (int, error) {
	if err := s.ctx.Err(); err != nil {
		return 0, err
	}
	return s.in.Read(p)
}

// totals computes a sum.
type totals struct {
	n      int64
	crc    uint32
	sha256 interface {
		io.Writer
		Sum([]byte) []byte
	}
}

func newTotals() *totals { return &totals{sha256: sha256.New()} }

// Write implements io.Writer.
func (t *totals) Write(p []byte) (int, error) {
	t.n += int64(len(p))
	t.crc = crc32.Update(t.crc, crc32.IEEETable, p)
	return t.sha256.Write(p)
}

func (t *totals) sum() sum {
	return sum{t.n, t.crc, "sha256:" + hex.EncodeToString(t.sha256.Sum(nil))}
}

// checkRevisits returns an error if the original of a revisit is in none of the files: it could not be replayed.
func (w *packer) checkRevisits() error {
	return w.originals.missing(func(file string, r reference) error {
		return inputError("%s: the revisit %s of %s refers to a record that is in none of the files: add the files of the earlier crawl with another --warc", file, r.ID, r.URL)
	})
}

func (w *packer) know() error {
	for page, err := range w.Pages {
		if err != nil {
			return err
		}
		if err := w.pages.know(page); err != nil {
			return err
		}
	}
	return nil
}

// archives copies the files.
func (w *packer) archives() error {
	for i, path := range w.Files {
		f, err := os.Open(path)
		if err != nil {
			return &InputError{err}
		}
		err = w.store(archiveFolder+filepath.Base(path), &source{w.ctx, f}, w.sums[i])
		_ = f.Close() // it was only read
		if err != nil {
			return err
		}
	}
	return nil
}

// store adds a file whose sum is known, so that its head has its size, as readers of streams need it. The head
// of a file above 4 GiB has no space for that: its size follows it.
func (w *packer) store(name string, in io.Reader, s sum) error {
	h := &zip.FileHeader{Name: name, Method: zip.Store, ModifiedDate: 1<<5 | 1} //nolint:staticcheck // the first day of 1980: CreateRaw ignores Modified
	create := w.zip.CreateHeader
	if s.size < math.MaxUint32 {
		h.CRC32, h.CompressedSize64, h.UncompressedSize64 = s.crc, uint64(s.size), uint64(s.size) //nolint:gosec // a length
		create = w.zip.CreateRaw
	}
	out, err := create(h)
	if err != nil {
		return err
	}
	t := newTotals()
	if _, err := io.Copy(out, io.TeeReader(in, t)); err != nil {
		return err
	}
	if t.sum() != s {
		return inputError("%s was changed while it was packed", name)
	}
	if name != manifestName && name != digestName {
		w.resources = append(w.resources, resource{strings.ToLower(filepath.Base(name)), name, s.sha256, s.size})
	}
	return nil
}

// add adds a file that fill writes.
func (w *packer) add(name string, fill func(out io.Writer) error) (sum, error) {
	f, err := os.CreateTemp("", "wacz-*")
	if err != nil {
		return sum{}, err
	}
	defer closeRuns([]*os.File{f})
	t := newTotals()
	out := bufio.NewWriterSize(io.MultiWriter(f, t), 64<<10)
	if err := fill(out); err != nil {
		return sum{}, err
	}
	if err := out.Flush(); err != nil {
		return sum{}, err
	}
	if _, err := f.Seek(0, io.SeekStart); err != nil {
		return sum{}, err
	}
	return t.sum(), w.store(name, f, t.sum())
}

// idxLine is the last part of a line of index.idx, which is about one block of the index.
type idxLine struct {
	Offset   int64  `json:"offset"`
	Length   int64  `json:"length"`
	Digest   string `json:"digest"`
	Filename string `json:"filename"`
}

// idxHeader is the last part of its first line.
type idxHeader struct {
	Format   string `json:"format"`
	Filename string `json:"filename"`
}

const idxStart = "!meta 0 "

// writeIndex writes the index in blocks, and the list of the blocks.
func (w *packer) writeIndex() error {
	var blocks bytes.Buffer // a line for 1024 captures: 150 KiB for a million
	blocks.WriteString(idxStart)
	list := json.NewEncoder(&blocks)
	if err := list.Encode(idxHeader{idxFormat, indexName}); err != nil {
		return err
	}
	_, err := w.add(indexFolder+indexName, func(out io.Writer) error {
		block := &block{out: out, gz: gzip.NewWriter(nil)}
		end := func() error {
			if block.lines == 0 {
				return nil
			}
			line, err := block.end()
			if err != nil {
				return err
			}
			blocks.WriteString(block.key + " ")
			return list.Encode(line)
		}
		err := w.index.Lines(func(line string) error {
			if err := w.ctx.Err(); err != nil {
				return err
			}
			if block.lines == blockLines {
				if err := end(); err != nil {
					return err
				}
			}
			return block.add(line)
		})
		return errors.Join(err, end())
	})
	if err != nil {
		return err
	}
	_, err = w.add(indexFolder+idxName, func(out io.Writer) error {
		_, err := blocks.WriteTo(out)
		return err
	})
	return err
}

// block is a block of the index: a member of gzip.
type block struct {
	out    io.Writer
	gz     *gzip.Writer
	sum    *totals
	key    string // of the first line
	lines  int
	offset int64
}

func (b *block) add(line string) error {
	if b.lines == 0 {
		b.sum = newTotals()
		b.gz.Reset(io.MultiWriter(b.out, b.sum))
		b.key = keyOf(line)
	}
	b.lines++
	_, err := io.WriteString(b.gz, line+"\n")
	return err
}

// keyOf returns the URL and the time of a line of an index.
func keyOf(line string) string {
	key, rest, _ := strings.Cut(line, " ")
	at, _, _ := strings.Cut(rest, " ")
	return key + " " + at
}

func (b *block) end() (idxLine, error) {
	err := b.gz.Close()
	s := b.sum.sum()
	line := idxLine{b.offset, s.size, s.sha256, indexName}
	b.offset += s.size
	b.lines = 0
	return line, err
}

// writePages writes the lists of pages: where the crawl started, and others.
func (w *packer) writePages() error {
	for _, list := range []struct {
		name  string
		head  pageHeader
		seeds bool
	}{
		{"pages.jsonl", pageHeader{pagesFormat, "pages", "All Pages"}, true},
		{"extraPages.jsonl", pageHeader{pagesFormat, "extra-pages", "Extra Pages"}, false},
	} {
		if _, err := w.add(pagesFolder+list.name, func(out io.Writer) error { return w.pages.write(out, list.head, list.seeds) }); err != nil {
			return err
		}
	}
	return nil
}

func (w *packer) writeManifest() error {
	m := manifest{Profile: "data-package", Version: version, Title: w.Title, Software: w.Software, Created: w.Created.UTC().Truncate(time.Second), Resources: w.resources}
	first := int64(math.MaxInt64)
	err := w.pages.each(func(line pageLine) error {
		if line.Seed && line.page.ID < first {
			first, m.MainPageURL, m.MainPageDate = line.page.ID, line.URL, &line.Time
		}
		return nil
	})
	if err != nil {
		return err
	}
	s, err := w.add(manifestName, func(out io.Writer) error { return writeJSON(out, m) })
	if err != nil {
		return err
	}
	_, err = w.add(digestName, func(out io.Writer) error { return writeJSON(out, manifestDigest{manifestName, s.sha256}) })
	return err
}

func writeJSON(out io.Writer, v any) error {
	text, err := json.MarshalIndent(v, "", "  ")
	if err != nil {
		return err
	}
	_, err = out.Write(append(text, '\n'))
	return err
}
