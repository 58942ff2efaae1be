package tools

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
	over, end := context.WithCancel(ctx)
	defer end()
	c := &calls{open: make(map[any]bool), end: end}
	input, feed := io.Pipe()
	go func() {
		err := c.copy(feed, in)
		if errors.Is(err, io.EOF) {
			c.last()
			<-over.Done()
		}
		_ = feed.CloseWithError(err) // it has no error
	}()
	// The end of the input cancels the calls in flight. Session.Close would wait for them.
	defer context.AfterFunc(ctx, func() { _ = feed.Close() })()
	session, err := s.Connect(ctx, &sdk.IOTransport{Reader: input, Writer: answers{out, c}}, nil)
	if err != nil {
		return err
	}
	if err := session.Wait(); err != nil {
		return &cli.Error{Code: cli.ExitFailed, Err: fmt.Errorf("the session broke: %w", err),
			Hint: "Standard input must have messages of the Model Context Protocol: a client starts this command, as docs/agents.md says."}
	}
	return context.Cause(ctx)
}

// calls are the calls of a client without an answer. The SDK cancels them when the input ends, so it learns of the
// end when there are none. The messages are read here and not in a connection around the SDK's: only its own
// connection learns the version of the protocol, and refuses what the version does not have.
type calls struct {
	end func() // no call needs an answer, or no answer can be written

	mu    sync.Mutex
	open  map[any]bool // by id
	ended bool         // there are no more
}

// copy copies messages, and records the calls first.
func (c *calls) copy(to io.Writer, from io.Reader) error {
	limited := &io.LimitedReader{R: from}
	for decoder := json.NewDecoder(limited); ; {
		limited.N = sdk.DefaultMaxLineLength
		var message json.RawMessage
		if err := decoder.Decode(&message); err != nil {
			if limited.N == 0 {
				return fmt.Errorf("a message exceeds %d bytes", sdk.DefaultMaxLineLength)
			}
			return err
		}
		c.received(message)
		if _, err := to.Write(append(message, '\n')); err != nil {
			return err
		}
	}
}

// received records the calls of a message.
func (c *calls) received(message json.RawMessage) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, m := range messages(message) {
		if r, ok := m.(*jsonrpc.Request); ok && r.IsCall() {
			c.open[r.ID.Raw()] = true
		}
	}
}

// sent removes the calls that a message answers.
func (c *calls) sent(message json.RawMessage) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, m := range messages(message) {
		if r, ok := m.(*jsonrpc.Response); ok {
			delete(c.open, r.ID.Raw())
		}
	}
	c.checkLocked()
}

// last records that all calls were received.
func (c *calls) last() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.ended = true
	c.checkLocked()
}

func (c *calls) checkLocked() {
	if c.ended && len(c.open) == 0 {
		c.end()
	}
}

// messages returns the messages of a batch, or the one message. It leaves out what is not a message, which the SDK
// reports.
func messages(text json.RawMessage) (all []jsonrpc.Message) {
	var batch []json.RawMessage
	if json.Unmarshal(text, &batch) != nil {
		batch = []json.RawMessage{text}
	}
	for _, one := range batch {
		if m, err := jsonrpc.DecodeMessage(one); err == nil {
			all = append(all, m)
		}
	}
	return all
}

// answers is the output of a session.
type answers struct {
	out   io.Writer
	calls *calls
}

// Write implements io.Writer. The SDK writes each message, or batch of them, with one call.
func (a answers) Write(message []byte) (int, error) {
	n, err := a.out.Write(message)
	if err != nil {
		a.calls.end()
	}
	a.calls.sent(message)
	return n, err
}

// Close implements io.Closer. The output stays open.
func (a answers) Close() error {
	a.calls.end()
	return nil
}
