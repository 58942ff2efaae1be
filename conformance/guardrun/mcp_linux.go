package guardrun

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"slices"
	"strings"
	"time"

	sdk "github.com/modelcontextprotocol/go-sdk/mcp"

	"fetchd/conformance"
	"fetchd/conformance/kit"
)

// maxMessages is the maximum number of bytes that are read from an MCP server.
const maxMessages = 4 << 20

// askMCP starts an MCP server and calls its tool with the URL.
func (n *network) askMCP(ctx context.Context, cmd *kit.Command, tool string, row *conformance.GuardRow) (*answers, error) {
	within, cancel := context.WithTimeout(ctx, cmd.TimeLimit())
	defer cancel()
	from, out, err := os.Pipe() // a pipe of exec.Cmd is closed when the server ends, with what is not read yet
	if err != nil {
		return nil, err
	}
	defer func() { _ = from.Close() }() // it was only read
	var to io.WriteCloser
	p, err := start(within, cmd, func(c *exec.Cmd) (err error) {
		c.Stdout = out
		to, err = c.StdinPipe()
		return err
	})
	_ = out.Close() // the server has it
	if err != nil {
		return nil, err
	}
	defer p.stop()
	client := sdk.NewClient(&sdk.Implementation{Name: "fetch-conformance", Version: "1"}, nil)
	session, err := client.Connect(within, &sdk.IOTransport{Reader: &bounded{from, maxMessages}, Writer: to, MaxLineLength: maxMessages}, nil)
	if err != nil {
		p.stop()
		return nil, errors.Join(p.failure("the MCP server did not initialize: %w", err), ctx.Err())
	}
	body, err := call(within, session, tool, row.URL)
	_ = to.Close() // the server ends its work
	select {
	case <-p.ended:
	case <-time.After(grace):
	}
	p.stop()
	_ = session.Close() // it was stopped
	if err != nil {
		return nil, errors.Join(p.failure("%w", err), ctx.Err())
	}
	return &answers{bodies: [][]byte{body}}, ctx.Err()
}

// call calls the tool. It returns an error if the server does not have it.
func call(ctx context.Context, session *sdk.ClientSession, tool, url string) ([]byte, error) {
	var all, fit []string
	for t, err := range session.Tools(ctx, nil) {
		if err != nil {
			return nil, fmt.Errorf("the MCP server did not list its tools: %w", err)
		}
		all = append(all, t.Name)
		if takesURL(t) {
			fit = append(fit, t.Name)
		}
	}
	switch {
	case tool != "" && !slices.Contains(all, tool):
		return nil, fmt.Errorf("the MCP server has no tool %q; it has: %s", tool, strings.Join(all, ", "))
	case tool == "" && len(fit) != 1:
		return nil, fmt.Errorf("choose the tool: %d of the MCP server take a text named url: %s", len(fit), strings.Join(fit, ", "))
	case tool == "":
		tool = fit[0]
	}
	result, err := session.CallTool(ctx, &sdk.CallToolParams{Name: tool, Arguments: map[string]any{"url": url}})
	if err != nil {
		return nil, nil // it fetched nothing
	}
	return json.Marshal(result)
}

// takesURL reports whether a tool has an argument named url that is a text.
func takesURL(t *sdk.Tool) bool {
	var schema struct {
		Properties struct {
			URL struct {
				Type any `json:"type"`
			} `json:"url"`
		} `json:"properties"`
	}
	data, err := json.Marshal(t.InputSchema)
	return err == nil && json.Unmarshal(data, &schema) == nil && schema.Properties.URL.Type == "string"
}

var errTooMuch = errors.New("the program wrote too much")

// bounded is a reader that fails after a number of bytes.
type bounded struct {
	io.ReadCloser
	left int
}

func (b *bounded) Read(p []byte) (int, error) {
	if b.left <= 0 {
		return 0, errTooMuch
	}
	n, err := b.ReadCloser.Read(p[:min(len(p), b.left)])
	b.left -= n
	return n, err
}
