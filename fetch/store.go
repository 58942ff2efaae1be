package fetch

import (
	"context"
	"errors"
	"io"
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
	io.Writer
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

// storeReady reports whether the fetch may start. If the store is known to be down, the fetch has
// failed.
func (r *run) storeReady() bool {
	if r.req.Delivery != Store {
		return true
	}
	err := r.req.Destination.Ready()
	if err == nil {
		return true
	}
	shown, reason := storeText(err)
	r.settleAs(classify.StoreFailure, reason, "")
	r.failure.Detail = printable(shown, MaxDetailBytes)
	return false
}

// storeText returns the error of a store for callers, and its reason.
func storeText(err error) (detail, reason string) {
	if known, ok := errors.AsType[StoreError](err); ok {
		return known.Detail(), known.Reason()
	}
	return "", "store_error"
}

// store writes a piece of the body to its upload, and begins the upload with the first one. The
// attempt's time limit is paused meanwhile.
func (o *output) store(p []byte) error {
	began := time.Now()
	left := o.a.limit.Pause(began)
	err := o.begin()
	if err == nil {
		_, err = o.body.upload.Write(p)
	}
	o.a.resume(began, left)
	if err != nil {
		return o.storeError(err)
	}
	o.offset += int64(len(p))
	return nil
}

// begin starts the upload of the body, unless an earlier attempt has. The upload of a body that
// is not continued is dropped.
func (o *output) begin() error {
	if o.body.upload != nil {
		return nil
	}
	o.a.run.dropUpload()
	size := int64(-1)
	if o.a.coding() == "" {
		size = o.a.resp.ContentLength
	}
	u, err := o.a.run.req.Destination.Begin(o.a.run.waitContext(),
		Object{ContentType: o.a.resp.Header.Get("Content-Type"), Size: size, Memory: o.a.run.req.Memory})
	if err != nil {
		return err
	}
	o.body.upload, o.body.sent, o.a.run.delivered = u, true, o.body
	return nil
}

// commit makes the object visible. It is called when the body is complete and checked.
func (o *output) commit(digest string) error {
	began := time.Now()
	left := o.a.limit.Pause(began)
	err := o.begin() // an empty body has none yet
	var stored StoredObject
	if err == nil {
		stored, err = o.body.upload.Commit(digest)
	}
	o.a.resume(began, left)
	if err != nil {
		return o.storeError(err)
	}
	o.a.stored = &stored
	return nil
}

// storeError returns why the fetch ends after an error of its destination.
func (o *output) storeError(err error) error {
	if cause := o.a.run.cancelCause(); cause != nil {
		class, reason, _ := o.a.classOf(classify.PhaseTransfer, cause)
		return fault.New(class, classify.PhaseTransfer, reason)
	}
	if errors.Is(err, budget.ErrRefused) {
		return fault.OutOfMemory
	}
	o.a.noteError(classify.StoreFailure, classify.PhaseTransfer, err, nil)
	shown, reason := storeText(err)
	o.a.note.callerText = printable(shown, MaxDetailBytes)
	return fault.New(classify.StoreFailure, classify.NoPhase, reason)
}

// dropUpload drops the upload of a body that is not continued.
func (r *run) dropUpload() {
	if p := r.delivered; p != nil && p.upload != nil {
		p.upload.Abort()
		p.upload = nil
	}
}
