package client_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/durationpb"

	"fetchd/client"
	pb "fetchd/gen/fetchd/v1"
	"fetchd/server/fetchdtest"
)

// demo starts a service, and an origin that misbehaves on request: /s/KEY/503/200 answers 503 and
// then 200.
func demo() *fetchdtest.Server {
	s, err := fetchdtest.New(fetchdtest.Options{})
	if err != nil {
		panic(err)
	}
	return s
}

func Example() {
	s := demo()
	defer s.Close()

	conn, err := grpc.NewClient(s.Addr, append(client.DialOptions(), grpc.WithTransportCredentials(insecure.NewCredentials()))...)
	if err != nil {
		fmt.Println(err)
		return
	}
	defer conn.Close()

	resp, err := client.New(conn).Get(context.Background(), s.Origin.URL("http", "/s/page/503/200:body=hello"))
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
	s := demo()
	defer s.Close()
	c := client.New(s.Conn)

	for _, url := range []string{s.Origin.URL("http", "/s/gone/404"), s.Origin.URL("http", "/s/busy/429:retry-after=3600"), "not a URL"} {
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
	s := demo()
	defer s.Close()
	c := client.New(s.Conn)

	resp, err := c.Do(context.Background(), &pb.FetchRequest{
		Url:         s.Origin.URL("http", "/s/flaky/503/200"),
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
	_, _ = io.Copy(io.Discard, resp.Body) // the last attempt ends with the body
	// Output:
	// attempt 1 status 503 RETRY_VERDICT_RETRY
	// attempt 2 status 200 RETRY_VERDICT_DONE
}

func ExampleClient_Many() {
	s := demo()
	defer s.Close()
	c := client.New(s.Conn)

	requests := []*pb.FetchRequest{
		{Url: s.Origin.URL("http", "/s/a/200:body=one")},
		{Url: s.Origin.URL("http", "/s/b/404")},
		{Url: s.Origin.URL("http", "/s/c/200:body=three")},
	}
	var lines []string
	for result, err := range c.Many(context.Background(), slices.Values(requests), client.ManyOptions{Open: 2}) {
		switch failed, atTarget := errors.AsType[*client.Error](err); {
		case result == nil:
			fmt.Println("the remaining requests were not sent:", err)
		case atTarget:
			lines = append(lines, fmt.Sprint("failed: ", failed.StatusCode()))
		case err != nil:
			lines = append(lines, "lost: "+status.Code(err).String())
		default:
			lines = append(lines, string(result.Outcome.GetInlineBody()))
		}
	}
	slices.Sort(lines) // results arrive in the order in which fetches end
	fmt.Println(lines)
	// Output: [failed: 404 one three]
}

func ExamplePool() {
	s := demo()
	defer s.Close()
	pool := client.NewPool()
	defer pool.Close()
	pool.Open(context.Background(), client.New(s.Conn), 1, nil)

	outcome, err := pool.Do(context.Background(), client.Task{
		Request:    &pb.FetchRequest{Url: s.Origin.URL("http", "/s/page/200:body=hello")},
		SendBefore: time.Now().Add(time.Minute), // the lease of the URL ends a little later
	})
	switch _, atTarget := errors.AsType[*client.Error](err); {
	case errors.Is(err, client.ErrLost):
		fmt.Println("requests may have been made:", err)
	case err != nil && !atTarget:
		fmt.Println("not sent:", err)
	default:
		fmt.Println(outcome.GetKind(), string(outcome.GetInlineBody()))
	}
	// Output: OUTCOME_KIND_SUCCESS hello
}
