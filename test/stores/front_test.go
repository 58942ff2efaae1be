//go:build linux

package stores

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"net"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"fetchd/test/rig/linktest"
)

// front is an HTTP proxy before an S3 server. A link of each test leads to it, so that it knows
// the request at which a fault of that link begins. The path is
//
//	fetchd → link of the lane → front → S3 server
type front struct {
	address string
	server  string
	late    atomic.Int64 // faults in the body of a request that came after the body

	mu    sync.Mutex
	lanes map[string]*lane
}

// transport opens a connection for each request: a request that is sent again by itself would
// be counted twice.
var transport = &http.Transport{DisableKeepAlives: true, DisableCompression: true}

func newFront(t *testing.T, s *server) *front {
	t.Helper()
	// Little is received of a request before the front reads it, so that a fault in a body begins
	// before the body has arrived.
	small := net.ListenConfig{Control: func(_, _ string, c syscall.RawConn) error {
		return c.Control(func(fd uintptr) { _ = syscall.SetsockoptInt(int(fd), syscall.SOL_SOCKET, syscall.SO_RCVBUF, 128<<10) })
	}}
	l, err := small.Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	f := &front{address: l.Addr().String(), server: s.Address, lanes: make(map[string]*lane)}
	h := &http.Server{Handler: f, ReadHeaderTimeout: time.Minute}
	var serving sync.WaitGroup
	serving.Go(func() { _ = h.Serve(l) })
	t.Cleanup(func() {
		_ = h.Close()
		serving.Wait()
	})
	return f
}

// lane is one store's way to the front, with the keys below a prefix.
type lane struct {
	*testing.T
	link   *linktest.Link
	prefix string

	mu     sync.Mutex
	counts map[string]int // requests by operation
	fault  *fault
	seen   chan struct{} // closed and replaced with each request
}

// lane makes a lane, which ends with t.
func (f *front) lane(t *testing.T, prefix string) *lane {
	t.Helper()
	l := &lane{T: t, link: linktest.New(t, f.address), prefix: prefix, counts: make(map[string]int), seen: make(chan struct{})}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.lanes[prefix] = l
	return l
}

// store returns the store of the lane, which is at s.
func (l *lane) store(s *server) entry {
	e := s.entry(l.prefix)
	e.URL = strings.Replace(e.URL, s.Address, l.link.Addr().String(), 1)
	return e
}

// count counts a request, and returns the fault that it meets, if any.
func (l *lane) count(operation string) *fault {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.counts[operation]++
	close(l.seen)
	l.seen = make(chan struct{})
	if l.fault == nil || l.fault.at != operation || l.fault.once && l.counts[operation] > 1 {
		return nil
	}
	return l.fault
}

// requests returns how many requests came, by operation.
func (l *lane) requests() map[string]int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return maps.Clone(l.counts)
}

// reset forgets the requests so far.
func (l *lane) reset() {
	l.mu.Lock()
	defer l.mu.Unlock()
	clear(l.counts)
}

// await waits until the operation was requested n times.
func (l *lane) await(ctx context.Context, operation string, n int) {
	l.Helper()
	for {
		l.mu.Lock()
		count, seen := l.counts[operation], l.seen
		l.mu.Unlock()
		if count >= n {
			return
		}
		select {
		case <-seen:
		case <-ctx.Done():
			l.Fatalf("waiting for request %d of %s: %v, the requests are %v", n, operation, context.Cause(ctx), l.requests())
		}
	}
}

// The operations.
const (
	createUpload   = "CreateMultipartUpload"
	uploadPart     = "UploadPart " // and the number
	completeUpload = "CompleteMultipartUpload"
	abortUpload    = "AbortMultipartUpload"
	listUploads    = "ListMultipartUploads"
	putObject      = "PutObject"
	headObject     = "HeadObject"
)

func operation(r *http.Request) string {
	query := r.URL.Query()
	_, upload := query["uploadId"]
	switch {
	case r.Method == http.MethodPut && query.Has("partNumber"):
		return uploadPart + query.Get("partNumber")
	case r.Method == http.MethodPut:
		return putObject
	case r.Method == http.MethodPost && query.Has("uploads"):
		return createUpload
	case r.Method == http.MethodPost && upload:
		return completeUpload
	case r.Method == http.MethodDelete && upload:
		return abortUpload
	case query.Has("uploads"):
		return listUploads
	case r.Method == http.MethodHead:
		return headObject
	}
	return r.Method
}

// ServeHTTP forwards a request, or commits the fault of its lane.
func (f *front) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	x := &exchange{front: f, writer: w, request: r}
	path := strings.TrimPrefix(r.URL.Path, "/"+bucket+"/")
	if prefix := r.URL.Query().Get("prefix"); prefix != "" {
		path = prefix
	}
	name, _, _ := strings.Cut(path, "/")
	f.mu.Lock()
	x.lane = f.lanes[name]
	f.mu.Unlock()
	if x.lane == nil {
		http.Error(w, "no lane has the prefix of "+r.URL.Path, http.StatusNotFound)
		return
	}
	if fault := x.lane.count(operation(r)); fault != nil {
		x.fail(fault)
		return
	}
	x.answer(x.forward())
}

// exchange is one request.
type exchange struct {
	front   *front
	lane    *lane
	writer  http.ResponseWriter
	request *http.Request
}

// answer is what the S3 server answers.
type answer struct {
	status int
	header http.Header
	body   []byte
}

// forward sends the request to the S3 server.
func (x *exchange) forward() *answer {
	out := x.request.Clone(x.request.Context())
	out.URL.Scheme, out.URL.Host, out.RequestURI = "http", x.front.server, "" // Host is signed and stays
	out.Header.Del("Expect")
	resp, err := transport.RoundTrip(out)
	if err != nil {
		panic(http.ErrAbortHandler) // the S3 server is down, or fetchd has gone
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		panic(http.ErrAbortHandler)
	}
	return &answer{resp.StatusCode, resp.Header, body}
}

func (x *exchange) answer(a *answer) {
	maps.Copy(x.writer.Header(), a.header)
	x.writer.WriteHeader(a.status)
	_, _ = x.writer.Write(a.body) // fetchd may have gone
	_ = http.NewResponseController(x.writer).Flush()
}

// refuse answers with an error of S3.
func (x *exchange) refuse(status int, code string) {
	x.answer(&answer{status, http.Header{"Content-Type": {"application/xml"}},
		fmt.Appendf(nil, `<?xml version="1.0" encoding="UTF-8"?><Error><Code>%s</Code><Message>made up</Message></Error>`, code)})
}

// stallTime exceeds the time that a store gives a request.
const stallTime = 22 * time.Second

// fault is what goes wrong with the requests of an operation.
type fault struct {
	kind
	at   string
	once bool // only the first request; otherwise all
}

// kind is a kind of fault.
type kind struct {
	name string
	// status and code answer the request, if status is not 0.
	status int
	code   string
	// toxic breaks the link otherwise: while the body of the request is read if inBody, otherwise
	// while the answer is sent.
	toxic  linktest.Toxic
	inBody bool
	// done reports whether the S3 server carries out the request before.
	done bool
	// unread leaves the body of the request unread.
	unread bool
}

func (k kind) stalls() bool {
	return k.toxic.Kind == "timeout" && k.toxic.Attributes["timeout"] == 0 || k.toxic.Kind == "bandwidth"
}

// fail commits the fault.
func (x *exchange) fail(k *fault) {
	if k.inBody {
		x.breakLink(k.toxic, func(added <-chan struct{}) {
			if x.readSlowly(added) {
				x.front.late.Add(1)
			}
		})
		panic(http.ErrAbortHandler)
	}
	reply := &answer{status: http.StatusOK, header: http.Header{}, body: bytes.Repeat([]byte{' '}, 1000)}
	switch {
	case k.done:
		reply = x.forward()
		if reply.status >= http.StatusMultipleChoices {
			x.lane.Errorf("%s: the S3 server answers %d %s", k.at, reply.status, reply.body)
		}
	case !k.unread:
		if _, err := io.Copy(io.Discard, x.request.Body); err != nil {
			panic(http.ErrAbortHandler) // fetchd has gone
		}
	}
	if k.status != 0 {
		x.refuse(k.status, k.code)
		return
	}
	x.breakLink(k.toxic, func(added <-chan struct{}) {
		<-added
		x.answer(reply)
		<-x.request.Context().Done()
	})
	panic(http.ErrAbortHandler)
}

// readSlowly reads the request, and slowly until the toxic was added, which needs a link on which
// bytes move. It reports whether the request is complete.
func (x *exchange) readSlowly(added <-chan struct{}) bool {
	for {
		if _, err := io.CopyN(io.Discard, x.request.Body, 16<<10); err != nil {
			return errors.Is(err, io.EOF)
		}
		select {
		case <-added:
		case <-time.After(50 * time.Millisecond):
		}
	}
}

// breakLink adds the toxic until f has returned, and at most for stallTime. Then it renews the
// link.
func (x *exchange) breakLink(toxic linktest.Toxic, f func(added <-chan struct{})) {
	added := make(chan struct{})
	go func() {
		defer close(added)
		x.lane.link.Add(toxic)
	}()
	renew := sync.OnceFunc(func() {
		<-added
		x.lane.link.Renew()
		x.lane.link.Prepare(toxic)
	})
	timer := time.AfterFunc(stallTime, renew)
	defer timer.Stop()
	f(added)
	renew()
}
