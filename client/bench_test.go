package client_test

import (
	"errors"
	"io"
	"strconv"
	"testing"

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
