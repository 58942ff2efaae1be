// Package mcp gives a language model a tool that fetches. It is what "fetchctl mcp" does.
package mcp

import (
	"context"
	"fmt"
	"log/slog"
	"net/netip"
	"slices"
	"strings"

	"fetchd/cmd/fetchctl/mcp/tools"
	"fetchd/cmd/fetchctl/service"
	"fetchd/fetch"
	"fetchd/fetch/urls"
	"fetchd/internal/cli"
	"fetchd/internal/policies"
	"fetchd/internal/version"
	"fetchd/server"
)

// Command is the command "fetchctl mcp".
type Command struct {
	UserAgent       string        `group:"Pages:" placeholder:"TEXT" help:"User-Agent of every request. Its leading letters are the name for robots.txt. Default: fetchd-mcp and the version."`
	IgnoreRobotsTxt bool          `name:"ignore-robots-txt" group:"Pages:" help:"Fetch pages that their robots.txt forbids."`
	MaxPageSize     *cli.ByteSize `group:"Pages:" placeholder:"SIZE" help:"Maximum size of a page, and of its text, from 1KiB to 64MiB. The rest is left out. Default: 4MiB."`
	AuthProvider    []string      `sep:"none" group:"Pages:" placeholder:"NAME=ORIGIN" help:"Let the service send the credential of its provider NAME to ORIGIN, such as wiki=https://wiki.example.com. Repeatable; requires --server."`

	Structured bool `group:"Results:" help:"Add the outcome to each result as structured content, for programs: attempts, hops, headers and digest. Some clients show the model nothing else then."`

	EgressAllowCIDR []netip.Prefix `name:"egress-allow-cidr" group:"Service:" placeholder:"CIDR" help:"Allow addresses that are not public, such as 10.1.0.0/16. Repeatable. Not with --server, whose operator decides."`
	EgressAllowPort []uint16       `name:"egress-allow-port" group:"Service:" placeholder:"PORT" help:"Allow a port in addition to 80 and 443. Repeatable. Not with --server."`

	PoliciesFile string `name:"policies-file" group:"Service:" placeholder:"FILE" help:"YAML file with policies, as for fetchd; docs/policies.md. --policy names the one for all fetches. Not with --server, whose operator decides."`
	Policy       string `group:"Service:" placeholder:"NAME" help:"Fetch under this policy of --policies-file: only what it and the other flags permit."`

	service.Connection
}

// The limits of --max-page-size.
const (
	minPageSize = 1 << 10
	maxPageSize = 64 << 20
)

// Run serves the client on standard input and output until it leaves.
func (c *Command) Run(ctx context.Context, p *cli.Program) int {
	config, err := c.config()
	if err != nil {
		return service.Fail(ctx, p, c.Server, err)
	}
	set, err := c.policies()
	if err != nil {
		return service.Fail(ctx, p, c.Server, err)
	}
	for _, p := range set.Policies() { // one, or none
		config.Under(p.Request.MaxSizeBytes, p.Request.MaxTotalTimeout)
	}
	svc, err := c.service(set)
	if err != nil {
		return service.Fail(ctx, p, c.Server, err)
	}
	defer svc.Close()
	config.Service, config.Logger = svc, slog.New(slog.NewTextHandler(p.Err, &slog.HandlerOptions{Level: slog.LevelWarn}))
	if cli.IsTerminal(p.Out) {
		p.Hintf("This is a server of the Model Context Protocol, which a client starts: docs/agents.md says how. Control-D ends it.")
	}
	return service.Fail(ctx, p, c.Server, tools.Serve(ctx, tools.New(config), p.In, p.Out))
}

// config returns the configuration of the tools. Errors are usage errors.
func (c *Command) config() (tools.Config, error) {
	config := tools.Config{UserAgent: c.UserAgent, IgnoreRobots: c.IgnoreRobotsTxt, Structured: c.Structured}
	if c.MaxPageSize != nil {
		if config.MaxPageBytes = int64(*c.MaxPageSize); config.MaxPageBytes < minPageSize || config.MaxPageBytes > maxPageSize {
			return config, cli.UsageError("--max-page-size", fmt.Sprintf("is %d: give 1KiB to 64MiB", config.MaxPageBytes))
		}
	}
	if strings.ContainsFunc(c.UserAgent, func(r rune) bool { return r < ' ' || r > '~' }) {
		return config, cli.UsageError("--user-agent", fmt.Sprintf("is %.60q: give printable ASCII", c.UserAgent))
	}
	if len(c.AuthProvider) > 0 && c.Server == "" {
		return config, cli.UsageError("--auth-provider", "names a provider of a service: give --server too")
	}
	config.AuthProviders = make(map[string]string, len(c.AuthProvider))
	for _, pair := range c.AuthProvider {
		name, origin, _ := strings.Cut(pair, "=")
		u, err := urls.Parse(origin)
		if err != nil || name == "" || strings.Trim(u.RequestURI(), "/") != "" || u.Fragment != "" {
			return config, cli.UsageError("--auth-provider", fmt.Sprintf("is %.60q: give NAME=ORIGIN, such as wiki=https://wiki.example.com", pair))
		}
		config.AuthProviders[tools.Origin(u)] = name
	}
	return config, nil
}

// policies returns a set with the policy for all fetches, or nil if there is none.
func (c *Command) policies() (*policies.Set, error) {
	switch {
	case c.PoliciesFile == "" && c.Policy == "":
		return nil, nil //nolint:nilnil // no policy
	case c.Server != "":
		return nil, cli.UsageError("--policies-file, --policy", "are for the service inside fetchctl: with --server or FETCHD_SERVER the policy applies that its operator has given to your token")
	case c.PoliciesFile == "":
		return nil, cli.UsageError("--policy", "names a policy of a file: give --policies-file too")
	case c.Policy == "":
		return nil, cli.UsageError("--policies-file", "has policies for many callers: name one with --policy")
	}
	all, err := policies.Read(c.PoliciesFile, nil)
	if err != nil {
		return nil, cli.UsageError("--policies-file", fmt.Sprint(err))
	}
	one := all.Only(c.Policy)
	if one == nil {
		return nil, cli.UsageError("--policy", fmt.Sprintf("%.60q is not a policy of %s", c.Policy, c.PoliciesFile))
	}
	if one.Policies()[0].Report {
		return nil, cli.UsageError("--policy", fmt.Sprintf("%.60q has the mode report, which forbids nothing: name a policy that is enforced", c.Policy))
	}
	return one, nil
}

// service connects to the service of the flags. The service inside reaches public addresses only,
// because a model chooses the URLs.
func (c *Command) service(set *policies.Set) (*service.Service, error) {
	switch {
	case c.Server != "" && len(c.EgressAllowCIDR)+len(c.EgressAllowPort) > 0:
		return nil, cli.UsageError("--egress-allow-cidr, --egress-allow-port", "are for the service inside fetchctl: leave them out with --server or FETCHD_SERVER")
	case c.Server != "":
		return c.Connect(nil)
	case slices.Contains(c.EgressAllowPort, 0):
		return nil, cli.UsageError("--egress-allow-port", "0 is not a port: give one from 1 to 65535")
	}
	return service.Start(server.Config{Fetch: fetch.Config{
		Egress:    fetch.Egress{AllowCIDRs: c.EgressAllowCIDR, AllowPorts: c.EgressAllowPort},
		UserAgent: "fetchd/" + version.String(),
	}, Policies: set}, nil)
}

// Manual says what to use instead of a flag.
func (c *Command) Manual() cli.Manual {
	return cli.Manual{Answers: map[string]string{"--proxy-url": "a proxy would choose the addresses. Name a fetchd that has --egress-proxy with --server"}}
}
