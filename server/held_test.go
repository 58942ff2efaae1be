package server_test

import (
	"bytes"
	"context"
	"encoding/base64"
	"encoding/binary"
	"errors"
	"io"
	"net"
	"net/http"
	"runtime"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	_ "google.golang.org/grpc/encoding/gzip" // registers gzip
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"

	spb "google.golang.org/genproto/googleapis/rpc/status"

	pb "fetchd/gen/fetchd/v1"
	"fetchd/internal/budget"
	"fetchd/server"
	"fetchd/test/wait"
)

// statusOf returns the status of an ended call.
func statusOf(t *testing.T, head map[string]string) error {
	t.Helper()
	code, err := strconv.Atoi(head["grpc-status"])
	if err != nil {
		t.Fatalf("no grpc-status in %v", head)
	}
	st := &spb.Status{Code: int32(code), Message: head["grpc-message"]} //nolint:gosec // a code is small
	if details := head["grpc-status-details-bin"]; details != "" {
		raw, err := base64.RawStdEncoding.DecodeString(strings.TrimRight(details, "="))
		must(t, err)
		must(t, proto.Unmarshal(raw, st))
	}
	return status.ErrorProto(st)
}

// TestUnfinishedRequests checks that incomplete requests share a part of the memory. If
// it is used up, one request of the caller with the most ends, and a slow request of
// another caller is served.
func TestUnfinishedRequests(t *testing.T) {
	t.Parallel()
	const call = 72 << 10                // whose request arrives
	r := newRig(t, withMemory(4*4*call)) // a quarter of it is for four of them
	body, err := proto.Marshal(&pb.FetchRequest{
		Url: r.Origin.URL("http", "/s/k/200"), Method: "PUT", Body: make([]byte, 50_000)})
	must(t, err)
	attack := func(c *rawClient, first, n int) {
		t.Helper()
		for i := range n {
			stream := uint32(2*(first+i) + 1) //nolint:gosec // a small number
			c.open(stream, pb.FetchService_FetchUnary_FullMethodName)
			c.send(stream, body, 0, 100)
		}
		for range n {
			_, head := c.next()
			err := statusOf(t, head)
			wantCode(t, "an incomplete request", err, codes.ResourceExhausted)
			wantReason(t, err, "MEMORY")
		}
	}
	attacker, honest := r.raw(r.dialFrom(1), window(1<<20)), r.raw(r.dialFrom(2), window(1<<20))
	for i := range 4 {
		stream := uint32(2*i + 1)
		attacker.open(stream, pb.FetchService_FetchUnary_FullMethodName)
		attacker.send(stream, body, 0, 100)
	}
	attack(attacker, 4, 100) // of 104 requests, 100 end
	honest.open(1, pb.FetchService_FetchUnary_FullMethodName)
	honest.send(1, body, 0, 1000)
	_, head := attacker.next() // it was ended for the honest one
	wantReason(t, statusOf(t, head), "MEMORY")
	attack(attacker, 104, 100)
	honest.send(1, body, 1000, -1)
	if stream, head := honest.next(); stream != 1 || head["grpc-status"] != "0" {
		t.Errorf("the slow request ended with %v", statusOf(t, head))
	}
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second) // calls may still be ending
	defer cancel()
	held := int64(0)
	if wait.Until(ctx, time.Millisecond, func() bool {
		held = r.Service.Held()[budget.Receiving]
		return 3*call <= held && held < 4*call
	}) != nil {
		t.Errorf("%d bytes are charged for three requests", held)
	}
	_ = attacker.Close()
	r.wantNothingHeld()
}

// TestCallsAreCharged checks that every call is charged from its headers on, whatever becomes of it, and that nothing
// stays charged. gRPC starts no handler for some of these calls.
func TestCallsAreCharged(t *testing.T) {
	t.Parallel()
	const call = 72 << 10
	const fetch, info = "/fetchd.v1.FetchService/Fetch", "/grpc.reflection.v1.ServerReflection/ServerReflectionInfo"
	for _, row := range []struct {
		name, method string
		fields       [][2]string
		held         int64 // bytes, at least, until the call has ended
		refused      codes.Code
	}{
		{"a fetch", fetch, nil, call, codes.OK},
		{"a unary fetch", "/fetchd.v1.FetchService/FetchUnary", nil, call, codes.OK},
		{"many fetches", "/fetchd.v1.FetchService/FetchMany", nil, call + 2<<20, codes.OK},
		{"reflection", info, nil, call + 2<<20, codes.OK},
		{"an unknown method", "/fetchd.v1.FetchService/Nothing", nil, 0, codes.Unimplemented},
		{"an unknown service", "/nothing.Nothing/Nothing", nil, 0, codes.Unimplemented},
		{"a malformed method", "nothing", nil, 0, codes.Unimplemented},
		{"a deadline that is over", fetch, [][2]string{{"grpc-timeout", "0n"}}, 0, codes.DeadlineExceeded},
		{"an unknown coding", fetch, [][2]string{{"grpc-encoding", "none-such"}}, 0, codes.Unimplemented},
	} {
		t.Run(row.name, func(t *testing.T) {
			t.Parallel()
			bubble(t, func(r *rig) {
				conn := r.dial(r.DialGRPC)
				c := r.raw(conn, window(1<<20))
				c.open(1, row.method, row.fields...)
				if row.refused != codes.OK {
					_, head := c.next()
					wantCode(r.T, row.name, statusOf(r.T, head), row.refused)
				} else {
					go func() { _, _ = io.Copy(io.Discard, conn) }() // the service must not wait for its reader
				}
				synctest.Wait()
				if held := r.Service.Held()[budget.Receiving]; held < row.held {
					r.Errorf("%d bytes are charged while the call is open, want %d", held, row.held)
				}
				c.must(c.framer.WriteRSTStream(1, http2.ErrCodeCancel))
				<-time.After(11 * time.Second) // longer than a handler may take to start
				synctest.Wait()
				if held := r.Service.Held(); held.Total() != 0 {
					r.Errorf("%v bytes are charged after the call, want none", held)
				}
			})
		})
	}
}

// TestLongRequestsAreCharged checks that a long request is charged as it arrives, and that what it only
// announces is not. A stream of FetchMany reserves what its usual messages need. A request that is too long is
// refused at once.
func TestLongRequestsAreCharged(t *testing.T) {
	t.Parallel()
	const mib, call = 1 << 20, 72 << 10
	r := newRig(t, withMemory(64*mib))
	held := func(what string, low, high int64) {
		t.Helper()
		for start := time.Now(); ; {
			n := r.Service.Held()[budget.Receiving]
			if n >= low && n < high {
				return
			}
			if time.Since(start) > 5*time.Second {
				t.Fatalf("%s: %d bytes are charged, want %d to %d", what, n, low, high)
			}
			runtime.Gosched()
		}
	}
	c := r.raw(r.dialFrom(1), window(1<<20))
	c.open(1, pb.FetchService_FetchMany_FullMethodName)
	held("a stream", 2*mib, 2*mib+2*call)
	tasks := marshal(t, &pb.FetchManyRequest{Tasks: []*pb.Task{{Tag: "a", Request: &pb.FetchRequest{Url: "http://a.example/", Body: make([]byte, 3*mib)}}}})
	c.send(1, tasks, 0, 100)
	c.open(3, pb.FetchService_FetchUnary_FullMethodName)
	c.send(3, make([]byte, 2*mib+1), 0, 100)
	stream, head := c.next()
	if err := statusOf(t, head); stream != 3 || status.Code(err) != codes.InvalidArgument {
		t.Errorf("stream %d ends with %v, want 3 and INVALID_ARGUMENT", stream, err)
	}
	held("what is only announced", 2*mib, 2*mib+2*call)
	c.open(5, pb.FetchService_FetchUnary_FullMethodName)
	body := make([]byte, mib)
	c.send(5, body, 0, 100)
	held("a request of one fetch that is only announced", 2*mib, 2*mib+3*call)
	for from, free := 100, 65_535-100; from < mib*3/4; from += 16 << 10 {
		for free < 16<<10 {
			free += c.widened(5)
		}
		c.send(5, body, from, from+16<<10)
		free -= 16 << 10
	}
	held("three quarters of it", 2*mib+mib/2, 3*mib)
	_ = c.Close()
	r.wantNothingHeld()
}

// widened reads until the service widens the window of a stream, and returns by how much.
func (c *rawClient) widened(stream uint32) int {
	c.Helper()
	for {
		frame, err := c.framer.ReadFrame()
		c.must(err)
		if f, ok := frame.(*http2.WindowUpdateFrame); ok && f.StreamID == stream {
			return int(f.Increment)
		}
	}
}

// TestMalformedRequests sends no request, half a request and two requests in a call that needs one.
// The call ends with a status, and its connection stays usable.
func TestMalformedRequests(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	c := r.raw(r.dialFrom(1), window(1<<20))
	stream := uint32(1)
	for _, row := range []struct {
		name string
		data []byte
	}{
		{"nothing", nil},
		{"half a length", []byte{0, 0, 0}},
		{"half a request", []byte{0, 0, 0, 0, 9, 1}},
		{"a compressed request", []byte{1, 0, 0, 0, 0}},
		{"two requests", make([]byte, 10)},
		{"a request and half of one", make([]byte, 7)},
	} {
		for _, method := range []string{pb.FetchService_FetchUnary_FullMethodName, pb.FetchService_Fetch_FullMethodName, pb.FetchService_Explain_FullMethodName} {
			c.open(stream, method)
			c.must(c.framer.WriteData(stream, true, row.data))
			_, head := c.next()
			wantCode(t, row.name+" of "+method, statusOf(t, head), codes.Internal)
			stream += 2
		}
	}
}

// TestLongRequestWithoutMemory checks that such a request is refused, with the time after which to retry.
func TestLongRequestWithoutMemory(t *testing.T) {
	t.Parallel()
	r := newRig(t, withMemory(4<<20))
	m := r.many(t.Context()) // it reserves two thirds of what a caller may have
	m.start(r.task("1", "/s/k/200"))
	m.until(1)
	in := r.request("/s/k/200")
	in.Method, in.Body = "PUT", make([]byte, 1<<20)
	var trailer metadata.MD
	_, err := r.Client.FetchUnary(t.Context(), in, grpc.Trailer(&trailer))
	wantRefused(t, "FetchUnary", err, trailer, "MEMORY")
	stream := r.mustStream(t.Context(), in)
	_, err = stream.Recv()
	wantRefused(t, "Fetch", err, stream.Trailer(), "MEMORY")
	m.finish("1")
	r.wantNothingHeld()
}

// TestCompressedCalls checks that they are refused by their headers, whatever compressor
// is registered, and that no answer is compressed.
func TestCompressedCalls(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	in := r.request("/s/k/200:size=10000")
	message := marshal(t, in)
	names := []string{"gzip", "snappy", "deflate", "zstd", "br", "lz4", "unknown"}
	methods := []string{pb.FetchService_Fetch_FullMethodName, pb.FetchService_FetchUnary_FullMethodName,
		pb.FetchService_FetchMany_FullMethodName, pb.FetchService_Explain_FullMethodName}
	c := r.raw(r.dialFrom(1), window(1<<20))
	stream := uint32(1)
	for _, method := range methods {
		for _, name := range names {
			c.open(stream, method, [2]string{"grpc-encoding", name}, [2]string{"grpc-accept-encoding", "gzip,zstd"})
			got, head := c.next() // no message is sent
			if err := statusOf(t, head); got != stream || status.Code(err) != codes.Unimplemented || head["grpc-encoding"] != "" {
				t.Errorf("%s with %s: %v, grpc-encoding %q, want UNIMPLEMENTED", method, name, err, head["grpc-encoding"])
			}
			stream += 2
		}
	}
	for _, name := range []string{"", "identity"} {
		more := [][2]string{{"grpc-accept-encoding", "gzip,zstd"}}
		if name != "" {
			more = append(more, [2]string{"grpc-encoding", name})
		}
		c.open(stream, pb.FetchService_FetchUnary_FullMethodName, more...)
		c.send(stream, message, 0, -1)
		if _, head := c.next(); head["grpc-status"] != "0" || head["grpc-encoding"] != "" && head["grpc-encoding"] != "identity" {
			t.Errorf("with grpc-encoding %q: %v, want OK without compression", name, head)
		}
		stream += 2
	}
}

// TestUnreadAnswers checks that answers are charged, and keep the slots of their fetches,
// until the caller has read them or disconnected.
func TestUnreadAnswers(t *testing.T) {
	t.Parallel()
	for _, method := range []string{pb.FetchService_FetchUnary_FullMethodName, pb.FetchService_Fetch_FullMethodName} {
		for _, size := range []int{100, 100_000} {
			for _, row := range []struct {
				name string
				end  func(*rawClient) error
			}{
				{"reset", func(c *rawClient) error { return c.framer.WriteRSTStream(1, http2.ErrCodeCancel) }},
				{"read", func(c *rawClient) error {
					if err := c.framer.WriteWindowUpdate(0, 1<<20); err != nil {
						return err
					}
					return c.framer.WriteWindowUpdate(1, 1<<20)
				}},
				{"closed", func(c *rawClient) error { return c.Close() }},
			} {
				t.Run(method+" of "+strconv.Itoa(size)+", "+row.name, func(t *testing.T) {
					t.Parallel()
					r := newRig(t, func(c *server.Config) { c.MaxFetches = 1 })
					in := r.request("/s/k/200:size=" + strconv.Itoa(size))
					in.BodyPolicy = &pb.BodyPolicy{Delivery: &pb.BodyPolicy_Inline{}}
					in.EventLevel = pb.EventLevel_EVENT_LEVEL_OUTCOME
					var m proto.Message = in
					if method == pb.FetchService_FetchUnary_FullMethodName {
						m = in
					}
					message := marshal(t, m)
					c := r.raw(r.dialFrom(1), window(0))
					c.open(1, method)
					c.send(1, message, 0, -1)
					r.logs.await(t, "fetch finished", 1)
					for r.Service.Held()[budget.Answer] == 0 {
						runtime.Gosched()
					}
					if held := r.Service.Held(); held[budget.Answer] < int64(size) || held.Total() != held[budget.Answer]+held[budget.Receiving] || held[budget.Receiving] > 16<<10 {
						t.Errorf("%v is held for an answer of %d bytes", held, size)
					}
					_, err := r.Client.FetchUnary(t.Context(), r.request("/s/other/200"))
					wantReason(t, err, "TOO_MANY_FETCHES")
					must(t, row.end(c))
					r.wantNothingHeld()
					r.mustUnary(r.request("/s/other/200"))
				})
			}
		}
	}
}

// TestUnfinishedPosts checks that incomplete bodies are charged for the bytes received,
// and delay no other request.
func TestUnfinishedPosts(t *testing.T) {
	t.Parallel()
	r := newRig(t, withMemory(64<<20))
	const many, sent = 64, 66_000
	conns := make([]net.Conn, many)
	for i := range conns {
		conn := r.dial(r.DialHTTP)
		conns[i] = conn
		if _, err := io.WriteString(conn, "POST /v1/fetch HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: 3000000\r\n\r\n"+
			`{"url": "`+repeat(sent-9)); err != nil {
			t.Fatal(err)
		}
	}
	for r.Service.Held()[budget.Receiving] < many*2*sent {
		runtime.Gosched()
	}
	d := net.Dialer{LocalAddr: &net.TCPAddr{IP: net.IPv4(127, 0, 0, 2)}}
	r.HTTPClient.Transport = &http.Transport{DialContext: d.DialContext}
	resp := r.post(t.Context(), "/v1/fetch:unary", r.json(r.put("k", 700_000)))
	if _, err := io.Copy(io.Discard, resp.Body); err != nil || resp.StatusCode != http.StatusOK {
		t.Errorf("%s, %v, want 200", resp.Status, err)
	}
	for i, conn := range conns { // the server still waits for each
		if _, err := io.WriteString(conn, "x"); err != nil {
			t.Errorf("connection %d: %v", i, err)
		}
		_ = conn.SetReadDeadline(time.Now())
		if n, err := conn.Read(make([]byte, 1)); n != 0 || !isTimeout(err) {
			t.Errorf("connection %d: answered %d bytes, %v", i, n, err)
		}
	}
}

// withMemory sets a memory budget of which one caller may use n bytes.
func withMemory(n int64) func(*server.Config) {
	return func(c *server.Config) { c.MemoryBudget = n }
}

// TestAdmissionWithoutMemory checks that every method refuses a fetch without memory
// before its first message, and says when to retry.
func TestAdmissionWithoutMemory(t *testing.T) {
	t.Parallel()
	r := newRig(t, withMemory(170<<10)) // the request arrives, and there is no memory for its fetch
	in := r.request("/s/k/200")
	in.Method, in.Body = "PUT", make([]byte, 100_000)
	stream := r.mustStream(t.Context(), in)
	event, err := stream.Recv()
	if event != nil {
		t.Errorf("%v was sent before the refusal", event)
	}
	wantRefused(t, "Fetch", err, stream.Trailer(), "MEMORY")

	var trailer metadata.MD
	_, err = r.Client.FetchUnary(t.Context(), in, grpc.Trailer(&trailer))
	wantRefused(t, "FetchUnary", err, trailer, "MEMORY")

	many, err := r.Client.FetchMany(t.Context())
	must(t, err)
	message, err := many.Recv()
	if message != nil {
		t.Errorf("%v was sent before the refusal", message)
	}
	wantRefused(t, "FetchMany", err, many.Trailer(), "MEMORY")

	for _, path := range []string{"/v1/fetch", "/v1/fetch:unary"} {
		resp := r.post(t.Context(), path, r.json(in))
		r.wantStatus(resp, http.StatusTooManyRequests, codes.ResourceExhausted, "memory")
		if got := resp.Header.Get("Retry-After"); got != "1" {
			t.Errorf("%s: Retry-After %q, want 1", path, got)
		}
	}
	r.wantRequests("k", 0)
}

// TestOutOfMemoryInFlight checks that a fetch that runs out of memory ends with one
// outcome, by every method, and that other fetches continue.
func TestOutOfMemoryInFlight(t *testing.T) {
	t.Parallel()
	r := newRig(t, withMemory(4<<20)) // a stream of FetchMany reserves 2 MiB of it
	long := func(key string) *pb.FetchRequest {
		in := r.request("/s/" + key + "/200:size=1040000,chunked")
		in.BodyPolicy = &pb.BodyPolicy{Delivery: &pb.BodyPolicy_Inline{}}
		in.EventLevel = pb.EventLevel_EVENT_LEVEL_ALL
		return in
	}
	filler := r.many(t.Context()) // it holds memory that the others then lack
	for r.Service.Held()[budget.Receiving] < 2<<20 {
		runtime.Gosched()
	}
	want := func(what string, o *pb.FetchOutcome, key string) {
		t.Helper()
		wantClass(t, o, pb.ErrorClass_ERROR_CLASS_OUT_OF_MEMORY, pb.StopReason_STOP_REASON_STOPPED, 1)
		if e := o.GetError(); !e.GetRetryable() || o.GetExchangeCount() != 1 || o.GetResponse().GetStatusCode() != 200 || len(o.GetInlineBody()) != 0 {
			t.Errorf("%s: %v, want a retryable one, after a 200", what, o)
		}
		r.wantRequests(key, 1)
	}
	a := r.mustFetch(long("stream"))
	want("Fetch", a.outcome, "stream")
	if len(a.finished) != 1 {
		t.Errorf("Fetch: %d attempts finished, want 1", len(a.finished))
	}
	want("FetchUnary", r.mustUnary(long("unary")).GetOutcome(), "unary")
	want("/v1/fetch", r.fetchWeb(t.Context(), long("web")).outcome, "web")

	task := r.task("long", "/s/task/200:size=1040000,chunked")
	task.Request.EventLevel = pb.EventLevel_EVENT_LEVEL_ALL
	filler.start(r.task("before", "/s/before/200:delay=100ms"), task, r.task("after", "/s/after/200"))
	filler.until(3)
	filler.finish("before", "long", "after")
	filler.wantClass("long", pb.ErrorClass_ERROR_CLASS_OUT_OF_MEMORY)
	filler.wantClass("before", ok)
	filler.wantClass("after", ok)
}

// TestAnswerLost checks that no call that has sent a request ends with a status that clients repeat, however
// much memory there is for its answer.
func TestAnswerLost(t *testing.T) {
	t.Parallel()
	lost := false
	for size := 120 << 10; size < 900<<10; size += 40 << 10 {
		t.Run(strconv.Itoa(size), func(t *testing.T) { // a rig that is over frees its files
			r := newRig(t, withMemory(int64(size)))
			post := func(key string) *pb.FetchRequest {
				in := r.request("/s/" + key + "/503:head-size=60000,size=100")
				in.Method = "POST"
				return in
			}
			codeOf := func(resp *http.Response) codes.Code {
				st := new(spb.Status)
				if text := r.text(resp); resp.StatusCode == 200 || resp.StatusCode == 424 || protojson.Unmarshal([]byte(text), st) != nil {
					return codes.OK
				}
				return codes.Code(st.GetCode())
			}
			_, unary := r.Client.FetchUnary(t.Context(), post("grpc"))
			got := map[string]codes.Code{"grpc": status.Code(unary),
				"json": codeOf(r.post(t.Context(), "/v1/fetch:unary", r.json(post("json")))),
				"raw":  codeOf(r.rawCall(t.Context(), "POST", "/s/raw/503:head-size=60000,size=100"))}
			for key, code := range got {
				if sent := len(r.Origin.Requests(key)) > 0; sent && (code == codes.ResourceExhausted || code == codes.Unavailable) {
					t.Errorf("%s: %s after the request was sent", key, code)
				}
				lost = lost || code == codes.Aborted
			}
		})
	}
	if !lost {
		t.Error("no answer was lost: the test is not tight enough")
	}
}

// TestEventsWithoutMemory checks that events are sent without headers if there is no
// memory for them, and that none is lost.
func TestEventsWithoutMemory(t *testing.T) {
	t.Parallel()
	r := newRig(t, withMemory(200<<10))
	in := r.request("/s/k/200:head-size=60000,size=100")
	in.EventLevel = pb.EventLevel_EVENT_LEVEL_ALL
	a := r.mustFetch(in)
	if len(a.finished) != 1 || a.outcome.GetKind() != pb.OutcomeKind_OUTCOME_KIND_SUCCESS || string(a.body) != string(r.Origin.Body(100)) {
		t.Fatalf("%d attempts finished, %s with %d bytes, want 1, and success", len(a.finished), a.outcome.GetKind(), len(a.body))
	}
	for i, m := range a.events {
		for what, resp := range map[string]*pb.HttpResponse{"response_started": m.GetResponseStarted().GetResponse(), "attempt_finished": m.GetAttemptFinished().GetResponse()} {
			if resp != nil && (resp.GetStatusCode() != 200 || resp.GetContentLength() != 100 || len(resp.GetHeaders()) != 0) {
				t.Errorf("event %d, %s: status %d, length %d, %d headers, want only the status and the length", i+1, what, resp.GetStatusCode(), resp.GetContentLength(), len(resp.GetHeaders()))
			}
		}
	}
	if n := len(a.outcome.GetResponse().GetHeaders()); n == 0 {
		t.Error("the outcome has no headers")
	}
}

// TestUnreadMany checks that the unread answers of a cancelled FetchMany stream are
// released.
func TestUnreadMany(t *testing.T) {
	t.Parallel()
	for _, row := range []struct {
		name string
		end  func(r *rig, cancel context.CancelFunc)
	}{
		{"cancelled", func(_ *rig, cancel context.CancelFunc) { cancel() }},
		{"the connection is closed", func(r *rig, _ context.CancelFunc) { _ = r.Conn.Close() }},
		{"the server is cut off", func(r *rig, _ context.CancelFunc) {
			gone, cancel := context.WithCancel(r.Context())
			cancel()
			if err := r.Service.Shutdown(gone); !errors.Is(err, context.Canceled) {
				r.Errorf("Shutdown = %v, want CANCELED", err)
			}
		}},
	} {
		for _, size := range []string{"100", "100000"} {
			t.Run(row.name+", bodies of "+size, func(t *testing.T) {
				t.Parallel()
				r := newRig(t)
				ctx, cancel := context.WithCancel(t.Context())
				defer cancel()
				m, err := r.Client.FetchMany(ctx)
				must(t, err)
				tasks := new(pb.FetchManyRequest)
				for i := range 40 {
					tasks.Tasks = append(tasks.Tasks, r.task(key(i), "/s/"+key(i)+"/200:size="+size))
				}
				tasks.Tasks = append(tasks.Tasks, r.task("silent", "/s/silent/silent"))
				must(t, m.Send(tasks))
				r.logs.await(t, "fetch finished", 40)
				if _, err := m.Recv(); err != nil {
					t.Fatal(err)
				}
				if held := r.Service.Held(); held[budget.Fetch] == 0 || held[budget.Receiving] == 0 {
					t.Errorf("%v is held while a task is in flight", held)
				}
				row.end(r, cancel)
				for err == nil {
					_, err = m.Recv()
				}
				if errors.Is(err, io.EOF) {
					t.Error("the stream ended well")
				}
				r.wantNothingHeld()
			})
		}
	}
}

// rawClient is a client that sends raw HTTP/2 frames.
type rawClient struct {
	*testing.T
	net.Conn
	framer *http2.Framer
	fields *hpack.Encoder
	buffer bytes.Buffer // of fields
}

// window sets the initial window of streams. A client with 0 receives no message.
func window(n uint32) http2.Setting {
	return http2.Setting{ID: http2.SettingInitialWindowSize, Val: n}
}

// dialFrom connects from the address 127.0.0.last.
func (r *rig) dialFrom(last byte) net.Conn {
	r.Helper()
	d := net.Dialer{LocalAddr: &net.TCPAddr{IP: net.IPv4(127, 0, 0, last)}}
	return r.dial(func(ctx context.Context) (net.Conn, error) { return d.DialContext(ctx, "tcp", r.Addr) })
}

// dial returns a connection that is closed at the end of the test.
func (r *rig) dial(dial func(context.Context) (net.Conn, error)) net.Conn {
	r.Helper()
	conn, err := dial(r.Context())
	must(r, err)
	r.Cleanup(func() { _ = conn.Close() })
	return conn
}

// hostile returns a raw client whose reads and writes end after 20 s, which is longer than any
// test.
func (r *rig) hostile(settings ...http2.Setting) *rawClient {
	r.Helper()
	c := r.raw(r.dialFrom(2), settings...)
	_ = c.SetDeadline(time.Now().Add(20 * time.Second))
	return c
}

// raw starts HTTP/2 on a connection.
func (r *rig) raw(conn net.Conn, settings ...http2.Setting) *rawClient {
	r.Helper()
	c := &rawClient{T: r.T, Conn: conn, framer: http2.NewFramer(conn, conn)}
	c.fields = hpack.NewEncoder(&c.buffer)
	c.framer.ReadMetaHeaders = hpack.NewDecoder(4096, nil)
	_, err := io.WriteString(conn, http2.ClientPreface)
	c.must(errors.Join(err, c.framer.WriteSettings(settings...)))
	return c
}

func (c *rawClient) must(err error) {
	c.Helper()
	must(c, err)
}

// open sends the headers of a call, with additional fields.
func (c *rawClient) open(stream uint32, method string, more ...[2]string) {
	c.Helper()
	c.must(c.head(stream, false, append([][2]string{{":method", "POST"}, {":scheme", "http"}, {":path", method},
		{":authority", "fetchd"}, {"content-type", "application/grpc"}, {"te", "trailers"}}, more...)...))
}

// head sends header fields.
func (c *rawClient) head(stream uint32, end bool, fields ...[2]string) error {
	c.buffer.Reset()
	for _, f := range fields {
		if err := c.fields.WriteField(hpack.HeaderField{Name: f[0], Value: f[1]}); err != nil {
			return err
		}
	}
	return c.framer.WriteHeaders(http2.HeadersFrameParam{StreamID: stream, BlockFragment: c.buffer.Bytes(), EndHeaders: true, EndStream: end})
}

// send sends the bytes of a framed message between two offsets. If to is negative, it sends the rest
// and ends the stream.
func (c *rawClient) send(stream uint32, message []byte, from, to int) {
	c.Helper()
	framed := append(binary.BigEndian.AppendUint32([]byte{0}, uint32(len(message))), message...) //nolint:gosec // a short message
	if to < 0 {
		to = len(framed)
	}
	for ; from < to; from += 16 << 10 {
		c.must(c.framer.WriteData(stream, to == len(framed) && from+16<<10 >= to, framed[from:min(from+16<<10, to)]))
	}
}

// next reads until a stream ends, and returns it with its headers and trailers.
func (c *rawClient) next() (stream uint32, fields map[string]string) {
	c.Helper()
	stream, _, fields, err := c.read(0)
	c.must(err)
	return stream, fields
}

// read reads until a stream ends, or any stream if it is 0. It returns its data and its headers and
// trailers.
func (c *rawClient) read(stream uint32) (ended uint32, data []byte, fields map[string]string, err error) {
	fields = make(map[string]string)
	for {
		frame, err := c.framer.ReadFrame()
		if err != nil {
			return 0, data, fields, err
		}
		switch f := frame.(type) {
		case *http2.SettingsFrame:
			if !f.IsAck() {
				_ = c.framer.WriteSettingsAck() // the next read returns the error
			}
		case *http2.PingFrame:
			if !f.IsAck() {
				_ = c.framer.WritePing(true, f.Data)
			}
		case *http2.DataFrame:
			if stream == 0 || f.StreamID == stream {
				data = append(data, f.Data()...)
			}
		case *http2.MetaHeadersFrame:
			if stream != 0 && f.StreamID != stream {
				continue
			}
			for _, field := range f.Fields {
				fields[field.Name] = field.Value
			}
			if f.StreamEnded() {
				return f.StreamID, data, fields, nil
			}
		}
	}
}
