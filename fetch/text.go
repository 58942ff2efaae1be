package fetch

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"runtime"
	"slices"
	"sync"
	"time"
	"unicode/utf8"

	"fetchd/classify"
	"fetchd/fetch/fault"
	"fetchd/fetch/markdown"
	"fetchd/internal/budget"
	"fetchd/internal/sniff"
)

// maxTitleBytes limits the title of a page in its summary.
const maxTitleBytes = 1 << 10

// TextSummary describes a text that was delivered instead of the bytes of a body (spec B10).
type TextSummary struct {
	// MediaType is "text/markdown" if a page was converted, else that of the response, without parameters.
	MediaType string
	// Title is the title of a page, in one line of at most 1 KiB. It comes from the origin, and may be empty.
	Title string
	// Bytes and Characters are the size of the text.
	Bytes, Characters int64
	// Truncated reports whether the text, or the body that it was made of, was cut at its limit.
	Truncated bool
	// LeftOut reports whether parts of the page were left out that a reader sees.
	LeftOut bool
	// Fallback is what the text was taken from instead of the usual place.
	Fallback markdown.Fallback
}

// errNotText is the fault of a body that is no text (C1).
var errNotText = fault.New(classify.ContentType, classify.PhaseTransfer, "not_text")

// errTextLimit is the fault of a page that would cost too much to convert (C3).
var errTextLimit = fault.New(classify.Undecodable, classify.PhaseTransfer, "text_limit")

// toText replaces the whole body in the output by its text (spec B10). A page waits for its turn, because nothing
// can interrupt a conversion. The attempt's time limit is paused meanwhile.
func (a *attempt) toText(o *output) error {
	began := time.Now()
	left := a.limit.Pause(began)
	defer func() { a.limit.Resume(time.Now(), left) }() // it is no backpressure: the caller does not hold it up
	media := sniff.Media(first(a.resp.Header, "Content-Type"), o.kept)
	isPage := len(o.kept) > 0 && sniff.IsHTML(media, string(o.kept[:min(len(o.kept), sniff.HeadBytes)]))
	if isPage {
		turns := &a.run.client.turns
		if turns.take(a.run.waitContext(), a.run.req.Caller) != nil {
			return a.ended()
		}
		defer turns.give()
	}
	// Whoever has a turn does not wait for memory.
	working := int64(0)
	grow := func(n int64) bool {
		granted := a.run.req.Memory.Grow(budget.Body, n)
		if granted {
			working += n
		}
		return granted
	}
	defer func() { a.run.req.Memory.Shrink(budget.Body, working) }()
	text, summary, err := a.textOf(o.kept, media, isPage, grow)
	if err != nil {
		return err
	}
	short, whole := sniff.Shorten(text, MaxInlineBytes)
	if !whole && !a.run.req.Truncate {
		return fault.New(classify.BodyTooLarge, classify.PhaseTransfer, "text_size")
	}
	summary.Truncated = a.body.Truncated || !whole
	summary.Bytes, summary.Characters = int64(len(short)), int64(utf8.RuneCountInString(short))
	if !o.replace(short) {
		return fault.OutOfMemory
	}
	a.text = summary
	return a.ended()
}

// ended returns why the fetch has ended meanwhile, or nil.
func (a *attempt) ended() error {
	cause := a.run.cancelCause()
	if cause == nil {
		return nil
	}
	class, reason, _ := a.classOf(classify.PhaseTransfer, cause)
	return fault.New(class, classify.PhaseTransfer, reason)
}

// decodedBytes is the memory of a body of 16 MiB in another encoding than UTF-8 while it is decoded, divided by its size:
// 3.2 at most, as measured.
const decodedBytes = 4

// textOf returns the text of a body. grow charges the memory that this takes.
func (a *attempt) textOf(body []byte, media string, isPage bool, grow func(int64) bool) (text string, summary *TextSummary, err error) {
	decoding := int64(len(body))
	if !utf8.Valid(body) || bytes.ContainsAny(body, "\x00\x1b") {
		decoding *= decodedBytes
	}
	if !grow(decoding) {
		return "", nil, fault.OutOfMemory
	}
	text, _, isText := sniff.Text(first(a.resp.Header, "Content-Type"), body, MaxTextSourceBytes)
	if !isText {
		return "", nil, errNotText
	}
	if !isPage {
		return text, &TextSummary{MediaType: media}, nil
	}
	need, err := markdown.Need(text)
	if err != nil {
		return "", nil, errTextLimit
	}
	if !grow(need) {
		return "", nil, fault.OutOfMemory
	}
	page, err := markdown.From(text, a.hop.urlText(), a.run.req.Text)
	if errors.Is(err, markdown.ErrLimit) {
		return "", nil, errTextLimit
	}
	if err != nil {
		a.noteError(classify.Internal, classify.PhaseTransfer, fmt.Errorf("convert a page to text: %w", err), nil)
		return "", nil, fault.New(classify.Internal, classify.PhaseTransfer, "text")
	}
	title, _ := sniff.Shorten(page.Title, maxTitleBytes)
	return page.Text, &TextSummary{MediaType: "text/markdown", Title: title, LeftOut: page.LeftOut, Fallback: page.Fallback}, nil
}

// turns limits the pages that are converted at the same time to half of the cores, because nothing
// interrupts a conversion. Callers take turns.
type turns struct {
	mu      sync.Mutex
	busy    int
	waiting []*callerTurns // in the order of their turns
}

// callerTurns are the conversions of a caller that wait.
type callerTurns struct {
	caller string
	ready  []chan struct{}
}

// take waits for a turn of the caller. Without an error, give ends it.
func (t *turns) take(ctx context.Context, caller string) error {
	t.mu.Lock()
	if t.busy < max(1, runtime.GOMAXPROCS(0)/2) {
		t.busy++
		t.mu.Unlock()
		return nil
	}
	ready := make(chan struct{})
	i := slices.IndexFunc(t.waiting, func(c *callerTurns) bool { return c.caller == caller })
	if i < 0 {
		i = len(t.waiting)
		t.waiting = append(t.waiting, &callerTurns{caller: caller})
	}
	t.waiting[i].ready = append(t.waiting[i].ready, ready)
	t.mu.Unlock()
	select {
	case <-ready:
		return nil
	case <-ctx.Done():
	}
	if t.leave(caller, ready) {
		return context.Cause(ctx)
	}
	t.give() // the turn came just now
	return context.Cause(ctx)
}

// leave removes what waits no longer, and reports whether it was still waiting.
func (t *turns) leave(caller string, ready chan struct{}) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	for i, c := range t.waiting {
		if at := slices.Index(c.ready, ready); c.caller == caller && at >= 0 {
			if c.ready = slices.Delete(c.ready, at, at+1); len(c.ready) == 0 {
				t.waiting = slices.Delete(t.waiting, i, i+1)
			}
			return true
		}
	}
	return false
}

// give passes the turn on to the next caller.
func (t *turns) give() {
	t.mu.Lock()
	defer t.mu.Unlock()
	if len(t.waiting) == 0 {
		t.busy--
		return
	}
	next := t.waiting[0]
	t.waiting = t.waiting[1:]
	close(next.ready[0])
	if next.ready = next.ready[1:]; len(next.ready) > 0 {
		t.waiting = append(t.waiting, next)
	}
}
