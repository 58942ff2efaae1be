package fetch

import (
	"bytes"
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"io"
	"mime"
	"net/http"
	"slices"
	"strings"
	"time"

	"fetchd/classify"
	"fetchd/fetch/coding"
	"fetchd/fetch/conns"
	"fetchd/fetch/fault"
	"fetchd/fetch/markdown"
	"fetchd/internal/budget"
	"fetchd/internal/sniff"
)

// consume reads the body of the last response, and delivers it if the request says so.
func (a *attempt) consume() {
	if a.resp == nil {
		return
	}
	a.response = &Response{StatusCode: a.resp.StatusCode, Protocol: a.resp.Proto, Header: a.resp.Header,
		ContentLength: a.resp.ContentLength}
	a.head = a.shownHead()
	began := time.Now()
	window, ok := a.chargeWindow()
	defer func() { a.run.req.Memory.Shrink(budget.Receiving, window) }()
	switch {
	case !ok:
		a.emitResponse(nil)
	case a.alreadyComplete():
		a.deliverNothing()
	case a.resp.StatusCode >= 200 && a.resp.StatusCode <= 299:
		a.deliver()
	default:
		a.emitResponse(nil)
		a.readErrorBody()
		a.noteRefusal()
	}
	a.hops[len(a.hops)-1].Exchange.Transfer = time.Since(began)
	a.endExchange(a.resp)
	if a.isDoubtful() {
		a.disown()
	}
}

// deliverNothing completes a resumed body of which no bytes were missing.
func (a *attempt) deliverNothing() {
	r := newBodyReader(a, a.resuming)
	defer r.close()
	a.body.LengthKnown = true
	a.drain(a.resp)
	if a.isDoubtful() {
		return
	}
	err := r.check()
	if err == nil && a.run.req.Delivery == Store {
		err = r.out.commit(r.sum())
	}
	if err != nil {
		a.failBody(r, err)
		return
	}
	r.summarise()
}

// emitResponse emits ResponseStarted when the head was read, at the levels Attempts and
// All. r reads the body; nil means that the body is not delivered.
func (a *attempt) emitResponse(r *bodyReader) {
	refreshes := a.resp.StatusCode == http.StatusUnauthorized && a.run.req.Credentials != nil // which may wait (A2)
	more := a.run.endsAtOnce() && a.bodyArrived() && !refreshes
	switch {
	case !a.run.wantsAttemptEvents():
	case r == nil && a.run.delivered != nil: // no body follows; the delivered bytes stay valid
		a.emitStarted(a.run.delivered.size, 0, more)
	case r == nil:
		a.emitStarted(0, 0, more)
	default:
		a.emitStarted(r.out.offset, r.out.granted, more)
	}
}

// bodyArrived reports whether the whole body is in memory, so that reading it waits for nothing. A body in a
// content coding does not count: it may be long.
func (a *attempt) bodyArrived() bool {
	if bodyless(a.hop.method, a.resp.StatusCode) {
		return true
	}
	known := a.resp.ContentLength
	return !a.exchange.HTTP2() && known >= 0 && known <= int64(a.exchange.Buffered()) && a.run.req.coding(a.resp.Header) == ""
}

// deliver reads and checks the body of a 2xx response, and delivers it as the request says.
func (a *attempt) deliver() {
	p, mismatch := a.bodyProgress()
	r := newBodyReader(a, p)
	defer r.close()
	a.emitResponse(r)
	if mismatch != nil {
		a.failBody(r, mismatch)
		return
	}
	if !a.wantedType() {
		a.fail(classify.ContentType, classify.PhaseTransfer, "unwanted_media_type")
		return
	}
	a.body.LengthKnown = a.lengthKnown()
	total := a.readPartial(p)
	if a.run.req.Delivery == None || a.hop.method == http.MethodHead {
		return
	}
	if bodyless(a.hop.method, a.resp.StatusCode) {
		if err := r.integrity(); err != nil { // an empty body must match, too
			a.failBody(r, err)
		}
		return
	}
	if err := a.readInto(r, total); err != nil {
		a.failBody(r, err)
		return
	}
	r.summarise()
	a.inlineBody = r.out.take()
}

// readInto reads the body, and makes text of it if the request says so.
func (a *attempt) readInto(r *bodyReader, total int64) error {
	if a.run.req.Text == markdown.Off {
		return r.read(total)
	}
	if !sniff.MayBeText(first(a.resp.Header, "Content-Type")) {
		return errNotText
	}
	if err := r.read(total); err != nil {
		return err
	}
	return a.toText(&r.out)
}

// wantedType reports whether the Content-Type is among the media types (spec C1).
// A 204 or 205 has no content that could be of a type.
func (a *attempt) wantedType() bool {
	wanted := a.run.req.Content.MediaTypes
	if len(wanted) == 0 || a.resp.StatusCode == http.StatusNoContent || a.resp.StatusCode == http.StatusResetContent {
		return true
	}
	media, _, err := mime.ParseMediaType(a.resp.Header.Get("Content-Type"))
	if err != nil && !errors.Is(err, mime.ErrInvalidMediaParameter) {
		return false
	}
	family, _, _ := strings.Cut(media, "/")
	return slices.ContainsFunc(wanted, func(w string) bool {
		return w == media || w == "*/*" || w == family+"/*"
	})
}

// lengthKnown reports whether the end of the body is marked. It always is over HTTP/2, and over
// HTTP/1.1 by a length or by chunks (RFC 9112 §6.3). The status line does not decide.
func (a *attempt) lengthKnown() bool {
	return a.exchange.HTTP2() || a.resp.ContentLength >= 0 || slices.Contains(a.resp.TransferEncoding, "chunked")
}

// failBody records why a body could not be read. An error below the decoder is a failure
// of the transfer. An error of the decoder alone is a failure of the coding (spec §3).
func (a *attempt) failBody(r *bodyReader, err error) {
	r.summarise()
	if errors.Is(err, fault.OutOfMemory) {
		a.outOfMemory(classify.PhaseTransfer)
		return
	}
	if known, ok := errors.AsType[*fault.Error](err); ok {
		if _, ofRecords := errors.AsType[StoreError](err); ofRecords { // output.storeError has noted that of a body
			a.noteError(known.Class, classify.PhaseTransfer, err, nil)
		}
		a.fail(known.Class, classify.PhaseTransfer, known.Reason)
		return
	}
	if r.raw.Err != nil || a.exchange.Cause() != nil {
		a.failWith(classify.PhaseTransfer, cmp.Or(r.raw.Err, err))
		return
	}
	a.noteError(classify.Undecodable, classify.PhaseTransfer, err, nil)
	a.fail(classify.Undecodable, classify.PhaseTransfer, "content_coding")
}

// bodyReader reads one body through idle, raw and dec into the memory of out. It checks and
// hashes the decoded bytes, and passes them to out.
type bodyReader struct {
	a        *attempt
	progress *progress      // of the whole body
	idle     idleReader     // limits the time of a read
	raw      coding.Counter // counts the bytes on the wire, and keeps their error
	dec      coding.Decoder
	out      output
	limit    int64 // of the body's size
}

// newBodyReader returns the reader of a.resp's body that continues after the delivered bytes.
func newBodyReader(a *attempt, delivered *progress) *bodyReader {
	r := &a.reader
	*r = bodyReader{a: a, progress: delivered, limit: a.run.req.bodyLimit()}
	r.idle = idleReader{a.resp.Body, a}
	r.raw = coding.Counter{Reader: &r.idle, Max: r.limit + codingOverhead}
	r.out = newOutput(a, delivered)
	return r
}

// idleReader reads a response's body. The idle limit runs only during a read (spec N9).
type idleReader struct {
	body io.Reader
	a    *attempt
}

// Read implements io.Reader.
func (r *idleReader) Read(p []byte) (int, error) {
	x := r.a.exchange
	x.Limit.Arm(r.a.run.req.IdleTimeout, classify.BodyTimeout)
	n, err := r.body.Read(p)
	x.Limit.Rest()
	x.Permit()
	return n, err
}

// read reads the body to its end, checks it, and then sends what is still buffered. total is the
// number of bytes before decoding that a 206 must have to be whole. Negative means that it is not
// known.
func (r *bodyReader) read(total int64) error {
	name := r.a.run.req.coding(r.a.resp.Header)
	if r.progress.size > r.limit {
		return fault.New(classify.BodyTooLarge, classify.PhaseTransfer, "max_size_bytes") // the bytes delivered earlier exceed the limit
	}
	if known := r.a.resp.ContentLength; known > r.limit-r.progress.size && !r.a.run.req.Truncate && name == "" {
		return fault.New(classify.BodyTooLarge, classify.PhaseTransfer, "content_length")
	}
	if r.a.storesPart() {
		return errPart
	}
	var err error
	if r.dec, err = coding.NewDecoder(&r.raw, name, memory{r.a}); err != nil {
		return err
	}
	if err := r.copy(); err != nil {
		return err
	}
	if err := r.drain(); err != nil {
		return err
	}
	if conns.Fields(r.a.resp.Trailer) > conns.MaxHeaderFields {
		return conns.ErrFields
	}
	if r.progress == r.a.resuming && !r.a.body.Truncated && r.progress.size != r.progress.end {
		return fault.New(classify.BodyInterrupted, classify.PhaseTransfer, "range_length")
	}
	if total >= 0 && r.raw.N != total && !r.a.body.Truncated {
		r.a.body.PartialContent = true
	}
	if r.a.storesPart() {
		return errPart
	}
	if err := r.check(); err != nil {
		return err
	}
	if r.a.run.req.Delivery == Store {
		return r.out.commit(r.sum())
	}
	return r.out.finish()
}

// drain reads what may follow the coded body, and checks that the body is the answer to this request.
func (r *bodyReader) drain() error {
	if !r.a.body.Truncated {
		if err := r.dec.Drain(); r.raw.Err != nil {
			return r.raw.Err
		} else if err != nil && !r.a.run.req.Truncate {
			return err
		} else if err != nil {
			r.a.body.Truncated = true
		}
	}
	if r.a.isDoubtful() {
		r.progress.mismatch = true // an upload may have bytes of it
		return errSurplus
	}
	return nil
}

// copy reads the decoded body piece by piece, and passes on each piece before it reads the
// next one. It stops at the size limit.
func (r *bodyReader) copy() error {
	for {
		buf, err := r.out.space()
		if err != nil {
			return err
		}
		n, err := r.dec.Read(buf)
		if r.progress == r.a.resuming && r.progress.size+int64(n) > r.progress.end {
			r.progress.mismatch = true
			return fault.New(classify.BodyInterrupted, classify.PhaseTransfer, "resume_mismatch")
		}
		if over := r.progress.size + int64(n) - r.limit; over > 0 || r.raw.N-r.limit > codingOverhead {
			if !r.a.run.req.Truncate {
				return fault.New(classify.BodyTooLarge, classify.PhaseTransfer, "max_size_bytes")
			}
			r.a.body.Truncated = true
			n -= int(max(over, 0))
		}
		if werr := r.pass(buf[:n]); werr != nil {
			return werr
		}
		if errors.Is(err, io.EOF) || r.a.body.Truncated {
			return nil
		}
		if err != nil {
			return err
		}
	}
}

// pass hashes and checks a piece of the decoded body, which is in the output's space, and
// hands it to the output.
func (r *bodyReader) pass(p []byte) error {
	if len(p) == 0 {
		return nil
	}
	r.progress.size += int64(len(p))
	if r.progress.digest != nil {
		r.progress.digest.Write(p)
	}
	if r.progress.charset != nil {
		if _, err := r.progress.charset.Write(p); err != nil {
			return err
		}
	}
	return r.out.wrote(len(p))
}

// check compares the whole body with what the request requires (spec C2, C3, C5).
func (r *bodyReader) check() error {
	if r.progress.charset != nil && !r.a.body.Truncated {
		if err := r.progress.charset.Close(); err != nil {
			return err
		}
	}
	if r.progress.size == 0 && r.a.run.req.Content.RequireBody {
		return fault.New(classify.EmptyBody, classify.PhaseTransfer, "empty_body")
	}
	return r.integrity()
}

// integrity compares size and digest with what the request says (spec C5).
func (r *bodyReader) integrity() error {
	if want := r.a.run.req.Integrity; want.Size >= 0 && want.Size != r.progress.size {
		return fault.New(classify.Integrity, classify.PhaseTransfer, "size")
	} else if want.SHA256 != "" && want.SHA256 != r.sum() {
		return fault.New(classify.Integrity, classify.PhaseTransfer, "sha256")
	}
	return nil
}

func (r *bodyReader) sum() string {
	if r.progress.digest == nil {
		return ""
	}
	var text [2 * sha256.Size]byte
	hex.Encode(text[:], r.progress.digest.Sum(r.progress.room[:0]))
	return string(text[:])
}

// summarise records sizes and digest for the outcome (spec B5).
func (r *bodyReader) summarise() {
	r.a.body.Size, r.a.body.EncodedSize = r.progress.size, r.progress.encoded+r.raw.N
	if !r.a.run.req.OmitDigest {
		r.a.body.SHA256 = r.sum()
	}
}

// close releases the charges, and with them the memory: the attempt may live for some time.
func (r *bodyReader) close() {
	r.progress.encoded += r.raw.N // for an attempt that resumes the body
	r.dec.Close()
	r.out.close()
	*r = bodyReader{}
}

// errorBodyTime limits the wait for the start of a body that is not delivered. People read that
// text, and it must not delay a retry.
const errorBodyTime = 2 * time.Second

// readErrorBody keeps the start of a body that is not delivered (spec I5). Errors of the
// read do not change the outcome.
func (a *attempt) readErrorBody() {
	if a.run.req.ErrorBodyBytes == 0 || a.resp.StatusCode < 200 {
		return // the body of a 101 is the connection itself, which no context ends
	}
	limit := errorBodyTime
	if a.recorded != nil {
		limit = recordedTime
	}
	a.exchange.Limit.Arm(min(cmp.Or(a.run.req.IdleTimeout, limit), limit), classify.BodyTimeout)
	most := int64(a.run.req.ErrorBodyBytes)
	if !a.run.req.Memory.Grow(budget.Body, most) {
		return // the outcome is the same without it
	}
	defer func() { a.run.req.Memory.Shrink(budget.Body, most-int64(len(a.errorBody))) }()
	raw := &coding.Counter{Reader: a.resp.Body, Max: most + codingOverhead}
	body, err := coding.NewDecoder(raw, a.run.req.coding(a.resp.Header), a.run.req.Memory)
	if err != nil {
		return
	}
	defer body.Close()
	begin, _ := io.ReadAll(io.LimitReader(&body, most))
	begin = a.exchange.HideCredentials(begin)
	a.errorBody = bytes.Clone(begin)    // without spare capacity, because a long wait may keep it
	_, _ = io.CopyN(io.Discard, raw, 1) // the end of a short body frees its connection
}
