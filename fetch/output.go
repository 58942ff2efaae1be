package fetch

import (
	"errors"
	"net/http"
	"sync"
	"time"

	"fetchd/classify"
	"fetchd/fetch/fault"
	"fetchd/fetch/markdown"
	"fetchd/internal/budget"
)

// chunkBytes is the size of a chunk. With its envelope it fits into a buffer of 32 KiB, the
// largest that package server pools. In grpc-go's own pool the next larger has 1 MiB.
const chunkBytes = 31 << 10

type chunk = [chunkBytes]byte

var chunks sync.Pool // of *chunk

func newChunk() *chunk {
	if c, ok := chunks.Get().(*chunk); ok {
		return c
	}
	return new(chunk)
}

// output delivers a body: to the sink after a hold-back, into memory for the outcome, into a
// store, or not at all (spec B1, B4, B8). With [Auto] it decides when the body has ended or exceeds the
// hold-back. The body is read directly into its chunks.
type output struct {
	a        *attempt
	stream   bool
	inline   bool     // the whole body is kept for the outcome
	kept     []byte   // the body for the outcome
	charged  int64    // bytes charged for kept
	granted  int64    // size of the hold-back
	held     int64    // bytes charged for it from the start, as long as they are needed
	buffered []*chunk // full chunks that are not sent
	last     *chunk   // the chunk that is being filled
	n        int      // bytes in last
	offset   int64    // in the body, of the next byte to send
	body     *progress
}

// newOutput returns an output that continues after the delivered bytes. If there are any,
// nothing is held back, because the body can no longer restart.
func newOutput(a *attempt, delivered *progress) output {
	o := output{a: a, body: delivered, offset: delivered.size}
	if bodyless(a.hop.method, a.resp.StatusCode) {
		return o
	}
	switch a.run.req.Delivery {
	case Stream, Auto:
		o.stream = true
		if delivered == a.resuming {
			return o
		}
		if o.granted = holdBackWanted(a); o.granted > freeHoldBack {
			o.held = a.run.req.Memory.GrowUpTo(budget.HoldBack, o.granted)
			o.granted = max(o.held, freeHoldBack)
		}
	case Inline:
		o.inline = true
	}
	return o
}

// bodyless reports whether a response has no body, even if its head has a length.
func bodyless(method string, status int) bool {
	return method == http.MethodHead || status == http.StatusNoContent || status == http.StatusResetContent
}

// holdBackShare is the ratio of body to hold-back from which nothing is held back, if the
// length is known. Nearly every interruption of such a body comes after the hold-back,
// which would only delay its first byte.
const holdBackShare = 8

// freeHoldBack is the size of the hold-back that is not charged: it fits into the chunk that each fetch has.
const freeHoldBack = chunkBytes - 1

// holdBackWanted returns the size of the hold-back to ask for. It is at most the size of
// the body, if that is known.
func holdBackWanted(a *attempt) int64 {
	want := a.run.req.HoldBackBytes
	if known := a.resp.ContentLength; known >= 0 && a.run.req.coding(a.resp.Header) == "" {
		if known/holdBackShare >= want {
			return 0
		}
		want = min(want, known)
	}
	return want
}

// space returns the memory for the next piece of the body. It is never empty.
func (o *output) space() ([]byte, error) {
	if o.a.run.req.Delivery == Store {
		return o.storeSpace()
	}
	if o.last == nil {
		o.last = newChunk()
	}
	return o.last[o.n:], nil
}

// wrote accepts the n bytes that were read into space. When they exceed the hold-back, it
// sends everything, and from then on each piece at once.
func (o *output) wrote(n int) error {
	switch {
	case o.inline:
		return o.keep(n)
	case o.a.run.req.Delivery == Store:
		return o.stored(n)
	case !o.stream:
		return nil
	}
	o.n += n
	if o.a.committed || int64(len(o.buffered)*chunkBytes+o.n) > o.granted {
		return o.flush(false)
	}
	if o.n == chunkBytes {
		o.buffered = append(o.buffered, o.last)
		o.last, o.n = nil, 0
	}
	return nil
}

// keptAhead limits the memory for an inline body to so many times the bytes that have
// arrived. The origin may announce any length.
const keptAhead = 4

// keptStep is the size below which that limit does not apply, and up to which kept doubles
// if the length is unknown.
const keptStep = 64 << 10

// keptBytes returns the charge for n bytes of kept: once for themselves and once for each later copy.
func (o *output) keptBytes(n int) int64 {
	if o.a.run.req.Text != markdown.Off { // the text replaces them
		return int64(n)
	}
	return o.a.run.req.deliveredBytes(n)
}

// charge charges n more bytes of kept. It reports whether they were granted.
func (o *output) charge(n int) bool {
	more := o.keptBytes(n)
	if !o.a.run.req.Memory.Grow(budget.Body, more) {
		return false
	}
	o.charged += more
	return true
}

// keep appends the first n bytes of last to kept. It charges them before kept grows.
func (o *output) keep(n int) error {
	if need := len(o.kept) + n; need > cap(o.kept) {
		room := max(need, min(2*need, keptStep))
		if known := o.a.resp.ContentLength; known >= int64(need) {
			room = int(min(known, int64(max(keptAhead*need, keptStep))))
		} else if need > keptStep {
			room = need + need/2
		}
		if more := room - cap(o.kept); !o.charge(more) && !(memory{o.a}).await(func() bool { return o.charge(more) }) {
			return fault.OutOfMemory
		}
		o.kept = append(make([]byte, 0, room), o.kept...)
	}
	o.kept = append(o.kept, o.last[:n]...)
	return nil
}

// flush sends what is buffered, and frees each chunk when it is sent. From the first byte on
// the attempt is committed. Only the end of the fetch stops flush: a later attempt continues
// after the bytes that were read. more reports whether the attempt ends at once after the last chunk.
func (o *output) flush(more bool) error {
	o.a.announce(o)
	for i, c := range o.buffered {
		o.shrinkHoldBack(int64(len(o.buffered)-i) * chunkBytes)
		if err := o.send(c[:], more && o.n == 0 && i == len(o.buffered)-1); err != nil {
			o.buffered = nil // not reused: after an error the sink may still read c
			return err
		}
		o.buffered[i] = nil
		chunks.Put(c)
	}
	o.buffered = nil
	o.shrinkHoldBack(0) // the last chunk is in the memory of each fetch
	if o.n == 0 {
		return nil
	}
	n := o.n
	o.n = 0
	if err := o.send(o.last[:n], more); err != nil {
		o.last = nil
		return err
	}
	return nil
}

// shrinkHoldBack releases what is charged for the hold-back beyond n bytes. The sink may have used a part of it to
// pay for a message.
func (o *output) shrinkHoldBack(n int64) {
	if o.held > n {
		m := o.a.run.req.Memory
		m.Shrink(budget.HoldBack, max(m.Held(budget.HoldBack)-n, 0))
		o.held = n
	}
}

// announce emits ResponseStarted before the first chunk, at the other levels.
func (a *attempt) announce(o *output) {
	if !a.run.wantsAttemptEvents() && !a.committed {
		a.emitStarted(o.offset, o.granted, o.n > 0 || len(o.buffered) > 0 || a.run.endsAtOnce())
	}
}

func (a *attempt) emitStarted(offset, holdBack int64, more bool) {
	a.emit(ResponseStarted{Attempt: a.number, Response: a.head.response, URL: a.head.url, BodyOffset: offset, HoldBack: holdBack, More: more})
}

// send passes bytes to the sink. It returns an error if the fetch has ended, in particular because the sink failed.
func (o *output) send(p []byte, more bool) error {
	o.a.committed, o.a.run.delivered, o.body.sent = true, o.body, true
	if o.a.emit(BodyChunk{Attempt: o.a.number, Offset: o.offset, Data: p, More: more}) {
		o.offset += int64(len(p))
	}
	cause := o.a.run.cancelCause()
	if cause == nil {
		return nil
	}
	if o.offset > 0 && o.offset < o.body.size { // the summary counts what was delivered
		o.body.size, o.body.digest = o.offset, nil
	}
	class, reason, _ := o.a.classOf(classify.PhaseTransfer, cause)
	return fault.New(class, classify.PhaseTransfer, reason)
}

// finish delivers what is still buffered. It is called when the body is complete and checked.
func (o *output) finish() error {
	if !o.stream || o.a.run.req.Delivery == Auto && o.keepBuffered() {
		return nil
	}
	return o.flush(o.a.run.endsAtOnce())
}

// keepBuffered copies the buffered body to kept. It reports false, and does nothing, if bytes
// were delivered before, if the body is too long, or if there is no memory for it. The body is
// then streamed.
func (o *output) keepBuffered() bool {
	size := len(o.buffered)*chunkBytes + o.n
	m, need := o.a.run.req.Memory, o.keptBytes(size)
	if o.a.run.delivered != nil || size > MaxInlineBytes || !m.PayUpTo(m, budget.HoldBack, budget.Body, need) {
		return false
	}
	o.charged, o.held = need, max(o.held-need, 0)
	o.kept = make([]byte, 0, size)
	for _, c := range o.buffered {
		o.kept = append(o.kept, c[:]...)
	}
	if o.n > 0 {
		o.kept = append(o.kept, o.last[:o.n]...)
	}
	return true
}

// replace replaces the kept body by its text. It reports false if there is no memory for it.
func (o *output) replace(text string) bool {
	need := o.a.run.req.deliveredBytes(len(text))
	if !o.a.run.req.Memory.Grow(budget.Body, need) {
		return false
	}
	o.a.run.req.Memory.Shrink(budget.Body, o.charged)
	o.kept, o.charged = []byte(text), need
	return true
}

// take returns the kept body, which is nil if the body is not for the outcome. The outcome then owns it
// and its charge.
func (o *output) take() []byte {
	o.charged = 0
	if o.inline && o.kept == nil {
		return []byte{}
	}
	return o.kept
}

func (o *output) close() {
	o.shrinkHoldBack(0)
	o.a.run.req.Memory.Shrink(budget.Body, o.charged)
	o.charged = 0
	for _, c := range o.buffered {
		chunks.Put(c)
	}
	if o.last != nil {
		chunks.Put(o.last)
	}
	o.buffered, o.last = nil, nil
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
	if o.a.run.req.coding(o.a.resp.Header) == "" {
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
