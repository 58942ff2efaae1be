package kit_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"fetchd/conformance/kit"
)

// TestAdapter checks what an answer of an adapter means, and that an adapter that is broken or hostile costs neither
// much memory nor time.
func TestAdapter(t *testing.T) {
	t.Parallel()
	endless := func(w http.ResponseWriter) {
		for block := bytes.Repeat([]byte("x"), 64<<10); ; {
			if _, err := w.Write(block); err != nil {
				return
			}
		}
	}
	raw := func(w http.ResponseWriter, text string) {
		conn, _, err := http.NewResponseController(w).Hijack()
		if err == nil {
			_, _ = conn.Write([]byte(text))
			_ = conn.Close()
		}
	}
	for _, row := range []struct {
		name   string
		answer func(w http.ResponseWriter, r *http.Request)
		exit   int
		bytes  int
		err    string
	}{
		{"a body", func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write([]byte("body")) }, 0, 4, ""},
		{"an empty body", func(http.ResponseWriter, *http.Request) {}, 0, 0, ""},
		{"a fetch that failed", func(w http.ResponseWriter, _ *http.Request) { http.Error(w, "no", http.StatusBadGateway) }, 1, 0, ""},
		{"a fetch that failed after the body began", func(w http.ResponseWriter, _ *http.Request) {
			raw(w, "HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nbody")
		}, 1, 4, ""},
		{"an endless body", func(w http.ResponseWriter, _ *http.Request) { endless(w) }, 0, 16 << 20, ""},
		{"an error of the adapter", func(w http.ResponseWriter, _ *http.Request) {
			http.Error(w, "KeyError: "+strings.Repeat("u", 9999), http.StatusInternalServerError)
		}, 0, 0, "not with 500"},
		{"no content", func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusNoContent) }, 0, 0, "not with 204"},
		{"a redirect, which is not followed", func(w http.ResponseWriter, r *http.Request) {
			http.Redirect(w, r, "/elsewhere", http.StatusTemporaryRedirect)
		}, 0, 0, "not with 307"},
		{"a connection that closes", func(w http.ResponseWriter, _ *http.Request) { raw(w, "") }, 0, 0, "does not answer"},
		{"no HTTP", func(w http.ResponseWriter, _ *http.Request) { raw(w, "SSH-2.0-OpenSSH_9.2\r\n") }, 0, 0, "does not answer"},
		{"an endless header", func(w http.ResponseWriter, _ *http.Request) {
			raw(w, "HTTP/1.1 200 OK\r\nA: "+strings.Repeat("a", 1<<20))
		}, 0, 0, "does not answer"},
	} {
		t.Run(row.name, func(t *testing.T) {
			t.Parallel()
			server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				var task map[string]string
				if err := json.NewDecoder(r.Body).Decode(&task); err != nil || r.Method != http.MethodPost || r.URL.Path != "/fetch" || task["url"] != "http://a.test/" || task["ca"] != "PEM" || len(task) != 2 {
					t.Errorf("%s %s with %v, %v", r.Method, r.URL, task, err)
				}
				row.answer(w, r)
			}))
			defer server.Close()
			a := &kit.Adapter{URL: server.URL + "/fetch", Limit: time.Minute}
			if err := a.Trust([]byte("PEM"), ""); err != nil {
				t.Fatal(err)
			}
			body, exit, err := a.Run(t.Context(), "http://a.test/", "")
			told := fmt.Sprint(err)
			switch {
			case row.err == "" && (err != nil || exit != row.exit || len(body) != row.bytes):
				t.Errorf("%d bytes, exit %d, %v; want %d, %d", len(body), exit, err, row.bytes, row.exit)
			case row.err != "" && (err == nil || !strings.Contains(told, row.err) || len(told) > 1000):
				t.Errorf("error %v, want %q", err, row.err)
			}
		})
	}
}

// TestAdapterThatIsSlow checks the time limit, before the answer and within it.
func TestAdapterThatIsSlow(t *testing.T) {
	t.Parallel()
	for _, begin := range []bool{false, true} {
		server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			_, _ = new(bytes.Buffer).ReadFrom(r.Body) // then the server notices that the connection closes
			if begin {
				w.WriteHeader(http.StatusOK)
				_ = http.NewResponseController(w).Flush()
			}
			<-r.Context().Done()
		}))
		a := &kit.Adapter{URL: server.URL, Limit: 20 * time.Millisecond}
		if _, exit, err := a.Run(t.Context(), "http://a.test/", ""); exit != -1 || err != nil {
			t.Errorf("begun %t: exit %d, %v; want -1", begin, exit, err)
		}
		if _, err := a.Describe(t.Context()); err == nil {
			t.Errorf("begun %t: an adapter that does not answer GET is there", begin)
		}
		server.Close()
	}
}

// TestAdapterDescribes checks the line that names the client.
func TestAdapterDescribes(t *testing.T) {
	t.Parallel()
	for _, row := range []struct {
		name, text string
		status     int
		want       string
	}{
		{"a line", "mine 1.0 \nand more", http.StatusOK, "mine 1.0"},
		{"nothing", "", http.StatusOK, ""},
		{"an empty line", "\nmine", http.StatusOK, ""},
		{"not found", "mine", http.StatusNotFound, ""},
		{"a long line", strings.Repeat("x", 1<<20), http.StatusOK, strings.Repeat("x", 200)},
	} {
		server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			w.WriteHeader(row.status)
			_, _ = w.Write([]byte(row.text))
		}))
		r, err := (&kit.Adapter{Name: "it", URL: server.URL}).Describe(t.Context())
		if (err == nil) != (row.want != "") || err == nil && (r.Version != row.want || r.Subject != "it") {
			t.Errorf("%s: %+v, %v; want %q", row.name, r, err, row.want)
		}
		server.Close()
	}
}
