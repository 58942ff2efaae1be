package main

import (
	"errors"
	"fmt"
	"io"
	"net/netip"
	"os"
	"runtime/debug"
	"slices"
	"time"

	"github.com/alecthomas/kong"
)

// version is set when the program is built: -ldflags "-X main.version=v1.2.3".
var version string

// The exit codes.
const (
	exitOK    = 0
	exitError = 1
	exitUsage = 2 // as the flag package has it
)

const description = `Fetch URLs for other programs, over gRPC.

A caller sends a URL with a redirect and retry policy, watches each attempt as
it happens, and gets one typed outcome. The contract is fetchd.v1.FetchService;
ask the running service for it: grpcurl -plaintext HOST:PORT describe.

Only public addresses on ports 80 and 443 can be reached. Open others by name:

  fetchd --egress-allow-cidr 127.0.0.0/8 --egress-allow-port 9080

Every flag can also be set in the environment: --grpc-addr is FETCHD_GRPC_ADDR,
lists are separated by commas. A flag wins over the environment.

On SIGTERM or SIGINT the service turns NOT_SERVING, takes no new call, ends
waits as SHUTDOWN and lets attempts finish for --drain-time. A second signal
ends it at once.

Exit code: 0 after a clean stop, 1 if it cannot start, was cut off while
draining, or --healthcheck finds it not serving, 2 for wrong flags.`

// flags is the command line and the environment.
type flags struct {
	GRPCAddr string `name:"grpc-addr" help:"Address to serve gRPC on. It is plaintext: keep it on loopback or behind something that encrypts." default:"127.0.0.1:8080"`

	EgressAllowCIDR []netip.Prefix `name:"egress-allow-cidr" help:"Open addresses that are closed by default, such as 10.1.0.0/16. Repeatable." placeholder:"CIDR"`
	EgressAllowPort []uint16       `name:"egress-allow-port" help:"Open a port besides 80 and 443. Repeatable." placeholder:"PORT"`

	EgressDenyCIDR []netip.Prefix `name:"egress-deny-cidr" help:"Close addresses, whatever is open. Repeatable." placeholder:"CIDR"`
	EgressDenyHost []string       `name:"egress-deny-host" help:"Close a name, or with *.NAME those under it. Repeatable." placeholder:"NAME"`
	EgressResolver string         `name:"egress-resolver" help:"DNS server that origins are looked up with. The default is the system's." placeholder:"HOST:PORT"`
	EgressCAFile   string         `name:"egress-ca-file" help:"Certificate authorities in PEM that origins may be signed by, besides the system's." type:"existingfile" placeholder:"FILE"`
	EgressProxy    string         `name:"egress-proxy" help:"Proxy that carries every request: http, https or socks5. It looks names up itself, so that of a target only the URL is judged: its port, name and literal address." placeholder:"URL"`
	EgressCheck    string         `name:"egress-check" help:"Say what the egress settings make of a URL, by which rule, and exit: 0 allowed, 1 forbidden, 2 invalid." placeholder:"URL" env:"-"`

	MaxTotalTimeout         time.Duration `help:"Longest that a fetch may take; longer ones are clamped." default:"15m"`
	MaxBodyBytes            int64         `help:"Largest max_size_bytes of a request; larger ones are clamped." default:"1099511627776"`
	HoldBackBudget          int64         `help:"Bytes that all fetches together may hold back." default:"268435456"`
	MaxFetches              int           `help:"Fetches under way at once; others are refused." default:"10000"`
	MaxFetchesPerCaller     int           `help:"Fetches under way for one address. 0: no limit of its own." default:"0"`
	MaxConnections          int           `help:"Connections of callers at once; others wait." default:"4096"`
	MaxConnectionsPerCaller int           `help:"Connections of one address at once; others are closed." default:"512"`
	DrainTime               time.Duration `help:"How long attempts may go on after SIGTERM." default:"30s"`
	UserAgent               string        `help:"User-Agent where the caller sets none. The default is fetchd/VERSION." placeholder:"TEXT"`

	LogLevel  string `help:"Lowest level that is logged: ${enum}." default:"info" enum:"debug,info,warn,error"`
	LogFormat string `help:"Form of the log on standard error: ${enum}." default:"json" enum:"json,text"`

	Healthcheck bool             `help:"Ask the service at --grpc-addr whether it serves, and exit." env:"-"`
	Version     kong.VersionFlag `help:"Print the version and exit." env:"-"`
}

// parse fills f. It is done where kong has answered by itself (--help) or args
// are wrong.
func parse(f *flags, args []string, stdout, stderr io.Writer) (code int, done bool) {
	exited := false
	parser, err := kong.New(f,
		kong.Name("fetchd"), kong.Description(description),
		kong.DefaultEnvars("FETCHD"), kong.Vars{"version": "fetchd " + versionText()},
		kong.Writers(stdout, stderr),
		kong.Exit(func(c int) { code, exited = c, true }),
	)
	if err == nil {
		_, err = parser.Parse(args)
	}
	if exited {
		return code, true
	}
	if err == nil {
		err = f.check()
	}
	if err != nil {
		_, _ = fmt.Fprintf(stderr, "fetchd: %v (see fetchd --help)\n", err)
		return exitUsage, true
	}
	return exitOK, false
}

// check refuses values that the types let through.
func (f *flags) check() error {
	for _, row := range []struct {
		flag string
		bad  bool
	}{
		{"--max-total-timeout", f.MaxTotalTimeout <= 0},
		{"--max-body-bytes", f.MaxBodyBytes <= 0},
		{"--hold-back-budget", f.HoldBackBudget <= 0},
		{"--max-fetches", f.MaxFetches <= 0},
		{"--max-connections", f.MaxConnections <= 0},
		{"--max-connections-per-caller", f.MaxConnectionsPerCaller <= 0},
		{"--max-fetches-per-caller", f.MaxFetchesPerCaller < 0},
		{"--drain-time", f.DrainTime < 0},
	} {
		if row.bad {
			return fmt.Errorf("%s: is out of range, give a positive value", row.flag)
		}
	}
	for _, p := range slices.Concat(f.EgressAllowCIDR, f.EgressDenyCIDR) {
		if p.Addr().Is4In6() {
			return fmt.Errorf("--egress-allow-cidr, --egress-deny-cidr: %s is an IPv4-mapped prefix, which means nothing: give the IPv4 one", p)
		}
	}
	if os.Getenv("SSLKEYLOGFILE") != "" {
		return errors.New("SSLKEYLOGFILE is set: it asks programs to write the keys of their TLS connections to a file, unset it")
	}
	return nil
}

// versionText is what was set at the build, or what Go knows of it.
func versionText() string {
	if version != "" {
		return version
	}
	if info, ok := debug.ReadBuildInfo(); ok && info.Main.Version != "" && info.Main.Version != "(devel)" {
		return info.Main.Version
	}
	return "dev"
}
