package client

import (
	"bytes"
	"math/rand/v2"
	"runtime"
	"testing"

	pb "fetchd/gen/fetchd/v1"
)

// chunkOf returns the event of a part of a body.
func chunkOf(body []byte, at, end int) *pb.FetchEvent {
	return &pb.FetchEvent{Event: &pb.FetchEvent_BodyChunk{BodyChunk: &pb.BodyChunk{OffsetBytes: int64(at), Data: bytes.Clone(body[at:end])}}}
}

func headAt(offset int) *pb.FetchEvent {
	return &pb.FetchEvent{Event: &pb.FetchEvent_ResponseStarted{ResponseStarted: &pb.ResponseStarted{BodyOffsetBytes: int64(offset), Response: &pb.HttpResponse{StatusCode: 200}}}}
}

// collect passes events to a call until its success, and returns the body in its outcome.
func collect(t testing.TB, events ...*pb.FetchEvent) []byte {
	t.Helper()
	last := events[len(events)-1].GetBodyChunk()
	out := &pb.FetchOutcome{Kind: pb.OutcomeKind_OUTCOME_KIND_SUCCESS, Response: &pb.HttpResponse{StatusCode: 200},
		BodySummary: &pb.BodySummary{SizeBytes: last.GetOffsetBytes() + int64(len(last.GetData()))}}
	c := &call{Task: Task{Request: new(pb.FetchRequest)}}
	for _, m := range append(events, &pb.FetchEvent{Event: &pb.FetchEvent_Outcome{Outcome: out}}) {
		if err := c.take(m); err != nil {
			t.Fatal(err)
		}
	}
	return out.GetInlineBody()
}

// TestPieces checks that a streamed body is put together again, whatever the size of its chunks, and if it starts over.
func TestPieces(t *testing.T) {
	t.Parallel()
	random := rand.New(rand.NewPCG(1, 2))
	body := make([]byte, 200_000)
	for i := range body {
		body[i] = byte(random.Uint32())
	}
	for _, row := range []struct {
		name string
		size func() int // of the next chunk
	}{
		{"small chunks", func() int { return 1 + random.IntN(100) }},
		{"large chunks", func() int { return 31 << 10 }},
		{"both", func() int { return 1 + random.IntN(100) + random.IntN(2)*random.IntN(31<<10) }},
	} {
		for _, restart := range []int{-1, 0, 1, pieceBytes, 31 << 10, 100_000, 199_999} {
			events := []*pb.FetchEvent{headAt(0)}
			for from := 0; ; restart = -1 {
				for at := from; at < len(body); {
					end := min(at+row.size(), len(body))
					events = append(events, chunkOf(body, at, end))
					at = end
				}
				if from = restart; restart < 0 {
					break
				}
				events = append(events, headAt(restart))
			}
			if got := collect(t, events...); !bytes.Equal(got, body) {
				t.Errorf("%s: %d bytes, want the %d of the body", row.name, len(got), len(body))
			}
		}
	}
}

// TestPiecesAllocate checks that a streamed body is copied once, into memory of its size.
func TestPiecesAllocate(t *testing.T) { //nolint:paralleltest // the memory of other tests would count
	const size, chunk = 16 << 20, 31 << 10
	body := make([]byte, size)
	events := []*pb.FetchEvent{headAt(0)}
	for at := 0; at < size; at += chunk {
		events = append(events, chunkOf(body, at, min(at+chunk, size)))
	}
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	collect(t, events...)
	runtime.ReadMemStats(&after)
	if got := after.TotalAlloc - before.TotalAlloc; got > size+1<<20 {
		t.Errorf("%d bytes were allocated for a body of %d", got, size)
	}
}
