//go:build linux

package limits

import (
	"bytes"
	"compress/gzip"
	"context"
	"errors"
	"fmt"
	"math"
	"net/http"
	"sync"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/durationpb"

	"fetchd/conformance/origin"
	pb "fetchd/gen/fetchd/v1"
	"fetchd/test/rig"
	"fetchd/test/wait"
)

// trial is one run of a row.
type trial struct {
	ctx     context.Context
	service *service
	hostile *hostile
	origin  *origin.Origin
	fetches int          // how many to make at once
	callers []int        // the same, as a part for each attacker
	fields  map[bool]int // of a full head, over HTTP/1.1 and HTTP/2

	tally    tally
	followed bool // every call was followed to its end, so each must have an outcome
}

// attacker returns the address of attacker i.
func attacker(i int) string { return fmt.Sprintf("127.0.1.%d", 1+i) }

// request returns a fetch of url that ends within a row.
func request(url string, attempts int32) *pb.FetchRequest {
	return &pb.FetchRequest{
		Url:         url,
		RetryPolicy: &pb.RetryPolicy{MaxAttempts: &attempts},
		TimeoutPolicy: &pb.TimeoutPolicy{
			TotalTimeout: durationpb.New(40 * time.Second),
		},
	}
}

// fetch makes the trial's fetches at once and waits until they end.
func (tr *trial) fetch(m method, req *pb.FetchRequest) error {
	tr.followed = true
	var conns sync.WaitGroup
	defer conns.Wait()
	for i, n := range tr.callers {
		for _, part := range chunks(n, callsPerConnection) {
			conn, err := dialFrom(attacker(i), tr.service.grpcAddr)
			if err != nil {
				return err
			}
			conns.Go(func() {
				defer conn.Close()
				m(tr.ctx, pb.NewFetchServiceClient(conn), part, req, &tr.tally)
			})
		}
	}
	return nil
}

// fullHead stands for the maximum number of fields that the service accepts.
const fullHead = -1

// url returns the URL of a head.
func (tr *trial) url(secure bool, path string, h head) string {
	if h.fields == fullHead {
		h.fields = tr.fields[secure]
	}
	return tr.hostile.url(secure, path+"?"+h.query())
}

// waits makes fetches wait for a Retry-After, each with the head of its response.
func waits(m method, secure bool, fields int) func(*trial) error {
	return func(tr *trial) error {
		return tr.fetch(m, request(tr.url(secure, "/head", head{status: 503, retryAfter: 3, fields: fields}), 2))
	}
}

// stops makes fetches read a head that does not end.
func stops(m method, secure bool, fields int) func(*trial) error {
	return func(tr *trial) error {
		return tr.fetch(m, request(tr.url(secure, "/stop", head{status: 200, fields: fields}), 1))
	}
}

// atOnce answers all fetches at the same moment.
func atOnce(secure bool, fields int) func(*trial) error {
	return func(tr *trial) error {
		done := make(chan error, 1)
		go func() {
			done <- tr.fetch(fetchUnary, request(tr.url(secure, "/gate", head{status: 200, fields: fields}), 1))
		}()
		tr.hostile.crowd(tr.ctx, tr.fetches)
		tr.hostile.open()
		return <-done
	}
}

// leaveIdle leaves as many connections with TLS idle as there are fetches, and then makes as many fetches again
// that need the memory of those connections: they go to another origin, and hold their heads.
func leaveIdle(tr *trial) error {
	if err := tr.fetch(fetchUnary, request(tr.origin.URL("https1", "/s/idle/200:delay=5s"), 1)); err != nil {
		return err
	}
	metrics, err := rig.FreshMetrics(tr.ctx, tr.service.httpAddr)
	if err != nil {
		return err
	}
	if metrics["fetchd_connections_idle"] == 0 || metrics[idleBytes] == 0 { // some were closed for fetches that needed memory
		return errors.New("no connection is idle")
	}
	return waits(fetchUnary, h1, fullHead)(tr)
}

// decodes makes fetches hold a decoder with a full window.
func decodes(coding string) func(*trial) error {
	return func(tr *trial) error {
		req := request(tr.hostile.url(false, "/coded/"+coding), 1)
		size := int64(64 << 20)
		req.BodyPolicy = &pb.BodyPolicy{Delivery: &pb.BodyPolicy_Digest{Digest: new(pb.DigestDelivery)}, MaxSizeBytes: &size}
		return tr.fetch(fetchUnary, req)
	}
}

// texts asks for the text of a page, at most 400 times at once.
func texts(page string) func(*trial) error {
	return func(tr *trial) error {
		left := 400
		for i, n := range tr.callers {
			tr.callers[i] = min(n, left)
			left -= tr.callers[i]
		}
		req := request(tr.hostile.url(false, "/text/"+page), 1)
		req.TextPolicy = &pb.TextPolicy{Content: pb.TextContent_TEXT_CONTENT_ARTICLE}
		return tr.fetch(fetchUnary, req)
	}
}

// put returns a request with a body of 1 MB to an origin that reads nothing.
func (tr *trial) put() *pb.FetchRequest {
	req := request(tr.hostile.url(false, "/unread"), 1)
	req.Method, req.Body = http.MethodPut, make([]byte, 1_000_000)
	return req
}

func putMany(tr *trial) error { return tr.fetch(fetchMany, tr.put()) }

// putUnary sends the same body to every call, frame by frame: a gRPC library
// would make a copy for each.
func putUnary(tr *trial) error {
	message, err := unaryMessage(tr.put())
	if err != nil {
		return err
	}
	tr.followed = true
	return tr.flood(flood{window: 1 << 20, each: 100, total: tr.fetches, limit: 40 * time.Second,
		call: func(w *wire) error { return post(w, unaryMethod, message, true) },
		last: func(w *wire) {
			if n := w.idle(); n > 0 {
				tr.tally.fail(errStreamEnded, n)
			}
		},
	})
}

// unread makes fetches whose answers are not read.
type unread struct {
	conns, each int
	path        string
	unanswered  int // calls at once on a connection; 0: no limit
	gzip        bool
}

func (u unread) attack(tr *trial) error {
	message, err := proto.Marshal(request(tr.origin.URL("http", u.path), 1))
	if err != nil {
		return err
	}
	var headers []string
	if u.gzip {
		var b bytes.Buffer
		z := gzip.NewWriter(&b)
		if _, err := z.Write(message); err != nil {
			return err
		}
		if err := z.Close(); err != nil {
			return err
		}
		message, headers = b.Bytes(), []string{"grpc-encoding", "gzip", "grpc-accept-encoding", "gzip"}
	}
	message = framed(message, u.gzip)
	return tr.flood(flood{each: u.each, total: u.conns * u.each, limit: 15 * time.Second, hold: time.Second, last: (*wire).answers, call: func(w *wire) error {
		if u.unanswered > 0 {
			w.pace(u.unanswered)
		}
		return post(w, unaryMethod, message, true, headers...)
	}})
}

// stallReaders makes callers request a large body and stop reading.
func stallReaders(tr *trial) error {
	const readers = 1000
	messages := make([][]byte, 2)
	for i, listener := range []string{"http", "https"} {
		message, err := proto.Marshal(largeBody(tr, listener))
		if err != nil {
			return err
		}
		messages[i] = framed(message, false)
	}
	return tr.flood(flood{window: 65_535, each: readers / 4, total: min(readers, tr.fetches), limit: 8 * time.Second, hold: 2 * time.Second, last: (*wire).answers, call: func(w *wire) error {
		return post(w, streamMethod, messages[w.next/2%2], true)
	}})
}

// stallStreams makes callers request many large bodies on each stream of FetchMany, and stop reading.
func stallStreams(tr *trial) error {
	const readers, tasks = 2000, 200 // a stream accepts 256
	m := new(pb.FetchManyRequest)
	for i := range tasks {
		m.Tasks = append(m.Tasks, &pb.Task{Tag: name(i), Request: largeBody(tr, []string{"http", "https"}[i%2])})
	}
	message, err := proto.Marshal(m)
	if err != nil {
		return err
	}
	message = framed(message, false)
	return tr.flood(flood{window: 65_535, each: 2, total: max(min(readers, tr.fetches)/tasks, 1), limit: 8 * time.Second, hold: 4 * time.Second, last: (*wire).answers, call: func(w *wire) error {
		return post(w, manyMethod, message, false)
	}})
}

// largeBody returns a request of 1 GiB that is streamed.
func largeBody(tr *trial, listener string) *pb.FetchRequest {
	size := int64(math.MaxInt32)
	req := request(tr.origin.URL(listener, "/s/stalled/200:size=1073741824"), 1)
	req.BodyPolicy = &pb.BodyPolicy{Delivery: &pb.BodyPolicy_Stream{Stream: new(pb.StreamDelivery)}, MaxSizeBytes: &size}
	return req
}

// unfinished sends calls whose messages stop 8 bytes before their end.
func unfinished(path string) func(*trial) error {
	return func(tr *trial) error {
		const size = 4<<20 - 16 // fetchd accepts 4 MiB
		message := framed(make([]byte, size), false)
		return tr.flood(flood{each: 100, total: tr.fetches, limit: 6 * time.Second, hold: time.Second, call: func(w *wire) error {
			return post(w, path, message[:len(message)-8], false)
		}})
	}
}

// cancelled resets calls as soon as they are made.
func cancelled(tr *trial) error {
	message, err := unaryMessage(request(tr.origin.URL("http", "/s/cancelled/silent"), 1))
	if err != nil {
		return err
	}
	return tr.flood(flood{each: 2500, total: 20_000, limit: 8 * time.Second, call: func(w *wire) error {
		stream, err := w.start(unaryMethod)
		if err != nil {
			return err
		}
		if err := w.send(stream, message, true); err != nil && !errors.Is(err, errStreamEnded) {
			return err
		}
		return w.reset(stream)
	}})
}

// unaryMessage returns a message of FetchUnary.
func unaryMessage(req *pb.FetchRequest) ([]byte, error) {
	message, err := proto.Marshal(req)
	return framed(message, false), err
}

// post makes a call and sends its message. A refusal on the way is no error.
func post(w *wire, path string, message []byte, last bool, headers ...string) error {
	stream, err := w.start(path, headers...)
	if err == nil {
		err = w.send(stream, message, last)
	}
	if errors.Is(err, errStreamEnded) {
		return nil
	}
	return err
}

// flood is many calls over wires.
type flood struct {
	window uint32              // flow-control window for the answers
	each   int                 // calls on a connection, one after the other
	total  int                 // calls in all
	call   func(w *wire) error // makes one
	last   func(w *wire)       // after the calls of a connection, if set
	limit  time.Duration       // the attack ends then
	hold   time.Duration       // or this long after the last call
}

// flood makes the calls from the attackers' addresses in turn, and closes all connections
// at the end.
func (tr *trial) flood(f flood) error {
	ctx, cancel := context.WithTimeout(tr.ctx, f.limit)
	defer cancel()
	var running sync.WaitGroup
	var wires []*wire
	var failed error
	for i, n := range chunks(f.total, f.each) {
		w, err := dialWire(ctx, attacker(i%len(tr.callers)), tr.service.grpcAddr, f.window, func(code codes.Code) { tr.tally.code(code, 1) })
		if err != nil {
			failed = err
			break
		}
		wires = append(wires, w)
		running.Go(func() {
			for range n {
				tr.tally.send(1)
				if f.call(w) != nil {
					return // the connection closed: the attack is over, or the service refuses more of it
				}
			}
			if f.last != nil {
				f.last(w)
			}
		})
	}
	running.Wait()
	if tr.followed && ctx.Err() != nil && tr.ctx.Err() == nil {
		failed = fmt.Errorf("the calls had not all ended within %s", f.limit)
	}
	wait.For(ctx, f.hold)
	for _, w := range wires {
		w.close()
	}
	return failed
}
