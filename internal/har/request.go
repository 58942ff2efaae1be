package har

import (
	"encoding/base64"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"unicode/utf8"

	pb "fetchd/gen/fetchd/v1"
	"fetchd/internal/timeline"
)

// request is what was asked at hop i. The headers are the caller's; those that
// the service adds it does not tell. They stand at hops of the first URL's
// origin, before the chain has left it: elsewhere the service drops some (spec
// D4), and does not tell which.
func (w *writer) request(a *timeline.Attempt, i int) request {
	h := &a.Hops[i]
	r := request{Method: h.Method, URL: withoutFragment(h.URL), Version: version(h), Headers: []pair{}, Cookies: []pair{},
		Query: query(h.URL), HeadersSize: -1, BodySize: -1}
	asked := w.options.Request
	if asked == nil {
		return r
	}
	if w.elsewhere(a, i) {
		r.Comment = "the headers that go along to another origin are not told"
		return r
	}
	body := len(asked.GetBody()) > 0 && h.Method == methodOf(asked)
	r.BodySize = 0
	if body {
		r.BodySize = int64(len(asked.GetBody()))
	}
	for _, line := range asked.GetHeaders() {
		if body || !strings.HasPrefix(strings.ToLower(line.GetName()), "content-") {
			r.Headers = append(r.Headers, w.requestHeader(line))
			r.Cookies = append(r.Cookies, w.cookies(line)...)
		}
	}
	if body && w.options.Bodies && utf8.Valid(asked.GetBody()) {
		r.Post = &post{MIME: header(asked.GetHeaders(), "Content-Type"), Text: string(asked.GetBody())}
	}
	return r
}

// elsewhere reports whether the chain has left the origin of the first URL at hop i,
// or may have before the attempt, because that begins at a failed hop (spec I3).
func (w *writer) elsewhere(a *timeline.Attempt, i int) bool {
	for j := range w.fetch.Attempts {
		before := &w.fetch.Attempts[j]
		if before.Number == a.Number-1 && before.Decision.GetStart() == pb.RetryStart_RETRY_START_FAILED_HOP {
			return true
		}
	}
	first := originOf(w.options.Request.GetUrl())
	return slices.ContainsFunc(a.Hops[:i+1], func(h timeline.Hop) bool { return originOf(h.URL) != first })
}

func methodOf(r *pb.FetchRequest) string {
	if r.GetMethod() == "" {
		return http.MethodGet
	}
	return r.GetMethod()
}

// header is the first line of that name, or empty.
func header(lines []*pb.Header, name string) string {
	for _, line := range lines {
		if strings.EqualFold(line.GetName(), name) {
			return valueOf(line)
		}
	}
	return ""
}

// originOf is scheme, host and port of a URL. One that does not parse is its own.
func originOf(raw string) string {
	u, err := url.Parse(raw)
	if err != nil {
		return raw
	}
	port := u.Port()
	if port == "" {
		port = map[string]string{"http": "80", "https": "443"}[strings.ToLower(u.Scheme)]
	}
	return strings.ToLower(u.Scheme + "://" + u.Hostname() + ":" + port)
}

func withoutFragment(raw string) string {
	raw, _, _ = strings.Cut(raw, "#")
	return raw
}

// query splits the query of a URL. A part that is not percent-encoded as it
// should be stays as it is.
func query(raw string) []pair {
	pairs := []pair{}
	_, text, _ := strings.Cut(withoutFragment(raw), "?")
	for part := range strings.SplitSeq(text, "&") {
		if part == "" {
			continue
		}
		name, value, _ := strings.Cut(part, "=")
		pairs = append(pairs, pair{Name: unescape(name), Value: unescape(value)})
	}
	return pairs
}

func unescape(s string) string {
	if text, err := url.QueryUnescape(s); err == nil && utf8.ValidString(text) {
		return text
	}
	return s
}

// fill adds the bytes that were kept: text as it is, else in base64.
func (c *content) fill(b *timeline.Body) {
	switch {
	case b.Size == 0:
	case int64(len(b.Kept)) < b.Size:
		c.Comment = "the body was not kept"
	case utf8.Valid(b.Kept):
		c.Text = string(b.Kept)
	default:
		c.Text, c.Encoding = base64.StdEncoding.EncodeToString(b.Kept), "base64"
	}
}
