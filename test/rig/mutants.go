package rig

import (
	"context"
	"errors"
	"fmt"
	"io"
	"iter"
	"math"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"

	pb "fetchd/gen/fetchd/v1"
)

// Mutants returns copies of a message that differ in one place each, with the place and the change. Each field that
// is set, also in messages within it, is removed once, and gets values that no service should send.
func Mutants[M proto.Message](m M) iter.Seq2[string, M] {
	return func(yield func(string, M) bool) {
		n := 0
		for {
			copied, ok := proto.Clone(m).(M)
			if !ok {
				return
			}
			left := n
			name, done := mutate(copied.ProtoReflect(), "", &left)
			if !done || !yield(name, copied) {
				return
			}
			n++
		}
	}
}

// mutate makes the change with the number left, and reports whether there is one.
func mutate(m protoreflect.Message, path string, left *int) (name string, done bool) {
	for i := range m.Descriptor().Fields().Len() {
		f := m.Descriptor().Fields().Get(i)
		if !m.Has(f) {
			continue
		}
		at := path + "." + string(f.Name())
		if *left == 0 {
			m.Clear(f)
			return at + " is missing", true
		}
		*left--
		switch {
		case f.IsMap():
		case f.IsList() && f.Message() != nil:
			list := m.Mutable(f).List()
			if *left == 0 {
				list.Append(list.Get(0))
				return at + " is repeated", true
			}
			*left--
			if name, done := mutate(list.Get(0).Message(), at, left); done {
				return name, true
			}
		case f.IsList():
		case f.Message() != nil:
			if name, done := mutate(m.Mutable(f).Message(), at, left); done {
				return name, true
			}
		default:
			values := wrong(f.Kind())
			if *left < len(values) {
				m.Set(f, values[*left])
				return fmt.Sprintf("%s is %.20q", at, fmt.Sprint(values[*left].Interface())), true
			}
			*left -= len(values)
		}
	}
	return "", false
}

// wrong returns values that a client does not expect.
func wrong(kind protoreflect.Kind) []protoreflect.Value {
	switch kind {
	case protoreflect.EnumKind:
		return []protoreflect.Value{protoreflect.ValueOfEnum(99), protoreflect.ValueOfEnum(-1)}
	case protoreflect.Int32Kind:
		return []protoreflect.Value{protoreflect.ValueOfInt32(math.MinInt32), protoreflect.ValueOfInt32(math.MaxInt32)}
	case protoreflect.Int64Kind:
		return []protoreflect.Value{protoreflect.ValueOfInt64(math.MinInt64), protoreflect.ValueOfInt64(math.MaxInt64)}
	case protoreflect.StringKind:
		return []protoreflect.Value{protoreflect.ValueOfString(Hostile)}
	case protoreflect.BytesKind:
		return []protoreflect.Value{protoreflect.ValueOfBytes([]byte(Hostile))}
	}
	return nil
}

// Hostile is a text that must not reach a terminal as it is: a NUL, escapes (the second one writes the clipboard),
// a direction override and a line end. It leads out of a folder.
const Hostile = "../../\x00\x1b[2J\x1b]52;c;eA==\x07\u202e\u2028\r\nevil %s%n"

// Record returns the events of a fetch.
func Record(t testing.TB, service pb.FetchServiceClient, request *pb.FetchRequest) (events []*pb.FetchEvent) {
	t.Helper()
	stream, err := service.Fetch(t.Context(), request)
	for err == nil {
		var m *pb.FetchResponse
		m, err = stream.Recv()
		events = append(events, m.GetEvents()...)
	}
	if !errors.Is(err, io.EOF) || len(events) == 0 {
		t.Fatalf("%d events, %v", len(events), err)
	}
	return events
}

// Wrong returns sequences of events that differ from the given ones in one place: a field, or an event that is missing,
// repeated, or one too early.
func Wrong(events []*pb.FetchEvent) iter.Seq2[string, []*pb.FetchEvent] {
	return func(yield func(string, []*pb.FetchEvent) bool) {
		for i, e := range events {
			name := fmt.Sprintf("event %d", i)
			before, after := events[:i], events[i+1:]
			if !yield(name+" is missing", slices.Concat(before, after)) ||
				!yield(name+" is the last", before) ||
				!yield(name+" is repeated", slices.Concat(before, []*pb.FetchEvent{e, e}, after)) ||
				i > 0 && !yield(name+" is too early", slices.Concat(events[:i-1], []*pb.FetchEvent{e, events[i-1]}, after)) {
				return
			}
			for change, mutant := range Mutants(e) {
				if !yield(name+change, slices.Concat(before, []*pb.FetchEvent{mutant}, after)) {
					return
				}
			}
		}
	}
}

// Script is a service that answers a request with the events that its URL names: http://script.test/N for Events[N].
// It sends heartbeats without an end to any other.
type Script struct {
	pb.UnimplementedFetchServiceServer
	Events [][]*pb.FetchEvent
}

// URL returns the URL for Events[n].
func (*Script) URL(n int) string { return fmt.Sprintf("http://script.test/%d", n) }

func (s *Script) play(ctx context.Context, request *pb.FetchRequest, send func(*pb.FetchEvent) error) error {
	n, err := strconv.Atoi(strings.TrimPrefix(request.GetUrl(), "http://script.test/"))
	if err == nil && n < len(s.Events) {
		for _, e := range s.Events[n] {
			if err := send(e); err != nil {
				return err
			}
		}
		return nil
	}
	for ctx.Err() == nil {
		if err := send(&pb.FetchEvent{Event: &pb.FetchEvent_Heartbeat{Heartbeat: new(pb.Heartbeat)}}); err != nil {
			return err
		}
		select {
		case <-ctx.Done():
		case <-time.After(10 * time.Millisecond):
		}
	}
	return ctx.Err()
}

// Fetch implements [pb.FetchServiceServer].
func (s *Script) Fetch(request *pb.FetchRequest, stream grpc.ServerStreamingServer[pb.FetchResponse]) error {
	return s.play(stream.Context(), request, func(e *pb.FetchEvent) error {
		return stream.Send(&pb.FetchResponse{Events: []*pb.FetchEvent{e}})
	})
}

// FetchUnary implements [pb.FetchServiceServer].
func (s *Script) FetchUnary(ctx context.Context, request *pb.FetchRequest) (*pb.FetchUnaryResponse, error) {
	resp := new(pb.FetchUnaryResponse)
	return resp, s.play(ctx, request, func(e *pb.FetchEvent) error {
		if e.GetOutcome() != nil {
			resp.Outcome = e.GetOutcome()
		}
		return nil
	})
}

// FetchMany implements [pb.FetchServiceServer]. It ends the stream if a task has no outcome.
func (s *Script) FetchMany(stream grpc.BidiStreamingServer[pb.FetchManyRequest, pb.FetchManyResponse]) error {
	for {
		m, err := stream.Recv()
		if err != nil {
			return nil //nolint:nilerr // the client has left
		}
		for _, task := range m.GetTasks() {
			over := false
			err := s.play(stream.Context(), task.GetRequest(), func(e *pb.FetchEvent) error {
				over = over || e.GetOutcome() != nil
				return stream.Send(&pb.FetchManyResponse{Events: []*pb.TaskEvent{{Tag: task.GetTag(), Event: e}}})
			})
			if err != nil || !over {
				return err
			}
		}
	}
}

// Explain implements [pb.FetchServiceServer].
func (*Script) Explain(context.Context, *pb.ExplainRequest) (*pb.ExplainResponse, error) {
	return new(pb.ExplainResponse), nil
}
