package fetch

import (
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"iter"
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
	"fetchd/fetch/conns"
	"fetchd/fetch/fault"
	"fetchd/fetch/urls"
)

// MaxDetailBytes is the maximum length of [Failure].Detail.
const MaxDetailBytes = 512

const (
	maxLoggedBytes = 1 << 10 // of an error in a log line
	// maxErrorTextBytes is how much of an error is used. A library may quote a line of 64 KiB
	// from the origin.
	maxErrorTextBytes = 2 << 10
)

// noteError keeps the text of an error that ended the exchange in the given phase. It is called
// before [attempt.fail], and keeps the first error. cause is why the exchange was cancelled, or
// nil.
func (a *attempt) noteError(class classify.Class, phase classify.Phase, err, cause error) {
	if a.faults != 0 {
		return
	}
	a.note = errorNote{class: class, address: a.dialledAddress(phase, err)}
	shown, logged := err, a.run.client.errorText(err, a.run.req.Route)
	if cause != nil {
		shown = cause
		logged = fmt.Sprint(cause)
		if _, ours := errors.AsType[classify.Classified](err); !ours && !errors.Is(err, context.Canceled) {
			logged += ": " + a.run.client.errorText(err, a.run.req.Route)
		}
	}
	a.note.logText = fault.Printable(a.withoutSecrets(logged), maxLoggedBytes)
	a.note.callerText = fault.Printable(a.callerText(phase, shown), MaxDetailBytes)
	if class == classify.StoreFailure {
		detail, _ := storeText(shown)
		a.note.callerText, a.note.ofStore = fault.Printable(detail, MaxDetailBytes), true
	}
}

// errorText returns the text of an error for the log. Go's text names the system's name server
// instead of the one that was asked.
func (c *Client) errorText(err error, route *Route) string {
	text, server := fmt.Sprint(err), c.config.NameServer
	if route != nil {
		server = cmp.Or(route.NameServer, server)
	}
	if dns, ok := errors.AsType[*net.DNSError](err); ok && server != "" && dns.Server != "" {
		text = strings.ReplaceAll(text, " on "+dns.Server+":", " on "+server+":")
	}
	return text
}

// dialledAddress returns the address to which the exchange was connected, or which it dialed last.
func (a *attempt) dialledAddress(phase classify.Phase, err error) string {
	op, ok := errors.AsType[*net.OpError](err)
	if _, judged := errors.AsType[*fault.Error](err); ok && op.Op == "dial" && op.Addr != nil && !judged {
		return op.Addr.String() // the address that the error is about, if there are several
	}
	if phase <= classify.PhaseTLS { // the address of the hop may be that of an earlier connection
		return a.exchange.Peer()
	}
	return a.hops[len(a.hops)-1].Exchange.RemoteAddress
}

// callerText returns the text of an error for callers. It has no addresses of resolvers, proxies
// or this machine, which are not for callers.
func (a *attempt) callerText(phase classify.Phase, err error) string {
	if refused, ok := errors.AsType[*conns.ProxyError](err); ok {
		return "the proxy answers CONNECT with " + string(appendStatus(nil, refused.Status))
	}
	if _, ok := errors.AsType[*fault.Error](err); ok || errors.Is(err, context.Canceled) {
		return "" // its reason is enough
	}
	if limit, ok := errors.AsType[*TimeoutError](err); ok {
		return fmt.Sprint(limit)
	}
	if _, staged := errors.AsType[*fault.PhaseError](err); a.exchange.Forwarded() || a.run.client.proxyFor(a.hop.url, a.run.req.Route) != nil && (staged || phase <= classify.PhaseConnect) {
		return "" // it is about the proxy, or from it
	}
	return a.transportText(err)
}

func (a *attempt) transportText(err error) string {
	if verification, ok := errors.AsType[*tls.CertificateVerificationError](err); ok {
		return a.withoutSecrets(fmt.Sprint(verification))
	}
	if dns, ok := errors.AsType[*net.DNSError](err); ok {
		if dns.IsNotFound && a.run.req.HideForbidden {
			return "" // as for a name of which every address is forbidden
		}
		return "lookup: " + lookupText(dns)
	}
	if op, ok := errors.AsType[*net.OpError](err); ok {
		return strings.TrimSuffix(op.Op+" "+op.Net, " ") + ": " + a.transportText(op.Err)
	}
	if address, ok := errors.AsType[*net.AddrError](err); ok {
		return address.Err
	}
	return a.withoutSecrets(fmt.Sprint(err))
}

// lookupText returns why a lookup failed. In some errors Go writes the address of the name server
// before the reason.
func lookupText(err *net.DNSError) string {
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

// leastSecretBytes is the length from which a value is removed from errors. Shorter ones occur in
// any text.
const leastSecretBytes = 4

// withoutSecrets removes the secrets of the request from the text of an error. Origins echo them,
// even in lines that are not HTTP, and libraries quote such lines (spec A4).
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

// secrets returns the values of the last request that may grant access or identify someone, the
// words of each, and those that only a proxy gets.
func (a *attempt) secrets() iter.Seq[string] {
	sent := a.hop
	if n := len(a.sent); n > 0 {
		sent = a.sent[n-1] // with its cookies
	}
	return func(yield func(string) bool) {
		for _, secret := range a.run.client.proxySecrets(sent.url, a.run.req.Route) {
			if !yield(secret) {
				return
			}
		}
		for _, f := range a.added {
			if !yieldParts(f.Value, yield) {
				return
			}
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

// yieldParts yields a value and its words, such as the token after "Bearer". It reports whether
// to continue.
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

// detail returns a description of the failure for callers. d is the decision.
func (a *attempt) detail(d *classify.Decision) string {
	if len(a.hops) == 0 {
		return ""
	}
	if a.note.ofStore && a.note.class == d.Class {
		return a.note.callerText
	}
	text := make([]byte, 0, 128) // on the stack; most details are shorter
	text = append(text, a.hop.url.Host...)
	if address := a.address(); d.Class != classify.TargetBlocked && a.mayShow(address) {
		text = append(append(append(text, " ("...), address...), ')')
	}
	if status := a.hops[len(a.hops)-1].StatusCode; status != 0 {
		text = appendStatus(append(text, ": "...), status)
	}
	if a.note.callerText != "" && a.note.class == d.Class {
		text = append(append(text, ": "...), a.note.callerText...)
	}
	if target := a.redirectTarget(); target != nil && d.Class == classify.TargetBlocked && !isLiteral(target.Hostname()) {
		text = append(append(text, ": redirect to "...), target.Host...)
	}
	return fault.Printable(string(text), MaxDetailBytes)
}

// redirectTarget returns the target of the last response, or nil if it was not a redirect.
func (a *attempt) redirectTarget() *url.URL {
	target, err := url.Parse(a.hops[len(a.hops)-1].LocationURL)
	if err != nil || target.Host == "" {
		return nil
	}
	return target
}

// address returns the address of the last hop, whether it was reached or not.
func (a *attempt) address() string {
	return cmp.Or(a.note.address, a.hops[len(a.hops)-1].Exchange.RemoteAddress)
}

// mayShow reports whether the caller may see an address: the egress policies allow it, there is no
// proxy, and the URL does not contain it already.
func (a *attempt) mayShow(address string) bool {
	host := a.hop.url.Hostname()
	if address == "" || a.run.client.proxyFor(a.hop.url, a.run.req.Route) != nil || isLiteral(host) {
		return false
	}
	target, err := netip.ParseAddrPort(address)
	narrow := a.run.req.Egress
	return err == nil && a.run.client.guard.CheckAddr(target) == nil && (narrow == nil || narrow.Permits(target))
}

// isLiteral reports whether a host is an address and not a name.
func isLiteral(host string) bool { return strings.Contains(host, ":") || urls.EndsInNumber(host) }

// appendStatus appends a status with its standard name. The origin's text is not used.
func appendStatus(to []byte, code int) []byte {
	to = strconv.AppendInt(append(to, "status "...), int64(code), 10)
	if name := http.StatusText(code); name != "" {
		to = append(append(to, ' '), name...)
	}
	return to
}
