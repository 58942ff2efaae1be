package main

import (
	_ "embed"
	"net/netip"
	"time"

	"fetchd/internal/cli"

	"github.com/alecthomas/kong"
)

// texts are the long texts of --help; see [cli.Program].
//
//go:embed help.txt
var texts string

// flags are the settings, from the command line, the environment or the file. A field tagged
// live changes on SIGHUP. A field tagged secret is never printed in full.
type flags struct {
	ConfigFile string `name:"config" help:"YAML file with settings. Its keys are the flags without the leading dashes." placeholder:"FILE"`

	GRPCAddr string `name:"grpc-addr" help:"Address of the gRPC port." default:"127.0.0.1:8080"`
	HTTPAddr string `name:"http-addr" help:"Address of the HTTP port: the API as JSON, metrics, health. Empty: no HTTP port." default:"127.0.0.1:8081"`

	Console     bool     `help:"Serve the console at /console/ of the HTTP port: a page on which people try requests and see why they end as they do. Everyone who may call the HTTP port may use it."`
	ConsoleHost []string `help:"Host name by which browsers may call the HTTP port, in addition to localhost and IP addresses. Needed on loopback and in plaintext, where no certificate has the name. Repeatable." placeholder:"NAME"`

	AllowPlaintext  bool     `help:"Allow ports without TLS that are not on loopback. For networks where something else encrypts and authenticates."`
	TLSCertFile     string   `name:"tls-cert-file" help:"Certificate of the service, with its intermediate certificates, in PEM, for both ports." placeholder:"FILE"`
	TLSKeyFile      string   `name:"tls-key-file" help:"Private key of the certificate, in PEM." placeholder:"FILE"`
	TLSClientCAFile string   `name:"tls-client-ca-file" help:"Certificate authorities in PEM. Callers must present a certificate signed by one of them." placeholder:"FILE"`
	TLSAllowSAN     []string `name:"tls-allow-san" live:"" help:"Accept only callers whose certificate has exactly this DNS name, URI or email address. Repeatable. Default: accept every signed certificate." placeholder:"NAME"`
	TokenFile       string   `help:"YAML list of callers: {name, sha256, max-fetches}. Callers send the header Authorization: Bearer TOKEN. \"fetchd token NAME\" creates a token." placeholder:"FILE"`

	EgressAllowCIDR []netip.Prefix `name:"egress-allow-cidr" help:"Allow addresses that are forbidden by default, such as 10.1.0.0/16. Repeatable." placeholder:"CIDR"`
	EgressAllowPort []uint16       `name:"egress-allow-port" help:"Allow a port in addition to 80 and 443. Repeatable." placeholder:"PORT"`

	EgressDenyCIDR []netip.Prefix `name:"egress-deny-cidr" help:"Forbid addresses, even if another flag allows them. Repeatable." placeholder:"CIDR"`
	EgressDenyHost []string       `name:"egress-deny-host" help:"Forbid a host name, or with *.NAME all names below it. Repeatable." placeholder:"NAME"`
	EgressResolver string         `name:"egress-resolver" help:"DNS server for the names of origins. Default: that of the system." placeholder:"IP:PORT"`
	EgressCAFile   string         `name:"egress-ca-file" help:"Certificate authorities in PEM for the certificates of origins, in addition to those of the system." placeholder:"FILE"`

	EgressIntermediates string `help:"Certificates of intermediate authorities in PEM, for origins that do not send theirs. They are not trusted. Changes need no restart." placeholder:"FILE"`

	OriginsFile   string   `name:"origins-file" help:"YAML file with credentials for named origins (providers), and with certificate authorities and client certificates for them (profiles). Changes need no restart. See docs/operating.md." placeholder:"FILE"`
	PoliciesFile  string   `name:"policies-file" help:"YAML file with policies: what single callers may reach and ask for, with a mode that only reports. A policy narrows what the other settings permit. Changes need no restart. See docs/policies.md." placeholder:"FILE"`
	StoresFile    string   `name:"stores-file" help:"YAML file with stores: directories and S3 buckets that take bodies, or records as WARC files, and the credentials for them. Changes need no restart. See docs/stores.md and docs/warc.md." placeholder:"FILE"`
	EgressProxy   string   `name:"egress-proxy" secret:"" help:"Proxy for every request: http, https or socks5. The proxy resolves the names, so the egress policy only checks the URL: port, name and literal address." placeholder:"URL"`
	EgressNoReuse []string `name:"egress-no-reuse" help:"Send every request to a host over a new HTTP/1.1 connection that no other request uses, so that no response can be the answer to another request. * means all hosts. Costs time and connections. Repeatable." placeholder:"HOST[:PORT]"`

	MaxTotalTimeout         time.Duration `live:"" help:"Maximum time for a fetch. Longer limits in requests are reduced to it." default:"15m"`
	MaxBodyBytes            int64         `live:"" help:"Maximum max_size_bytes of a request. Larger values are reduced to it." default:"1099511627776"`
	MemoryBudget            int64         `help:"Maximum memory in bytes for fetches in flight, requests, bodies and unread responses. Beyond it, calls are refused. 0: half of the memory limit, minus 16 MiB. The memory limit is GOMEMLIMIT, or else 90 % of the cgroup's limit." default:"0"`
	MaxFetches              int           `live:"" help:"Maximum number of fetches in flight. More are refused. 0: as many as fit into the memory budget and the limit of open files, at most 10000." default:"0"`
	MaxFetchesPerCaller     int           `live:"" help:"Maximum number of fetches in flight for one caller. A caller is a name, or else an address. 0: no separate limit." default:"0"`
	NonIdempotentRetries    string        `live:"" complete:"by-request,forbid" help:"Retries of POST and PATCH. by-request allows them if the request has an idempotency key and sets allow_non_idempotent. forbid refuses requests that set it." default:"by-request"`
	MaxConnections          int           `help:"Maximum number of connections on each port. More wait. If callers must authenticate, a quarter of it is for connections without an authenticated call. 0: one for each 192 KiB of the memory budget, at most 4096, and as many as fit into the limit of open files." default:"0"`
	MaxConnectionsPerCaller int           `help:"Maximum number of connections from one address. More are closed. 0: half of --max-connections, at most 512." default:"0"`
	DrainTime               time.Duration `help:"How long attempts may continue after SIGTERM." default:"30s"`
	UserAgent               string        `help:"User-Agent for requests that set none. Default: fetchd/VERSION." placeholder:"TEXT"`
	OmitHopsHeader          bool          `help:"Do not send the Fetchd-Hops header. Without it the service cannot detect that it fetches itself through a proxy or a load balancer."`

	TraceEndpoint string  `help:"Collector for traces, OTLP over gRPC. Empty: no traces." placeholder:"HOST:PORT"`
	TraceRatio    float64 `help:"Fraction of fetches to trace if the caller does not decide: 0 to 1." default:"1"`

	LogLevel  string `live:"" complete:"debug,info,warn,error" help:"Minimum level of log lines: debug, info, warn or error." default:"info"`
	LogFormat string `complete:"json,text" help:"Format of the log on standard error: json or text." default:"json"`

	Version kong.VersionFlag `help:"Print the version and exit." env:"-"`
}

// newKey is the flags of keys new.
type newKey struct {
	Folder      string         `arg:"" help:"Folder for the file. It is made if it does not exist."`
	Algorithm   string         `complete:"ed25519,ecdsa-p256-sha256" help:"Algorithm: ed25519 or ecdsa-p256-sha256." default:"ed25519" env:"-"`
	StartsAfter *time.Duration `placeholder:"DURATION" help:"How long the key is only published before it signs. It must exceed the time for which verifiers cache the directory. Default: 24h if the folder has a key, but no longer than the last of them signs; 0 if it has none." env:"-"`
	ValidFor    time.Duration  `help:"How long until the key neither signs nor is published. 0: for ever." default:"0s" env:"-"`
}

// keyDirectory is the arguments of keys directory.
type keyDirectory struct {
	Paths []string `arg:"" help:"Files with keys, or folders of them, as in key-files."`
}

// keyTools is the commands for keys.
type keyTools struct {
	New       newKey       `cmd:"" ownflags:"" help:"Make a key pair for http-signature and write it to a new file in a folder, as a JWK. The newest key that has started signs, and the directory has all of them."`
	Directory keyDirectory `cmd:"" ownflags:"" help:"Print the directory of the public keys, as the service serves it for the profile web-bot-auth, for hosting elsewhere."`
}

// newToken is the argument of token.
type newToken struct {
	Name string `arg:"" help:"Name of the caller: 1 to 64 bytes."`
}

// urlCheck is the arguments of egress-check.
type urlCheck struct {
	URL    string `arg:"" help:"The URL."`
	Caller string `help:"Name of a caller, or address:ADDRESS for one without a name. Its policy in --policies-file is asked too, and every rule is printed with what it says." placeholder:"NAME" env:"-"`
}

// Manual says what earlier flags mean.
func (*commandLine) Manual() cli.Manual {
	return cli.Manual{Answers: map[string]string{
		"--egress-check":  "the command fetchd egress-check URL checks one",
		"--healthcheck":   "the command fetchd healthcheck checks the service",
		"--trace-origins": "origins get no trace context",
	}}
}

// policiesCheck is the argument of policies check.
type policiesCheck struct {
	File string `arg:"" help:"The file."`
}

// commandLine is the flags and the commands.
type commandLine struct {
	flags
	Serve       struct{} `cmd:"" default:"1" help:"Serve. This is the default command."`
	Config      struct{} `cmd:"" help:"Print the settings as YAML, each with its source. The exit code is 2 if the service could not start with them."`
	EgressCheck urlCheck `cmd:"" name:"egress-check" help:"Print whether the egress policy allows a URL, and why, without connecting to it."`
	Healthcheck struct{} `cmd:"" help:"Check whether the service that has the same settings is serving."`
	Token       newToken `cmd:"" ownflags:"" help:"Create a token. It is printed once, with the line for --token-file."`
	Keys        keyTools `cmd:"" ownflags:"" help:"Keys that sign requests."`
	Clean       struct {
		OlderThan time.Duration `help:"Remove only what began longer ago. It must exceed the longest fetch of any replica, because an upload to a bucket in flight looks like one that was left behind." default:"24h"`
	} `cmd:"" help:"Remove unfinished uploads from all stores of --stores-file, and make WARC files whole. Both remain if a service is killed. Complete objects are not removed. In a bucket, uploads of other programs below the prefix of the store are removed too; give each store another prefix."`
	Policies struct {
		Check  policiesCheck `cmd:"" help:"Check a file. It prints every fault with its line, or which callers each policy has. With --token-file and --tls-allow-san it also lists the callers without an entry, and fails if an entry has no caller. With --config or --egress-allow-port it lists the ports of policies that no setting opens."`
		Report struct {
			Log string `arg:"" name:"file" help:"Log of the service in JSON, such as /dev/stdin."`
		} `cmd:"" help:"Sum up what policies in mode report would have denied, by policy and host, with the lines that would permit it."`
	} `cmd:"" help:"Tools for --policies-file."`
	Completion cli.Completion `cmd:"" ownflags:"" help:"Print a completion script for bash, zsh or fish."`
}
