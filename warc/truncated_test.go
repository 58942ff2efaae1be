package warc_test

import (
	"bytes"
	"errors"
	"io"
	"strings"
	"testing"
	"testing/iotest"

	"fetchd/warc"
)

// TestTruncatedAtEveryByte reads a file truncated after each of its bytes: all whole records, then an
// error with the offset of the end of the last one.
func TestTruncatedAtEveryByte(t *testing.T) {
	for _, plain := range []bool{true, false} {
		file, places := writeSamples(t, warc.WriterOptions{Plain: plain})
		for size := range len(file) + 1 {
			whole, records := int64(0), 0
			for _, p := range places {
				if end := p.Offset + p.Length; end <= int64(size) {
					whole, records = end, records+1
				}
			}
			got, err := readAll(bytes.NewReader(file[:size]), warc.ReaderOptions{})
			if got != records {
				t.Fatalf("plain %v, truncated at %d: read %d records, want %d", plain, size, got, records)
			}
			if whole == int64(size) {
				if !errors.Is(err, io.EOF) {
					t.Fatalf("plain %v, truncated at %d, between records: %v", plain, size, err)
				}
				continue
			}
			failure, ok := errors.AsType[*warc.Error](err)
			if !ok || failure.Offset != whole || !errors.Is(err, io.ErrUnexpectedEOF) || errors.Is(err, warc.ErrFormat) {
				t.Fatalf("plain %v, truncated at %d: got %v, want an unexpected end after %d whole bytes", plain, size, err, whole)
			}
		}
	}
}

// readAll returns how many whole records there are, and the error that ended them.
func readAll(src io.Reader, o warc.ReaderOptions) (int, error) {
	r := warc.NewReader(src, o)
	for n := 0; ; n++ {
		rec, err := r.Next()
		if err != nil {
			return n, err
		}
		if err := rec.Finish(); err != nil {
			if _, again := r.Next(); !errors.Is(again, err) {
				return n, errors.New("Next does not repeat the error")
			}
			return n, err
		}
	}
}

func TestAppendAfterRecovery(t *testing.T) {
	for _, plain := range []bool{true, false} {
		file, places := writeSamples(t, warc.WriterOptions{Plain: plain})
		_, err := readAll(bytes.NewReader(file[:len(file)-1]), warc.ReaderOptions{})
		failure, ok := errors.AsType[*warc.Error](err)
		if !ok {
			t.Fatal(err)
		}
		recovered := bytes.NewBuffer(bytes.Clone(file[:failure.Offset]))
		w, err := warc.NewWriter(recovered, warc.WriterOptions{Plain: plain, Offset: failure.Offset})
		if err != nil {
			t.Fatal(err)
		}
		last := samples[len(samples)-1]
		place, err := w.WriteRecord(&last.header, strings.NewReader(last.block), int64(len(last.block)))
		if err != nil || place != places[len(places)-1] {
			t.Errorf("plain %v: appended at %+v, error %v", plain, place, err)
		}
		if !bytes.Equal(recovered.Bytes(), file) {
			t.Errorf("plain %v: the file differs from one that was never truncated", plain)
		}
	}
}

func TestReadInSmallPieces(t *testing.T) {
	for _, plain := range []bool{true, false} {
		file, places := writeSamples(t, warc.WriterOptions{Plain: plain})
		n, err := readAll(iotest.OneByteReader(bytes.NewReader(file)), warc.ReaderOptions{Verify: true})
		if n != len(places) || !errors.Is(err, io.EOF) {
			t.Errorf("plain %v: %d records, error %v", plain, n, err)
		}
	}
}

// TestReadOne reads each record alone, by its offset and length.
func TestReadOne(t *testing.T) {
	for _, plain := range []bool{true, false} {
		file, places := writeSamples(t, warc.WriterOptions{Plain: plain})
		for i, p := range places {
			section := io.NewSectionReader(bytes.NewReader(file), p.Offset, p.Length)
			r := warc.NewReader(section, warc.ReaderOptions{Offset: p.Offset})
			rec, err := r.Next()
			if err != nil {
				t.Fatal(err)
			}
			block, err := io.ReadAll(rec.Block)
			if err != nil || string(block) != samples[i].block || rec.Offset != p.Offset {
				t.Errorf("%s: got %q at %d, error %v", samples[i].name, block, rec.Offset, err)
			}
			if _, err := r.Next(); !errors.Is(err, io.EOF) {
				t.Errorf("%s: after the record: %v", samples[i].name, err)
			}
		}
	}
}

// TestSourceFails shows that an error of the source is not taken for the end of the file.
func TestSourceFails(t *testing.T) {
	fault := errors.New("disk on fire")
	for _, plain := range []bool{true, false} {
		file, places := writeSamples(t, warc.WriterOptions{Plain: plain})
		for name, size := range map[string]int64{
			"at the start":     0,
			"between records":  places[1].Offset,
			"inside a head":    places[1].Offset + 20,
			"inside the block": places[2].Offset - 6,
		} {
			src := io.MultiReader(bytes.NewReader(file[:size]), iotest.ErrReader(fault))
			_, err := readAll(src, warc.ReaderOptions{})
			if _, ok := errors.AsType[*warc.Error](err); !ok || !errors.Is(err, fault) || errors.Is(err, io.ErrUnexpectedEOF) {
				t.Errorf("plain %v, %s: got %v", plain, name, err)
			}
		}
	}
}
