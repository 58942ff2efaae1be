package main

import (
	"context"
	"errors"
	"net/netip"
	"os"
	"slices"
	"time"

	"fetchd/conformance"
	"fetchd/conformance/guardrun"
	"fetchd/conformance/kit"
	"fetchd/internal/cli"
	"fetchd/internal/version"
)

type guardCmd struct {
	Limit       time.Duration `placeholder:"DURATION" default:"30s" help:"Stop a guard that runs longer for one row. Default: ${default}."`
	Proxy       string        `placeholder:"HOST:PORT" group:"Kind of guard:" help:"CMD is an HTTP proxy that listens on this address, such as 127.0.0.1:3128. It starts again for each row."`
	MCP         bool          `name:"mcp" group:"Kind of guard:" help:"CMD is an MCP server on standard input and output, with a tool that fetches a URL. It starts again for each row."`
	MCPTool     string        `name:"mcp-tool" placeholder:"NAME" group:"Kind of guard:" help:"The tool of the MCP server. Default: the only one that takes a text named url."`
	StringCheck bool          `group:"Kind of guard:" help:"CMD only checks the URL, and has a plain fetch behind it. The record says so."`
	Only        []string      `placeholder:"CATEGORY|NAME" group:"What is run:" help:"Run only the rows of this category or with this name. Repeatable."`
	Name        string        `placeholder:"NAME" group:"Report:" help:"Name of the guard in the report. Default: that of its program."`
	Release     string        `placeholder:"VERSION" group:"Report:" help:"Version of the guard in the report."`
	Record      string        `placeholder:"FILE" group:"Report:" help:"Also write the results to this file, as JSON. The same results give the same bytes, so that records can be kept and compared."`
	Command     []string      `arg:"" optional:"" passthrough:"" placeholder:"CMD" help:"The guard and its arguments. For a client, {url} is replaced by the URL, {out} by a file for the body. Without {url} the URL is appended, and without {out} the body is read from standard output."`
}

func (c *guardCmd) run(ctx context.Context, a *app) error {
	rows, err := c.choose()
	if err != nil {
		return err
	}
	g, err := c.guard()
	if err != nil {
		return err
	}
	results, err := guardrun.Run(ctx, g, rows)
	switch {
	case errors.Is(err, guardrun.ErrNoNetwork):
		return &cli.Error{Code: cli.ExitUsage, Err: err, Hint: "Run it on Linux as root, in a container with CAP_SYS_ADMIN, CAP_NET_ADMIN and CAP_NET_BIND_SERVICE."}
	case err != nil:
		return cli.AboutFlag("CMD", err)
	}
	record, err := guardrun.Record(version.Long(), g, results)
	if err != nil {
		return err
	}
	out, p := &cli.Printer{W: a.Out}, a.Painter(a.Out)
	out.Printf("%s  %s\n\n", p.Paint(cli.Bold, cli.Escape(g.Name)), p.Paint(cli.Dim, record.Kind))
	for i := range record.Results {
		for _, failure := range record.Results[i].Failures {
			out.Printf("%s %s\n  %s\n", p.Paint(cli.Red, "FAILED"), record.Results[i].Name, cli.Escape(failure))
		}
	}
	if err := out.End(); err != nil {
		return err
	}
	return conclude(a, record, "category", c.Record)
}

// guard returns what is judged.
func (c *guardCmd) guard() (*guardrun.Guard, error) {
	if len(c.Command) == 0 {
		if c.Proxy != "" {
			return nil, &cli.Error{Code: cli.ExitUsage, Err: errors.New("--proxy needs the CMD that starts the proxy"), Hint: "A proxy that runs already cannot be judged: it must be in the network of the judge, in which every address answers."}
		}
		return nil, cli.UsageError("CMD", "is missing")
	}
	g := &guardrun.Guard{Command: kit.NewCommand(c.Name, c.Command), Address: c.Proxy, Tool: c.MCPTool, Release: c.Release}
	g.Limit, g.Env = c.Limit, os.Environ()
	switch {
	case c.Proxy != "" && (c.MCP || c.StringCheck) || c.MCP && c.StringCheck:
		return nil, cli.UsageError("--proxy", "--mcp and --string-check exclude each other")
	case c.MCPTool != "" && !c.MCP:
		return nil, cli.UsageError("--mcp-tool", "needs --mcp")
	case c.Proxy != "":
		g.Kind = guardrun.Proxy
		if at, err := netip.ParseAddrPort(c.Proxy); err != nil || at.Port() == 0 {
			return nil, cli.UsageError("--proxy", "must be an IP address and a port, such as 127.0.0.1:3128")
		} else if at.Port() == 80 || at.Port() == 443 {
			return nil, cli.UsageError("--proxy", "must have another port than 80 and 443, which are those of the origins")
		}
	case c.MCP:
		g.Kind = guardrun.MCP
	case c.StringCheck:
		g.Kind = guardrun.StringCheck
	}
	return g, nil
}

// choose returns the rows to run.
func (c *guardCmd) choose() ([]conformance.GuardRow, error) {
	rows, err := conformance.GuardRows()
	if err != nil || len(c.Only) == 0 {
		return rows, err
	}
	used := make(map[string]bool)
	rows = slices.DeleteFunc(rows, func(r conformance.GuardRow) bool {
		used[r.Name], used[r.Category] = true, true
		return !slices.Contains(c.Only, r.Name) && !slices.Contains(c.Only, r.Category)
	})
	for _, word := range c.Only {
		if !used[word] {
			return nil, cli.UsageError("--only", `"`+word+`" is neither a category nor a row`)
		}
	}
	return rows, nil
}
