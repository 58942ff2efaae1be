package client_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"sync"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"fetchd/client"
	pb "fetchd/gen/fetchd/v1"
	"fetchd/server/fetchdtest"
	testrig "fetchd/test/rig"
)

// calls are the ways to fetch a URL. Each returns the body of a success.
var calls = map[string]func(context.Context, *client.Client, string) (string, error){
	"Do": func(ctx context.Context, c *client.Client, url string) (string, error) {
		resp, err := c.Get(ctx, url)
		if err != nil {
			return "", err
		}
		defer resp.Body.Close()
		body, _, err := readAll(resp.Body)
		return string(body), err
	},
	"Events": func(ctx context.Context, c *client.Client, url string) (body string, err error) {
		for m, err := range c.Events(ctx, &pb.FetchRequest{Url: url}) {
			switch {
			case err != nil:
				return "", err
			case m.GetBodyChunk() != nil:
				body = body[:m.GetBodyChunk().GetOffsetBytes()] + string(m.GetBodyChunk().GetData())
			case m.GetOutcome().GetKind() == pb.OutcomeKind_OUTCOME_KIND_SUCCESS:
				return body + string(m.GetOutcome().GetInlineBody()), nil
			}
		}
		return "", errors.New("no success")
	},
	"Transport": func(ctx context.Context, c *client.Client, url string) (string, error) {
		req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, http.NoBody)
		if err != nil {
			return "", err
		}
		resp, err := (&http.Client{Transport: &client.Transport{Client: c}}).Do(req)
		if err != nil {
			return "", err
		}
		defer resp.Body.Close()
		body, err := io.ReadAll(resp.Body)
		if err == nil && resp.StatusCode != http.StatusOK {
			err = errors.New(resp.Status)
		}
		return string(body), err
	},
	"Pool": func(ctx context.Context, c *client.Client, url string) (string, error) {
		p := client.NewPool()
		ctx, cancel := context.WithCancel(ctx)
		defer p.Close()
		defer cancel()
		p.Open(ctx, c, 1, nil)
		o, err := p.Do(ctx, client.Task{Request: anySized(url)})
		return string(o.GetInlineBody()), err
	},
	"Many": func(ctx context.Context, c *client.Client, url string) (body string, err error) {
		for r, failed := range c.Many(ctx, slices.Values([]*pb.FetchRequest{anySized(url)}), client.ManyOptions{}) {
			if r != nil {
				body = string(r.Outcome.GetInlineBody())
			}
			err = failed
		}
		return body, err
	},
}

func anySized(url string) *pb.FetchRequest {
	return &pb.FetchRequest{Url: url, BodyPolicy: &pb.BodyPolicy{Delivery: &pb.BodyPolicy_Auto{Auto: new(pb.StreamDelivery)}}}
}

// TestWrongAnswers calls a service whose answers lack one field or event, or have a wrong one. Every call ends, and
// none takes a part of a body for all of it, or a failure for a success.
func TestWrongAnswers(t *testing.T) {
	t.Parallel()
	real := fetchdtest.Start(t, fetchdtest.Options{})
	const size = 2000
	body := string(real.Origin.Body(size))
	script, names, want := new(testrig.Script), []string{}, []string{}
	for _, row := range []struct {
		name, path string
		policy     *pb.BodyPolicy
		body       string
	}{
		{"a streamed body", fmt.Sprintf("/s/wrong1/503/302:to=%%2Fs%%2Fwrong2%%2F200:size=%d", size), nil, body},
		{"a body in the outcome", fmt.Sprintf("/s/wrong3/200:size=%d", size), &pb.BodyPolicy{Delivery: &pb.BodyPolicy_Inline{}}, body},
		{"a failure", "/s/wrong4/404:body=gone", nil, ""},
	} {
		r := &pb.FetchRequest{Url: real.Origin.URL("http", row.path), BodyPolicy: row.policy, EventLevel: pb.EventLevel_EVENT_LEVEL_ALL}
		for name, events := range testrig.Wrong(testrig.Record(t, real.Client, r)) {
			script.Events, names, want = append(script.Events, events), append(names, row.name+": "+name), append(want, row.body)
		}
	}
	c := client.New(fetchdtest.Start(t, fetchdtest.Options{Fake: script, DialOptions: client.DialOptions()}).Conn)
	next := make(chan int)
	var workers sync.WaitGroup
	for range 4 {
		workers.Go(func() {
			for n := range next {
				for how, call := range calls {
					ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
					if got, err := call(ctx, c, script.URL(n)); err == nil && got != want[n] || err == nil && want[n] == "" {
						t.Errorf("%s, %s: a success with %d bytes, want an error or %d bytes", how, names[n], len(got), len(want[n]))
					}
					if ctx.Err() != nil {
						t.Errorf("%s, %s: the call did not end", how, names[n])
					}
					cancel()
				}
			}
		})
	}
	for n := range names {
		next <- n
	}
	close(next)
	workers.Wait()
	t.Logf("%d wrong answers", len(names))
}

// TestHeartbeatsOnly: a service that sends nothing else meets the deadline of the caller.
func TestHeartbeatsOnly(t *testing.T) {
	t.Parallel()
	c := client.New(fetchdtest.Start(t, fetchdtest.Options{Fake: new(testrig.Script), DialOptions: client.DialOptions()}).Conn)
	for how, call := range calls {
		if how == "Pool" {
			continue // it waits 30 s for the answer to a cancellation
		}
		t.Run(how, func(t *testing.T) {
			t.Parallel()
			ctx, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
			defer cancel()
			began := time.Now()
			if _, err := call(ctx, c, "http://script.test/endless"); !errors.Is(err, context.DeadlineExceeded) && status.Code(err) != codes.DeadlineExceeded || time.Since(began) > 10*time.Second {
				t.Errorf("%v after %v, want %v", err, time.Since(began), context.DeadlineExceeded)
			}
		})
	}
}
