package client_test

import (
	"errors"
	"io"
	"strconv"
	"syscall"
	"testing"
	"time"

	"fetchd/client"
	pb "fetchd/gen/fetchd/v1"
)

// answerAll answers every task of a message in one message.
func answerAll(s manyServer) error {
	for {
		in, err := s.Recv()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
		out := new(pb.FetchManyResponse)
		for _, task := range in.GetTasks() {
			out.Events = append(out.Events, &pb.TaskEvent{Tag: task.GetTag(), Event: success()})
		}
		if err := s.Send(out); err != nil {
			return err
		}
	}
}

func BenchmarkMany(b *testing.B) {
	for _, open := range []int{1, 64, 240} {
		b.Run(strconv.Itoa(open), func(b *testing.B) {
			c := (&fake{many: answerAll}).client(b)
			b.ReportAllocs()
			for _, err := range c.Many(b.Context(), limited(b.N), client.ManyOptions{Open: open}) {
				must(b, err)
			}
		})
	}
}

// BenchmarkBody compares bodies of 16 MiB by Fetch, which drops them, with those that Many and Pool return. The
// CPU is that of the process, and so includes a service that only sends.
func BenchmarkBody(b *testing.B) {
	const size, piece = 16 << 20, 31 << 10
	data := make([]byte, size)
	all := []*pb.FetchEvent{head(0, 200)}
	for at := 0; at < size; at += piece {
		all = append(all, &pb.FetchEvent{Event: &pb.FetchEvent_BodyChunk{BodyChunk: &pb.BodyChunk{OffsetBytes: int64(at), Data: data[at:min(at+piece, size)]}}})
	}
	all = append(all, success())
	c := (&fake{fetch: events(all...), many: func(s manyServer) error {
		for {
			in, err := s.Recv()
			if err != nil {
				return nil //nolint:nilerr // the client has closed the stream
			}
			for _, task := range in.GetTasks() {
				for _, event := range all {
					if err := s.Send(&pb.FetchManyResponse{Events: []*pb.TaskEvent{{Tag: task.GetTag(), Event: event}}}); err != nil {
						return err
					}
				}
			}
		}
	}}).client(b)
	pool := client.NewPool()
	b.Cleanup(pool.Close)
	pool.Open(b.Context(), c, 1, nil)
	wantSize := func(b *testing.B, n int) {
		if n != size {
			b.Fatalf("%d bytes, want %d", n, size)
		}
	}
	for _, row := range []struct {
		name string
		run  func(b *testing.B, n int)
	}{
		{"fetch", func(b *testing.B, n int) {
			for range n {
				r, err := c.Do(b.Context(), new(pb.FetchRequest))
				must(b, err)
				got, err := io.Copy(io.Discard, r.Body)
				must(b, err)
				wantSize(b, int(got))
			}
		}},
		{"many", func(b *testing.B, n int) {
			for r, err := range c.Many(b.Context(), limited(n), client.ManyOptions{Open: 1}) {
				must(b, err)
				wantSize(b, len(r.Outcome.GetInlineBody()))
			}
		}},
		{"pool", func(b *testing.B, n int) {
			for range n {
				out, err := pool.Do(b.Context(), client.Task{Request: new(pb.FetchRequest)})
				must(b, err)
				wantSize(b, len(out.GetInlineBody()))
			}
		}},
	} {
		b.Run(row.name, func(b *testing.B) {
			b.ReportAllocs()
			before := processCPU(b)
			row.run(b, b.N)
			b.ReportMetric(float64((processCPU(b)-before).Microseconds())/float64(b.N), "CPU-µs/op")
		})
	}
}

// processCPU returns the CPU time that this process has used.
func processCPU(b *testing.B) time.Duration {
	var used syscall.Rusage
	must(b, syscall.Getrusage(syscall.RUSAGE_SELF, &used))
	return time.Duration(used.Utime.Nano() + used.Stime.Nano())
}
