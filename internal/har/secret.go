package har

import (
	"net/http"
	"strings"
	"unicode/utf8"

	pb "fetchd/gen/fetchd/v1"
)

// Redacted stands where a secret stood.
const Redacted = "[redacted]"

// named are the request headers that name no one and open nothing (spec D4), and
// those of the body. All others may be secrets, whatever they are called: an API
// key can be in any. Idempotency-Key goes along to other origins, but whoever
// knows one can repeat a request.
func named(name string) bool {
	switch http.CanonicalHeaderKey(name) {
	case "Accept", "Accept-Language", "Accept-Encoding", "User-Agent", "Range", "If-Match", "If-None-Match",
		"If-Modified-Since", "If-Unmodified-Since", "If-Range", "Cache-Control", "Pragma":
		return true
	}
	return strings.HasPrefix(strings.ToLower(name), "content-")
}

// secretResponse are the response headers that give a credential, or repeat one.
func secretResponse(name string) bool {
	switch strings.ToLower(name) {
	case "authorization", "cookie", "set-cookie", "set-cookie2", "authentication-info":
		return true
	}
	return strings.HasPrefix(strings.ToLower(name), "proxy-")
}

func (w *writer) requestHeader(line *pb.Header) pair {
	if !w.options.Secrets && !named(line.GetName()) {
		return pair{Name: line.GetName(), Value: Redacted}
	}
	return pair{Name: line.GetName(), Value: valueOf(line)}
}

func (w *writer) responseHeaders(lines []*pb.Header) []pair {
	pairs := make([]pair, 0, len(lines))
	for _, line := range lines {
		p := pair{Name: line.GetName(), Value: valueOf(line)}
		if !w.options.Secrets && secretResponse(p.Name) {
			p.Value = Redacted
		}
		pairs = append(pairs, p)
	}
	return pairs
}

// cookies are those of a Cookie line.
func (w *writer) cookies(line *pb.Header) []pair {
	if !strings.EqualFold(line.GetName(), "Cookie") {
		return nil
	}
	parsed, err := http.ParseCookie(valueOf(line))
	if err != nil {
		return nil // the line says it
	}
	return w.pairs(parsed)
}

func (w *writer) setCookies(lines []*pb.Header) []pair {
	pairs := []pair{}
	for _, line := range lines {
		if !strings.EqualFold(line.GetName(), "Set-Cookie") {
			continue
		}
		if c, err := http.ParseSetCookie(valueOf(line)); err == nil {
			pairs = append(pairs, w.pairs([]*http.Cookie{c})...)
		}
	}
	return pairs
}

func (w *writer) pairs(cookies []*http.Cookie) []pair {
	var pairs []pair
	for _, c := range cookies {
		value := Redacted
		if w.options.Secrets {
			value = c.Value
		}
		pairs = append(pairs, pair{Name: c.Name, Value: value})
	}
	return pairs
}

// valueOf is the value as UTF-8, which an archive must be.
func valueOf(line *pb.Header) string {
	if raw := line.GetRawValue(); len(raw) > 0 && line.GetValue() == "" {
		return strings.ToValidUTF8(string(raw), string(utf8.RuneError))
	}
	return line.GetValue()
}
