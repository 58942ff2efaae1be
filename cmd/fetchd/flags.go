package main

import (
	"net/netip"
	"time"

	"fetchd/internal/cli"

	"github.com/alecthomas/kong"
)

const description = `Fetch URLs for other programs, over gRPC.

A caller sends a URL with a redirect and retry policy, watches each attempt as
it happens, and gets one typed outcome. The contract is fetchd.v1.FetchService;
ask the running service for it: grpcurl -plaintext HOST:PORT describe.

Only public addresses on ports 80 and 443 can be reached. Open others by name:

  fetchd --egress-allow-cidr 127.0.0.0/8 --egress-allow-port 9080

Every flag can also be set in the environment, --grpc-addr as FETCHD_GRPC_ADDR,
lists separated by commas; and in the YAML file that --config names, as
"grpc-addr: HOST:PORT", lists as lists. A flag wins over the environment, which
wins over the file. "fetchd config" prints what is in force, and why.

Beyond loopback a port needs certificates, or --allow-plaintext. To know the
callers, give --token-file, --tls-client-ca-file, or both.

On SIGHUP the service reads its files again: limits, tokens, the log's level,
--tls-allow-san and certificates change at once, the rest needs a restart.
Certificates are looked at every minute as well. What is wrong is logged, and
everything stays as it was.

On SIGTERM or SIGINT the service turns NOT_SERVING, takes no new call, ends
waits as SHUTDOWN and lets attempts finish for --drain-time. Those that outlast
it end as SHUTDOWN as well. A second signal ends the service at once.`

const examples = `
  fetchd --egress-allow-cidr 127.0.0.0/8 --egress-allow-port 9080
  fetchd config --config fetchd.yaml
  fetchd token crawler
  fetchd --egress-check http://169.254.169.254/
`

// flags are the settings: what the command line, the environment and the file
// may hold. A field tagged live changes on SIGHUP, one tagged secret is never
// shown whole.
type flags struct {
	ConfigFile string `name:"config" help:"YAML file of settings. Its keys are these flags without dashes in front." placeholder:"FILE"`

	GRPCAddr string `name:"grpc-addr" help:"Address to serve gRPC on." default:"127.0.0.1:8080"`
	HTTPAddr string `name:"http-addr" help:"Address to serve HTTP on: the calls as JSON, metrics, health. Empty: none." default:"127.0.0.1:8081"`

	Console     bool     `help:"Serve a page at /console/ of the HTTP port, on which people try requests and see why they end as they do. Whoever may call the HTTP port may use it."`
	ConsoleHost []string `help:"Name of this service by which browsers may call the HTTP port, besides localhost and addresses. Needed on loopback and in plaintext, where no certificate tells the name. Repeatable." placeholder:"NAME"`

	AllowPlaintext  bool     `help:"Serve without TLS beyond loopback: for a network where something else encrypts and knows the callers."`
	TLSCertFile     string   `name:"tls-cert-file" help:"The service's certificate and those between it and an authority, in PEM, for both ports." placeholder:"FILE"`
	TLSKeyFile      string   `name:"tls-key-file" help:"Its private key, in PEM." placeholder:"FILE"`
	TLSClientCAFile string   `name:"tls-client-ca-file" help:"Authorities in PEM. Callers must show a certificate that one of them signed." placeholder:"FILE"`
	TLSAllowSAN     []string `name:"tls-allow-san" live:"" help:"Take only callers whose certificate has this DNS name, URI or email address, exactly. Repeatable. None: all that are signed." placeholder:"NAME"`
	TokenFile       string   `help:"YAML list of callers: {name, sha256, max-fetches}. They send an Authorization header: Bearer TOKEN. fetchd token NAME makes one." placeholder:"FILE"`

	EgressAllowCIDR []netip.Prefix `name:"egress-allow-cidr" help:"Open addresses that are closed by default, such as 10.1.0.0/16. Repeatable." placeholder:"CIDR"`
	EgressAllowPort []uint16       `name:"egress-allow-port" help:"Open a port besides 80 and 443. Repeatable." placeholder:"PORT"`

	EgressDenyCIDR []netip.Prefix `name:"egress-deny-cidr" help:"Close addresses, whatever is open. Repeatable." placeholder:"CIDR"`
	EgressDenyHost []string       `name:"egress-deny-host" help:"Close a name, or with *.NAME those under it. Repeatable." placeholder:"NAME"`
	EgressResolver string         `name:"egress-resolver" help:"DNS server that origins are looked up with. The default is the system's." placeholder:"HOST:PORT"`
	EgressCAFile   string         `name:"egress-ca-file" help:"Certificate authorities in PEM that origins may be signed by, besides the system's." placeholder:"FILE"`
	OriginsFile    string         `name:"origins-file" help:"YAML with credentials for named origins (providers) and with their authorities and client certificates (profiles). See docs/operating.md." placeholder:"FILE"`
	EgressProxy    string         `name:"egress-proxy" secret:"" help:"Proxy that carries every request: http, https or socks5. It looks names up itself, so that of a target only the URL is judged: its port, name and literal address." placeholder:"URL"`
	EgressCheck    string         `name:"egress-check" help:"Print whether the egress settings allow a URL, and by which rule. Exit code: 0 allowed, 1 forbidden or not looked up, 2 invalid." placeholder:"URL" env:"-"`

	MaxTotalTimeout         time.Duration `live:"" help:"Longest that a fetch may take; longer ones are clamped." default:"15m"`
	MaxBodyBytes            int64         `live:"" help:"Largest max_size_bytes of a request; larger ones are clamped." default:"1099511627776"`
	MemoryBudget            int64         `help:"Bytes that may be held for callers: fetches in flight, requests, bodies and unread answers. More is refused. 0: half of the memory limit, less 16 MiB. The limit is GOMEMLIMIT, or else 90 % of the cgroup's." default:"0"`
	MaxFetches              int           `live:"" help:"Fetches in flight at once; others are refused. 0: as many as fit into the memory budget, 10000 at most." default:"0"`
	MaxFetchesPerCaller     int           `live:"" help:"Fetches under way for one caller, which is a name or else an address. 0: no limit of its own." default:"0"`
	NonIdempotentRetries    string        `live:"" complete:"by-request,forbid" help:"Whether POST and PATCH may be tried again: by-request, where the request has an idempotency key and sets allow_non_idempotent, or forbid, which refuses requests that set it." default:"by-request"`
	MaxConnections          int           `help:"Connections at once on each port; others wait. If callers must authenticate, connections without an authenticated call get a quarter. 0: one for each 192 KiB of the memory budget, 4096 at most." default:"0"`
	MaxConnectionsPerCaller int           `help:"Connections of one address at once; others are closed. 0: half of --max-connections, 512 at most." default:"0"`
	DrainTime               time.Duration `help:"How long attempts may go on after SIGTERM." default:"30s"`
	UserAgent               string        `help:"User-Agent where the caller sets none. The default is fetchd/VERSION." placeholder:"TEXT"`
	OmitHopsHeader          bool          `help:"Do not send the Fetchd-Hops header, by which the service notices that it is asked to fetch itself through a proxy or a load balancer."`

	TraceEndpoint string  `help:"Collector that takes traces as OTLP over gRPC. Empty: none." placeholder:"HOST:PORT"`
	TraceRatio    float64 `help:"Part of the fetches that are traced where the caller does not say: 0 to 1." default:"1"`
	TraceOrigins  bool    `help:"Send the trace's traceparent header to origins."`

	LogLevel  string `live:"" complete:"debug,info,warn,error" help:"Lowest level that is logged: debug, info, warn or error." default:"info"`
	LogFormat string `complete:"json,text" help:"Form of the log on standard error: json or text." default:"json"`

	Healthcheck bool             `help:"Ask the service at --grpc-addr whether it serves, and exit." env:"-"`
	Version     kong.VersionFlag `help:"Print the version and exit." env:"-"`
}

// commandLine is the flags and what may be done with them.
type commandLine struct {
	flags
	Serve  struct{} `cmd:"" default:"1" help:"Serve. It is what happens without a command."`
	Config struct{} `cmd:"" help:"Print the settings in force as YAML, and where each comes from. Exits 2 where a start would be refused."`
	Token  struct {
		Name string `arg:"" help:"Name of the caller: 1 to 64 bytes."`
	} `cmd:"" help:"Make a token. It is printed once, with the line for --token-file."`
	Completion cli.Completion `cmd:"" help:"Print a completion script for bash, zsh or fish."`
}
