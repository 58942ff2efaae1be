package origin_test

import (
	"errors"
	"io"
	"net/http"
	"strconv"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/grpc/test/bufconn"

	"fetchd/conformance/origin"
)

func TestScriptStepsInOrder(t *testing.T) {
	t.Parallel()
	o := start(t)
	c := newClient(t, o)
	var statuses []int
	for range 4 {
		statuses = append(statuses, mustGet(t, c, o.URL("http", "/s/k/503/404/200?x=1")).StatusCode)
	}
	if diff := cmp.Diff([]int{503, 404, 200, 200}, statuses); diff != "" {
		t.Errorf("statuses (-want +got):\n%s", diff)
	}
	for i, r := range o.Requests("k") {
		if r.Number != i+1 || r.Turn != i+1 || r.Query != "x=1" || r.Connection == 0 || r.ConnectionRequest != i+1 {
			t.Errorf("request %d = %+v, want number, turn and place on the connection %d", i, r, i+1)
		}
		<-r.Done
	}
}

// TestCycleBeginsAgain checks that a script of /cycle repeats and the same script of /s does not.
func TestCycleBeginsAgain(t *testing.T) {
	t.Parallel()
	o := start(t)
	c := newClient(t, o)
	for _, tc := range []struct {
		name, path string
		want       []int
	}{
		{"two steps", "/cycle/two/503/200", []int{503, 200, 503, 200, 503}},
		{"one step", "/cycle/one/404", []int{404, 404, 404}},
		{"a script of /s", "/s/three/503/200", []int{503, 200, 200, 200, 200}},
		{"the same key after /s", "/cycle/three/503/200", []int{503, 200, 503, 200}},
		{"the same key and another script", "/cycle/two/500/404", []int{500, 404, 500}},
		{"/s after the same key", "/s/two/500/404", []int{500, 404, 404}},
	} {
		var got []int
		for range tc.want {
			got = append(got, mustGet(t, c, o.URL("http", tc.path)).StatusCode)
		}
		if diff := cmp.Diff(tc.want, got); diff != "" {
			t.Errorf("%s: statuses of %s (-want +got):\n%s", tc.name, tc.path, diff)
		}
	}
	if got := o.Requests("two"); len(got) != 11 || got[4].Number != 5 || got[4].Turn != 5 || got[4].Step != "503" || got[5].Number != 6 || got[5].Turn != 1 {
		t.Errorf("the log of two is %+v, want eleven requests: the fifth of turn 5 and step 503, the sixth of turn 1", got)
	}
}

func TestBreaks(t *testing.T) {
	t.Parallel()
	o := start(t)
	for _, listener := range []string{"http", "https1"} {
		for _, tc := range []struct {
			step     string
			head     error
			body     error
			bodySize int
		}{
			{step: "reset", head: syscall.ECONNRESET},
			{step: "reset:at=in-body,after=10", body: syscall.ECONNRESET, bodySize: 10},
			{step: "fin", head: io.EOF},
			{step: "fin:at=in-head", head: io.ErrUnexpectedEOF},
			{step: "fin:at=in-body,after=10", body: io.ErrUnexpectedEOF, bodySize: 10},
			{step: "200:size=100,cut=50", body: io.ErrUnexpectedEOF, bodySize: 50},
			{step: "200:size=100,cut=50,how=rst", body: syscall.ECONNRESET, bodySize: 50},
			{step: "200:size=100,cut=50,how=raw", body: io.ErrUnexpectedEOF, bodySize: 50},
			{step: "200:size=100,length=200", body: io.ErrUnexpectedEOF, bodySize: 100},
			{step: "200:size=100,length=60,close", bodySize: 60},
			{step: "200:size=100,chunked", bodySize: 100},
			{step: "200:size=100,chunked,cut=30", body: io.ErrUnexpectedEOF, bodySize: 30},
			{step: "200:size=100,no-length", bodySize: 100},
			{step: "200:size=100,no-length,cut=30", bodySize: 30},
			{step: "200:size=100,chunk-fault=no-last", body: io.ErrUnexpectedEOF, bodySize: 100},
			{step: "200:size=100,trailers", bodySize: 100},
		} {
			t.Run(listener+"/"+tc.step, func(t *testing.T) {
				t.Parallel()
				key := listener + tc.step
				g, err := get(t, newClient(t, o), o.URL(listener, "/s/"+key+"/"+tc.step))
				if !errors.Is(err, tc.head) {
					t.Fatalf("%s: head error = %v, want %v", tc.step, err, tc.head)
				}
				if err != nil {
					return
				}
				if !errors.Is(g.err, tc.body) || len(g.body) != tc.bodySize {
					t.Errorf("%s: body of %d bytes, error %v; want %d, %v", tc.step, len(g.body), g.err, tc.bodySize, tc.body)
				}
				if string(g.body) != string(o.Body(int64(len(g.body)))) {
					t.Errorf("%s: body is not the seeded one", tc.step)
				}
			})
		}
	}
}

func TestEveryStatus(t *testing.T) {
	t.Parallel()
	o := start(t)
	for _, listener := range []string{"http", "https"} {
		c := newClient(t, o)
		for status := 200; status < 1000; status++ {
			text := strconv.Itoa(status)
			g, err := get(t, c, o.URL(listener, "/s/"+text+"/"+text))
			if err != nil || g.StatusCode != status {
				t.Fatalf("%s on %s: error %v, want status %d", text, listener, err, status)
			}
		}
	}
}

func TestDelayInBubble(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o := origin.New(origin.Config{})
		l := bufconn.Listen(64 << 10)
		served := make(chan error, 1)
		go func() { served <- o.Serve(l) }()
		transport := &http.Transport{DialContext: dialer(l)}
		c := &http.Client{Transport: transport}
		began := time.Now()
		g := mustGet(t, c, o.URL("http", "/s/k/200:delay=10s"))
		if took := time.Since(began); took != 10*time.Second || g.StatusCode != 200 {
			t.Errorf("took %v, status %d; want 10s, 200", took, g.StatusCode)
		}
		transport.CloseIdleConnections()
		_ = o.Close()
		if err := <-served; err != nil {
			t.Errorf("Serve = %v, want nil", err)
		}
	})
}
