package client_test

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/durationpb"

	"fetchd/client"
	pb "fetchd/gen/fetchd/v1"
	"fetchd/server"
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

	conn, err := client.Dial(s.Addr)
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
	fmt.Println(resp.AttemptCount, "attempts, ended by rule", resp.Outcome().GetDecisionRule())
	// Output:
	// 200 hello <nil>
	// 2 attempts, ended by rule H0
}

// A request can set every field of the contract: policies, headers, a body.
func ExampleClient_Do() {
	s := demo()
	defer s.Close()
	c := client.New(s.Conn)

	resp, err := c.Do(context.Background(), &pb.FetchRequest{
		Url:     s.Origin.URL("http", "/s/order/503/201:body=made"),
		Method:  "POST",
		Headers: []*pb.Header{{Name: "Content-Type", Value: "application/json"}},
		Body:    []byte(`{"item": 7}`),
		RetryPolicy: &pb.RetryPolicy{
			MaxAttempts:           new(int32(5)),
			IdempotencyKey:        "order-7", // a POST is sent once without a key
			AllowNonIdempotent:    true,
			AdditionalStatusCodes: []int32{425},
		},
		RedirectPolicy: &pb.RedirectPolicy{Scope: pb.RedirectScope_REDIRECT_SCOPE_SAME_HOST},
		TimeoutPolicy:  &pb.TimeoutPolicy{TotalTimeout: durationpb.New(20 * time.Second)},
		BodyPolicy:     &pb.BodyPolicy{MaxSizeBytes: new(int64(1 << 20))},
	})
	if err != nil {
		fmt.Println(err)
		return
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	fmt.Println(resp.StatusCode, string(body), err)
	// Output: 201 made <nil>
}

// The service can write the body to a store that its operator has configured. The caller receives
// none of it.
func ExampleClient_Do_store() {
	dir, err := os.MkdirTemp("", "")
	if err != nil {
		fmt.Println(err)
		return
	}
	defer func() { _ = os.RemoveAll(dir) }()
	file := filepath.Join(dir, "stores.yaml")
	if err := os.WriteFile(file, fmt.Appendf(nil, "stores: {local: {url: 'file://%s/bodies'}}", filepath.ToSlash(dir)), 0o600); err != nil {
		fmt.Println(err)
		return
	}
	s, err := fetchdtest.New(fetchdtest.Options{StoresFile: file})
	if err != nil {
		fmt.Println(err)
		return
	}
	defer s.Close()

	resp, err := client.New(s.Conn).Do(context.Background(), &pb.FetchRequest{
		Url:        s.Origin.URL("http", "/s/page/503/200:body=hello"),
		BodyPolicy: &pb.BodyPolicy{Delivery: &pb.BodyPolicy_Store{Store: &pb.StoreDelivery{Store: "local", Key: "2026/page"}}},
	})
	if err != nil {
		fmt.Println(err)
		return
	}
	defer resp.Body.Close()
	stored := resp.Outcome().GetStoredObject() // nil if the response has no body
	body, err := os.ReadFile(filepath.Join(dir, "bodies", filepath.FromSlash(stored.GetKey())))
	fmt.Println(stored.GetKey(), stored.GetSizeBytes(), string(body), err)
	// Output: 2026/page 5 hello <nil>
}

// A body is a stream: memory does not grow with it. A body that breaks is continued by the
// service, or ends with an error.
func ExampleClient_Get_file() {
	s := demo()
	defer s.Close()
	c := client.New(s.Conn)

	save := func(url, name string) error {
		resp, err := c.Get(context.Background(), url)
		if err != nil {
			return err
		}
		defer resp.Body.Close()
		file, err := os.Create(name + ".part")
		if err != nil {
			return err
		}
		_, err = io.Copy(file, resp.Body)
		if err := errors.Join(err, file.Close()); err != nil {
			return errors.Join(err, os.Remove(file.Name()))
		}
		return os.Rename(file.Name(), name)
	}
	dir, err := os.MkdirTemp("", "")
	if err != nil {
		fmt.Println(err)
		return
	}
	defer func() { _ = os.RemoveAll(dir) }()

	name := filepath.Join(dir, "file")
	fmt.Println("saved:", save(s.Origin.URL("http", "/s/file/200:size=3000000"), name))
	if info, err := os.Stat(name); err == nil {
		fmt.Println(info.Size(), "bytes")
	}
	err = save(s.Origin.URL("http", "/s/broken/200:size=3000000,cut=2000000"), filepath.Join(dir, "broken"))
	failed, _ := errors.AsType[*client.Error](err)
	fmt.Println("broken: rule", failed.ClassRule())
	// Output:
	// saved: <nil>
	// 3000000 bytes
	// broken: rule N8
}

func ExampleClient_Events() {
	s := demo()
	defer s.Close()
	c := client.New(s.Conn)

	request := &pb.FetchRequest{Url: s.Origin.URL("http", "/s/events/503/200:body=hello")}
	for event, err := range c.Events(context.Background(), request) {
		if err != nil { // the service, or the request
			fmt.Println(err)
			return
		}
		switch e := event.GetEvent().(type) {
		case *pb.FetchEvent_AttemptFinished:
			fmt.Println("attempt", e.AttemptFinished.GetAttempt(), e.AttemptFinished.GetRetryDecision().GetRule())
		case *pb.FetchEvent_BodyChunk:
			fmt.Println("body", string(e.BodyChunk.GetData()))
		case *pb.FetchEvent_Outcome:
			fmt.Println(e.Outcome.GetKind())
		}
	}
	// Output:
	// attempt 1 W1
	// body hello
	// attempt 2 H0
	// OUTCOME_KIND_SUCCESS
}

// An http.Client that goes through fetchd. It needs no retry loop.
func ExampleTransport() {
	s := demo()
	defer s.Close()

	web := &http.Client{
		Timeout: 30 * time.Second,
		Transport: &client.Transport{
			Client:  client.New(s.Conn),
			Request: &pb.FetchRequest{RetryPolicy: &pb.RetryPolicy{MaxAttempts: new(int32(2))}},
		},
	}
	for _, path := range []string{"/s/page/503/200:body=hello", "/s/gone/404:body=gone", "/s/down/reset"} {
		resp, err := web.Get(s.Origin.URL("http", path))
		if failed, ok := errors.AsType[*client.Error](err); ok { // there is no response
			fmt.Println("failed by rule", failed.ClassRule(), "retryable", failed.Retryable())
			continue
		}
		if err != nil {
			fmt.Println(err)
			return
		}
		body, err := io.ReadAll(resp.Body)
		_ = resp.Body.Close()
		fmt.Println(resp.Status, string(body), err, client.FromHTTP(resp).AttemptCount)
	}
	// Output:
	// 200 OK hello <nil> 2
	// 404 Not Found gone <nil> 1
	// failed by rule N4 retryable true
}

// The service wants TLS and a token.
func ExampleToken() {
	issuer := httptest.NewTLSServer(nil) // a certificate for this example
	defer issuer.Close()
	s, err := fetchdtest.New(fetchdtest.Options{Configure: func(c *server.Config) {
		c.TLS = &tls.Config{Certificates: issuer.TLS.Certificates, MinVersion: tls.VersionTLS13}
		c.Authenticate = func(shown server.Credentials) (string, error) {
			if shown.Token != "secret" {
				return "", errors.New("no such token")
			}
			return "crawler", nil
		}
	}})
	if err != nil {
		fmt.Println(err)
		return
	}
	defer s.Close()
	authority := x509.NewCertPool()
	authority.AddCert(issuer.Certificate())

	for _, token := range []string{"secret", "wrong"} {
		conn, err := client.Dial("https://"+s.Addr, client.Token(token),
			grpc.WithTransportCredentials(credentials.NewTLS(&tls.Config{RootCAs: authority, MinVersion: tls.VersionTLS13}))) // for a private authority
		if err != nil {
			fmt.Println(err)
			return
		}
		resp, err := client.New(conn).Get(context.Background(), s.Origin.URL("http", "/s/page/200"))
		fmt.Println(status.Code(err))
		if err == nil {
			_ = resp.Body.Close()
		}
		_ = conn.Close()
	}
	// Output:
	// OK
	// Unauthenticated
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
			fmt.Println("again after", after, "rule", failed.ClassRule())
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
	}, client.OnEvent(func(m *pb.FetchEvent) {
		if f := m.GetAttemptFinished(); f != nil {
			fmt.Println("attempt", f.GetAttempt(), "status", f.GetResponse().GetStatusCode(), f.GetRetryDecision().GetRule())
		}
	}))
	if err != nil {
		fmt.Println(err)
		return
	}
	defer resp.Body.Close()
	_, _ = io.Copy(io.Discard, resp.Body) // the last attempt ends with the body
	// Output:
	// attempt 1 status 503 W1
	// attempt 2 status 200 H0
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
