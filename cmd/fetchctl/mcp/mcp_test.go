package mcp

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	sdk "github.com/modelcontextprotocol/go-sdk/mcp"

	"fetchd/internal/cli"
	"fetchd/test/clitest"
	"fetchd/test/rig"
)

var fetchctl = clitest.Command("fetchctl", func() any {
	return new(struct {
		Mcp Command `cmd:"" name:"mcp"`
	})
})

// mcpSession is a session with "fetchctl mcp" over its standard streams.
type mcpSession struct {
	*sdk.ClientSession
	ended chan clitest.Result // receives one result
}

// startMCP runs the program and connects to it.
func startMCP(ctx context.Context, t *testing.T, args ...string) *mcpSession {
	t.Helper()
	in, toServer := io.Pipe()
	fromServer, out := io.Pipe()
	var stderr strings.Builder
	s := &mcpSession{ended: make(chan clitest.Result, 1)}
	go func() {
		code := fetchctl(ctx, append([]string{"mcp"}, args...), func(string) string { return "" }, cli.Streams{In: in, Out: out, Err: &stderr})
		_ = out.Close()
		s.ended <- clitest.Result{Code: code, Err: stderr.String()}
	}()
	var err error
	s.ClientSession, err = sdk.NewClient(&sdk.Implementation{Name: "test", Version: "1"}, nil).Connect(t.Context(), &sdk.IOTransport{Reader: fromServer, Writer: toServer}, nil)
	if err != nil {
		t.Fatalf("%v: %+v", err, <-s.ended)
	}
	t.Cleanup(func() { _ = s.Close() })
	return s
}

// call calls "fetch" and returns its window, or the first text of a failure.
func (s *mcpSession) call(t *testing.T, arguments map[string]any) (text string, failed bool) {
	t.Helper()
	result, err := s.CallTool(t.Context(), &sdk.CallToolParams{Name: "fetch", Arguments: arguments})
	clitest.Must(t, err)
	block := 2
	if result.IsError {
		block = 0
	}
	content, ok := result.Content[block].(*sdk.TextContent)
	if !ok {
		t.Fatalf("content %+v", result.Content)
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
		{"another service", []string{"--server", clitest.Server(t)}, "hello"},
		{"a service that is down", []string{"--server", o.Addr("refused")}, "The service failed, not the origin: Unavailable"},
	} {
		t.Run(row.name, func(t *testing.T) {
			t.Parallel()
			s := startMCP(t.Context(), t, row.args...)
			text, failed := s.call(t, map[string]any{"url": page})
			if !strings.Contains(text, row.want) || failed == (row.want == "hello") {
				t.Errorf("%q, failed %t; want %q", text, failed, row.want)
			}
			if err := s.Close(); err != nil {
				t.Errorf("close: %v", err)
			}
			if got := <-s.ended; got.Code != cli.ExitOK || got.Err != "" {
				t.Errorf("exit status %d, %q; want 0 and no message", got.Code, got.Err)
			}
		})
	}
}

// TestMCPPolicy checks that the tools fetch only what a policy permits, and say which rule forbids the rest.
func TestMCPPolicy(t *testing.T) {
	t.Parallel()
	o := rig.Origin(t)
	_, port, _ := strings.Cut(o.Addr("http"), ":")
	_, other, _ := strings.Cut(o.Addr("http-other"), ":")
	file := filepath.Join(t.TempDir(), "policies.yaml")
	egress := "allow-addresses: [127.0.0.0/8], ports: [" + port + "]"
	clitest.Must(t, os.WriteFile(file, []byte(`policies:
  agent: {egress: {`+egress+`}, request: {max-total-timeout: 5s, max-size-bytes: 100000}}
  named: {egress: {`+egress+`, allow-names: [localhost], deny-names: [secret.internal]}}
  heads: {egress: {`+egress+`}, request: {methods: [HEAD]}}
  denied: {egress: {`+egress+`, deny-names: [localhost]}}
  trial: {mode: report, request: {methods: [HEAD], max-size-bytes: 1}}
callers:
- {caller: a, policy: agent}
- {caller: b, policy: named}
- {caller: c, policy: heads}
- {caller: d, policy: denied}
default: trial
`), 0o600))
	page := o.URL("http", "/s/k/200:body=hello")
	local := strings.Replace(page, "127.0.0.1", "localhost", 1)
	for _, row := range []struct {
		name, policy, url string
		flags             []string
		want              string
	}{
		{"what the policy permits", "agent", page, nil, "hello"},
		{"a port that the policy does not name", "agent", o.URL("http-other", "/s/k/200"), nil, `target_blocked`},
		{"a redirect to it", "agent", o.URL("http", "/cross/k/302/http-other/200"), []string{"--ignore-robots-txt"}, `the policy "agent" of this caller forbids the target: its port is not in ports`},
		{"a name that is not in the list", "named", strings.Replace(page, "127.0.0.1", "other.example", 1), nil, `the policy "named" of this caller forbids the target: its name is not in allow-names`},
		{"a redirect to such a name", "named", strings.Replace(o.URL("http", "/s/k/302:to=http%3A%2F%2Fother.example%3A"+port+"%2F"), "127.0.0.1", "localhost", 1), nil, `the policy "named" of this caller forbids the target: its name is not in allow-names`},
		{"a name in the list", "named", local, nil, "hello"},
		{"a name that is denied, and so its robots.txt", "denied", local, nil, `its name is in deny-names (localhost)`},
		{"a method", "heads", page, nil, `Not fetched: the policy "heads" of this caller forbids the request: method is "GET": the policy permits HEAD.`},
		{"a method, without robots.txt", "heads", page, []string{"--ignore-robots-txt"}, `Not fetched: the policy "heads" of this caller forbids the request: method is "GET"`},
	} {
		t.Run(row.name, func(t *testing.T) {
			t.Parallel()
			args := append([]string{"--egress-allow-cidr=127.0.0.0/8", "--egress-allow-port=" + port, "--egress-allow-port=" + other, "--policies-file", file, "--policy", row.policy}, row.flags...)
			s := startMCP(t.Context(), t, args...)
			text, failed := s.call(t, map[string]any{"url": row.url})
			if !strings.Contains(text, row.want) || failed == (row.want == "hello") || strings.Contains(text, "secret.internal") {
				t.Errorf("%q, failed %t; want %q, and nothing else of the policy", text, failed, row.want)
			}
			clitest.Must(t, s.Close())
			if got := <-s.ended; got.Code != cli.ExitOK || got.Err != "" {
				t.Errorf("exit status %d, %q; want 0 and no message", got.Code, got.Err)
			}
		})
	}
	for _, row := range []struct {
		name string
		args []string
		want string
	}{
		{"a policy that only reports", []string{"--policies-file", file, "--policy", "trial"}, `--policy: "trial" has the mode report`},
		{"no such policy", []string{"--policies-file", file, "--policy", "none"}, `--policy: "none" is not a policy of `},
		{"a policy without a file", []string{"--policy", "agent"}, "--policy: names a policy of a file"},
		{"a file without a policy", []string{"--policies-file", file}, "--policies-file: has policies for many callers"},
		{"no file", []string{"--policies-file", file + "x", "--policy", "agent"}, "--policies-file: "},
		{"another service", []string{"--policies-file", file, "--policy", "agent", "--server", "a:1"}, "--policies-file, --policy: are for the service inside fetchctl"},
	} {
		t.Run(row.name, func(t *testing.T) {
			t.Parallel()
			got := fetchctl.Run(t, append([]string{"mcp"}, row.args...)...)
			if got.Code != cli.ExitUsage || !strings.Contains(got.Err, row.want) {
				t.Errorf("exit status %d, %q; want %d and %q", got.Code, got.Err, cli.ExitUsage, row.want)
			}
		})
	}
}

// TestMCPInterrupted: a signal ends the program while a fetch is in flight.
func TestMCPInterrupted(t *testing.T) {
	t.Parallel()
	o := rig.Origin(t)
	ctx, interrupt := context.WithCancel(t.Context())
	s := startMCP(ctx, t, "--server", clitest.Server(t))
	called := make(chan error, 1)
	go func() {
		_, err := s.CallTool(t.Context(), &sdk.CallToolParams{Name: "fetch", Arguments: map[string]any{"url": o.URL("http", "/s/k/silent")}})
		called <- err
	}()
	if _, err := o.Await(t.Context(), "k", 1); err != nil {
		t.Fatal(err)
	}
	interrupt()
	if got := <-s.ended; got.Code != cli.ExitInterrupted {
		t.Errorf("exit status %d, %q; want %d", got.Code, got.Err, cli.ExitInterrupted)
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
		got := fetchctl.With(t.Context(), input+end, nil, "mcp", "--server", clitest.Server(t))
		answers := make(map[string]string)
		for line := range strings.Lines(got.Out) {
			var answer struct {
				ID     any
				Result json.RawMessage
			}
			clitest.Must(t, json.Unmarshal([]byte(line), &answer))
			answers[fmt.Sprint(answer.ID)] = string(answer.Result)
		}
		if got.Code != cli.ExitOK || got.Err != "" || answers["1"] == "" || answers["list"] == "" || !strings.Contains(answers["2"], "first") || !strings.Contains(answers["4"], "second") {
			t.Errorf("exit status %d, %q; want 0 and the answers 1, list, 2 and 4:\n%s", got.Code, got.Err, got.Out)
		}
	}
}

// TestMCPProtocol: the version of the protocol decides what a client may send.
func TestMCPProtocol(t *testing.T) {
	t.Parallel()
	const (
		initialize = `{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":%q,"capabilities":{},"clientInfo":{"name":"test","version":"1"}}}` + "\n"
		batch      = `{"jsonrpc":"2.0","method":"notifications/initialized"}` + "\n" + `[{"jsonrpc":"2.0","id":2,"method":"ping"},{"jsonrpc":"2.0","id":3,"method":"tools/list"}]`
		listen     = `{"jsonrpc":"2.0","id":4,"method":"subscriptions/listen","params":{"notifications":{"toolsListChanged":true},"_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientCapabilities":{}}}}`
	)
	for _, row := range []struct {
		name, version, then string
		code                int
		out, err            string
	}{
		{"a batch before 2025-06-18", "2025-03-26", batch, cli.ExitOK, `[{"jsonrpc":"2.0","id":2,"result":{}},{"jsonrpc":"2.0","id":3,`, ""},
		{"a batch since 2025-06-18", "2025-06-18", batch, cli.ExitFailed, "", "batching is not supported"},
		{"a subscription", "2025-11-25", listen, cli.ExitOK, `{"jsonrpc":"2.0","id":4,"result":`, ""},
		{"half a message", "2025-06-18", `{"jsonrpc"`, cli.ExitFailed, "", "the session broke: unexpected EOF"},
		{"a long message", "2025-06-18", `"` + strings.Repeat("a", sdk.DefaultMaxLineLength), cli.ExitFailed, "", "the session broke: a message exceeds 16777216 bytes"},
	} {
		t.Run(row.name, func(t *testing.T) {
			t.Parallel()
			in, toServer := io.Pipe()
			fromServer, out := io.Pipe()
			ended := make(chan clitest.Result, 1)
			go func() {
				var stderr strings.Builder
				code := fetchctl(t.Context(), []string{"mcp"}, func(string) string { return "" }, cli.Streams{In: in, Out: out, Err: &stderr})
				_, _ = out.Close(), in.Close()
				ended <- clitest.Result{Code: code, Err: stderr.String()}
			}()
			_, err := fmt.Fprintf(toServer, initialize, row.version)
			clitest.Must(t, err)
			answers := bufio.NewReader(fromServer)
			first, err := answers.ReadString('\n')
			clitest.Must(t, err)
			go func() {
				_, _ = io.WriteString(toServer, row.then) // the program may end first
				_ = toServer.Close()
			}()
			rest, err := io.ReadAll(answers)
			clitest.Must(t, err)
			if got := <-ended; got.Code != row.code || !strings.Contains(got.Err, row.err) || !strings.Contains(first, row.version) || !strings.Contains(string(rest), row.out) {
				t.Errorf("exit status %d, %q, answers %q and %q; want %d, %q and %q", got.Code, got.Err, first, rest, row.code, row.err, row.out)
			}
		})
	}
}

// TestMCPReference does what the table in docs/agents.md says about the arguments, flags and prompt of the reference
// server. Each row of the table is run.
func TestMCPReference(t *testing.T) {
	t.Parallel()
	page, err := os.ReadFile("../../../docs/agents.md")
	clitest.Must(t, err)
	_, table, _ := strings.Cut(string(page), "| mcp-server-fetch | here |\n|---|---|\n")
	table, _, _ = strings.Cut(table, "\n\n")
	o := rig.Origin(t)
	html := o.URL("http", "/s/k/200:type=text%2Fhtml,body=%3Cp%3Ehello")
	closed := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		_, _ = io.WriteString(w, "User-agent: *\nDisallow: /\n")
	}))
	t.Cleanup(closed.Close)
	flags := []string{"--server", clitest.Server(t)}
	// call returns the first text of a result.
	call := func(flags []string, arguments map[string]any) func(*testing.T) string {
		return func(t *testing.T) string {
			text, _ := startMCP(t.Context(), t, flags...).call(t, arguments)
			return text
		}
	}
	rows := map[string]struct {
		run  func(*testing.T) string
		want string
	}{
		"`url`":         {call(flags, map[string]any{"url": html}), "hello"},
		"`max_length`":  {call(flags, map[string]any{"url": html, "max_length": 3}), "hel"},
		"`start_index`": {call(flags, map[string]any{"url": html, "start_index": 3}), "lo"},
		"`raw`":         {call(flags, map[string]any{"url": html, "raw": true}), "<p>hello"},
		"a number or boolean as text, `\"5000\"`": {call(flags, map[string]any{"url": html, "max_length": "5000"}), `max_length is "5000": give a whole number from 1 to 999999.`},
		"an argument that is not known":           {call(flags, map[string]any{"url": html, "headers": "a: b"}), `"headers" is not an argument: use url, max_length, start_index, raw, timeout.`},
		"`--user-agent`": {func(t *testing.T) string {
			call(append(slices.Clip(flags), "--user-agent=acme/1"), map[string]any{"url": o.URL("http", "/s/agent/200")})(t)
			return o.Requests("agent")[0].Header.Get("User-Agent")
		}, "acme/1"},
		"`--ignore-robots-txt`": {call(append(slices.Clip(flags), "--ignore-robots-txt"), map[string]any{"url": closed.URL}), "User-agent: *"},
		"`--proxy-url`": {func(t *testing.T) string {
			return fetchctl.With(t.Context(), "", nil, "mcp", "--proxy-url=http://a.example:1").Err
		}, "fetchctl: --proxy-url: there is no such flag: a proxy would choose the addresses. Name a fetchd that has --egress-proxy with --server"},
		"the prompt `fetch`": {func(t *testing.T) string {
			_, err := startMCP(t.Context(), t, flags...).GetPrompt(t.Context(), &sdk.GetPromptParams{Name: "fetch", Arguments: map[string]string{"url": html}})
			return fmt.Sprint(err)
		}, `calling "prompts/get": unknown prompt "fetch"`},
	}
	for line := range strings.Lines(table) {
		cells := strings.Split(line, "|")
		name := strings.TrimSpace(cells[1])
		row, ok := rows[name]
		delete(rows, name)
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if !ok {
				t.Fatal("the row is not run")
			}
			if got := row.run(t); !strings.HasPrefix(got, row.want) {
				t.Errorf("%q, want %q", got, row.want)
			}
		})
	}
	for name := range rows {
		t.Errorf("docs/agents.md has no row %q", name)
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
		{"input of another protocol", "GET / HTTP/1.1\n", nil, cli.ExitFailed, "a client starts this command, as docs/agents.md says"},
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
			got := fetchctl.With(t.Context(), row.stdin, nil, append([]string{"mcp"}, row.args...)...)
			if got.Code != row.code || !strings.Contains(got.Err, row.want) || got.Out != "" || row.want == "" && got.Err != "" {
				t.Errorf("exit status %d, %q, %q; want %d, %q", got.Code, got.Out, got.Err, row.code, row.want)
			}
		})
	}
}
