package fetch_test

import (
	"context"
	"net/http"
	"net/http/httptest"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"fetchd/classify"
	"fetchd/fetch"
	"fetchd/fetch/markdown"
	"fetchd/internal/budget"
	"fetchd/test/wait"
)

const textPage = `<html><head><title> A
page </title></head><body><nav>Menu</nav><main><h1>Head</h1><p>Über uns &amp; <a href="/x">more</a></p></main></body></html>`

// TestText delivers what origins send as text, or says why not (B10).
func TestText(t *testing.T) {
	t.Parallel()
	const asMarkdown = "# Head\n\nÜber uns & [more](ORIGIN/x)\n"
	pdf := "%PDF-1.7\n\x01\x02"
	for _, row := range []struct {
		name, contentType, body string
		change                  func(*fetch.Request)
		class                   classify.Class
		reason                  string
		text                    string
		summary                 fetch.TextSummary // without sizes
	}{
		{name: "a page", contentType: "text/html; charset=utf-8", body: textPage, text: asMarkdown, summary: fetch.TextSummary{MediaType: "text/markdown", Title: "A page", LeftOut: true}},
		{name: "a page in another charset", contentType: "text/html; charset=iso-8859-1", body: strings.ReplaceAll(textPage, "Ü", "\xdc"), text: asMarkdown, summary: fetch.TextSummary{MediaType: "text/markdown", Title: "A page", LeftOut: true}},
		{name: "a page labelled as plain text", contentType: "text/plain", body: textPage, text: asMarkdown, summary: fetch.TextSummary{MediaType: "text/markdown", Title: "A page", LeftOut: true}},
		{name: "Markdown", contentType: "text/markdown", body: "# Head\n<html>", text: "# Head\n<html>", summary: fetch.TextSummary{MediaType: "text/markdown"}},
		{name: "JSON", contentType: "application/json", body: `{"a":"<html>ü"}`, text: `{"a":"<html>ü"}`, summary: fetch.TextSummary{MediaType: "application/json"}},
		{name: "nothing", contentType: "text/html", summary: fetch.TextSummary{MediaType: "text/html"}},
		{name: "a page of a script", contentType: "text/html", body: "<html><body><script>x()</script></body></html>", summary: fetch.TextSummary{MediaType: "text/markdown", Fallback: markdown.Scripted}},
		{name: "an image", contentType: "image/png", body: "\x89PNG", class: classify.ContentType, reason: "not_text"},
		{name: "a PDF labelled as a page", contentType: "text/html", body: pdf, class: classify.ContentType, reason: "not_text"},
		{name: "too many elements", contentType: "text/html", body: strings.Repeat("<li>", 2<<20), class: classify.Undecodable, reason: "text_limit"},
		{name: "over 16 MiB", contentType: "text/plain", body: strings.Repeat("a", 16<<20+1), change: func(r *fetch.Request) { r.MaxBodyBytes = 1 << 30 }, class: classify.BodyTooLarge, reason: "content_length"},
		{name: "1 MiB", contentType: "text/plain", body: strings.Repeat("a", 1<<20), text: strings.Repeat("a", 1<<20), summary: fetch.TextSummary{MediaType: "text/plain"}},
		{name: "over 1 MiB", contentType: "text/plain", body: strings.Repeat("a", 1<<20+1), class: classify.BodyTooLarge, reason: "text_size"},
		{name: "over 1 MiB, truncated", contentType: "text/plain", body: strings.Repeat("é", 1<<20), change: func(r *fetch.Request) { r.Truncate = true }, text: strings.Repeat("é", 1<<19), summary: fetch.TextSummary{MediaType: "text/plain", Truncated: true}},
		{name: "a body that is truncated", contentType: "text/plain", body: "abcdef", change: func(r *fetch.Request) { r.Truncate, r.MaxBodyBytes = true, 3 }, text: "abc", summary: fetch.TextSummary{MediaType: "text/plain", Truncated: true}},
		{name: "a digest that is not that of the bytes", contentType: "text/html", body: textPage, change: func(r *fetch.Request) { r.Integrity.SHA256 = sum([]byte(asMarkdown)) }, class: classify.Integrity, reason: "sha256"},
	} {
		t.Run(row.name, func(t *testing.T) {
			t.Parallel()
			s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
				w.Header().Set("Content-Type", row.contentType)
				w.Header().Set("Content-Length", strconv.Itoa(len(row.body)))
				_, _ = w.Write([]byte(row.body)) // the client may stop reading
			}))
			t.Cleanup(s.Close)
			r := get(t, s.URL+"/page")
			r.Delivery, r.Text = fetch.Inline, markdown.Marked
			if row.change != nil {
				row.change(r)
			}
			b := budget.New(1 << 30)
			r.Memory = new(budget.Lease)
			b.Open(r.Memory, "caller")
			out := newClient(t, fetch.Config{Egress: unrestricted}).Fetch(t.Context(), r, nil)
			if class := classOf(out.Failure); class != row.class {
				t.Fatalf("class %s, want %s: %+v", class, row.class, out.Failure)
			}
			if out.Failure != nil {
				if out.Failure.Reason != row.reason || out.InlineBody != nil || out.Text != nil || out.Attempts != 1 {
					t.Errorf("reason %q, %d bytes, %+v, %d attempts, want reason %q alone", out.Failure.Reason, len(out.InlineBody), out.Text, out.Attempts, row.reason)
				}
			} else {
				checkText(t, out, strings.ReplaceAll(row.text, "ORIGIN", s.URL), row.body, row.summary)
			}
			r.Memory.Close()
			if held := b.Usage().Total(); held != 0 {
				t.Errorf("%d bytes are still charged", held)
			}
		})
	}
}

// checkText compares an outcome with a text, and its summary of the body with the bytes of the origin.
func checkText(t *testing.T, out *fetch.Outcome, text, body string, want fetch.TextSummary) {
	t.Helper()
	if string(out.InlineBody) != text {
		t.Errorf("text %.200q, want %.200q", out.InlineBody, text)
	}
	want.Bytes, want.Characters = int64(len(text)), int64(len([]rune(text)))
	if out.Text == nil || *out.Text != want {
		t.Errorf("summary %+v, want %+v", out.Text, want)
	}
	if size := out.Body.Size; !out.Body.Truncated && (size != int64(len(body)) || out.Body.SHA256 != sum([]byte(body))) {
		t.Errorf("summary of the body %+v, which has %d bytes", out.Body, len(body))
	}
}

// TestTextAccept checks what an origin is asked for.
func TestTextAccept(t *testing.T) {
	t.Parallel()
	for _, row := range []struct {
		name, accept string
		text         markdown.Content
		want         string
	}{
		{"a text", "", markdown.Article, "text/markdown, text/html;q=0.9, */*;q=0.1"},
		{"what the caller accepts", "text/plain", markdown.Article, "text/plain"},
		{"no text", "", markdown.Off, "*/*"},
	} {
		t.Run(row.name, func(t *testing.T) {
			t.Parallel()
			var got string
			s := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { got = r.Header.Get("Accept") }))
			t.Cleanup(s.Close)
			r := get(t, s.URL)
			r.Delivery, r.Text = fetch.Inline, row.text
			if row.accept != "" {
				r.Header = http.Header{"Accept": {row.accept}}
			}
			newClient(t, fetch.Config{Egress: unrestricted}).Fetch(t.Context(), r, nil)
			if got != row.want {
				t.Errorf("Accept %q, want %q", got, row.want)
			}
		})
	}
}

// TestTextMemory checks that a page for which there is no memory ends its fetch, and releases what it has.
func TestTextMemory(t *testing.T) {
	t.Parallel()
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "text/html")
		_, _ = w.Write([]byte(strings.Repeat("<p>x", 10_000)))
	}))
	t.Cleanup(s.Close)
	b := budget.New(1 << 20)
	r := get(t, s.URL)
	r.Delivery, r.Text, r.Memory = fetch.Inline, markdown.Marked, new(budget.Lease)
	b.Open(r.Memory, "caller")
	out := newClient(t, fetch.Config{Egress: unrestricted}).Fetch(t.Context(), r, nil)
	if class := classOf(out.Failure); class != classify.OutOfMemory {
		t.Errorf("class %s, want %s", class, classify.OutOfMemory)
	}
	r.Memory.Close()
	if held := b.Usage().Total(); held != 0 {
		t.Errorf("%d bytes are still charged", held)
	}
}

// TestTextCancelled cancels fetches while their pages are converted. Nothing remains charged, and all turns are free.
func TestTextCancelled(t *testing.T) {
	t.Parallel()
	page := strings.Repeat("<p>a <b>b</b> c", 20_000)
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "text/html")
		_, _ = w.Write([]byte(page))
	}))
	t.Cleanup(s.Close)
	c := newClient(t, fetch.Config{Egress: unrestricted})
	need, err := markdown.Need(page)
	must(t, err)
	b := budget.New(1 << 30)
	for cancelled := 0; cancelled < runtime.GOMAXPROCS(0); {
		r := get(t, s.URL)
		r.Delivery, r.Text, r.Memory = fetch.Inline, markdown.Marked, new(budget.Lease)
		b.Open(r.Memory, "caller")
		ctx, cancel := context.WithCancel(t.Context())
		var out *fetch.Outcome
		var fetching sync.WaitGroup
		fetching.Go(func() {
			defer cancel()
			out = c.Fetch(ctx, r, nil)
		})
		_ = wait.Until(ctx, time.Millisecond, func() bool { return b.Usage().Total() > need }) // the conversion has begun
		cancel()
		fetching.Wait()
		if classOf(out.Failure) == classify.Cancelled { // the conversion had not ended
			cancelled++
			if out.InlineBody != nil || out.Text != nil {
				t.Errorf("a cancelled fetch has %d bytes and %+v", len(out.InlineBody), out.Text)
			}
		}
		r.Memory.Close()
		if held := b.Usage().Total(); held != 0 {
			t.Fatalf("%d bytes are still charged", held)
		}
	}
	r := get(t, s.URL)
	r.Delivery, r.Text = fetch.Inline, markdown.Marked
	if out := c.Fetch(t.Context(), r, nil); out.Failure != nil || out.Text == nil {
		t.Errorf("the next fetch: %+v", out.Failure)
	}
}
