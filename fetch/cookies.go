package fetch

import (
	"net/http"
	"strings"

	"fetchd/classify"
	"fetchd/internal/budget"
)

// withCookies returns the hop with the jar's cookies for its URL, next to those of the caller
// (spec D7).
func (a *attempt) withCookies(hop *hopRequest) *hopRequest {
	if a.run.jar == nil {
		return hop
	}
	pairs, room := hop.header["Cookie"], maxCookieBytes
	for _, c := range a.run.jar.Cookies(hop.url) {
		pair := c.Name + "=" + c.Value
		if c.Quoted { // the quotes are part of the value (RFC 6265 §5.2)
			pair = c.Name + `="` + c.Value + `"`
		}
		if room -= len(pair) + len("; "); room >= 0 {
			pairs = append(pairs[:len(pairs):len(pairs)], pair)
		}
	}
	if len(pairs) == 0 {
		return hop
	}
	with := *hop
	with.header = hop.header.Clone()
	with.header.Set("Cookie", strings.Join(pairs, "; "))
	return &with
}

// Limits of the jar. maxCookieSize is that of browsers. The others are more than a fetch needs.
const (
	maxCookieBytes = 8 << 10 // of all cookies of one request
	maxCookieSize  = 4 << 10
	maxCookies     = 100 // stored in one fetch
)

// cookieBytes is the memory of a cookie in the jar, without its text.
const cookieBytes = 256

// keepCookies stores the cookies of a response and charges the fetch for them. A
// cookie set over https is stored as Secure, so that it is never sent over http
// (spec D4).
func (a *attempt) keepCookies(resp *http.Response) bool {
	if a.run.jar == nil {
		return true
	}
	var kept []*http.Cookie
	for _, c := range resp.Cookies() {
		if len(c.Name)+len(c.Value) > maxCookieSize || a.run.cookies >= maxCookies {
			continue
		}
		if !(memory{a}).Grow(budget.Head, int64(len(c.Name)+len(c.Value)+len(c.Path)+len(c.Domain))+cookieBytes) {
			a.outOfMemory(classify.PhaseProcessing)
			return false
		}
		a.run.cookies++
		c.Secure = c.Secure || a.hop.url.Scheme == "https"
		kept = append(kept, c)
	}
	a.run.jar.SetCookies(a.hop.url, kept)
	return true
}
