package fetch

import (
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"iter"
	"log/slog"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"

	"fetchd/classify"
	"fetchd/fetch/fault"
	"fetchd/fetch/urls"
)

// MaxDetailBytes is the maximum length of [Failure].Detail.
const MaxDetailBytes = 512

const (
	maxLoggedBytes = 1 << 10 // of an error in a log line
	// maxErrorTextBytes of an error are looked at. The text of a library may hold a line of
	// the origin's of 64 KiB.
	maxErrorTextBytes = 2 << 10
)

// errorNote is what an error said. It is text, for the error may hold the certificates
// or a line of the origin's.
type errorNote struct {
	class   classify.Class
	words   string // for callers: no addresses, nothing of resolvers and proxies
	logged  string // the error as it was; empty where there was none
	address string // that the connection was to lead to, permitted or not
}

// hopError is a failed hop as the log has it.
type hopError struct {
	text, url, address string
	status             int
}

// explain notes an error that ended the exchange in the given phase, before it is noted
// as a fault of class. The first is kept. cause is what ended the exchange from our side,
// or nil.
func (a *attempt) explain(class classify.Class, phase classify.Phase, err, cause error) {
	if a.faults != 0 {
		return
	}
	a.note = errorNote{class: class, address: a.dialled(phase, err)}
	shown, logged := err, a.client.errorText(err)
	if cause != nil {
		shown = cause
		logged = fmt.Sprint(cause)
		if _, ours := errors.AsType[classify.Classified](err); !ours && !errors.Is(err, context.Canceled) {
			logged += ": " + a.client.errorText(err)
		}
	}
	a.note.logged = printable(a.withoutSecrets(logged), maxLoggedBytes)
	a.note.words = printable(a.words(phase, shown), MaxDetailBytes)
}

// errorText is an error as it is logged. Go takes the system's name server for the one
// that was asked.
func (c *Client) errorText(err error) string {
	text := fmt.Sprint(err)
	if dns, ok := errors.AsType[*net.DNSError](err); ok && c.nameServer != "" && dns.Server != "" {
		text = strings.ReplaceAll(text, " on "+dns.Server+":", " on "+c.nameServer+":")
	}
	return text
}

// dialled is the address that the exchange was connected to, or dialled last.
func (a *attempt) dialled(phase classify.Phase, err error) string {
	op, ok := errors.AsType[*net.OpError](err)
	if _, judged := errors.AsType[*fault.Error](err); ok && op.Op == "dial" && op.Addr != nil && !judged {
		return op.Addr.String() // of several, the one that the error is about
	}
	if phase <= classify.PhaseTLS { // the address of the hop may be that of an earlier connection
		return a.exchange.trace.lastPeer()
	}
	return a.hops[len(a.hops)-1].Exchange.RemoteAddress
}

// words says what happened in the words of the transport. They hold no address: those
// of resolvers, of proxies and of this machine are no caller's business.
func (a *attempt) words(phase classify.Phase, err error) string {
	if _, ok := errors.AsType[*fault.Error](err); ok || errors.Is(err, context.Canceled) {
		return "" // its reason says it all
	}
	if limit, ok := errors.AsType[*TimeoutError](err); ok {
		return fmt.Sprint(limit)
	}
	if _, staged := errors.AsType[*fault.PhaseError](err); a.client.hasProxy && (staged || phase <= classify.PhaseConnect) {
		return "" // it is about the proxy, or in its words
	}
	return a.transportWords(err)
}

func (a *attempt) transportWords(err error) string {
	if verification, ok := errors.AsType[*tls.CertificateVerificationError](err); ok {
		return a.withoutSecrets(fmt.Sprint(verification))
	}
	if dns, ok := errors.AsType[*net.DNSError](err); ok {
		return "lookup: " + lookupWords(dns)
	}
	if op, ok := errors.AsType[*net.OpError](err); ok {
		return strings.TrimSuffix(op.Op+" "+op.Net, " ") + ": " + a.transportWords(op.Err)
	}
	if address, ok := errors.AsType[*net.AddrError](err); ok {
		return address.Err
	}
	return a.withoutSecrets(fmt.Sprint(err))
}

// lookupWords is what a lookup failed with. Go has put the address of the name server
// into the text of some errors, before the words that say what happened.
func lookupWords(err *net.DNSError) string {
	switch {
	case err.IsNotFound:
		return "no such host"
	case err.IsTimeout:
		return "i/o timeout"
	}
	text := err.Err[strings.LastIndex(err.Err, ": ")+1:]
	if strings.ContainsFunc(text, func(r rune) bool { return r != ' ' && !unicode.IsLetter(r) }) {
		return "failed"
	}
	return strings.TrimSpace(text)
}

// leastSecretBytes is how long a value is that is looked for in an error. Shorter ones
// occur in any text.
const leastSecretBytes = 4

// withoutSecrets is the text of an error without what the request carried: origins echo
// it, also in lines that are no HTTP, which libraries then quote (spec A4).
func (a *attempt) withoutSecrets(text string) string {
	if len(text) > maxErrorTextBytes { // it must not end inside a secret
		text = strings.TrimRightFunc(text[:maxErrorTextBytes], func(r rune) bool { return r == utf8.RuneError || isToken(r) }) + "…"
	}
	var echoed []string
	for secret := range a.secrets() {
		if len(secret) >= leastSecretBytes && strings.Contains(text, secret) {
			echoed = append(echoed, secret)
		}
	}
	slices.SortFunc(echoed, func(a, b string) int { return cmp.Or(cmp.Compare(len(b), len(a)), strings.Compare(a, b)) }) // a part of one must not be replaced first
	var pairs []string
	for _, secret := range slices.Compact(echoed) {
		pairs = append(pairs, secret, "[hidden]")
	}
	return strings.NewReplacer(pairs...).Replace(text) // in one pass: a secret may occur in the replacement
}

// secrets are the values that the last request carried and that may open something or
// name someone, and the words of each.
func (a *attempt) secrets() iter.Seq[string] {
	sent := a.hop
	if n := len(a.made); n > 0 {
		sent = a.made[n-1] // with its cookies
	}
	return func(yield func(string) bool) {
		if !yieldParts(a.credential, yield) {
			return
		}
		for pair := range strings.SplitSeq(sent.url.RawQuery, "&") {
			_, value, _ := strings.Cut(pair, "=")
			plain, _ := url.QueryUnescape(value)
			if !yieldParts(pair, yield) || plain != value && !yieldParts(plain, yield) {
				return
			}
		}
		for name, values := range sent.header {
			if crossOriginHeaders[name] && name != "Idempotency-Key" || strings.HasPrefix(name, "Content-") {
				continue
			}
			for _, value := range values {
				if !yieldParts(value, yield) {
					return
				}
			}
		}
	}
}

// yieldParts yields a value and its words, such as the token behind "Bearer". It reports
// whether more are wanted.
func yieldParts(value string, yield func(string) bool) bool {
	for word := range strings.FieldsFuncSeq(value, func(r rune) bool { return !isToken(r) }) {
		if len(word) < len(value) && !yield(word) {
			return false
		}
	}
	return yield(value)
}

func isToken(r rune) bool {
	return unicode.IsLetter(r) || unicode.IsDigit(r) || strings.ContainsRune("-._~+/", r)
}

// detail says what happened, for callers. d is what was decided.
func (a *attempt) detail(d *classify.Decision) string {
	if len(a.hops) == 0 {
		return ""
	}
	text := make([]byte, 0, 128) // on the stack, as most are shorter
	text = append(text, a.hop.url.Host...)
	if address := a.address(); d.Class != classify.TargetBlocked && a.permits(address) {
		text = append(append(append(text, " ("...), address...), ')')
	}
	if status := a.hops[len(a.hops)-1].StatusCode; status != 0 {
		text = appendStatus(append(text, ": "...), status)
	}
	if a.note.words != "" && a.note.class == d.Class {
		text = append(append(text, ": "...), a.note.words...)
	}
	return printable(string(text), MaxDetailBytes)
}

// address is the address that the hop was to reach.
func (a *attempt) address() string {
	return orDefault(a.note.address, a.hops[len(a.hops)-1].Exchange.RemoteAddress)
}

// permits reports whether an address may be named to the caller: the egress policy
// allows it, no proxy was asked in its place, and the URL does not name it already.
func (a *attempt) permits(address string) bool {
	host := a.hop.url.Hostname()
	if address == "" || a.client.hasProxy || strings.Contains(host, ":") || urls.EndsInNumber(host) {
		return false
	}
	target, err := netip.ParseAddrPort(address)
	return err == nil && a.client.guard.CheckAddr(target) == nil
}

// hopError is the failed hop for the log.
func (a *attempt) hopError() hopError {
	if a.run.failure == nil || len(a.hops) == 0 || !a.logs(slog.LevelInfo) {
		return hopError{}
	}
	e := hopError{text: a.run.failure.Message, url: a.hop.redacted(), address: a.address(), status: a.hops[len(a.hops)-1].StatusCode}
	switch class := a.run.failure.Class; {
	case !a.faults.Has(class):
		e.text = string(appendStatus(nil, e.status))
	case a.note.class == class:
		e.text = a.note.logged
	}
	if target, err := url.Parse(a.hops[len(a.hops)-1].LocationURL); err == nil && target.Host != "" && a.run.failure.Phase == classify.PhasePolicy {
		e.text = printable(e.text+": redirect to "+urls.Redact(target), maxLoggedBytes)
	}
	if a.refreshError != "" {
		e.text += ": refresh of the credential: " + a.refreshError
	}
	return e
}

// attrs appends what is known to those of a log line.
func (e *hopError) attrs(to []slog.Attr) []slog.Attr {
	if e.url == "" {
		return to
	}
	to = append(to, slog.String("error", e.text), slog.String("error_url", e.url))
	if e.status != 0 {
		to = append(to, slog.Int("error_status", e.status))
	}
	if e.address != "" {
		to = append(to, slog.String("error_address", e.address))
	}
	return to
}

// appendStatus appends a status with its name, and not with the origin's.
func appendStatus(to []byte, code int) []byte {
	to = strconv.AppendInt(append(to, "status "...), int64(code), 10)
	if name := http.StatusText(code); name != "" {
		to = append(append(to, ' '), name...)
	}
	return to
}

// printable is s on one line, at most limit bytes long: control characters, direction
// overrides and bytes that are not UTF-8 are written as in a Go string.
func printable(s string, limit int) string {
	const ellipsis = "…"
	if len(s) <= limit && !strings.ContainsFunc(s, func(r rune) bool { return r < ' ' || r > '~' }) {
		return s
	}
	out := make([]byte, 0, min(len(s), limit))
	end := 0 // of what may stay where the text has to be cut
	for i := 0; i < len(s); {
		r, n := utf8.DecodeRuneInString(s[i:])
		switch {
		case r == utf8.RuneError && n == 1:
			out = fmt.Appendf(out, `\x%02x`, s[i])
		case strconv.IsPrint(r):
			out = append(out, s[i:i+n]...)
		default:
			quoted := strconv.QuoteRune(r)
			out = append(out, quoted[1:len(quoted)-1]...)
		}
		if len(out) > limit {
			return string(out[:end]) + ellipsis
		}
		if len(out) <= limit-len(ellipsis) {
			end = len(out)
		}
		i += n
	}
	return string(out)
}
