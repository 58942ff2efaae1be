package origin

import (
	"bytes"
	"compress/flate"
	"compress/gzip"
	"compress/zlib"
	"context"
	"errors"
	"fmt"
	"io"

	"github.com/andybalholm/brotli"
	"github.com/klauspost/compress/zstd"
)

// encode returns all of r in the coding. It stops with errGone when ctx ends:
// a bomb takes a while to make.
func encode(ctx context.Context, coding string, r io.Reader) ([]byte, error) {
	var out bytes.Buffer
	w, err := newEncoder(coding, &out)
	if err != nil {
		return nil, err
	}
	if _, err := io.Copy(w, contextReader{ctx, r}); err != nil {
		// The error to tell is that of the copy.
		return nil, errors.Join(err, w.Close())
	}
	if err := w.Close(); err != nil {
		return nil, fmt.Errorf("encode %s: %w", coding, err)
	}
	return out.Bytes(), nil
}

func newEncoder(coding string, w io.Writer) (io.WriteCloser, error) {
	switch coding {
	case "gzip":
		return gzip.NewWriter(w), nil
	case "deflate":
		return zlib.NewWriter(w), nil
	case "rawdeflate":
		return flate.NewWriter(w, flate.DefaultCompression)
	case "br":
		return brotli.NewWriter(w), nil
	case "zstd":
		// One goroutine: the encoder must not outlive the exchange.
		return zstd.NewWriter(w, zstd.WithEncoderConcurrency(1))
	}
	return nil, fmt.Errorf("%w: no coding %q", errGrammar, coding)
}

// contextReader reads until ctx ends.
type contextReader struct {
	ctx context.Context
	r   io.Reader
}

func (c contextReader) Read(p []byte) (int, error) {
	if c.ctx.Err() != nil {
		return 0, errGone
	}
	return c.r.Read(p)
}
