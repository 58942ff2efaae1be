package stores

import (
	"context"
	"errors"
	"fmt"

	"fetchd/internal/budget"
)

// Object describes an object to [Store.Begin].
type Object struct {
	// Key is where it is stored, below the prefix. If it is empty, the digest is its name.
	Key string
	// SHA256 is the digest if it is known, in lower-case hexadecimal. Another one is not committed.
	SHA256 string
	// ContentType is stored with an S3 object.
	ContentType string
	// Size is the size in bytes; negative means unknown. An object of another size is not committed.
	Size int64
	// Memory is charged for what the upload holds, through a separate lease.
	Memory *budget.Lease
}

// Stored describes an object that was stored. Key is without the prefix.
type Stored struct {
	Key           string
	Size          int64
	SHA256        string
	ETag, Version string
}

// Upload is an object that is being written. It is for one goroutine. It must end with
// [Upload.Commit] or [Upload.Abort].
//
// Its errors are [*Error] if the store failed, [budget.ErrRefused], [ErrTooLarge], or
// the cause of the context of [Store.Begin].
type Upload struct {
	store  *Store
	ctx    context.Context // bounds every request
	object Object
	sink   sink
	memory *budget.Lease
	size   int64
	err    error // of a Write
	ended  bool
}

var (
	errEnded  = errors.New("the upload has ended")
	errClosed = errors.New("is closed")
)

// Begin starts an upload. ctx bounds every request of it. No request is made before the first part
// is complete.
func (s *Store) Begin(ctx context.Context, o Object) (*Upload, error) {
	if err := s.Check(o.Key, o.SHA256); err != nil {
		return nil, fmt.Errorf("the key %w", err)
	}
	if o.SHA256 != "" {
		if err := checkDigest(o.SHA256); err != nil {
			return nil, err
		}
	}
	if ctx.Err() != nil {
		return nil, context.Cause(ctx)
	}
	if o.Size > s.max {
		return nil, ErrTooLarge
	}
	if !s.breaker.begin() {
		return nil, s.unavailable()
	}
	if o.Key == "" && o.SHA256 != "" {
		o.Key = digestKey(o.SHA256)
	}
	key := ""
	if o.Key != "" {
		key = s.prefix + o.Key
	}
	if err := s.enter(); err != nil {
		return nil, err
	}
	u := &Upload{store: s, ctx: ctx, object: o, memory: o.Memory.Another()}
	var err error
	if u.sink, err = s.backend.begin(key, o, u.memory); err != nil {
		s.count(0, err, false)
		u.memory.Close()
		s.leave()
		return nil, err
	}
	return u, nil
}

// enter counts an upload in flight.
func (s *Store) enter() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return &Error{store: s.name, reason: ReasonUnavailable, err: errClosed, text: fmt.Sprint(errClosed)}
	}
	s.stats.InFlight++
	return nil
}

// Space returns memory for the next bytes of the object, at least one byte. It blocks while a part
// is sent. The memory is valid until [Upload.Wrote].
func (u *Upload) Space() ([]byte, error) {
	if err := u.check(); err != nil {
		return nil, err
	}
	p, err := u.sink.space(u.ctx)
	u.err = err
	return p, err
}

// Wrote adds the first n bytes of the memory that Space returned last. It does not block.
func (u *Upload) Wrote(n int) error {
	if err := u.check(); err != nil {
		return err
	}
	most := u.store.max
	if u.object.Size >= 0 {
		most = min(most, u.object.Size)
	}
	if int64(n) > most-u.size {
		u.err = ErrTooLarge
		if most == u.object.Size {
			u.err = fmt.Errorf("the object has more than the %d bytes that were announced", most)
		}
		return u.err
	}
	u.sink.wrote(n)
	u.size += int64(n)
	return nil
}

// Write adds p to the object. It blocks while a part is sent. It does not keep p.
func (u *Upload) Write(p []byte) (n int, err error) {
	for n < len(p) {
		space, err := u.Space()
		if err != nil {
			return n, err
		}
		m := copy(space, p[n:])
		if err := u.Wrote(m); err != nil {
			return n, err
		}
		n += m
	}
	return n, nil
}

// check returns the error of an upload that cannot go on.
func (u *Upload) check() error {
	switch {
	case u.ended:
		return errEnded
	case u.err != nil:
		return u.err
	case u.ctx.Err() != nil:
		return context.Cause(u.ctx)
	}
	return nil
}

// Commit makes the object visible. sha256 is the digest of all bytes written, in lower-case
// hexadecimal. Commit ends the upload, whatever it returns.
//
// If it returns an error, the object is not visible, with one exception: if the context ends or
// the store stops responding during the last request, the whole object may still become visible.
// A part of an object never does.
func (u *Upload) Commit(sha256 string) (Stored, error) {
	if u.ended {
		return Stored{}, errEnded
	}
	stored, err := u.commit(sha256)
	u.end(err, err == nil)
	return stored, err
}

func (u *Upload) commit(sha256 string) (Stored, error) {
	if err := u.check(); err != nil {
		return Stored{}, err
	}
	if err := checkDigest(sha256); err != nil {
		return Stored{}, err
	}
	if u.object.SHA256 != "" && u.object.SHA256 != sha256 {
		return Stored{}, fmt.Errorf("the SHA-256 is %s, want %s", sha256, u.object.SHA256)
	}
	if u.object.Size >= 0 && u.object.Size != u.size {
		return Stored{}, fmt.Errorf("the object has %d bytes, want %d", u.size, u.object.Size)
	}
	key := u.object.Key
	if key == "" {
		key = digestKey(sha256)
	}
	stored, err := u.sink.commit(u.ctx, u.store.prefix+key)
	if err != nil {
		return Stored{}, err
	}
	stored.Key, stored.Size, stored.SHA256 = key, u.size, sha256
	return stored, nil
}

// Abort ends the upload without an object. It returns at once: what the store already has is
// removed in the background, within 16 s, and memory stays charged until then. It has no effect after
// Commit or another Abort.
func (u *Upload) Abort() {
	if !u.ended {
		u.end(u.err, false)
	}
}

// end counts an upload that has ended, and removes what is left of it.
func (u *Upload) end(err error, committed bool) {
	u.ended = true
	u.store.count(u.size, err, committed)
	if u.sink.busy() {
		go u.leave()
	} else {
		u.leave()
	}
}

func (u *Upload) leave() {
	u.sink.discard(context.WithoutCancel(u.ctx))
	u.memory.Close()
	u.store.leave()
}

// count counts an upload that has ended with err.
func (s *Store) count(size int64, err error, committed bool) {
	failure, failed := errors.AsType[*Error](err)
	switch {
	case committed:
		s.breaker.succeeded()
	case failed && failure.down:
		s.breaker.failed()
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case committed:
		s.stats.Committed++
		s.stats.Bytes += uint64(size)
	case failed:
		s.stats.Failed++
	default:
		s.stats.Aborted++
	}
}

// leave counts an upload of which nothing is left.
func (s *Store) leave() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.stats.InFlight--; s.closed && s.stats.InFlight == 0 {
		close(s.empty)
	}
}
