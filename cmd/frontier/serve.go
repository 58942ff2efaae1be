package main

import (
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"os/signal"
	"strings"
	"syscall"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"

	"fetchd/frontier"
	"fetchd/frontier/api"
	frontierpage "fetchd/frontier/api/page"
	"fetchd/frontier/store"
	"fetchd/internal/cli"
	"fetchd/internal/daemon"
	"fetchd/internal/secure"
	"fetchd/internal/tlswatch"
	"fetchd/internal/version"
)

// serveCmd is "frontier serve".
type serveCmd struct {
	database
	pool
	grouping
	Check       string        `arg:"" optional:"" placeholder:"healthcheck" name:"healthcheck" help:"Only check whether the service at --grpc-addr is serving, with the flags of the service."`
	GRPCAddr    string        `name:"grpc-addr" default:"127.0.0.1:8090" placeholder:"HOST:PORT" help:"Address of the gRPC port. Default: 127.0.0.1:8090."`
	HTTPAddr    string        `name:"http-addr" default:"127.0.0.1:8091" placeholder:"HOST:PORT" help:"Address of the HTTP port: the API as JSON, a page that shows the crawl, metrics, health. Empty: no HTTP port. Default: 127.0.0.1:8091."`
	ConsoleHost []string      `placeholder:"NAME" help:"Host name by which browsers may call the HTTP port, in addition to localhost and IP addresses. Repeatable."`
	Delay       time.Duration `default:"1s" help:"Time from the end of a fetch of a host to the start of the next. SetDelay and \"frontier set\" change it for a host. Give all workers and services of a database the same."`
	UserAgent   string        `default:"${agent}" help:"Name of the crawler, whose rules of robots.txt Why shows."`

	AllowPlaintext  bool     `group:"Callers:" help:"Allow ports without TLS that are not on loopback. For networks where something else encrypts and authenticates."`
	TLSCertFile     string   `name:"tls-cert-file" placeholder:"FILE" group:"Callers:" help:"Certificate of the service, with its intermediate certificates, in PEM, for both ports."`
	TLSKeyFile      string   `name:"tls-key-file" placeholder:"FILE" group:"Callers:" help:"Private key of the certificate, in PEM."`
	TLSClientCAFile string   `name:"tls-client-ca-file" placeholder:"FILE" group:"Callers:" help:"Certificate authorities in PEM. Callers must present a certificate signed by one of them."`
	TLSAllowSAN     []string `name:"tls-allow-san" placeholder:"NAME" group:"Callers:" help:"Accept only callers whose certificate has exactly this DNS name, URI or email address. Repeatable."`
	TokenFile       string   `placeholder:"FILE" group:"Callers:" help:"YAML list of callers: {name, sha256}. Callers send the header Authorization: Bearer TOKEN. \"fetchd token NAME\" creates a token."`

	DrainTime time.Duration `default:"10s" group:"Work:" help:"How long calls may continue after SIGTERM or SIGINT."`
	LogLevel  slog.Level    `default:"info" group:"Work:" help:"debug, info, warn or error. The log goes to standard error."`
	LogFormat string        `default:"json" complete:"json,text" group:"Work:" help:"Format of the log: json or text."`
}

// filesEvery is how often the certificates are checked.
const filesEvery = time.Minute

func (c *serveCmd) run(ctx context.Context, a *app) int {
	switch c.Check {
	case "":
	case "healthcheck":
		return a.end(ctx, c.healthcheck(ctx))
	default:
		return a.end(ctx, cli.UsageError("serve", fmt.Sprintf("%.80q is not possible: give healthcheck, or nothing", c.Check)))
	}
	daemon.HoldHeap()
	at, err := c.check()
	if err != nil {
		return a.end(ctx, err)
	}
	id, err := c.identityFiles().Read()
	if err != nil {
		return a.end(ctx, &cli.Error{Code: cli.ExitUsage, Err: err})
	}
	lines := daemon.NewLogQueue(a.Err)
	defer lines.Close(time.Second)
	groups, err := c.groups()
	if err != nil {
		return a.end(ctx, err)
	}
	s, err := c.open(ctx, creating, store.Config{Delay: cmp.Or(c.Delay, store.NoDelay), Connections: c.Connections, Groups: groups})
	if err == nil {
		if err = keepDelay(ctx, s, c.Delay); err == nil {
			err = c.serve(ctx, s, at, id, lines.Logger(c.LogFormat, c.LogLevel))
		}
		err = errors.Join(err, s.Close())
	}
	if err == nil {
		return cli.ExitOK // a signal is the usual end
	}
	return a.end(ctx, err)
}

// healthcheck asks the service that has the same flags.
func (c *serveCmd) healthcheck(ctx context.Context) error {
	certificates, err := c.identityFiles().ReadCertificates()
	if err != nil {
		return &cli.Error{Code: cli.ExitUsage, Err: err}
	}
	if err := daemon.CheckHealth(ctx, c.GRPCAddr, certificates); err != nil {
		return &cli.Error{Code: cli.ExitFailed, Err: err}
	}
	return nil
}

// check rejects values that the types allow. It returns the ports.
func (c *serveCmd) check() ([]daemon.Port, error) {
	for _, row := range []struct {
		bad          bool
		flag, remedy string
	}{
		{c.Delay < 0, "delay", fmt.Sprintf("%v is negative: give a duration such as 2s", c.Delay)},
		{c.DrainTime < 0, "drain-time", fmt.Sprintf("%v is negative: give a duration such as 30s", c.DrainTime)},
		{c.Connections < 1 || c.Connections > 1000, "db-connections", fmt.Sprintf("%d is not from 1 to 1000", c.Connections)},
		{c.LogFormat != "json" && c.LogFormat != "text", "log-format", "is not a format: give json or text"},
	} {
		if row.bad {
			return nil, cli.UsageError("--"+row.flag, row.remedy)
		}
	}
	at, err := daemon.ResolvePorts(c.GRPCAddr, c.HTTPAddr)
	if err == nil {
		err = daemon.CheckIdentity(c.identityFiles())
	}
	if err == nil {
		err = daemon.CheckConsoleHosts(c.ConsoleHost)
	}
	if err == nil && c.TLSCertFile == "" && !c.AllowPlaintext {
		err = daemon.CheckPlaintext(at)
	}
	if err != nil {
		return nil, &cli.Error{Code: cli.ExitUsage, Err: err}
	}
	return at, nil
}

func (c *serveCmd) identityFiles() secure.IdentityFiles {
	return secure.IdentityFiles{Files: secure.Files{Cert: c.TLSCertFile, Key: c.TLSKeyFile, ClientCA: c.TLSClientCAFile}, Tokens: c.TokenFile, SANs: c.TLSAllowSAN}
}

// serve serves until ctx ends, then drains.
func (c *serveCmd) serve(ctx context.Context, s store.Store, at []daemon.Port, id *secure.Identity, logger *slog.Logger) error {
	var known secure.Known
	known.Store(id)
	registry := prometheus.NewRegistry()
	certificates, handshakes := tlswatch.NewWatch(logger), tlswatch.NewHandshakes(logger, known.Expired)
	defer certificates.Stop()
	registry.MustRegister(collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}),
		tlswatch.NewCollector("frontier_api", certificates, handshakes))
	config := api.Config{Store: s, UserAgent: c.UserAgent, TLS: known.TLS(), Handshakes: handshakes, Hosts: c.ConsoleHost, Metrics: registry, Logger: logger,
		Page: frontierpage.Handler(frontierpage.Config{Token: c.TokenFile != "", Version: version.String()})}
	if id.Callers != nil {
		config.Authenticate = func(token string, state *tls.ConnectionState) (string, error) {
			return known.Load().Callers.Name(token, state)
		}
	}
	files := daemon.OpenFiles()
	memory := daemon.Memory().Budget()
	config.MaxConnections, config.MaxCalls = maxConnections(files, c.Connections, memory), api.CallsFor(memory)
	listeners, err := daemon.Listen(at)
	if err != nil {
		return &cli.Error{Code: cli.ExitUsage, Err: err}
	}
	server, err := api.New(config)
	if err != nil {
		return errors.Join(err, daemon.CloseAll(listeners))
	}
	server.SetCallers(id.Callers.Names())
	attrs := []any{slog.String("version", version.String()), slog.Bool("tls", id.Certificates != nil), slog.Bool("callers_authenticate", id.Callers != nil)}
	failed := make(chan error, len(listeners))
	for i, l := range listeners {
		attrs = append(attrs, slog.String(strings.ReplaceAll(at[i].Flag, "-", "_"), l.Addr().String()))
		serve := []func(net.Listener) error{server.Serve, server.ServeWeb}[i]
		go func() { failed <- serve(l) }() // ends with Shutdown
	}
	attrs = append(attrs, slog.Int("max_connections", config.MaxConnections))
	if files < daemon.UnlimitedFiles {
		attrs = append(attrs, slog.Int("max_open_files", int(files)))
	}
	logger.Info("serving", attrs...)
	certificates.Set(tlswatch.Of(id.Certificates))
	stopCounting := c.count(ctx, s, registry, server.CannotCount)
	err = c.follow(ctx, server, &known, certificates, failed, logger)
	stopCounting()
	drain, cancel := context.WithTimeout(context.WithoutCancel(ctx), c.DrainTime)
	defer cancel()
	if late := server.Shutdown(drain); late != nil && err == nil {
		err = fmt.Errorf("calls outlasted --drain-time %s and were ended: %w", c.DrainTime, late)
	}
	if err != nil {
		return &cli.Error{Code: cli.ExitFailed, Err: err}
	}
	logger.Info("stopped")
	return nil
}

// count sets the metrics of the frontier until the returned function is called. Without an HTTP port they cannot be read.
func (c *serveCmd) count(ctx context.Context, s store.Store, registry *prometheus.Registry, fail func(error)) (stop func()) {
	if c.HTTPAddr == "" {
		return func() {}
	}
	ctx, cancel := context.WithCancel(ctx)
	metrics, ended := frontier.NewQueueMetrics(registry), make(chan struct{})
	go func() {
		defer close(ended)
		metrics.Count(ctx, s, fail)
	}()
	return func() {
		cancel()
		<-ended
	}
}

// follow waits until ctx ends or a port fails. It reads the files again on SIGHUP, and the certificates
// every minute too.
func (c *serveCmd) follow(ctx context.Context, server *api.Server, known *secure.Known, certificates *tlswatch.Watch, failed <-chan error, logger *slog.Logger) error {
	hangup := make(chan os.Signal, 1)
	signal.Notify(hangup, syscall.SIGHUP)
	defer signal.Stop(hangup)
	tick := time.NewTicker(filesEvery)
	defer tick.Stop()
	for broken := ""; ; {
		var next *secure.Identity
		var err error
		select {
		case err := <-failed:
			return err
		case <-ctx.Done():
			return nil
		case <-hangup:
			broken = ""
			next, err = c.identityFiles().Read()
		case <-tick.C:
			next, err = c.withCertificates(known.Load())
		}
		if err != nil {
			if text := fmt.Sprint(err); text != broken { // the files may be half written, and are checked again
				broken = text
				logger.Error("not reloaded: everything stays as it was", slog.String("error", text))
			}
			continue
		}
		broken = ""
		if changed := next.Changed(known.Load()); len(changed) > 0 {
			known.Store(next)
			server.SetCallers(next.Callers.Names())
			certificates.Set(tlswatch.Of(next.Certificates))
			logger.Info("reloaded", slog.Any("changed", changed))
		}
	}
}

// withCertificates returns an identity with the certificates of the files.
func (c *serveCmd) withCertificates(now *secure.Identity) (*secure.Identity, error) {
	certificates, err := c.identityFiles().ReadCertificates()
	if err != nil {
		return nil, err
	}
	return now.With(certificates), nil
}

// maxConnections returns the maximum number of connections of each of the two ports, with that many
// connections to the database and that many bytes for callers.
func maxConnections(files daemon.FileLimit, database int, memory int64) int {
	return min(max(int(files)-daemon.FilesNeeded(0, database, 0), 32)/2, api.DefaultMaxConnections, int(memory/connectionBytes))
}

// connectionBytes is twice the memory of a connection, because there are two ports.
const connectionBytes = 192 << 10
