package main

import (
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math"
	"net"
	"net/netip"
	"net/url"
	"os"
	"reflect"
	"slices"
	"strings"

	"github.com/alecthomas/kong"
	"golang.org/x/net/http/httpguts"

	"fetchd/fetch"
	"fetchd/fetch/egress"
	"fetchd/fetch/urls"
	"fetchd/internal/cli"
	"fetchd/internal/daemon"
	"fetchd/internal/dial"
	"fetchd/internal/secure"
	"fetchd/internal/typo"
)

// settings are the current settings and their sources.
type settings struct {
	commandLine
	command string // serve, config, clean or "token <name>"
	options []option
	strays  []typo.Variable // environment variables that have no effect
}

// option is one setting.
type option struct {
	name         string
	value        reflect.Value // the field
	live, secret bool
	from         source
}

// source is where a setting comes from.
type source struct {
	kind        sourceKind
	file        string
	line        int
	environment string
}

type sourceKind int

const (
	byDefault sourceKind = iota
	byFile
	byEnvironment
	byFlag
)

// String returns the source as "fetchd config" prints it.
func (o source) String() string {
	switch o.kind {
	case byFile:
		return fmt.Sprintf("file %s:%d", o.file, o.line)
	case byEnvironment:
		return "environment " + o.environment
	case byFlag:
		return "flag"
	}
	return "default"
}

// frame returns the command-line frame of fetchd.
func frame(stdout, stderr io.Writer) *cli.Program {
	return &cli.Program{Name: "fetchd", Texts: texts, Streams: cli.Streams{Out: stdout, Err: stderr}}
}

// unusable returns an error about settings that the service cannot start with.
func unusable(err error) error {
	if err == nil {
		return nil
	}
	return &cli.Error{Code: cli.ExitUsage, Err: err}
}

// parse reads the command line, the environment and the file.
func parse(args []string, stdout, stderr io.Writer) (*settings, error) {
	s, file := new(settings), new(configFile)
	ctx, err := frame(stdout, stderr).Parse(&s.commandLine, args, kong.DefaultEnvars("FETCHD"), kong.Resolvers(file))
	switch {
	case errors.Is(err, cli.ErrAnswered): // --help and --version work even if the file does not
		return nil, err
	case file.err != nil:
		return nil, unusable(file.err)
	case err != nil:
		return nil, err
	}
	s.command = ctx.Command()
	s.strays = strays(ctx.Model.Flags)
	for _, flag := range ctx.Model.Flags {
		if storable(flag) {
			s.options = append(s.options, option{name: flag.Name, value: flag.Target,
				live: flag.Tag.Has("live"), secret: flag.Tag.Has("secret"), from: sourceOf(ctx, file, flag)})
		}
	}
	if s.command == "token <name>" {
		return s, nil
	}
	return s, unusable(s.check())
}

// strays returns the variables that look like settings. Variables of the clients, and of the
// examples in the console, have the same prefix.
func strays(flags []*kong.Flag) []typo.Variable {
	known := slices.Concat(dial.Variables, []string{"FETCHD_TOKEN", "FETCHD_PROTO", "FETCHD_ROOT"})
	for _, flag := range flags {
		known = append(known, flag.Envs...)
	}
	return typo.Find(os.Environ(), "FETCHD_", known)
}

func sourceOf(ctx *kong.Context, file *configFile, flag *kong.Flag) source {
	for _, p := range ctx.Path {
		if p.Flag == flag && !p.Resolved {
			return source{kind: byFlag}
		}
	}
	if name := inEnvironment(flag); name != "" {
		return source{kind: byEnvironment, environment: name}
	}
	if e, ok := file.entries[flag.Name]; ok {
		return source{kind: byFile, file: file.path, line: e.line}
	}
	return source{}
}

// wrong returns an error about a setting: its source, its value, the remedy.
func (s *settings) wrong(name, remedy string) error {
	return fmt.Errorf("%s: %s", s.at(name), remedy)
}

// at returns the source of a setting, and its value.
func (s *settings) at(name string) string {
	o := s.options[slices.IndexFunc(s.options, func(o option) bool { return o.name == name })]
	value := o.text()
	switch o.from.kind {
	case byFile:
		return fmt.Sprintf("%s:%d: %s: %s", o.from.file, o.from.line, name, value)
	case byEnvironment:
		return o.from.environment + "=" + value
	}
	return "--" + name + "=" + value
}

// text returns the value without secrets.
func (o *option) text() string {
	if o.secret {
		return withoutUser(o.value.String())
	}
	return fmt.Sprint(o.value.Interface())
}

// hidden replaces a user and a password.
const hidden = "xxxxx"

// withoutUser returns a URL without secrets.
func withoutUser(text string) string {
	if text == "" {
		return ""
	}
	u, err := url.Parse(text)
	if err != nil || u.Opaque != "" || u.Host == "" {
		return hidden
	}
	if u.User != nil {
		u.User = url.User(hidden)
	}
	return u.String()
}

// The values of --non-idempotent-retries.
const (
	nonIdempotentByRequest = "by-request"
	nonIdempotentForbid    = "forbid"
)

// leastMemoryBudget is enough for one fetch with the largest request.
const leastMemoryBudget = 4 << 20

// check rejects values that the types allow.
func (s *settings) check() error {
	const positive = "is out of range, give a positive value"
	proxied, _ := url.Parse(s.EgressProxy)
	resolver, _ := netip.ParseAddrPort(s.EgressResolver)
	for _, row := range []struct {
		name   string
		good   bool
		remedy string
	}{
		{"max-total-timeout", s.MaxTotalTimeout > 0, positive},
		{"max-body-bytes", s.MaxBodyBytes > 0, positive},
		{"memory-budget", s.MemoryBudget == 0 || s.MemoryBudget >= leastMemoryBudget, fmt.Sprintf("is too small, give at least %d, or 0 for half of the memory limit, less 16 MiB", leastMemoryBudget)},
		{"max-fetches", s.MaxFetches >= 0, "is out of range, give a positive value, or 0 for as many as fit into the memory budget"},
		{"max-connections", s.MaxConnections >= 0, "is out of range, give a positive value, or 0 for as many as fit into the memory budget"},
		{"max-connections-per-caller", s.MaxConnectionsPerCaller >= 0, "is out of range, give a positive value, or 0 for half of max-connections"},
		{"max-fetches-per-caller", s.MaxFetchesPerCaller >= 0, "is out of range, give a positive value, or 0 for no limit"},
		{"non-idempotent-retries", slices.Contains([]string{nonIdempotentByRequest, nonIdempotentForbid}, s.NonIdempotentRetries), "is not valid, give by-request or forbid"},
		{"drain-time", s.DrainTime >= 0, "is out of range, give a positive value, or 0s for none"},
		{"egress-allow-port", !slices.Contains(s.EgressAllowPort, 0), "0 is not a port, give one from 1 to 65535"},
		{"egress-resolver", s.EgressResolver == "" || resolver.Port() != 0, "is not usable, give IP:PORT"},
		{"user-agent", httpguts.ValidHeaderFieldValue(s.UserAgent), "has a character that is not allowed in a header: remove it"},
		{"egress-proxy", proxied != nil, "is not a URL, give http://HOST:PORT, https://HOST:PORT or socks5://HOST:PORT"},
		{"log-level", slices.Contains([]string{"debug", "info", "warn", "error"}, s.LogLevel), "is not a level, give debug, info, warn or error"},
		{"log-format", s.LogFormat == "json" || s.LogFormat == "text", "is not a format, give json or text"},
		{"trace-ratio", s.TraceRatio >= 0 && s.TraceRatio <= 1 && !math.IsNaN(s.TraceRatio), "is out of range, give a number from 0 to 1"},
		{"trace-endpoint", s.TraceEndpoint == "" || isHostPort(s.TraceEndpoint), "is not an address, give HOST:PORT"},
	} {
		if !row.good {
			return s.wrong(row.name, row.remedy)
		}
	}
	for _, p := range slices.Concat(s.EgressAllowCIDR, s.EgressDenyCIDR) {
		if p.Addr().Is4In6() {
			return fmt.Errorf("--egress-allow-cidr, --egress-deny-cidr: %s is an IPv4-mapped prefix, which has no effect: give the IPv4 prefix", p)
		}
	}
	for _, name := range s.EgressDenyHost {
		if err := checkDenied(name); err != nil {
			return s.wrong("egress-deny-host", fmt.Sprint(err))
		}
	}
	if err := fetch.CheckNeverReuse(s.EgressNoReuse); err != nil {
		return s.wrong("egress-no-reuse", fmt.Sprint(err))
	}
	if os.Getenv("SSLKEYLOGFILE") != "" {
		return errors.New("SSLKEYLOGFILE is set: it makes programs write the keys of their TLS connections to a file; unset it")
	}
	if err := s.checkConsole(); err != nil {
		return err
	}
	return s.located(daemon.CheckIdentity(s.identityFiles()))
}

// checkDenied rejects an entry of --egress-deny-host that would match nothing.
func checkDenied(name string) error {
	address, err := netip.ParseAddr(strings.Trim(name, "[]"))
	address = address.Unmap().WithZone("")
	switch {
	case err == nil:
		return fmt.Errorf("%q is an address, which no name matches: give --egress-deny-cidr %s/%d", name, address, address.BitLen())
	case (&egress.Policy{DenyHosts: []string{name}}).Check() != nil:
		return fmt.Errorf("%.80q is not usable: %s", name, egress.NameForms)
	case urls.EndsInNumber(name):
		return fmt.Errorf("%q is an address, which no name matches: give its prefix with --egress-deny-cidr", name)
	}
	return nil
}

// checkConsole rejects a console that could not be opened.
func (s *settings) checkConsole() error {
	switch {
	case s.Console && s.HTTPAddr == "":
		return s.wrong("console", "needs --http-addr, the port that serves it")
	case len(s.ConsoleHost) > 0 && !s.Console:
		return s.wrong("console-host", "needs --console")
	}
	return s.located(daemon.CheckConsoleHosts(s.ConsoleHost))
}

// ports returns the ports in the settings.
func (s *settings) ports() ([]daemon.Port, error) {
	all, err := daemon.ResolvePorts(s.GRPCAddr, s.HTTPAddr)
	return all, s.located(err)
}

// located adds the source and the value of a setting to an error about its flag.
func (s *settings) located(err error) error {
	if e, ok := errors.AsType[*daemon.FlagError](err); ok {
		return s.wrong(e.Flag, e.Remedy)
	}
	return err
}

// own returns the addresses of the ports, which no fetch may reach. An address without a host
// means all addresses.
func own(all []daemon.Port) []netip.AddrPort {
	var own []netip.AddrPort
	for _, p := range all {
		at := *p.At
		if len(at.IP) == 0 {
			at.IP = net.IPv6unspecified
		}
		own = append(own, at.AddrPort())
	}
	return own
}

func isHostPort(text string) bool {
	host, port, err := net.SplitHostPort(text)
	return err == nil && host != "" && port != ""
}

// identityFiles returns the files in the settings.
func (s *settings) identityFiles() secure.IdentityFiles {
	return secure.IdentityFiles{Files: secure.Files{Cert: s.TLSCertFile, Key: s.TLSKeyFile, ClientCA: s.TLSClientCAFile},
		Tokens: s.TokenFile, SANs: s.TLSAllowSAN}
}

func (s *settings) setLevel(level *slog.LevelVar) {
	_ = level.UnmarshalText([]byte(s.LogLevel)) // check has validated it
}
