package warc

import (
	"errors"
	"io"
)

var errMovedOn = errors.New("warc: the block of a record is read after the reader went on")

// block reads the block of the current record.
type block struct {
	record *Record
	left   int64
	sums   *sums // nil if digests are not verified
}

func (b *block) Read(p []byte) (int, error) {
	if b.left == 0 {
		return 0, io.EOF
	}
	r := b.record.reader
	switch {
	case r.current != b.record:
		return 0, errMovedOn
	case r.err != nil:
		return 0, r.err
	}
	n, err := r.in.Read(p[:min(int64(len(p)), b.left)])
	b.left -= int64(n)
	if b.sums != nil {
		b.sums.write(p[:n])
	}
	if err != nil {
		return n, r.fail(err)
	}
	return n, nil
}
