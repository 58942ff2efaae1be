package server_test

import (
	"bytes"
	"encoding/binary"
	"errors"
	"io"
	"net"
	"testing"
	"time"

	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"
	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/durationpb"

	pb "fetchd/gen/fetchd/v1"
)

// TestCallerThatStopsReading checks that a call ends with ABORTED after 30 s without progress, and
// that the fetch ends (spec B7).
func TestCallerThatStopsReading(t *testing.T) {
	t.Parallel()
	bubble(t, func(r *rig) {
		in := r.request("/s/stall/200:size=8000000")
		in.TimeoutPolicy = &pb.TimeoutPolicy{TotalTimeout: durationpb.New(10 * time.Minute)}
		begin := time.Now()
		stream, err := r.Client.Fetch(r.Context(), in)
		if err != nil {
			r.Fatal(err)
		}
		sent, err := r.Origin.Await(r.Context(), "stall", 1)
		if err != nil {
			r.Fatal(err)
		}
		<-sent.Done
		if took := time.Since(begin); took != 30*time.Second {
			r.Errorf("the exchange with the origin ended after %v, want 30 s", took)
		}
		for err == nil { // what was sent before is still there to be read
			_, err = stream.Recv()
		}
		wantCode(r.T, "Fetch", err, codes.Aborted)
		wantReason(r.T, err, "CONSUMER_STALLED")
	})
}

// TestCallerThatReadsSlowly checks that a slow caller receives everything.
func TestCallerThatReadsSlowly(t *testing.T) {
	t.Parallel()
	bubble(t, func(r *rig) {
		in := r.request("/s/slow/200:size=1000000")
		in.TimeoutPolicy = &pb.TimeoutPolicy{TotalTimeout: durationpb.New(15 * time.Minute)}
		stream, err := r.Client.Fetch(r.Context(), in)
		if err != nil {
			r.Fatal(err)
		}
		var last *pb.FetchResponse
		for {
			<-time.After(5 * time.Second)
			resp, err := stream.Recv()
			if err != nil {
				break
			}
			last = resp
		}
		if got := last.GetOutcome(); got.GetKind() != pb.OutcomeKind_OUTCOME_KIND_SUCCESS || got.GetBodySummary().GetSizeBytes() != 1000000 {
			r.Errorf("ends with message %d after %v, %s with %d bytes, want SUCCESS with 1000000", last.GetSequence(), last.GetElapsedOffset().AsDuration(), got.GetKind(), got.GetBodySummary().GetSizeBytes())
		}
	})
}

// wantReason checks that an error has a google.rpc.ErrorInfo with that reason.
func wantReason(t *testing.T, err error, reason string) {
	t.Helper()
	for _, d := range status.Convert(err).Details() {
		if info, ok := d.(*errdetails.ErrorInfo); ok && info.GetReason() == reason && info.GetDomain() == "fetchd.v1" {
			return
		}
	}
	t.Errorf("status %v has no ErrorInfo with reason %s", status.Convert(err).Proto(), reason)
}

// TestCallerWithoutAWindow opens no window for events. A fetch of ordinary length must still finish
// without waiting, because it has no second goroutine.
func TestCallerWithoutAWindow(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	conn, err := r.DialGRPC(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	r.callWithoutWindow(conn, pb.FetchService_Fetch_FullMethodName, r.request("/s/k/503/200:size=40000"))
	line := r.logs.await(t, "fetch finished", 1)[0]
	if line["outcome"] != "success" || line["body_bytes"] != 40_000.0 {
		t.Errorf("log %v, want a success of 40000 bytes", line)
	}
}

// TestAnswerThatIsNotRead checks that a connection is closed if an answer on it is unread for two
// minutes.
func TestAnswerThatIsNotRead(t *testing.T) {
	t.Parallel()
	for _, row := range []struct {
		name, method string
		in           func(*pb.FetchRequest) proto.Message
	}{
		{"unary", pb.FetchService_FetchUnary_FullMethodName, func(in *pb.FetchRequest) proto.Message { return &pb.FetchUnaryRequest{Request: in} }},
		{"stream", pb.FetchService_Fetch_FullMethodName, func(in *pb.FetchRequest) proto.Message {
			in.BodyPolicy = &pb.BodyPolicy{Delivery: pb.BodyDelivery_BODY_DELIVERY_INLINE}
			in.EventLevel = pb.EventLevel_EVENT_LEVEL_OUTCOME
			return in
		}},
	} {
		t.Run(row.name, func(t *testing.T) {
			t.Parallel()
			bubble(t, func(r *rig) {
				conn, err := r.DialGRPC(r.Context())
				if err != nil {
					r.Fatal(err)
				}
				r.Cleanup(func() { _ = conn.Close() })
				r.callWithoutWindow(conn, row.method, row.in(r.request("/s/k/200:size=100000")))
				r.logs.await(r.T, "fetch finished", 1)
				began := time.Now()
				framer := http2.NewFramer(nil, conn)
				pong := http2.NewFramer(conn, nil)
				for { // pings come, and are answered: the caller is there, it just does not read
					frame, err := framer.ReadFrame()
					if err != nil {
						break
					}
					if ping, ok := frame.(*http2.PingFrame); ok && !ping.IsAck() {
						_ = pong.WritePing(true, ping.Data)
					}
				}
				if took := time.Since(began); took != 2*time.Minute {
					r.Errorf("the connection was closed after %s, want 2 min", took)
				}
			})
		})
	}
}

// callWithoutWindow calls a method on a connection whose initial window for streams is zero.
func (r *rig) callWithoutWindow(conn net.Conn, method string, in proto.Message) {
	r.Helper()
	message, err := proto.Marshal(in)
	if err != nil {
		r.Fatal(err)
	}
	framer := http2.NewFramer(conn, nil)
	_, werr := io.WriteString(conn, http2.ClientPreface)
	if err := errors.Join(err, werr,
		framer.WriteSettings(http2.Setting{ID: http2.SettingInitialWindowSize, Val: 0}),
		framer.WriteHeaders(http2.HeadersFrameParam{StreamID: 1, BlockFragment: callHead(r.T, method), EndHeaders: true}),
		framer.WriteData(1, true, append(binary.BigEndian.AppendUint32([]byte{0}, uint32(len(message))), message...))); err != nil { //nolint:gosec // a short message
		r.Fatal(err)
	}
}

// callHead returns the encoded headers of a call, with additional fields.
func callHead(t *testing.T, method string, more ...[2]string) []byte {
	t.Helper()
	var head bytes.Buffer
	fields := hpack.NewEncoder(&head)
	for _, f := range append([][2]string{{":method", "POST"}, {":scheme", "http"}, {":path", method},
		{":authority", "fetchd"}, {"content-type", "application/grpc"}, {"te", "trailers"}}, more...) {
		if err := fields.WriteField(hpack.HeaderField{Name: f[0], Value: f[1]}); err != nil {
			t.Fatal(err)
		}
	}
	return head.Bytes()
}
