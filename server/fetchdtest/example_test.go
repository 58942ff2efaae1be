package fetchdtest_test

import (
	"context"
	"fmt"
	"io"
	"testing"
	"testing/synctest"
	"time"

	"fetchd/client"
	"fetchd/server"
	"fetchd/server/fetchdtest"
)

// title is the code under test: it fetches a page and returns its text.
func title(ctx context.Context, c *client.Client, url string) (string, error) {
	resp, err := c.Get(ctx, url)
	if err != nil {
		return "", err
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	return string(text), err
}

// A test calls Start. An example has no *testing.T, so it calls New and Close.
func ExampleNew() {
	s, err := fetchdtest.New(fetchdtest.Options{})
	if err != nil {
		fmt.Println(err)
		return
	}
	defer s.Close()

	page := s.Origin.URL("http", "/s/page/503/200:body=hello") // 503 first, then 200
	text, err := title(context.Background(), client.New(s.Conn), page)
	fmt.Println(text, err)
	fmt.Println("requests at the origin:", len(s.Origin.Requests("page")))
	// Output:
	// hello <nil>
	// requests at the origin: 2
}

func ExampleStart() {
	// In a file *_test.go this function is TestTitle.
	_ = func(t *testing.T) {
		s := fetchdtest.Start(t, fetchdtest.Options{
			Configure: func(c *server.Config) { c.MaxBodyBytes = 1 << 20 },
		})
		page := s.Origin.URL("http", "/s/big/200:size=2000000")
		if text, err := title(t.Context(), client.New(s.Conn), page); err == nil {
			t.Errorf("got %d bytes, want an error: the limit is 1 MiB", len(text))
		}
	}
}

// In a testing/synctest bubble the waits between attempts take no time, and are exact.
func ExampleStart_bubble() {
	_ = func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			s := fetchdtest.Start(t, fetchdtest.Options{InMemory: true})
			start := time.Now()
			page := s.Origin.URL("http", "/s/busy/429:retry-after=20/200:body=hello")
			text, err := title(t.Context(), client.New(s.Conn), page)
			if took := time.Since(start); text != "hello" || took != 20*time.Second {
				t.Errorf("title = %q, %v after %v; want hello after 20 s", text, err, took)
			}
		})
	}
}
