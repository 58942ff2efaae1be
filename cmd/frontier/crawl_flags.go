package main

import (
	"cmp"
	"fmt"
	"log/slog"
	"mime"
	"net"
	"net/mail"
	"net/netip"
	"os"
	"slices"
	"strings"
	"time"

	"golang.org/x/net/http/httpguts"

	"fetchd/cmd/frontier/progress"
	"fetchd/cmd/frontier/worker"
	"fetchd/fetch"
	"fetchd/frontier"
	"fetchd/frontier/store"
	"fetchd/internal/cli"
	"fetchd/internal/daemon"
	"fetchd/internal/dial"
	"fetchd/internal/signkeys"
	"fetchd/warc"
)

// workerFlags are the flags of "frontier crawl" that its worker needs, whether it follows links or not.
type workerFlags struct {
	database
	services
	pace
	grouping
	fetches
	Recrawl recrawl `embed:""`
	endings
	results
	pool
	process
}

// services are the flags of the services that make the fetches.
type services struct {
	Server []string `variable:"FETCHD_SERVER" placeholder:"HOST:PORT" group:"Service:" help:"Fetch through the fetchd at this address instead of the one inside ($$FETCHD_SERVER): HOST:PORT, http://HOST:PORT, https://HOST:PORT or dns:///NAME:PORT, which uses every address of a name. Repeat it to balance fetches."`
	dial.Flags
	AllowCIDR []netip.Prefix `name:"egress-allow-cidr" placeholder:"CIDR" group:"Service:" help:"Addresses that the fetchd inside may reach in addition to public ones. Repeatable."`
	AllowPort []uint16       `name:"egress-allow-port" placeholder:"PORT" group:"Service:" help:"Ports that it may reach in addition to 80 and 443. Repeatable."`
	Identity  string         `placeholder:"NAME" group:"Service:" help:"Sign every request with this auth provider of the fetchd at --server, those for robots.txt and sitemaps too. Origins that it does not cover get requests without a signature. The fetchd inside has --sign-key."`
	Sign      signkeys.Flags `embed:""`
}

// pace are the flags for how fast hosts are fetched from.
type pace struct {
	Open     int           `default:"256" group:"Pace:" help:"Maximum number of fetches in flight."`
	Delay    time.Duration `default:"1s" group:"Pace:" help:"Time from the end of a fetch of a host to the start of the next. \"frontier set\" and robots.txt can change it for a host."`
	NoRobots bool          `name:"ignore-robots" group:"Pace:" help:"Ignore robots.txt. Only for your own hosts."`
}

// grouping are the flags for hosts that share a delay.
type grouping struct {
	GroupBy   string   `enum:"host,domain,address" default:"host" group:"Pace:" help:"Hosts that share the delay and a number of open fetches: each host alone (host), those of one registrable domain (domain), or those at one address (address). Give all workers and services of a database the same. Default: host."`
	Ungrouped []string `placeholder:"NAME" group:"Pace:" help:"Exception of --group-by: a domain, whose hosts are each alone, or addresses such as 192.0.2.0/24. Repeatable."`
}

func (c *grouping) groups() (store.Grouping, error) {
	if c.GroupBy == store.ByHost && len(c.Ungrouped) > 0 {
		return store.Grouping{}, cli.UsageError("--ungrouped", "has no effect without --group-by domain or address")
	}
	g, err := store.NewGrouping(c.GroupBy, c.Ungrouped)
	if err != nil {
		return g, cli.UsageError("--ungrouped", fmt.Sprint(err))
	}
	return g, nil
}

// fetches are the flags for what is fetched, and how often it is tried.
type fetches struct {
	UserAgent         string        `default:"${agent}" group:"Fetches:" help:"Name of the crawler, which origins receive. Say how to reach you. Its leading letters, _ and - select the rules of robots.txt."`
	From              string        `placeholder:"ADDRESS" group:"Fetches:" help:"Mail address of who is responsible for the crawler, which origins receive in From. Default: none."`
	Accept            []string      `default:"text/html,application/xhtml+xml" placeholder:"TYPE" group:"Fetches:" help:"Accepted media types. Others fail as content_type, and an empty body fails as empty_body. \"any\" accepts everything, including an empty body. Default: text/html,application/xhtml+xml."`
	MaxBody           int64         `name:"max-body-bytes" default:"16777216" group:"Fetches:" help:"Maximum length of a body, up to 1 TiB. A longer body fails as body_too_large. Default: 16 MiB."`
	Requisites        bool          `group:"Fetches:" help:"Fetch what pages need to be shown too: images, style sheets, scripts, fonts and frames, of any host and type. Default: with --warc; --requisites=false turns it off."`
	MaxRequisite      int64         `name:"max-requisite-bytes" default:"268435456" group:"Fetches:" help:"Maximum length of a requisite, instead of --max-body-bytes. Default: 256 MiB."`
	MaxRequisiteHosts int64         `name:"max-requisite-hosts" default:"1000" group:"Fetches:" help:"Maximum number of hosts in the database that only requisites have led to. Requisites on more are left out."`
	Full              bool          `group:"Fetches:" help:"Fetch pages in full that were fetched before, also if they have not changed."`
	Charset           bool          `name:"require-valid-charset" group:"Fetches:" help:"Fail a body that is not valid in its charset, as undecodable."`
	Profile           string        `enum:"standard,download" default:"standard" group:"Fetches:" help:"Retries within a fetch: standard (short waits) or download (1, 2 and 4 s with jitter, also after a 408). Default: ${default}."`
	Attempts          int           `name:"max-attempts" placeholder:"N" group:"Fetches:" help:"Maximum number of attempts in one fetch, 1 to 11. Default: 3, or 4 with --profile download."`
	Timeout           time.Duration `name:"total-timeout" placeholder:"DURATION" group:"Fetches:" help:"Time limit of one fetch, including its retries. Default: 1m, or 15m with --profile download."`
}

// endings are the flags for what follows from failures.
type endings struct {
	Retries int      `name:"max-url-retries" default:"3" group:"Failures:" help:"How many more times a URL is tried after temporary failures: after one minute, then two, four and so on."`
	On      []string `placeholder:"CLASS=ACTION" group:"Failures:" help:"What to do about an error class: retry, skip, abort-host or abort-crawl. Repeatable."`
}

// results are the flags of the places of the results.
type results struct {
	Bodies   string   `placeholder:"PLACE" group:"Results:" help:"Store bodies under their SHA-256 in a directory, or in the store of --stores-file with this name."`
	WARC     string   `name:"warc" placeholder:"PLACE" group:"Results:" help:"Record the crawl, with its robots.txt files, in WARC files in a directory, or in the store of --stores-file with this name. With --server, in the store of that fetchd with this name."`
	WARCInfo []string `name:"warc-info" sep:"none" placeholder:"NAME=VALUE" group:"Results:" help:"Add this field to the warcinfo record of each WARC file, such as operator='Jo <jo@example.org>', description or isPartOf, which replaces the name of the database. It is written as it is: give no secrets. Repeatable."`
	Stores   string   `name:"stores-file" placeholder:"FILE" group:"Results:" help:"YAML file with stores and their credentials, as for fetchd. See docs/stores.md."`
	Keep     []string `name:"keep-header" placeholder:"NAME" sep:"none" group:"Results:" help:"Record this response header with each outcome. Repeatable."`
	Outcomes string   `placeholder:"FILE" group:"Results:" help:"Append each outcome to FILE as a line of JSON; - is standard output."`
	Metrics  string   `name:"metrics-addr" placeholder:"HOST:PORT" group:"Results:" help:"Serve Prometheus metrics at this address, under /metrics."`
	Quiet    bool     `short:"q" group:"Results:" help:"Show no progress."`
}

// process are the flags for this process.
type process struct {
	Endless   bool          `group:"Work:" help:"Wait for more URLs when none are left."`
	DrainTime time.Duration `default:"30s" group:"Work:" help:"How long fetches may continue after SIGTERM or SIGINT."`
	LogLevel  slog.Level    `default:"warn" group:"Work:" help:"debug, info, warn or error. The log goes to standard error."`
}

const (
	maxOpen       = 100_000
	maxAttempts   = 11      // limit of fetchd: spec §2
	maxBody       = 1 << 40 // limit of fetchd: spec §12
	maxMediaTypes = 64
	// spoolBytes limits the temporary files of bodies that wait for a bucket.
	spoolBytes = 8 << 30
)

// worker checks the flags and returns the worker that they describe. It redirects standard error to the
// worker's console.
func (c *workerFlags) worker(a *app) (*worker.Config, error) {
	daemon.HoldHeap()
	if err := c.check(a); err != nil {
		return nil, err
	}
	console := progress.NewConsole(a.Err, a.Env)
	console.Draws = console.Draws && !(c.Outcomes == "-" && cli.IsTerminal(a.Out)) // they share the terminal
	a.Err = console
	p, err := c.policy(a)
	if err != nil {
		return nil, err
	}
	again, err := c.Recrawl.config()
	if err != nil {
		return nil, err
	}
	config := frontier.Config{ // use the minimum where zero would mean a default
		Name: workerName(), Open: c.Open, Lease: leaseFor(c.Timeout), TotalTimeout: c.Timeout, MaxAttempts: c.Attempts, Download: c.Profile == download, Policy: p,
		UserAgent: c.UserAgent, From: c.From, Identity: c.Identity, IgnoreRobots: c.NoRobots, Accept: c.Accept, RequireValidCharset: c.Charset,
		KeepHeaders: c.Keep, Full: c.Full, MaxBodyBytes: c.MaxBody, DrainTime: max(c.DrainTime, 1), Endless: c.Endless, Recrawl: again,
		Logger: slog.New(slog.NewTextHandler(a.Err, &slog.HandlerOptions{Level: c.LogLevel})),
	}
	if len(c.Accept) == 1 && c.Accept[0] == "any" {
		config.Accept = nil
	}
	if c.Requisites || c.WARC != "" && !slices.Contains(a.given, "requisites") {
		config.Requisites = &frontier.Requisites{MaxBodyBytes: c.MaxRequisite, MaxHosts: c.MaxRequisiteHosts}
	}
	providers, err := c.Sign.Providers()
	if err != nil {
		return nil, err
	}
	if c.Sign.Given() {
		config.Identity = signkeys.Name
	}
	return &worker.Config{Config: config, MetricsAddr: c.Metrics, Console: console, Quiet: c.Quiet,
		Services: worker.Services{Servers: c.Server, Dial: c.Flags, Egress: fetch.Egress{AllowCIDRs: c.AllowCIDR, AllowPorts: c.AllowPort}, Providers: providers},
		Results:  worker.Results{Bodies: c.Bodies, WARC: c.WARC, WARCInfo: c.warcinfo(), StoresFile: c.Stores, SpoolBytes: spoolBytes, Outcomes: c.Outcomes, Stdout: a.Out}}, nil
}

// workerName returns the name of this worker in the database.
func workerName() string {
	host, err := os.Hostname()
	if err != nil {
		host = "worker"
	}
	return fmt.Sprintf("%s/%d", host, os.Getpid())
}

// leaseFor returns how long a URL stays with a worker that is gone, for a time limit of a fetch. A worker needs the time
// of the fetch and 10 s to record it. The rest is for a database that does not answer.
func leaseFor(fetch time.Duration) time.Duration {
	return min(fetch+5*time.Minute, max(5*fetch, fetch+15*time.Second))
}

// storeConfig returns how a worker opens the frontier. The flags were checked.
func (c *workerFlags) storeConfig() store.Config {
	groups, _ := c.groups()
	return store.Config{Delay: cmp.Or(c.Delay, store.NoDelay), Connections: c.Connections, Groups: groups}
}

func (c *endings) policy(a *app) (frontier.Policy, error) {
	p := frontier.DefaultPolicy()
	if err := p.Environment(a.Env); err != nil {
		return p, cli.UsageError("environment", fmt.Sprint(err))
	}
	p.MaxURLRetries = c.Retries
	for _, rule := range c.On {
		if err := p.Set(rule); err != nil {
			return p, cli.UsageError("--on", fmt.Sprint(err))
		}
	}
	return p, nil
}

// check returns an error for the first flag that is not usable, alone or with the others.
func (c *workerFlags) check(a *app) error {
	c.setProfile(a)
	_, err := c.Recrawl.config()
	_, wrong := c.groups()
	return cmp.Or(c.checkNumbers(), err, wrong, c.checkTimes(), c.checkFetches(), c.checkResults(a), c.services.check(a))
}

// download is the value of --profile for files: S4.
const download = "download"

// setProfile sets the flags that are not given and whose defaults depend on the profile. fetchd limits
// a fetch of DOWNLOAD only by its maximum, 15 min.
func (c *workerFlags) setProfile(a *app) {
	attempts, timeout := 3, time.Minute
	if c.Profile == download {
		attempts, timeout = 4, 15*time.Minute
	}
	given := func(flag string) bool { return slices.Contains(a.given, flag) }
	if !given("max-attempts") {
		c.Attempts = attempts
	}
	if !given("total-timeout") {
		c.Timeout = timeout
	}
}

func (c *workerFlags) checkNumbers() error {
	for _, n := range []struct {
		flag        string
		value       int64
		least, most int64
	}{
		{"--open", int64(c.Open), 1, maxOpen},
		{"--db-connections", int64(c.Connections), 1, 1000},
		{"--max-attempts", int64(c.Attempts), 1, maxAttempts},
		{"--max-body-bytes", c.MaxBody, 1, maxBody},
		{"--max-requisite-bytes", c.MaxRequisite, 1, maxBody},
		{"--max-requisite-hosts", c.MaxRequisiteHosts, 1, 1_000_000_000},
		{"--max-url-retries", int64(c.Retries), 0, 1_000_000},
	} {
		if n.value < n.least || n.value > n.most {
			return cli.UsageError(n.flag, fmt.Sprintf("%d is not from %d to %d", n.value, n.least, n.most))
		}
	}
	return nil
}

func (c *workerFlags) checkTimes() error {
	for _, d := range []struct {
		flag  string
		value time.Duration
		zero  bool // zero is allowed
	}{
		{"--delay", c.Delay, true},
		{"--drain-time", c.DrainTime, true},
		{"--total-timeout", c.Timeout, false},
	} {
		switch {
		case d.value < 0:
			return cli.UsageError(d.flag, fmt.Sprintf("%v is negative: give a duration such as 30s", d.value))
		case d.value == 0 && !d.zero:
			return cli.UsageError(d.flag, "0s is not allowed: give a duration such as 30s")
		}
	}
	return nil
}

func (c *fetches) checkFetches() error {
	switch {
	case strings.TrimSpace(c.UserAgent) == "":
		return cli.UsageError("--user-agent", "is empty: give a name and how to reach you, such as \"mybot/1.0 (+https://example.org/bot)\"")
	case !httpguts.ValidHeaderFieldValue(c.UserAgent):
		return cli.UsageError("--user-agent", fmt.Sprintf("%.80q contains a character that is not allowed in a header", c.UserAgent))
	case c.From != "" && !isMailbox(c.From):
		return cli.UsageError("--from", fmt.Sprintf("%.80q is not a mail address in ASCII: give one such as crawler@example.org", c.From))
	case len(c.Accept) == 0:
		return cli.UsageError("--accept", "is empty: give a media type such as text/html, or \"any\"")
	case len(c.Accept) > maxMediaTypes:
		return cli.UsageError("--accept", fmt.Sprintf("has %d media types: give at most %d, or \"any\"", len(c.Accept), maxMediaTypes))
	case len(c.Accept) > 1 && slices.Contains(c.Accept, "any"):
		return cli.UsageError("--accept", "\"any\" accepts all media types: use it alone, or remove it")
	}
	for _, media := range c.Accept {
		if !isMediaType(media) && media != "any" {
			return cli.UsageError("--accept", fmt.Sprintf("%.80q is not a media type without parameters: give one such as text/html or text/*, or \"any\"", media))
		}
	}
	return nil
}

// isMailbox reports whether s is a mail address for a From field (RFC 9110 section 10.1.2).
func isMailbox(s string) bool {
	_, err := mail.ParseAddress(s)
	return err == nil && !strings.ContainsFunc(s, func(r rune) bool { return r < ' ' || r > '~' })
}

// isMediaType reports whether fetchd accepts s as a media type of a content policy.
func isMediaType(s string) bool {
	media, params, err := mime.ParseMediaType(s)
	family, sub, ok := strings.Cut(media, "/")
	return err == nil && len(params) == 0 && ok && family != "" && sub != ""
}

func (c *workerFlags) checkResults(a *app) error {
	for _, f := range []struct{ flag, value, remedy string }{
		{"bodies", c.Bodies, "give a directory, or a store of --stores-file"},
		{"warc", c.WARC, "give a directory, or a store of --stores-file"},
		{"stores-file", c.Stores, "give a file"},
		{"outcomes", c.Outcomes, "give a file, or - for standard output"},
	} {
		if f.value == "" && slices.Contains(a.given, f.flag) {
			return cli.UsageError("--"+f.flag, "is empty: "+f.remedy+", or remove it")
		}
	}
	switch {
	case len(c.Server) > 0 && strings.ContainsAny(c.WARC, `/\`):
		return cli.UsageError("--warc", fmt.Sprintf("%.80q is a directory, but the fetchd of --server makes the records: give the name of a store that is configured there, or remove --server", c.WARC))
	case c.Stores != "" && c.Bodies == "" && c.WARC != "" && len(c.Server) > 0:
		return cli.UsageError("--stores-file", "is used by --bodies only, because --warc names a store of the fetchd of --server: name a store with --bodies, or remove it")
	case c.Stores != "" && c.Bodies == "" && c.WARC == "":
		return cli.UsageError("--stores-file", "is used by --bodies and --warc only: name a store with one of them, or remove it")
	}
	if err := c.checkWARCInfo(len(c.Server) > 0); err != nil {
		return err
	}
	if err := frontier.CheckKeepHeaders(c.Keep); err != nil {
		return cli.UsageError("--keep-header", fmt.Sprint(err))
	}
	if c.Metrics != "" {
		if _, port, err := net.SplitHostPort(c.Metrics); err != nil || port == "" {
			return cli.UsageError("--metrics-addr", fmt.Sprintf("%.80q is not HOST:PORT: give an address such as 127.0.0.1:9100, or :9100 for all addresses", c.Metrics))
		}
	}
	return nil
}

func (c *results) checkWARCInfo(server bool) error {
	switch {
	case len(c.WARCInfo) > 0 && c.WARC == "":
		return cli.UsageError("--warc-info", "describes the files of --warc: give that too")
	case len(c.WARCInfo) > 0 && server:
		return cli.UsageError("--warc-info", "is for files of the fetchd inside: set the operator in the stores file of the fetchd of --server, or remove --server")
	}
	for _, text := range c.WARCInfo {
		name, value, ok := strings.Cut(text, "=")
		if _, err := warc.FormatFields([]warc.Field{{Name: name, Value: value}}); err != nil || !ok || value == "" {
			return cli.UsageError("--warc-info", fmt.Sprintf("%.80q is not NAME=VALUE: give the name of a field, and a value in one line, such as description=News", text))
		}
	}
	return nil
}

// warcinfo returns what warcinfo records say about the crawl. The policies for robots.txt have Heritrix's names. A
// name of a database that cannot be written is left out.
func (c *workerFlags) warcinfo() []warc.Field {
	robots := "classic"
	if c.NoRobots {
		robots = "ignore"
	}
	var given []warc.Field
	for _, text := range c.WARCInfo {
		name, value, _ := strings.Cut(text, "=")
		given = append(given, warc.Field{Name: name, Value: value})
	}
	fields := []warc.Field{{Name: "robots", Value: robots}, {Name: "http-header-user-agent", Value: c.UserAgent}, {Name: "http-header-from", Value: c.From},
		{Name: "isPartOf", Value: c.name()}}
	fields = slices.DeleteFunc(fields, func(f warc.Field) bool {
		_, err := warc.FormatFields([]warc.Field{f})
		return err != nil || f.Value == "" || slices.ContainsFunc(given, func(g warc.Field) bool { return strings.EqualFold(f.Name, g.Name) })
	})
	return append(fields, given...)
}

func (c services) check(a *app) error {
	if slices.Contains(c.Server, "") || slices.Contains(a.given, "server") && len(c.Server) == 0 {
		return cli.UsageError("--server", "an address is empty: give HOST:PORT")
	}
	for _, server := range c.Server {
		if err := c.Check("--server", server); err != nil {
			return err
		}
	}
	switch {
	case c.Identity == "" && slices.Contains(a.given, "identity"):
		return cli.UsageError("--identity", "is empty: give the name of an auth provider of the service, or remove it")
	case c.Identity != "" && len(c.Server) == 0:
		return cli.UsageError("--identity", "names an auth provider of another fetchd: give its address with --server. The one inside signs with --sign-key and --sign-agent")
	}
	if err := c.Sign.Check(strings.Join(c.Server, ","), "Name an auth provider of it with --identity"); err != nil {
		return err
	}
	for _, flag := range a.given {
		inside := strings.HasPrefix(flag, "egress-")
		outside := strings.HasPrefix(flag, "tls") || flag == "token-file"
		switch {
		case inside && len(c.Server) > 0:
			return cli.UsageError("--"+flag, fmt.Sprintf("applies to the fetchd inside, but --server is %.80s: use the settings of that fetchd, or remove --server", strings.Join(c.Server, ",")))
		case outside && len(c.Server) == 0:
			return cli.UsageError("--"+flag, "applies to another fetchd: give its address with --server")
		}
	}
	return nil
}
