package har

import (
	"net"
	"net/http"
	"strings"

	"fetchd/cmd/fetchctl/show"
	"fetchd/cmd/fetchctl/timeline"
)

func (w *writer) entry(a *timeline.Attempt, i int) entry {
	h := &a.Hops[i]
	x := h.Exchange
	e := entry{
		Page: pageID(a), Started: moment(w.fetch.Start.Add(h.Start)),
		Request: w.request(a, i), Response: w.response(h), Timings: timingsOf(h),
		Attempt: a.Number, Hop: h.Number, Rule: ruleOf(a, i),
		Protocol: x.GetProtocol(), TLSVersion: x.GetTlsVersion(), Reused: x.GetConnectionReused(),
		Backpressure: msOf(x.GetBackpressureDuration().AsDuration()), Unfinished: h.Unfinished,
	}
	e.CipherSuite, e.ALPN = x.GetTlsCipherSuite(), x.GetAlpnProtocol()
	if c := x.GetCertificate(); c != nil {
		e.Certificate = &cert{c.GetSubject(), c.GetIssuer(), moment(c.GetNotAfter().AsTime()), c.GetSha256()}
	}
	e.Time = e.Timings.sum()
	if host, port, err := net.SplitHostPort(x.GetRemoteAddress()); err == nil {
		host, _, _ = strings.Cut(host, "%")
		e.Server, e.Connection = host, port
	}
	if f := h.Error; f != nil {
		e.Error = &failure{Class: show.Label(f.GetErrorClass()), ClassRule: f.GetClassRule(), Type: show.Label(f.GetFailureType()),
			Reason: f.GetReason(), Message: f.GetMessage(), Detail: f.GetDetail(), Retryable: f.GetRetryable()}
		if f.Phase != nil {
			e.Error.Phase = show.Label(f.GetPhase())
		}
		e.Response.Error = e.Error.Class + " (" + f.GetClassRule() + ")"
	}
	return e
}

// ruleOf returns the rule that classified a hop. The rule of an attempt belongs to its last
// hop; followed redirects have none.
func ruleOf(a *timeline.Attempt, i int) string {
	switch {
	case i+1 < len(a.Hops):
		return ""
	case a.Error != nil:
		return a.Error.GetClassRule()
	}
	return a.Decision.GetRule()
}

func (w *writer) response(h *timeline.Hop) response {
	mime := "x-unknown"
	r := response{
		Status: h.Status, StatusText: http.StatusText(h.Status), Version: version(h), Headers: w.responseHeaders(h.Headers),
		Cookies: w.setCookies(h.Headers), RedirectURL: h.Location, HeadersSize: -1, BodySize: h.Body.EncodedSize,
	}
	for _, line := range h.Headers {
		if strings.EqualFold(line.GetName(), "Content-Type") {
			mime = valueOf(line)
		}
	}
	r.Content = content{Size: h.Body.Size, MIME: mime}
	if h.Body.EncodedSize >= 0 && h.Body.Size > h.Body.EncodedSize {
		r.Content.Compression = h.Body.Size - h.Body.EncodedSize
	}
	if w.options.Bodies {
		r.Content.fill(&h.Body)
	}
	return r
}

// version returns the HTTP version of the response, which is that of the request too. It is
// unknown without a response.
func version(h *timeline.Hop) string {
	if p := h.Exchange.GetProtocol(); p != "" {
		return p
	}
	return "unknown"
}

// timingsOf converts the phases as the specification says: TLS is part of connect, and a phase
// that did not happen is -1, except send, wait and receive.
func timingsOf(h *timeline.Hop) timings {
	optional := func(k timeline.Kind) ms {
		if d, ok := h.Took(k); ok {
			return msOf(d)
		}
		return none
	}
	t := timings{Blocked: optional(timeline.Blocked), DNS: optional(timeline.Resolve), Connect: optional(timeline.Connect),
		SSL: optional(timeline.TLS), Send: max(optional(timeline.Send), 0), Wait: max(optional(timeline.Wait), 0),
		Receive: max(optional(timeline.Receive), 0)}
	if t.SSL != none {
		t.Connect = max(t.Connect, 0) + t.SSL
	}
	return t
}

// sum returns the time of the entry: everything that is not -1, with ssl as a part of connect.
func (t *timings) sum() ms {
	var sum ms
	for _, d := range []ms{t.Blocked, t.DNS, t.Connect, t.Send, t.Wait, t.Receive} {
		sum += max(d, 0)
	}
	return sum
}
