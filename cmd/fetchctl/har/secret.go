package har

import (
	"net/http"
	"strings"
	"unicode/utf8"

	pb "fetchd/gen/fetchd/v1"
)

// Redacted replaces a secret.
const Redacted = "[redacted]"

// named reports whether a request header identifies no one and grants no access (rule D4), or
// describes the body. Every other header may be a secret, whatever its name, because any
// header can carry an API key. Idempotency-Key is forwarded to other origins, but whoever
// knows it can repeat a request.
func named(name string) bool {
	switch http.CanonicalHeaderKey(name) {
	case "Accept", "Accept-Language", "Accept-Encoding", "User-Agent", "Range", "If-Match", "If-None-Match",
		"If-Modified-Since", "If-Unmodified-Since", "If-Range", "Cache-Control", "Pragma":
		return true
	}
	return strings.HasPrefix(strings.ToLower(name), "content-")
}

// secretResponse reports whether a response header contains a credential.
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

// cookies returns the cookies in a Cookie header.
func (w *writer) cookies(line *pb.Header) []pair {
	if !strings.EqualFold(line.GetName(), "Cookie") {
		return nil
	}
	parsed, err := http.ParseCookie(valueOf(line))
	if err != nil {
		return nil // the header itself is redacted
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

// valueOf returns the value as UTF-8, as an archive requires.
func valueOf(line *pb.Header) string {
	if raw := line.GetRawValue(); len(raw) > 0 && line.GetValue() == "" {
		return strings.ToValidUTF8(string(raw), string(utf8.RuneError))
	}
	return line.GetValue()
}
