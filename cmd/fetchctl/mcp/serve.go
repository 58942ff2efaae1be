package mcp

import (
	"context"
	"fmt"
	"io"

	sdk "github.com/modelcontextprotocol/go-sdk/mcp"

	"fetchd/internal/cli"
)

// Serve runs a session with a client that writes to in and reads from out. It returns when the client has left or ctx ends.
func Serve(ctx context.Context, s *sdk.Server, in io.Reader, out io.Writer) error {
	input, feed := io.Pipe()
	go func() {
		_, err := io.Copy(feed, in)
		_ = feed.CloseWithError(err) // it has no error
	}()
	// The end of the input cancels the calls in flight. Session.Close would wait for them.
	defer context.AfterFunc(ctx, func() { _ = feed.Close() })()
	session, err := s.Connect(ctx, &sdk.IOTransport{Reader: input, Writer: openWriter{out}}, nil)
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
