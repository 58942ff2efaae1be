package client_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/durationpb"

	"fetchd/client"
	"fetchd/conformance/origin"
	pb "fetchd/gen/fetchd/v1"
	"fetchd/server/fetchdtest"
)

// demo is a service on loopback, and an origin that commits the faults that a URL
// asks for: /s/KEY/503/200 answers 503 and then 200.
func demo() (target string, o *origin.Origin, stop func()) {
	s, err := fetchdtest.New(fetchdtest.Options{})
	if err != nil {
		panic(err)
	}
	return s.Addr, s.Origin, func() { _ = s.Close() }
}

func Example() {
	target, origin, stop := demo()
	defer stop()

	conn, err := grpc.NewClient(target, append(client.DialOptions(), grpc.WithTransportCredentials(insecure.NewCredentials()))...)
	if err != nil {
		fmt.Println(err)
		return
	}
	defer conn.Close()

	resp, err := client.New(conn).Get(context.Background(), origin.URL("http", "/s/page/503/200:body=hello"))
	if err != nil {
		fmt.Println(err)
		return
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	fmt.Println(resp.StatusCode, string(body), err)
	fmt.Println(resp.Attempts, "attempts, ended by rule", resp.Outcome().GetRule())
	// Output:
	// 200 hello <nil>
	// 2 attempts, ended by rule H0
}

func ExampleError() {
	target, origin, stop := demo()
	defer stop()
	conn, err := grpc.NewClient(target, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		fmt.Println(err)
		return
	}
	defer conn.Close()
	c := client.New(conn)

	for _, url := range []string{origin.URL("http", "/s/gone/404"), origin.URL("http", "/s/busy/429:retry-after=3600"), "not a URL"} {
		_, err := c.Get(context.Background(), url)
		failed, atTarget := errors.AsType[*client.Error](err)
		switch {
		case !atTarget: // the service, or the request
			fmt.Println("service:", status.Code(err) == codes.InvalidArgument)
		case errors.Is(err, client.ErrRateLimited):
			after, _ := failed.RetryAfter()
			fmt.Println("again after", after, "rule", failed.Rule())
		default:
			fmt.Println("status", failed.StatusCode(), "retryable", failed.Retryable())
		}
	}
	// Output:
	// status 404 retryable false
	// again after 1h0m0s rule H2
	// service: true
}

func ExampleOnEvent() {
	target, origin, stop := demo()
	defer stop()
	conn, err := grpc.NewClient(target, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		fmt.Println(err)
		return
	}
	defer conn.Close()

	resp, err := client.New(conn).Do(context.Background(), &pb.FetchRequest{
		Url:         origin.URL("http", "/s/flaky/503/200"),
		RetryPolicy: &pb.RetryPolicy{BaseDelay: durationpb.New(0)},
	}, client.OnEvent(func(m *pb.FetchResponse) {
		if f := m.GetAttemptFinished(); f != nil {
			fmt.Println("attempt", f.GetAttempt(), "status", f.GetResponse().GetStatusCode(), f.GetRetryDecision().GetVerdict())
		}
	}))
	if err != nil {
		fmt.Println(err)
		return
	}
	defer resp.Body.Close()
	_, _ = io.Copy(io.Discard, resp.Body) // the last attempt ends with it
	// Output:
	// attempt 1 status 503 RETRY_VERDICT_RETRY
	// attempt 2 status 200 RETRY_VERDICT_DONE
}

func ExampleClient_Many() {
	target, origin, stop := demo()
	defer stop()
	conn, err := grpc.NewClient(target, append(client.DialOptions(), grpc.WithTransportCredentials(insecure.NewCredentials()))...)
	if err != nil {
		fmt.Println(err)
		return
	}
	defer conn.Close()

	requests := []*pb.FetchRequest{
		{Url: origin.URL("http", "/s/a/200:body=one")},
		{Url: origin.URL("http", "/s/b/404")},
		{Url: origin.URL("http", "/s/c/200:body=three")},
	}
	var lines []string
	for result, err := range client.New(conn).Many(context.Background(), slices.Values(requests), client.ManyOptions{Open: 2}) {
		switch failed, atTarget := errors.AsType[*client.Error](err); {
		case result == nil:
			fmt.Println("the rest was not asked for:", err)
		case atTarget:
			lines = append(lines, fmt.Sprint("failed: ", failed.StatusCode()))
		case err != nil:
			lines = append(lines, "lost: "+status.Code(err).String())
		default:
			lines = append(lines, string(result.Outcome.GetInlineBody()))
		}
	}
	slices.Sort(lines) // they come as they end
	fmt.Println(lines)
	// Output: [failed: 404 one three]
}
