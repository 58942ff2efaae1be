package fetch

import (
	"net"
	"net/http"
	"slices"
	"strings"

	"fetchd/classify"
	"fetchd/fetch/fault"
	"fetchd/fetch/urls"
	"fetchd/internal/budget"
)

// boundSchemes are the prefixes of authentication schemes that authenticate a
// connection instead of a request. Only Negotiate is registered (RFC 4559 §6 warns of
// it); the others are names that servers are known to use for it.
var boundSchemes = []string{"nego", "ntlm", "kerb", "krb", "gss", "spnego"}

// bindsConnection reports whether lines of credentials or challenges name such a
// scheme. It splits at commas inside quotes too: a false match costs a connection, a
// missed one gives an identity to the next caller.
func bindsConnection(lines ...string) bool {
	for _, line := range lines {
		for element := range strings.SplitSeq(line, ",") {
			if isBoundScheme(strings.TrimLeft(element, " \t")) {
				return true
			}
		}
	}
	return false
}

func isBoundScheme(element string) bool {
	return slices.ContainsFunc(boundSchemes, func(scheme string) bool {
		return len(element) >= len(scheme) && strings.EqualFold(element[:len(scheme)], scheme)
	})
}

// offersBinding reports whether a response offers to authenticate its connection, or
// says that it has done so (RFC 4559 §4 and §6).
func offersBinding(h http.Header) bool {
	return h["Persistent-Auth"] != nil || h["Proxy-Support"] != nil ||
		bindsConnection(h["Www-Authenticate"]...) || bindsConnection(h["Authentication-Info"]...)
}

// mayShare reports whether a request may use a connection that other fetches use before
// or after it (spec A5, A6).
func (a *attempt) mayShare(req *http.Request) bool {
	if bindsConnection(req.Header["Authorization"]...) || bindsConnection(a.credential) {
		return false
	}
	origins := *a.client.origins.Load()
	if len(origins) == 0 || req.URL.Scheme != "https" {
		return true
	}
	own, ok := origins[net.JoinHostPort(req.URL.Hostname(), urls.Port(req.URL))] // as net/http dials it
	return !ok || own.allows(a.req.Caller)
}

// allows reports whether a caller may use the connections that show the certificate.
// Without a certificate every caller may.
func (o *OriginTLS) allows(caller string) bool {
	return o.Certificate == nil || len(o.Callers) == 0 || slices.Contains(o.Callers, caller)
}

// refuse ends the exchange before anything is written. HTTP/2 checks the context before
// it writes. HTTP/1 does not, so its connection is closed.
func (t *trace) refuse(conn *observedConn, shared bool) {
	if !shared {
		_ = conn.Close()
	}
	t.refused = !t.over
	t.over = true
	t.end(fault.New(classify.ConnectionReset, classify.PhaseConnect, "connection_spent"))
}

// release releases the connection.
func (t *trace) release() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.hold(nil)
	t.limits.Memory.Shrink(budget.Receiving, t.dialled)
	t.dialled, t.gone = 0, true
}

// hold makes next the connection of the exchange. The last exchange on a spent
// connection closes it: over HTTP/2 others may still be in flight.
func (t *trace) hold(next *observedConn) {
	if next != nil {
		next.users.Add(1)
	}
	if was := t.held; was != nil && was.users.Add(-1) == 0 && (was.spent.Load() || was.isOutdated()) {
		_ = was.Close()
	}
	t.held = next
}

// isOutdated reports whether the connection was made with other TLS settings than those of
// the origin now.
func (c *observedConn) isOutdated() bool { return c.outdated != nil && c.outdated() }

// spend keeps later exchanges off the connection if the response binds it (spec A5), or
// if its certificates use much memory, which this fetch is charged for.
func (t *trace) spend(h http.Header) {
	if t.held != nil && (t.held.heavy || offersBinding(h)) {
		t.held.spent.Store(true)
	}
}
