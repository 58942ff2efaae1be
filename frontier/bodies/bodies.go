// Package bodies stores response bodies in a directory or a bucket, under their digests. Equal
// bodies are stored once.
package bodies

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"hash"
	"io"
	"os"
	"slices"
	"sync"

	"fetchd/frontier"
	"fetchd/stores"
)

// maxUploads is how many uploads to a bucket may hold a part in memory, 5 MiB each.
const maxUploads = 32

// Store stores bodies in one place. It is safe for concurrent use.
type Store struct {
	place *stores.Store
	slots chan struct{} // for uploads to a bucket; nil for a directory
	room  room          // for bodies that wait for a bucket
}

var _ frontier.Bodies = (*Store)(nil)

// New returns a store of bodies in a place, which the caller closes. Bodies that wait for a bucket use up to
// spoolBytes in temporary files, or one of them alone uses more.
func New(place *stores.Store, spoolBytes int64) *Store {
	s := &Store{place: place, room: room{limit: spoolBytes}}
	if place.Check("", "") != nil { // it must know the digest before the upload begins
		s.slots = make(chan struct{}, maxUploads)
	}
	return s
}

// New implements [frontier.Bodies].
func (s *Store) New(ctx context.Context) frontier.Body {
	if s.slots != nil {
		return &spooled{store: s, ctx: ctx}
	}
	return &direct{store: s, ctx: ctx}
}

// Lacks implements [frontier.Bodies]. A bucket is not asked.
func (s *Store) Lacks(sha256 string) bool { return s.place.Lacks(sha256) }

// errNotStart is an error of Truncate. A body starts over at its beginning, because no request has
// a resume point.
var errNotStart = errors.New("the body starts over in its middle")

// direct is a body that is written where it stays.
type direct struct {
	store  *Store
	ctx    context.Context //nolint:containedctx // it bounds the upload
	upload *stores.Upload  // nil before the first Write
	sum    hash.Hash       // of what was written
}

// Write implements io.Writer.
func (d *direct) Write(p []byte) (int, error) {
	if d.upload == nil {
		u, err := d.store.place.Begin(d.ctx, stores.Object{Size: -1})
		if err != nil {
			return 0, err
		}
		d.upload, d.sum = u, sha256.New()
	}
	n, err := d.upload.Write(p)
	d.sum.Write(p[:n])
	return n, err
}

// Reserve implements [frontier.Body]. A body that is written where it stays needs no room.
func (*direct) Reserve(context.Context, int64) error { return nil }

// Truncate implements [client.BodyWriter].
func (d *direct) Truncate(size int64) error {
	if size != 0 {
		return errNotStart
	}
	d.Drop()
	return nil
}

// Commit implements [frontier.Body].
func (d *direct) Commit(digest string, last []byte) error {
	if _, err := d.Write(last); err != nil {
		return err
	}
	if err := frontier.CheckDigest(d.sum, digest); err != nil {
		return err
	}
	_, err := d.upload.Commit(digest)
	return err
}

// Drop implements [frontier.Body].
func (d *direct) Drop() {
	if d.upload != nil {
		d.upload.Abort()
		d.upload = nil
	}
}

// spooled is a body that is uploaded when it is complete. Until then it is in a temporary file.
type spooled struct {
	store *Store
	ctx   context.Context //nolint:containedctx // it bounds the upload
	file  *os.File        // nil before the first Write
	size  int64           // of the file
	held  int64           // bytes of room
	named bool            // the file has a name
}

// Write implements io.Writer.
func (s *spooled) Write(p []byte) (int, error) {
	if more := min(s.size+int64(len(p)), s.store.room.limit) - s.held; more > 0 { // one that has all room may have more
		if !s.store.room.grow(s.held, more) {
			return 0, &frontier.NoRoomError{Bytes: s.size}
		}
		s.held += more
	}
	if s.file == nil {
		f, err := os.CreateTemp("", "frontier-body-")
		if err != nil {
			return 0, err
		}
		s.file, s.named = f, os.Remove(f.Name()) != nil // without a name, a crash leaves nothing; Windows refuses it
	}
	n, err := s.file.Write(p)
	s.size += int64(n)
	return n, err
}

// Reserve implements [frontier.Body]. A body that is longer than the limit waits until it is alone.
func (s *spooled) Reserve(ctx context.Context, bytes int64) error {
	bytes = min(bytes, s.store.room.limit)
	if err := s.store.room.reserve(ctx, bytes); err != nil {
		return err
	}
	s.held += bytes
	return nil
}

// Truncate implements [client.BodyWriter]. The body keeps its room.
func (s *spooled) Truncate(size int64) error {
	if size != 0 {
		return errNotStart
	}
	s.remove()
	return nil
}

// Commit implements [frontier.Body].
func (s *spooled) Commit(digest string, last []byte) error {
	select {
	case s.store.slots <- struct{}{}:
		defer func() { <-s.store.slots }()
	case <-s.ctx.Done():
		return context.Cause(s.ctx)
	}
	u, err := s.store.place.Begin(s.ctx, stores.Object{SHA256: digest, Size: s.size + int64(len(last)), ContentType: "application/octet-stream"})
	if err != nil {
		return err
	}
	defer u.Abort()
	sum := sha256.New()
	to := io.MultiWriter(u, sum)
	if s.file != nil {
		if _, err := io.Copy(to, io.NewSectionReader(s.file, 0, s.size)); err != nil {
			return fmt.Errorf("upload the body: %w", err)
		}
	}
	if _, err := to.Write(last); err != nil {
		return err
	}
	if err := frontier.CheckDigest(sum, digest); err != nil {
		return err
	}
	_, err = u.Commit(digest)
	return err
}

// Drop implements [frontier.Body].
func (s *spooled) Drop() {
	s.remove()
	s.store.room.release(s.held)
	s.held = 0
}

// remove removes the file.
func (s *spooled) remove() {
	if s.file != nil {
		_ = s.file.Close()
		if s.named {
			_ = os.Remove(s.file.Name())
		}
		s.file, s.size = nil, 0
	}
}

// room limits the bytes of temporary files. It is safe for concurrent use.
type room struct {
	limit int64

	mu    sync.Mutex
	used  int64
	waits []*wait // oldest first
}

// wait is a body that waits for room.
type wait struct {
	bytes   int64
	granted chan struct{}
}

// grow takes bytes for a body that has held bytes, unless there is no room. A body that has none does not
// overtake those that wait.
func (r *room) grow(held, bytes int64) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.used+bytes > r.limit || held == 0 && len(r.waits) > 0 {
		return false
	}
	r.used += bytes
	return true
}

// reserve waits until there is room for bytes, and takes it.
func (r *room) reserve(ctx context.Context, bytes int64) error {
	w := &wait{bytes, make(chan struct{})}
	r.mu.Lock()
	r.waits = append(r.waits, w)
	r.grantLocked()
	r.mu.Unlock()
	select {
	case <-w.granted:
		return nil
	case <-ctx.Done():
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if i := slices.Index(r.waits, w); i >= 0 {
		r.waits = slices.Delete(r.waits, i, i+1)
	} else {
		r.used -= bytes
	}
	r.grantLocked()
	return context.Cause(ctx)
}

// release gives bytes back.
func (r *room) release(bytes int64) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.used -= bytes
	r.grantLocked()
}

func (r *room) grantLocked() {
	for len(r.waits) > 0 && r.used+r.waits[0].bytes <= r.limit {
		r.used += r.waits[0].bytes
		close(r.waits[0].granted)
		r.waits = slices.Delete(r.waits, 0, 1)
	}
}
