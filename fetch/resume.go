package fetch

import (
	"crypto/sha256"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"fetchd/classify"
	"fetchd/fetch/coding"
	"fetchd/fetch/fault"
)

// Resumable reports whether the body can be requested in parts: the request is a GET without a
// Range header, and its body is streamed or stored.
func (r *Request) Resumable() bool {
	return r.Method == http.MethodGet && (r.Delivery.Streams() || r.Delivery == Store) && r.Header.Get("Range") == ""
}

// restarts reports whether a body of which bytes were delivered may start again.
func (r *Request) restarts() bool { return r.Recovery == Restart || r.Delivery == Store }

// resumeAt returns the progress of a fetch with a resume point, or nil. It has no digest,
// because the bytes before that point are not known.
func (r *Request) resumeAt() *progress {
	if r.ResumePoint.Offset <= 0 {
		return nil
	}
	return &progress{size: r.ResumePoint.Offset, validator: r.ResumePoint.Validator, total: -1}
}

// progressToResume returns the progress of the body that the next attempt resumes. It is nil if
// that attempt requests the body from its first byte.
func (r *run) progressToResume() *progress {
	if p := r.delivered; p != nil && p.validator != "" && !p.mismatch {
		return p
	}
	return nil
}

// rangeRequest returns the first request of an attempt that resumes a body: hop, for the bytes
// that are missing.
func (p *progress) rangeRequest(r *Request, hop *hopRequest) *hopRequest {
	next := *hop
	next.header = hop.header.Clone()
	next.header.Set("Range", fmt.Sprintf("bytes=%d-", p.size))
	next.header.Set("If-Range", p.validator)
	if r.decodes() {
		next.header.Set("Accept-Encoding", "identity") // offsets in encoded bytes are different
	}
	for _, condition := range []string{"If-None-Match", "If-Modified-Since", "If-Match", "If-Unmodified-Since"} {
		next.header.Del(condition) // the first response has answered it
	}
	return &next
}

// recoverable reports whether another attempt can deliver the rest of the body, or all of
// it again.
func (r *run) recoverable() bool {
	p := r.delivered
	if p == nil || r.req.restarts() {
		return true
	}
	if !p.sent && !p.mismatch { // this fetch has only its resume point, and can ask for the rest again
		return true
	}
	return r.req.Recovery == Resume && r.progressToResume() != nil
}

// shownHead returns the head that callers see. If the attempt resumes a body, it is the head with
// which that body started, because it describes the delivered bytes, even if the response does
// not fit. A failed status has its own head, and so has a body that starts again.
func (a *attempt) shownHead() head {
	own := head{a.response, a.number, a.hop.urlText()}
	p, status := a.resuming, a.resp.StatusCode
	switch {
	case p == nil || p.head.response == nil:
		return own
	case status == http.StatusOK && a.run.req.restarts():
		return own
	case status >= 200 && status <= 299 || a.alreadyComplete():
		return p.head
	}
	return own
}

// alreadyComplete reports whether a 416 answers a request to resume a body that was already
// complete: the body has as many bytes as were delivered.
func (a *attempt) alreadyComplete() bool {
	if a.resuming == nil || a.resp == nil || a.resp.StatusCode != http.StatusRequestedRangeNotSatisfiable {
		return false
	}
	p := a.resuming
	if tag := a.resp.Header.Get("Etag"); tag != "" && isTag(p.validator) && tag != p.validator || !p.isFrom(a.hop) {
		return false
	}
	ranges := a.resp.Header["Content-Range"]
	if len(ranges) != 1 {
		return false
	}
	size, ok := strings.CutPrefix(ranges[0], "bytes */")
	n, valid := digits(size)
	return ok && valid && n == p.size && (p.total < 0 || n == p.total)
}

// maxRefusals is how many answers in a row that may pass are taken for the rest of a body. Then the whole is requested,
// if it may start again: the origin may refuse ranges only.
const maxRefusals = 2

// noteRefusal records what a failed status means for the body that the attempt resumes (B2, B3). The caller did not
// ask for a range, so a refusal of it for ever is no failure of the request.
func (a *attempt) noteRefusal() {
	p, status := a.resuming, a.resp.StatusCode
	if p == nil || status < 400 || status == http.StatusUnauthorized || a.challenged {
		return
	}
	p.refusals++
	switch {
	case status == http.StatusRequestTimeout || status == http.StatusTooEarly || status == http.StatusMisdirectedRequest && a.reused():
		a.refused = true
		a.fail(classify.BodyInterrupted, classify.PhaseProcessing, "")
	case status < 500 && status != http.StatusTooManyRequests:
		p.mismatch, a.refused = true, true
		a.fail(classify.BodyInterrupted, classify.PhaseProcessing, "resume_mismatch")
	}
	p.mismatch = p.mismatch || p.refusals >= maxRefusals && a.run.req.restarts()
}

// bodyProgress returns the progress that the response's body continues: that of the delivered
// bytes, or a new one. The fault is set if the body does not continue the delivered bytes and
// cannot start again.
func (a *attempt) bodyProgress() (*progress, *fault.Error) {
	p := a.resuming
	switch {
	case p == nil:
		return newProgress(a), nil
	case a.resp.StatusCode == http.StatusOK && a.run.req.restarts():
		return newProgress(a), nil
	case a.resp.StatusCode == http.StatusPartialContent && p.isFrom(a.hop) && p.fits(a.resp):
		if p.head.response == nil { // after a resume point: the first response of this fetch
			p.head = a.head
		}
		p.refusals = 0
		return p, nil
	}
	p.mismatch = true
	return p, fault.New(classify.BodyInterrupted, classify.PhaseTransfer, "resume_mismatch")
}

// newProgress returns the progress of a body that starts at its first byte.
func newProgress(a *attempt) *progress {
	p := &progress{head: a.head, validator: a.validator(), coding: first(a.resp.Header, "Content-Encoding"), total: a.resp.ContentLength}
	if p.validator != "" {
		p.url = withoutQuery(a.hop.url)
	}
	if !a.run.req.OmitDigest || a.run.req.Integrity.SHA256 != "" || a.run.req.Delivery == Store {
		p.digest = sha256.New()
	}
	if a.run.req.Content.RequireCharset {
		p.charset = coding.NewCharset(a.resp.Header.Get("Content-Type"))
	}
	return p
}

// validator returns the strong validator (RFC 9110 §8.8) with which the body can be resumed.
// It is empty if there is none, or if the bytes are delivered decoded.
func (a *attempt) validator() string {
	h := a.resp.Header
	if !a.run.req.Resumable() || a.resp.StatusCode != http.StatusOK || a.run.req.coding(a.resp.Header) != "" || strings.EqualFold(h.Get("Accept-Ranges"), "none") {
		return ""
	}
	if tag := h.Get("Etag"); tag != "" {
		if tag[0] != '"' { // weak, or none at all
			return ""
		}
		return tag
	}
	lastModified := h.Get("Last-Modified")
	if lastModified == "" { // the common case; parsing an empty date would try three layouts
		return ""
	}
	modified, err := http.ParseTime(lastModified)
	if err != nil {
		return ""
	}
	if date, err := http.ParseTime(h.Get("Date")); err != nil || date.Sub(modified) < time.Second { // RFC 9110 §8.8.2.2
		return ""
	}
	return lastModified
}

// isFrom reports whether a hop requested the resource that the body came from, because a
// validator is valid for one resource only. It ignores the query, which is another one each time
// if a redirect leads to signed URLs.
func (p *progress) isFrom(hop *hopRequest) bool {
	at := withoutQuery(hop.url)
	if p.url == "" {
		p.url = at
	}
	return p.url == at
}

func withoutQuery(u *url.URL) string { return u.Scheme + "://" + u.Host + u.EscapedPath() }

// fits reports whether a 206 contains exactly the rest of the body.
func (p *progress) fits(resp *http.Response) bool {
	first, last, total, ok := contentRange(resp.Header)
	if !ok || first != p.size || resp.Header.Get("Content-Encoding") != p.coding {
		return false
	}
	if total >= 0 && last != total-1 || total >= 0 && p.total >= 0 && total != p.total {
		return false
	}
	if total < 0 && p.total >= 0 && last != p.total-1 {
		return false
	}
	if resp.ContentLength >= 0 && resp.ContentLength != last-first+1 {
		return false
	}
	name := "Last-Modified"
	if isTag(p.validator) {
		name = "Etag"
	}
	if resp.Header.Get(name) != p.validator {
		return false
	}
	if total < 0 && p.total < 0 {
		return false // the end of the range may not be the end of the body
	}
	if p.total < 0 {
		p.total = total
	}
	p.end = last + 1
	return true
}

// IsPart reports whether the body of a response is only a part of the whole: the response is a 206
// that does not contain everything (spec B5). total is the number of bytes before decoding that it
// has if it is whole. It is negative if the body is a part, and if the status is another one.
func IsPart(status int, h http.Header) (part bool, total int64) {
	if status != http.StatusPartialContent {
		return false, -1
	}
	first, last, total, ok := contentRange(h)
	if !ok || first != 0 || total < 0 || last != total-1 {
		return true, -1
	}
	return false, total
}

// readPartial records whether the body of a 2xx response is only a part. p is the body that it
// belongs to. It returns the total of [IsPart].
func (a *attempt) readPartial(p *progress) (total int64) {
	if p == a.resuming || a.hop.method == http.MethodHead {
		return -1
	}
	a.body.PartialContent, total = IsPart(a.resp.StatusCode, a.resp.Header)
	return total
}

// errPart ends a fetch that would store a part (spec B8).
var errPart = fault.New(classify.Integrity, classify.PhaseTransfer, "partial_content")

// storesPart reports whether the body is a part that the request wants to store.
func (a *attempt) storesPart() bool {
	return a.body.PartialContent && a.run.req.Delivery == Store
}

// contentRange returns the range of a 206 with one range. It is not ok if there is no Content-Range,
// or several, or if the body consists of parts with their own.
func contentRange(h http.Header) (first, last, total int64, ok bool) {
	values := h["Content-Range"]
	if len(values) != 1 || slices.ContainsFunc(h["Content-Type"], isParts) {
		return 0, 0, 0, false
	}
	return parseContentRange(values[0])
}

// isParts reports whether a Content-Type is that of several ranges in one body (RFC 9110
// §14.6). Such a body has part headers between the requested bytes.
func isParts(contentType string) bool {
	media, _, _ := strings.Cut(contentType, ";")
	return strings.EqualFold(strings.TrimSpace(media), "multipart/byteranges")
}

func isTag(validator string) bool {
	return strings.HasPrefix(validator, `"`) || strings.HasPrefix(validator, "W/")
}

// parseContentRange reads "bytes FIRST-LAST/TOTAL" (RFC 9110 §14.4). total is
// negative if it is "*".
func parseContentRange(s string) (first, last, total int64, ok bool) {
	unit, rest, _ := strings.Cut(s, " ")
	span, size, _ := strings.Cut(rest, "/")
	from, to, _ := strings.Cut(span, "-")
	total = -1
	var valid [3]bool
	first, valid[0] = digits(from)
	last, valid[1] = digits(to)
	if valid[2] = size == "*"; !valid[2] {
		total, valid[2] = digits(size)
	}
	ok = strings.EqualFold(unit, "bytes") && valid == [3]bool{true, true, true} && first <= last && (total < 0 || last < total)
	return first, last, total, ok
}

// digits parses a number that consists of digits only.
func digits(s string) (int64, bool) {
	if strings.Trim(s, "0123456789") != "" {
		return 0, false
	}
	n, err := strconv.ParseInt(s, 10, 64)
	return n, err == nil
}
