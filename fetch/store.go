package fetch

import (
	"context"
	"errors"
	"time"

	"fetchd/classify"
	"fetchd/fetch/fault"
	"fetchd/internal/budget"
)

// Destination takes the body of one fetch with delivery [Store] (spec B8). Its errors end the fetch
// as STORE_FAILURE (P8), except budget.ErrRefused, which ends it as OUT_OF_MEMORY, and errors after
// the fetch has ended. An error that implements [StoreError] says more.
type Destination interface {
	// Ready returns an error if the store is known to be down. The fetch then ends without
	// an attempt.
	Ready() error
	// Begin starts an upload. It makes no request to the store before it must. Every request of
	// the upload ends with ctx.
	Begin(ctx context.Context, o Object) (Upload, error)
}

// Object describes what is uploaded.
type Object struct {
	// ContentType is that of the response. It may be empty.
	ContentType string
	// Size is in bytes. It is negative if it is not known. The origin announced it, so
	// nothing may be reserved for it.
	Size int64
	// Memory is charged for what the upload holds.
	Memory *budget.Lease
}

// Upload is a body on its way to a store. One goroutine at a time uses it.
type Upload interface {
	// Space returns memory for the next bytes of the body, at least one byte. It waits while the
	// store is busy.
	Space() ([]byte, error)
	// Wrote adds the first n bytes of the last Space. It does not wait.
	Wrote(n int) error
	// Commit makes the object visible. sha256 is the digest of all bytes written, in
	// hexadecimal.
	Commit(sha256 string) (StoredObject, error)
	// Abort drops the upload, and does nothing after Commit has succeeded. It does not
	// wait for the store, and may be called again.
	Abort()
}

// StoredObject is where a body is.
type StoredObject struct {
	// Key is that of the object in the store.
	Key string
	// ETag and Version are what the store calls the object. They may be empty.
	ETag, Version string
}

// StoreError is an error that says more about a failure of a store.
type StoreError interface {
	error
	// Reason is [Failure].Reason.
	Reason() string
	// Detail is the error without addresses, for callers.
	Detail() string
}

// storeText returns the error of a store for callers, and its reason.
func storeText(err error) (detail, reason string) {
	if known, ok := errors.AsType[StoreError](err); ok {
		return known.Detail(), known.Reason()
	}
	return "", "store_error"
}

// storeSpace returns the memory of the upload for the next piece of the body, and begins the upload
// before the first one. The attempt's time limit is paused while the store is busy.
func (o *output) storeSpace() (space []byte, err error) {
	began := time.Now()
	left := o.a.limit.Pause(began)
	if err = o.begin(); err == nil {
		space, err = o.a.run.upload.Space()
	}
	o.a.resume(began, left)
	if err != nil {
		return nil, o.storeError(err)
	}
	return space, nil
}

// stored adds the n bytes that were read into the space to the upload.
func (o *output) stored(n int) error {
	if err := o.a.run.upload.Wrote(n); err != nil {
		return o.storeError(err)
	}
	o.body.sent, o.a.run.delivered = true, o.body
	o.offset += int64(n)
	return nil
}

// begin starts the upload of the body, unless an earlier attempt has. The upload of a body that
// is not continued is dropped.
func (o *output) begin() error {
	r := o.a.run
	if r.upload != nil && r.uploadOf == o.body {
		return nil
	}
	r.dropUpload()
	size := int64(-1)
	if o.a.coding() == "" {
		size = o.a.resp.ContentLength
	}
	u, err := r.req.Destination.Begin(r.waitContext(),
		Object{ContentType: o.a.resp.Header.Get("Content-Type"), Size: size, Memory: r.req.Memory})
	if err != nil {
		return err
	}
	r.upload, r.uploadOf = u, o.body
	return nil
}

// commit makes the object visible. It is called when the body is complete and checked.
func (o *output) commit(digest string) error {
	began := time.Now()
	left := o.a.limit.Pause(began)
	err := o.begin() // an empty body has none yet
	var stored StoredObject
	if err == nil {
		stored, err = o.a.run.upload.Commit(digest)
	}
	o.a.resume(began, left)
	if err != nil {
		return o.storeError(err)
	}
	o.a.stored = &stored
	return nil
}

// errInStore is what a fetch was busy with when its time ran out.
var errInStore = errors.New("the store was taking the body")

// storeError returns why the fetch ends after an error of its destination.
func (o *output) storeError(err error) error {
	if cause := o.a.run.cancelCause(); cause != nil {
		class, reason, _ := o.a.classOf(classify.PhaseTransfer, cause)
		o.a.noteError(class, classify.PhaseTransfer, errInStore, nil)
		o.a.note.ofStore = true
		return fault.New(class, classify.PhaseTransfer, reason)
	}
	if errors.Is(err, budget.ErrRefused) {
		return fault.OutOfMemory
	}
	o.a.noteError(classify.StoreFailure, classify.PhaseTransfer, err, nil)
	_, reason := storeText(err)
	return fault.New(classify.StoreFailure, classify.NoPhase, reason)
}

// dropUpload drops the upload of a body that is not continued.
func (r *run) dropUpload() {
	if r.upload != nil {
		r.upload.Abort()
		r.upload, r.uploadOf = nil, nil
	}
}
