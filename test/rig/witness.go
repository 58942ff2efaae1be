package rig

import (
	"cmp"
	"encoding/pem"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"

	"fetchd/test/signatures"
)

// Witness is a site of three origins, which verifies the signatures of what it receives. In texts of pages ONE, TWO and
// PLAIN are the origins.
type Witness struct {
	One, Two, Plain *httptest.Server // https, https, http

	pages map[string]WitnessPage
	key   any // that verifies

	mu    sync.Mutex
	lines []string
	texts []string
	from  []string
}

// WitnessPage is a page of a [Witness], or a redirect if To is set. An empty type is text/html.
type WitnessPage struct {
	Type, Body, To string
	Status         int // zero: 200
}

// NewWitness starts a site with pages by path, on every origin. key verifies.
func NewWitness(t testing.TB, key any, pages map[string]WitnessPage) *Witness {
	t.Helper()
	w := &Witness{pages: pages, key: key}
	w.One, w.Two, w.Plain = httptest.NewTLSServer(w.handler("one")), httptest.NewTLSServer(w.handler("two")), httptest.NewServer(w.handler("plain"))
	for _, s := range []*httptest.Server{w.One, w.Two, w.Plain} {
		t.Cleanup(s.Close)
	}
	return w
}

// CAPEM returns the certificate of the https origins.
func (w *Witness) CAPEM() []byte {
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: w.One.Certificate().Raw})
}

// Ports returns the ports of the origins.
func (w *Witness) Ports() (ports []uint16) {
	for _, s := range []*httptest.Server{w.One, w.Two, w.Plain} {
		if a, ok := s.Listener.Addr().(*net.TCPAddr); ok {
			ports = append(ports, uint16(a.Port)) //nolint:gosec // a port
		}
	}
	return ports
}

func (w *Witness) handler(name string) http.HandlerFunc {
	return func(out http.ResponseWriter, r *http.Request) {
		w.record(name, r)
		origins := strings.NewReplacer("ONE", w.One.URL, "TWO", w.Two.URL, "PLAIN", w.Plain.URL)
		page, ok := w.pages[r.URL.Path]
		switch {
		case !ok:
			http.NotFound(out, r)
		case page.To != "":
			http.Redirect(out, r, origins.Replace(page.To), http.StatusFound)
		default:
			if page.Type == "" {
				page.Type = "text/html"
			}
			out.Header().Set("Content-Type", page.Type)
			out.WriteHeader(cmp.Or(page.Status, http.StatusOK))
			_, _ = fmt.Fprint(out, origins.Replace(page.Body)) // the client may have left
		}
	}
}

// record adds a line about a request: the origin, the path, and "signed", "unsigned" or what is wrong.
func (w *Witness) record(name string, r *http.Request) {
	m := &signatures.Message{Method: r.Method, Scheme: "https", Authority: r.Host, Target: r.RequestURI}
	if r.TLS == nil {
		m.Scheme = "http"
	}
	for field, values := range r.Header {
		for _, v := range values {
			m.Lines = append(m.Lines, [2]string{field, v})
		}
	}
	signature := r.Header.Get("Signature")
	state := "signed"
	if signature+r.Header.Get("Signature-Input")+r.Header.Get("Signature-Agent") == "" {
		state = "unsigned"
	} else if err := m.Verify("sig1", w.key); err != nil {
		state = fmt.Sprint(err)
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if signature != "" && slices.Contains(w.texts, signature) {
		state = "signed again with the same signature"
	}
	w.texts = append(w.texts, signature)
	w.from = append(w.from, r.Header.Get("From")+" "+r.Header.Get("User-Agent"))
	w.lines = append(w.lines, name+" "+r.URL.Path+" "+state)
}

// Lines returns a line about each request, sorted: the origin (one, two or plain), the path, and "signed" or "unsigned".
func (w *Witness) Lines() []string {
	w.mu.Lock()
	defer w.mu.Unlock()
	return slices.Sorted(slices.Values(w.lines))
}

// Senders returns the From and User-Agent of the requests, each once.
func (w *Witness) Senders() []string {
	w.mu.Lock()
	defer w.mu.Unlock()
	return slices.Compact(slices.Sorted(slices.Values(w.from)))
}

// Signatures returns the signatures that were received.
func (w *Witness) Signatures() []string {
	w.mu.Lock()
	defer w.mu.Unlock()
	return slices.DeleteFunc(slices.Clone(w.texts), func(s string) bool { return s == "" })
}
