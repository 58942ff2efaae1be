package mcp

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"sync"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	sdk "github.com/modelcontextprotocol/go-sdk/mcp"

	"fetchd/internal/cli"
)

// Serve runs a session with a client that writes to in and reads from out. It returns when the client has
// left and its calls are answered, or when ctx ends.
func Serve(ctx context.Context, s *sdk.Server, in io.Reader, out io.Writer) error {
	input, feed := io.Pipe()
	go func() {
		_, err := io.Copy(feed, in)
		_ = feed.CloseWithError(err) // it has no error
	}()
	// The end of the input cancels the calls in flight. Session.Close would wait for them.
	defer context.AfterFunc(ctx, func() { _ = feed.Close() })()
	session, err := s.Connect(ctx, &transport{ctx, sdk.IOTransport{Reader: input, Writer: openWriter{out}}}, nil)
	if err != nil {
		return err
	}
	if err := session.Wait(); err != nil {
		return &cli.Error{Code: cli.ExitFailed, Err: fmt.Errorf("the session broke: %w", err)}
	}
	return context.Cause(ctx)
}

// openWriter is a writer that stays open.
type openWriter struct{ io.Writer }

// Close implements io.Closer.
func (openWriter) Close() error { return nil }

// transport is a transport whose connection reports the end of the input when all calls are answered, or when
// ctx has ended. The SDK cancels the calls in flight then.
type transport struct {
	ctx context.Context
	io  sdk.IOTransport
}

// Connect implements sdk.Transport.
func (t *transport) Connect(ctx context.Context) (sdk.Connection, error) {
	inner, err := t.io.Connect(ctx)
	if err != nil {
		return nil, err
	}
	c := &connection{Connection: inner, calls: make(map[any]bool)}
	c.ended, c.end = context.WithCancel(t.ctx)
	return c, nil
}

// connection is a connection of [transport].
type connection struct {
	sdk.Connection
	ended context.Context // when no more answers can be written
	end   context.CancelFunc

	mu       sync.Mutex
	calls    map[any]bool // by id: those without an answer
	answered chan struct{}
}

// Read implements sdk.Connection.
func (c *connection) Read(ctx context.Context) (jsonrpc.Message, error) {
	m, err := c.Connection.Read(ctx)
	if request, ok := m.(*jsonrpc.Request); ok {
		c.received(request)
	}
	if errors.Is(err, io.EOF) {
		c.awaitAnswers(ctx)
	}
	return m, err
}

// received records a call. One that the client cancels gets no answer.
func (c *connection) received(m *jsonrpc.Request) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if m.IsCall() {
		c.calls[m.ID.Raw()] = true
		return
	}
	var cancelled struct {
		ID any `json:"requestId"`
	}
	if m.Method == "notifications/cancelled" && json.Unmarshal(m.Params, &cancelled) == nil {
		if id, err := jsonrpc.MakeID(cancelled.ID); err == nil {
			delete(c.calls, id.Raw())
		}
	}
}

// awaitAnswers waits until all calls are answered, or until no answer can be written.
func (c *connection) awaitAnswers(ctx context.Context) {
	c.mu.Lock()
	c.answered = make(chan struct{})
	if len(c.calls) == 0 {
		close(c.answered)
	}
	c.mu.Unlock()
	select {
	case <-c.answered:
	case <-c.ended.Done():
	case <-ctx.Done():
	}
}

// Write implements sdk.Connection.
func (c *connection) Write(ctx context.Context, m jsonrpc.Message) error {
	err := c.Connection.Write(ctx, m)
	if err != nil {
		c.end()
	}
	if response, ok := m.(*jsonrpc.Response); ok {
		c.mu.Lock()
		defer c.mu.Unlock()
		id := response.ID.Raw()
		open := c.calls[id]
		delete(c.calls, id)
		if open && len(c.calls) == 0 && c.answered != nil {
			close(c.answered)
		}
	}
	return err
}

// Close implements sdk.Connection.
func (c *connection) Close() error {
	c.end()
	return c.Connection.Close()
}
