package server_test

import (
	"testing"
	"time"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	pb "fetchd/gen/fetchd/v1"
)

// TestCallerThatStopsReading checks that a call ends with ABORTED after 30 s without progress, and
// that the fetch ends (spec B7).
func TestCallerThatStopsReading(t *testing.T) {
	t.Parallel()
	bubble(t, func(r *rig) {
		request := func(key string) *pb.FetchRequest {
			in := r.request("/s/" + key + "/200:size=8000000")
			in.TimeoutPolicy = patient()
			return in
		}
		began := time.Now()
		stream := r.mustStream(r.Context(), request("grpc"))
		r.post(r.Context(), "/v1/fetch", r.json(request("http")))
		for _, key := range []string{"grpc", "http"} {
			seen := r.awaitRequest(key)
			<-seen.Done
			wantTook(r, "the exchange with the origin ended", began, 30*time.Second)
		}
		err := drain(stream) // what was sent before is still there to be read
		wantCode(r.T, "Fetch", err, codes.Aborted)
		wantReason(r.T, err, "CONSUMER_STALLED")
	})
}

// TestCallerThatReadsSlowly checks that a slow caller receives everything.
func TestCallerThatReadsSlowly(t *testing.T) {
	t.Parallel()
	bubble(t, func(r *rig) {
		in := r.request("/s/slow/200:size=1000000")
		in.TimeoutPolicy = patient()
		stream := r.mustStream(r.Context(), in)
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
	r.callWithoutWindow(pb.FetchService_Fetch_FullMethodName, r.request("/s/k/503/200:size=40000"))
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
				c := r.callWithoutWindow(row.method, row.in(r.request("/s/k/200:size=100000")))
				r.logs.await(r.T, "fetch finished", 1)
				began := time.Now()
				_, _, _, _ = c.read(1) // it answers pings: the client is alive, but does not read the answer
				wantTook(r, "the connection was closed", began, 2*time.Minute)
			})
		})
	}
}

// callWithoutWindow calls a method on a new connection whose initial window for streams is zero.
func (r *rig) callWithoutWindow(method string, in proto.Message) *rawClient {
	r.Helper()
	message := marshal(r, in)
	c := r.raw(r.dial(r.DialGRPC), window(0))
	c.open(1, method)
	c.send(1, message, 0, -1)
	return c
}
