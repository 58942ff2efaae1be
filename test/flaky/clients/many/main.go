// Command many fetches through fetchd with Client.Many of package client. FETCHD is the address of the service.
package main

import (
	"context"
	"os"
	"time"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/durationpb"

	"fetchd/client"
	pb "fetchd/gen/fetchd/v1"
	"fetchd/test/flaky/clients/jobs"
)

func main() {
	conn, err := client.Dial(os.Getenv("FETCHD"))
	if err != nil {
		panic(err)
	}
	defer conn.Close()
	for result, err := range client.New(conn).Many(context.Background(), requests, client.ManyOptions{Open: 32}) {
		if result == nil {
			panic(err)
		}
		jobs.Report(result.Request.GetUrl(), result.Outcome.GetInlineBody(), err)
	}
}

func requests(yield func(*pb.FetchRequest) bool) {
	for method, url := range jobs.All() {
		if !yield(&pb.FetchRequest{Method: method, Url: url,
			RetryPolicy:   &pb.RetryPolicy{MaxAttempts: proto.Int32(4)},
			TimeoutPolicy: &pb.TimeoutPolicy{AttemptTimeout: durationpb.New(5 * time.Second)},
		}) {
			return
		}
	}
}
