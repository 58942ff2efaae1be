package origin_test

import (
	"encoding/json"
	"errors"
	"net/http"
	"net/http/httptest"
	"strings"
	"syscall"
	"testing"

	"fetchd/conformance/origin"
	"fetchd/test/must"
)

func TestLogPage(t *testing.T) {
	t.Parallel()
	o := start(t)
	c := newClient(t, o)
	log := func(query string) []origin.Request {
		t.Helper()
		var requests []origin.Request
		g := mustGet(t, c, o.URL("http", "/_log"+query))
		if err := json.Unmarshal(g.body, &requests); err != nil || requests == nil {
			t.Fatalf("/_log%s: %q, %v", query, g.body, err)
		}
		return requests
	}
	mustGet(t, c, o.URL("http", "/s/a%20b/200"))
	mustGet(t, c, o.URL("https", "/s/c/404"))
	waitDone(t, o, "a b", origin.EndAnswered)
	if got := log("?key=a+b"); len(got) != 1 || got[0].Key != "a b" || got[0].Step != "200" || got[0].End != origin.EndAnswered {
		t.Errorf("log of one key: %+v", got)
	}
	if got := log(""); len(got) != 2 || got[1].Protocol != "HTTP/2.0" {
		t.Errorf("log of all: %+v", got)
	}
	if g := mustGet(t, c, o.URL("http", "/_connections")); !strings.Contains(string(g.body), `"https": 1`) {
		t.Errorf("/_connections: %s", g.body)
	}
	req, err := http.NewRequestWithContext(t.Context(), http.MethodDelete, o.URL("http", "/_log"), nil)
	must.Succeed(t, err)
	if g, err := do(c, req); err != nil || g.StatusCode != http.StatusNoContent {
		t.Errorf("DELETE /_log: %v", err)
	}
	if got := log(""); len(got) != 0 {
		t.Errorf("log after DELETE: %+v", got)
	}
	if g := mustGet(t, c, o.URL("http", "/s/c/404/200")); g.StatusCode != 404 {
		t.Errorf("the counter of c was not reset: %d", g.StatusCode)
	}
}

func TestIndexNamesEveryListenerAndStep(t *testing.T) {
	t.Parallel()
	o := start(t)
	index := string(mustGet(t, newClient(t, o), o.URL("http", "/")).body)
	for _, want := range []string{
		o.URL("http", ""), o.URL("tls-silent", ""), o.URL("refused", ""), "h2-goaway-forever", "charset-bytes=latin1|badutf8", "/loop2/KEY/STATUS",
	} {
		if !strings.Contains(index, want) {
			t.Errorf("index without %q:\n%s", want, index)
		}
	}
}

func TestGrammarErrors(t *testing.T) {
	t.Parallel()
	o := start(t)
	c := newClient(t, o)
	for _, path := range []string{
		"/nothing", "/s/k", "/s//200", "/s/k/20", "/s/k/2000", "/s/k/nonsense", "/s/k/200:nonsense=1", "/s/k/200:size=x",
		"/s/k/200:size=-1", "/s/k/200:chunked=yes", "/s/k/200:drip=1/1s", "/s/k/200:drip=0@1s", "/s/k/200:delay=1", "/s/k/200/",
		"/s/k/200:how=softly", "/s/k/200:header=X", "/s/k/200:early=200", "/s/k/200:early=101", "/s/k/silent:size=1", "/s/k/200:",
		"/s/k/h2-rst:code=x", "/s/k/h2-goaway:last=-1", "/s/k/200:retry-after-date=x", "/r/k/302/0/200", "/r/k/302/x/200", "/r/k/302/1",
		"/r/k/silent/1/200", "/loop/k", "/cross/k/302/nowhere/200", "/cross/k/302/http", "/t/k/200", "/cycle/k", "/cycle//200", "/cycle/k/20",
	} {
		g := mustGet(t, c, o.URL("http", path))
		if g.StatusCode != http.StatusBadRequest || g.Header.Get("Origin-Error") == "" {
			t.Errorf("%s: %d, Origin-Error %q; want 400 and a reason", path, g.StatusCode, g.Header.Get("Origin-Error"))
		}
	}
}

// TestHandler checks that faults are also real if the origin is a handler of another server.
func TestHandler(t *testing.T) {
	t.Parallel()
	o := origin.New(origin.Config{Seed: 1})
	server := httptest.NewServer(o)
	defer server.Close()
	defer o.Close()
	c := newClient(t, o)
	url := server.URL + "/s/k/200:size=9/503/reset:at=in-body,after=1"
	for _, status := range []int{200, 503} {
		if g := mustGet(t, c, url); g.StatusCode != status {
			t.Errorf("status %d, want %d", g.StatusCode, status)
		}
	}
	if g := mustGet(t, c, url); !errors.Is(g.err, syscall.ECONNRESET) {
		t.Errorf("body error %v, want ECONNRESET", g.err)
	}
	for n := 1; n <= 3; n++ {
		r, err := o.Await(t.Context(), "k", n)
		must.Succeed(t, err)
		<-r.Done
	}
	got := o.Requests("k")
	if len(got) != 3 || got[0].Listener != "handler" || got[1].ConnectionRequest != 2 || got[2].End != origin.EndBroken {
		t.Errorf("log %+v, want three requests on one connection", got)
	}
	recorder := httptest.NewRecorder()
	o.ServeHTTP(recorder, httptest.NewRequest(http.MethodGet, "/s/r/418:body=tea", nil))
	if recorder.Code != 418 || recorder.Body.String() != "tea" {
		t.Errorf("recorder: %d %q, want 418 tea", recorder.Code, recorder.Body)
	}
}

// TestCloseEndsEverything checks that Close does not wait for exchanges that never end.
func TestCloseEndsEverything(t *testing.T) {
	t.Parallel()
	o, err := origin.Start(origin.Config{})
	must.Succeed(t, err)
	c := newClient(t, o)
	failed := make(chan error)
	listeners := []string{"http", "https", "h2fault", "tls-silent", "tcp-silent", "tcp-noread"}
	for _, listener := range listeners {
		go func() {
			_, err := get(t, c, o.URL(listener, "/s/"+listener+"/silent"))
			failed <- err
		}()
	}
	for _, key := range listeners[:3] {
		if _, err := o.Await(t.Context(), key, 1); err != nil {
			t.Fatal(err)
		}
	}
	if err := o.Close(); err != nil {
		t.Fatalf("Close: %v", err)
	}
	for range listeners {
		if err := <-failed; err == nil {
			t.Error("an answer from a silent step")
		}
	}
	if err := o.Close(); err != nil {
		t.Errorf("second Close: %v", err)
	}
}
