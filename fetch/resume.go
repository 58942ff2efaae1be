package fetch

import (
	"crypto/sha256"
	"fmt"
	"hash"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"fetchd/classify"
)

// Recovery controls what happens if a body is interrupted after part of it has been
// delivered (spec B2, B3).
type Recovery uint8

// The recoveries. The zero value is Resume.
const (
	Resume     Recovery = iota // Resume with a Range request. If the origin does not allow it, fail.
	NoRecovery                 // Fail.
	Restart                    // Resume. If the origin does not allow it, restart at offset 0.
)

// ResumePoint is where an earlier fetch of the same body stopped.
type ResumePoint struct {
	// Offset is the number of bytes that the caller has. Zero means no resume point.
	Offset int64
	// Validator is that of the earlier response: a strong ETag or a Last-Modified date.
	Validator string
}

// progress is what has been delivered of a body, in this attempt and in those
// that it continues.
type progress struct {
	size    int64 // bytes, those before a resume point included
	encoded int64 // bytes on the wire in earlier attempts
	digest  hash.Hash
	room    [sha256.Size]byte // for its sum
	charset *charsetCheck

	head      head   // that the body began with, in this fetch; its response is nil until then
	validator string // for If-Range; empty: cannot be continued
	coding    string // Content-Encoding of the response
	url       string // that it came from, the query aside; empty: not known, before a resume point, or not needed
	total     int64  // of the whole body; negative: not told
	sent      bool   // bytes of it have gone out in this fetch
	end       int64  // where the 206 that continues it says that it ends; zero: none
	misfit    bool   // what came is no continuation: there will be none
}

// newProgress is that of a body from its begin.
func newProgress(a *attempt) *progress {
	p := &progress{head: a.head, validator: a.validator(), coding: first(a.resp.Header, "Content-Encoding"), total: a.resp.ContentLength}
	if p.validator != "" {
		p.url = withoutQuery(a.hop.url)
	}
	if !a.req.OmitDigest || a.req.Integrity.SHA256 != "" {
		p.digest = sha256.New()
	}
	if a.req.Content.RequireCharset {
		p.charset = &charsetCheck{contentType: a.resp.Header.Get("Content-Type")}
	}
	return p
}

// validator is what a continuation of the response can be asked for with: a
// strong validator (RFC 9110 §8.8) of bytes that are delivered as they came.
func (a *attempt) validator() string {
	h := a.resp.Header
	if !a.req.Resumable() || a.resp.StatusCode != http.StatusOK || a.coding() != "" || strings.EqualFold(h.Get("Accept-Ranges"), "none") {
		return ""
	}
	if tag := h.Get("Etag"); tag != "" {
		if tag[0] != '"' { // weak, or none at all
			return ""
		}
		return tag
	}
	told := h.Get("Last-Modified")
	if told == "" { // the common case; parsing an empty date would try three layouts
		return ""
	}
	modified, err := http.ParseTime(told)
	if err != nil {
		return ""
	}
	if date, err := http.ParseTime(h.Get("Date")); err != nil || date.Sub(modified) < time.Second { // RFC 9110 §8.8.2.2
		return ""
	}
	return told
}

// Resumable reports whether the body can be requested in parts: the request is a streamed
// GET without a Range header.
func (r *Request) Resumable() bool {
	return r.Method == http.MethodGet && r.Delivery == Stream && r.Header.Get("Range") == ""
}

// resumeAt is the progress of a fetch that continues an earlier one. Of bytes that
// it has not seen it can tell no digest.
func (r *Request) resumeAt() *progress {
	if r.ResumePoint.Offset <= 0 {
		return nil
	}
	return &progress{size: r.ResumePoint.Offset, validator: r.ResumePoint.Validator, total: -1}
}

// continuation is the first request of an attempt that continues a body.
func (p *progress) continuation(r *Request, hop *hopRequest) *hopRequest {
	next := *hop
	next.header = hop.header.Clone()
	next.header.Set("Range", fmt.Sprintf("bytes=%d-", p.size))
	next.header.Set("If-Range", p.validator)
	if r.decodes() {
		next.header.Set("Accept-Encoding", "identity") // offsets of coded bytes would be others
	}
	for _, condition := range []string{"If-None-Match", "If-Modified-Since", "If-Match", "If-Unmodified-Since"} {
		next.header.Del(condition) // it was answered when the body began
	}
	return &next
}

// recoverable reports whether a next attempt can bring the rest of the body, or all
// of it again.
func (r *run) recoverable() bool {
	p := r.delivered
	if p == nil || r.req.Recovery == Restart || !p.sent && !p.misfit {
		return true
	}
	return r.req.Recovery == Resume && r.continues() != nil
}

// continues returns the progress that the next attempt continues, or nil where it
// begins at the first byte.
func (r *run) continues() *progress {
	if p := r.delivered; p != nil && p.validator != "" && !p.misfit {
		return p
	}
	return nil
}

// bodyProgress says where the response's body belongs: behind what was delivered,
// or at its begin. A fault means nowhere.
func (a *attempt) bodyProgress() (*progress, *fault) {
	p := a.continued
	switch {
	case p == nil:
		return newProgress(a), nil
	case a.resp.StatusCode == http.StatusOK && a.req.Recovery == Restart:
		return newProgress(a), nil
	case a.resp.StatusCode == http.StatusPartialContent && p.isFrom(a.hop) && p.fits(a.resp):
		if p.head.response == nil { // behind a resume point: the first of this fetch
			p.head = a.head
		}
		return p, nil
	}
	p.misfit = true
	return p, &fault{classify.BodyInterrupted, classify.PhaseTransfer, "resume_mismatch"}
}

// head is a response, and which attempt and URL it is of.
type head struct {
	response *Response
	attempt  int
	url      string // without userinfo
}

// shown returns the head that callers see. An answer to a request for the rest of a
// body, whether it fits or not, has that of the whole body: it describes the bytes
// that were delivered. A failed status has its own, and so has a body that begins again.
func (a *attempt) shown() head {
	own := head{a.response, a.number, a.hop.told()}
	p, status := a.continued, a.resp.StatusCode
	switch {
	case p == nil || p.head.response == nil:
		return own
	case status == http.StatusOK && a.req.Recovery == Restart:
		return own
	case status >= 200 && status <= 299 || a.complete():
		return p.head
	}
	return own
}

// isFrom reports whether a hop asked for the body that was begun: a validator means
// something for one resource alone. The query is left aside, for where a redirect
// leads to signed URLs it is another each time.
func (p *progress) isFrom(hop *hopRequest) bool {
	at := withoutQuery(hop.url)
	if p.url == "" {
		p.url = at
	}
	return p.url == at
}

func withoutQuery(u *url.URL) string { return u.Scheme + "://" + u.Host + u.EscapedPath() }

// fits reports whether a 206 brings exactly the rest of the body.
func (p *progress) fits(resp *http.Response) bool {
	first, last, total, ok := parseContentRange(resp.Header.Get("Content-Range"))
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
		return false // whether it is the end nobody says
	}
	if slices.ContainsFunc(resp.Header["Content-Type"], isParts) {
		return false
	}
	if p.total < 0 {
		p.total = total
	}
	p.end = last + 1
	return true
}

// isParts reports whether a Content-Type is that of several ranges in one body (RFC
// 9110 §14.6): between the bytes asked for are heads of parts.
func isParts(contentType string) bool {
	media, _, _ := strings.Cut(contentType, ";")
	return strings.EqualFold(strings.TrimSpace(media), "multipart/byteranges")
}

func isTag(validator string) bool {
	return strings.HasPrefix(validator, `"`) || strings.HasPrefix(validator, "W/")
}

// complete reports whether a 416 answers a request to resume a body that was already
// complete: the body has as many bytes as were delivered.
func (a *attempt) complete() bool {
	if a.continued == nil || a.resp == nil || a.resp.StatusCode != http.StatusRequestedRangeNotSatisfiable {
		return false
	}
	p := a.continued
	if tag := a.resp.Header.Get("Etag"); tag != "" && isTag(p.validator) && tag != p.validator || !p.isFrom(a.hop) {
		return false
	}
	size, ok := strings.CutPrefix(a.resp.Header.Get("Content-Range"), "bytes */")
	n, valid := digits(size)
	return ok && valid && n == p.size && (p.total < 0 || n == p.total)
}

// parseContentRange reads "bytes FIRST-LAST/TOTAL" (RFC 9110 §14.4). total is
// negative where it is "*".
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

// digits reads 1*DIGIT.
func digits(s string) (int64, bool) {
	if strings.Trim(s, "0123456789") != "" {
		return 0, false
	}
	n, err := strconv.ParseInt(s, 10, 64)
	return n, err == nil
}
