package frontier

import (
	"context"
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"log/slog"
	"strconv"

	"fetchd/frontier/links"
	"fetchd/frontier/store"
	"fetchd/frontier/traps"
)

const (
	// maxTwins is how many pages of a host may have the same body before the links of more are not followed.
	maxTwins = 9
	// patternStep is how many URLs of a pattern a worker counts before it adds them to the store.
	patternStep = 100
	// maxPatterns is how many patterns it counts at a time.
	maxPatterns = 10_000
)

// Traps counts what the rules against traps have done (F69).
type Traps struct {
	Segments int64 // links with too many segments, which were refused
	Repeated int64 // links in which a group of segments repeats, which were refused
	Sessions int64 // links with a session id, each time that they are found
	Parent   int64 // pages with the body of the page that links to them, whose links were not followed
	Host     int64 // pages with the body of many others of their host, likewise
}

// TrapSetting starts the names of the settings in which workers sum up Traps.
const TrapSetting = "trap_"

// Counters returns each count by its name.
func (t *Traps) Counters() map[string]*int64 {
	return map[string]*int64{string(traps.Segments): &t.Segments, string(traps.Repeated): &t.Repeated, "session_ids": &t.Sessions, "same_as_parent": &t.Parent, "same_on_host": &t.Host}
}

func (t *Traps) add(o *Traps) {
	t.Segments += o.Segments
	t.Repeated += o.Repeated
	t.Sessions += o.Sessions
	t.Parent += o.Parent
	t.Host += o.Host
}

// refuses reports whether the text of a link keeps it out, and counts it.
func (t *Traps) refuses(url string) bool {
	rule, _ := traps.Refuses(url)
	switch rule {
	case traps.Segments:
		t.Segments++
	case traps.Repeated:
		t.Repeated++
	default:
		if len(traps.Key(url)) < len(url) {
			t.Sessions++
		}
	}
	return rule != ""
}

// ReadTraps returns the sums of all workers.
func ReadTraps(ctx context.Context, s store.Store) (t Traps, err error) {
	for name, to := range t.Counters() {
		text, err := s.Setting(ctx, TrapSetting+name)
		if err == nil && text != "" {
			*to, err = strconv.ParseInt(text, 10, 64)
		}
		if err != nil {
			return Traps{}, err
		}
	}
	return t, nil
}

// saveTraps adds to the store what was counted since its last call. A worker that is killed loses ten seconds of it.
func (w *Worker) saveTraps(ctx context.Context) {
	now := w.found.read().Traps
	counts := now.Counters()
	for name, saved := range w.saved.Counters() {
		n := *counts[name] - *saved
		if n == 0 {
			continue
		}
		if err := w.store.AddToSetting(ctx, TrapSetting+name, n); err != nil {
			w.reportError(ctx, "count traps", err)
			return
		}
		*saved += n
	}
}

// checkTwins sets c.NoLinks if the body of a page that a link led to is that of the page with the link, or of many others
// of its host. It returns the visit's ending if that cannot be read.
func (v *visit) checkTwins(sha256 string, e *ending, c *links.Config) *ending {
	digest := digestOf(sha256)
	e.fetch.Digest = digest
	if digest == 0 || v.claim.Parent == 0 {
		return nil
	}
	twins, err := v.w.store.Twins(v.ctx, v.claim, digest, maxTwins)
	if err != nil {
		return v.storeFailed("look for pages with the same body", err)
	}
	var t Traps
	switch {
	case !twins.Linked:
		return nil
	case twins.Parent:
		t.Parent = 1
		v.noteLeftOut(e, "links", "the body is that of the page that links to it, sha256:"+sha256, "same_as_parent")
	case twins.Others >= maxTwins:
		t.Host = 1
		v.noteLeftOut(e, "links", fmt.Sprintf("%d other pages of the host have the same body, sha256:%s", maxTwins, sha256), "same_on_host")
	default:
		return nil
	}
	c.NoLinks = true
	v.w.found.add(func(f *Found) { f.Traps.add(&t) })
	return nil
}

// digestOf returns the first 8 bytes of a SHA-256 in hexadecimal, or 0 if there is none.
func digestOf(sha256 string) int64 {
	var b [8]byte
	if len(sha256) < 2*len(b) {
		return 0
	}
	if _, err := hex.Decode(b[:], []byte(sha256[:2*len(b)])); err != nil {
		return 0
	}
	return int64(binary.BigEndian.Uint64(b[:])) //nolint:gosec // any 64 bits
}

// patterns counts URLs by host and pattern. The recorder uses it, one outcome at a time.
type patterns struct{ counts map[pattern]int }

type pattern struct{ host, text string }

// add counts a URL, and returns how many of its pattern there are to add to the store, if there are enough.
func (p *patterns) add(of pattern) (n int) {
	if p.counts == nil {
		p.counts = make(map[pattern]int)
	}
	for len(p.counts) >= maxPatterns { // those with few URLs are forgotten
		for of, n := range p.counts {
			if p.counts[of] = n / 2; n < 2 {
				delete(p.counts, of)
			}
		}
	}
	n = p.counts[of] + 1
	if n < patternStep {
		p.counts[of] = n
		return 0
	}
	delete(p.counts, of)
	return n
}

// countPattern counts a page that a link led to and that was fetched for the first time.
func (w *Worker) countPattern(ctx context.Context, c store.Claim, f store.Fetch) {
	if c.Kind != store.Page || c.Parent == 0 || c.Digest != 0 || f.Status != store.Fetched {
		return
	}
	of := pattern{c.Host, traps.Pattern(c.URL)}
	if of.text == "" {
		return
	}
	n := int64(w.patterns.add(of))
	if n == 0 {
		return
	}
	total, err := w.store.AddPattern(ctx, store.Pattern{Host: of.host, Pattern: of.text, URLs: n})
	switch {
	case err != nil:
		w.reportError(ctx, "count URLs of a pattern", err)
	case total >= traps.ManyURLs && total-n < traps.ManyURLs:
		w.logger.WarnContext(ctx, "many URLs differ in numbers only: it may be a trap", slog.String("host", of.host), slog.String("pattern", of.text), slog.Int64("urls", total))
	}
}
