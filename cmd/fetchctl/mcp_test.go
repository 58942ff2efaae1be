package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"strings"
	"testing"

	sdk "github.com/modelcontextprotocol/go-sdk/mcp"

	"fetchd/internal/cli"
	"fetchd/test/rig"
)

// mcpSession is a session with "fetchctl mcp" over its standard streams.
type mcpSession struct {
	*sdk.ClientSession
	ended chan result // receives one result
}

// startMCP runs the program and connects to it.
func startMCP(ctx context.Context, t *testing.T, args ...string) *mcpSession {
	t.Helper()
	in, toServer := io.Pipe()
	fromServer, out := io.Pipe()
	var stderr strings.Builder
	s := &mcpSession{ended: make(chan result, 1)}
	go func() {
		code := run(ctx, append([]string{"mcp"}, args...), func(string) string { return "" }, cli.Streams{In: in, Out: out, Err: &stderr})
		_ = out.Close()
		s.ended <- result{code, "", stderr.String()}
	}()
	var err error
	s.ClientSession, err = sdk.NewClient(&sdk.Implementation{Name: "test", Version: "1"}, nil).Connect(t.Context(), &sdk.IOTransport{Reader: fromServer, Writer: toServer}, nil)
	if err != nil {
		t.Fatalf("%v: %+v", err, <-s.ended)
	}
	t.Cleanup(func() { _ = s.Close() })
	return s
}

// fetch calls the tool and returns its first text.
func (s *mcpSession) fetch(t *testing.T, page string) (text string, failed bool) {
	t.Helper()
	result, err := s.CallTool(t.Context(), &sdk.CallToolParams{Name: "fetch", Arguments: map[string]any{"url": page}})
	must(t, err)
	content, ok := result.Content[0].(*sdk.TextContent)
	if !ok {
		t.Fatalf("content %+v", result.Content[0])
	}
	return content.Text, result.IsError
}

// TestMCP fetches with the service inside and with another one. The program ends with its standard
// input, and prints nothing else.
func TestMCP(t *testing.T) {
	t.Parallel()
	o := rig.Origin(t)
	_, port, _ := strings.Cut(o.Addr("http"), ":")
	page := o.URL("http", "/s/k/200:body=hello")
	for _, row := range []struct {
		name string
		args []string
		want string
	}{
		{"the service inside reaches public addresses only", nil, "target_blocked"},
		{"an address is not enough", []string{"--egress-allow-cidr=127.0.0.0/8"}, "target_blocked"},
		{"address and port are allowed", []string{"--egress-allow-cidr=127.0.0.0/8", "--egress-allow-port=" + port}, "hello"},
		{"another service", []string{"--server", startServer(t)}, "hello"},
		{"a service that is down", []string{"--server", o.Addr("refused")}, "The service failed, not the origin: Unavailable"},
	} {
		t.Run(row.name, func(t *testing.T) {
			t.Parallel()
			s := startMCP(t.Context(), t, row.args...)
			text, failed := s.fetch(t, page)
			if !strings.Contains(text, row.want) || failed == (row.want == "hello") {
				t.Errorf("%q, failed %t; want %q", text, failed, row.want)
			}
			if err := s.Close(); err != nil {
				t.Errorf("close: %v", err)
			}
			if got := <-s.ended; got.code != cli.ExitOK || got.err != "" {
				t.Errorf("exit status %d, %q; want 0 and no message", got.code, got.err)
			}
		})
	}
}

// TestMCPInterrupted: a signal ends the program while a fetch is in flight.
func TestMCPInterrupted(t *testing.T) {
	t.Parallel()
	o := rig.Origin(t)
	ctx, interrupt := context.WithCancel(t.Context())
	s := startMCP(ctx, t, "--server", startServer(t))
	called := make(chan error, 1)
	go func() {
		_, err := s.CallTool(t.Context(), &sdk.CallToolParams{Name: "fetch", Arguments: map[string]any{"url": o.URL("http", "/s/k/silent")}})
		called <- err
	}()
	if _, err := o.Await(t.Context(), "k", 1); err != nil {
		t.Fatal(err)
	}
	interrupt()
	if got := <-s.ended; got.code != cli.ExitInterrupted {
		t.Errorf("exit status %d, %q; want %d", got.code, got.err, cli.ExitInterrupted)
	}
	if err := <-called; err == nil {
		t.Error("the call succeeded")
	}
}

// TestMCPEndOfInput pipes messages into the program. It answers the calls that it has read, and ends. A call that the
// client has cancelled is not waited for.
func TestMCPEndOfInput(t *testing.T) {
	t.Parallel()
	o := rig.Origin(t)
	call := func(id int, page string) string {
		return fmt.Sprintf(`{"jsonrpc":"2.0","id":%d,"method":"tools/call","params":{"name":"fetch","arguments":{"url":%q}}}`, id, page)
	}
	input := strings.Join([]string{
		`{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"2025-06-18","capabilities":{},"clientInfo":{"name":"test","version":"1"}}}`,
		`{"jsonrpc":"2.0","method":"notifications/initialized"}`,
		`{"jsonrpc":"2.0","id":"list","method":"tools/list"}`,
		call(2, o.URL("http", "/s/slow/503/200:body=first")),
		call(3, o.URL("http", "/s/silent/silent")),
		`{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":3}}`,
		call(4, o.URL("http", "/s/other/200:body=second")),
	}, "\n")
	for _, end := range []string{"", "\n"} {
		got := runWith(t.Context(), input+end, nil, "mcp", "--server", startServer(t))
		answers := make(map[string]string)
		for line := range strings.Lines(got.out) {
			var answer struct {
				ID     any
				Result json.RawMessage
			}
			must(t, json.Unmarshal([]byte(line), &answer))
			answers[fmt.Sprint(answer.ID)] = string(answer.Result)
		}
		if got.code != cli.ExitOK || got.err != "" || answers["1"] == "" || answers["list"] == "" || !strings.Contains(answers["2"], "first") || !strings.Contains(answers["4"], "second") {
			t.Errorf("exit status %d, %q; want 0 and the answers 1, list, 2 and 4:\n%s", got.code, got.err, got.out)
		}
	}
}

// TestMCPUsage checks the flags.
func TestMCPUsage(t *testing.T) {
	t.Parallel()
	for _, row := range []struct {
		name, stdin string
		args        []string
		code        int
		want        string
	}{
		{"no input", "", nil, cli.ExitOK, ""},
		{"input of another protocol", "GET / HTTP/1.1\n", nil, cli.ExitFailed, "the session broke"},
		{"a small page", "", []string{"--max-page-size=1000"}, cli.ExitUsage, "--max-page-size: is 1000: give 1KiB to 64MiB"},
		{"a large page", "", []string{"--max-page-size=65MiB"}, cli.ExitUsage, "give 1KiB to 64MiB"},
		{"a user agent with a line end", "", []string{"--user-agent=a\nb"}, cli.ExitUsage, `--user-agent: is "a\nb": give printable ASCII`},
		{"a provider without a service", "", []string{"--auth-provider=a=https://a.example"}, cli.ExitUsage, "--auth-provider: names a provider of a service: give --server too"},
		{"a provider without an origin", "", []string{"--server=a:1", "--auth-provider=a"}, cli.ExitUsage, `--auth-provider: is "a": give NAME=ORIGIN`},
		{"a provider with a path", "", []string{"--server=a:1", "--auth-provider=a=https://a.example/b"}, cli.ExitUsage, "give NAME=ORIGIN"},
		{"egress with another service", "", []string{"--server=a:1", "--egress-allow-port=80"}, cli.ExitUsage, "leave them out with --server"},
		{"no port", "", []string{"--egress-allow-port=0"}, cli.ExitUsage, "0 is not a port"},
		{"a header", "", []string{"--header=Authorization: a"}, cli.ExitUsage, "unknown flag --header"},
	} {
		t.Run(row.name, func(t *testing.T) {
			t.Parallel()
			got := runWith(t.Context(), row.stdin, nil, append([]string{"mcp"}, row.args...)...)
			if got.code != row.code || !strings.Contains(got.err, row.want) || got.out != "" || row.want == "" && got.err != "" {
				t.Errorf("exit status %d, %q, %q; want %d, %q", got.code, got.out, got.err, row.code, row.want)
			}
		})
	}
}
