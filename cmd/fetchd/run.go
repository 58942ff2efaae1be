package main

import (
	"cmp"
	"context"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"log" //nolint:depguard // only to silence it: net/http writes there
	"log/slog"
	"net"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"fetchd/fetch"
	"fetchd/internal/cli"
	"fetchd/internal/daemon"
	"fetchd/internal/secure"
	"fetchd/internal/tlswatch"
	"fetchd/internal/version"
	"fetchd/server"
	"fetchd/server/console"
	"fetchd/server/observe"
	"fetchd/stores"
)

// flushTime is how long an exit waits for a reader of standard error. Before that it is how
// long past the drain time the exit waits for the collector of traces.
const flushTime = 500 * time.Millisecond

// abortTime is how long past the drain time the exit waits for uploads that are being aborted.
const abortTime = 2 * time.Second

// run runs the command until ctx ends, and returns the exit code. Only the final flush waits
// for a reader of standard error.
func run(ctx context.Context, p program) int {
	lines := daemon.NewLogQueue(p.stderr)
	defer lines.Close(flushTime)
	p.stderr = lines
	if p.libraries != nil {
		p.libraries(lines)
	}
	frame := frame(p.stdout, p.stderr)
	return frame.Exit(context.Background(), p.run(ctx, lines)) // SIGTERM is how the service is stopped, not an interruption
}

func (p *program) run(ctx context.Context, lines *daemon.LogQueue) error {
	s, err := parse(p.args, p.stdout, p.stderr)
	if err != nil {
		return err
	}
	switch {
	case s.command == "token <name>":
		return p.makeToken(s.Token.Name)
	case s.command == "keys new <folder>":
		return p.newKey(s, time.Now())
	case s.command == "keys directory <paths>":
		return p.printDirectory(s.Keys.Directory.Paths, time.Now())
	case s.command == "clean":
		return s.clean(ctx, p.stdout)
	case s.command == "policies check <file>":
		return s.checkPolicies(p.stdout)
	case s.command == "policies report <file>":
		return reportPolicies(s.Policies.Report.Log, p.stdout)
	case s.command == "egress-check <url>":
		cli.WarnVariables(p.stderr, "fetchd", s.strays)
		return egressCheck(ctx, s, p.stdout)
	case s.command == "healthcheck":
		certificates, err := s.identityFiles().ReadCertificates()
		if err != nil {
			return err
		}
		return daemon.CheckHealth(ctx, s.GRPCAddr, certificates)
	}
	level := new(slog.LevelVar)
	s.setLevel(level)
	logger := lines.Logger(s.LogFormat, level)
	ready, err := s.prepare(logger)
	if err != nil {
		return unusable(err)
	}
	defer ready.stores.Drop() // serve closes them, unless it fails early
	if s.command == "config" {
		cli.WarnVariables(p.stderr, "fetchd", s.strays)
		has := s.capacity(daemon.OpenFiles(), cmp.Or(s.MemoryBudget, daemon.Memory().Budget()))
		warnExceeding(p.stderr, s.exceeding(&has, len(ready.ports)))
		ready.origins.warnKeys(p.stderr, time.Now())
		if unused := ready.unusedEntries(ready.identity.Callers.Names()); len(unused) > 0 {
			_, _ = fmt.Fprintf(p.stderr, "fetchd: entries of the policies, origins or stores that match no caller: %s\n", strings.Join(unused, ", "))
		}
		return errors.Join(p.print(s, ready.certificates()), p.printCapacity(&has))
	}
	return serve(ctx, *p, s, ready, lines, logger, level)
}

// ready is the configuration that the settings describe, as far as it is known before the
// ports are open.
type ready struct {
	engine fetch.Config
	egress []tlswatch.Certificate // authorities of engine
	files
	ports    []daemon.Port
	identity *secure.Identity
}

// certificates returns the certificates that were read.
func (r *ready) certificates() []tlswatch.Certificate {
	return slices.Concat(tlswatch.Of(r.identity.Certificates), r.egress, r.origins.watched)
}

// prepare reads every file that the settings name. An error keeps the service from starting.
func (s *settings) prepare(logger *slog.Logger) (*ready, error) {
	at, err := s.ports()
	if err == nil && s.TLSCertFile == "" && !s.AllowPlaintext {
		err = s.located(daemon.CheckPlaintext(at))
	}
	if err != nil {
		return nil, err
	}
	engine, egress, err := s.fetchConfig()
	if err != nil {
		return nil, err
	}
	id, err := s.identityFiles().Read()
	if err != nil {
		return nil, err
	}
	found, err := s.readFiles(&files{origins: new(origins), stores: stores.Empty(logger)})
	if err != nil {
		return nil, err
	}
	engine.Origins, engine.Intermediates = found.origins.profiles, found.intermediates
	trial, err := fetch.New(engine)
	if err != nil {
		found.stores.Drop()
		return nil, err
	}
	trial.Close()
	return &ready{engine, egress, found, at, id}, nil
}

// serve runs the service until ctx ends, then drains it.
func serve(ctx context.Context, p program, s *settings, r *ready, lines *daemon.LogQueue, logger *slog.Logger, level *slog.LevelVar) error {
	daemon.HoldHeap()
	memory := daemon.Memory()
	has := s.capacity(daemon.OpenFiles(), cmp.Or(s.MemoryBudget, memory.Budget()))
	r.engine.MaxIdle = has.idle
	readEarly(ctx)
	log.SetOutput(io.Discard) // net/http logs bytes of origins, which may be secrets
	listeners, err := daemon.Listen(r.ports)
	if err != nil {
		return err
	}
	l := &live{program: p, settings: s, logger: logger, level: level, egress: r.egress, files: r.files, longest: s.MaxTotalTimeout,
		certificates: tlswatch.NewWatch(logger)}
	defer l.certificates.Stop()
	l.known.Store(r.identity)
	handshakes := tlswatch.NewHandshakes(logger, l.known.Expired)
	l.observer, err = observe.New(observe.Config{Version: version.String(), TraceEndpoint: s.TraceEndpoint,
		TraceRatio: s.TraceRatio, Logger: logger, DroppedLogLines: lines.Dropped,
		Collectors: []prometheus.Collector{tlswatch.NewCollector("fetchd", l.certificates, handshakes)}})
	if err != nil {
		return errors.Join(err, daemon.CloseAll(listeners))
	}
	r.engine.Egress.Own = own(r.ports)
	l.server, err = server.New(server.Config{Fetch: r.engine, Limits: s.limits(r.identity, &has),
		AuthProviders: r.origins.providers, Stores: r.stores, Policies: r.policies, Authenticate: authenticate(&l.known), TLS: l.known.TLS(), Handshakes: handshakes, Logger: logger, Observe: l.observer,
		Console: s.console(r.ports), Hosts: s.ConsoleHost, MemoryBudget: has.budget,
		MaxConnections: has.connections, MaxConnectionsPerCaller: s.MaxConnectionsPerCaller})
	if err != nil {
		err = errors.Join(err, daemon.CloseAll(listeners))
		l.flush(context.WithoutCancel(ctx)) // Shutdown has its own time limit
		return err
	}
	l.has, l.listens = has, len(r.ports)
	logger.Info("serving", slices.Concat(s.serving(r.ports), []any{slog.Int64("memory_limit", memory.Bytes), slog.String("memory_limit_of", memory.Source)}, has.attrs())...)
	l.setCallers(r.identity.Callers.Names())
	for _, e := range s.exceeding(&has, len(r.ports)) {
		logger.Warn("a setting needs more files than the process may have open", slog.String("setting", e[0]), slog.String("remedy", e[1]))
	}
	for _, stray := range s.strays {
		logger.Warn("environment variable is no setting and is ignored", slog.String("variable", stray.Name), slog.String("nearest", stray.Nearest))
	}
	l.watchCertificates()
	l.watchKeys(time.Now())
	return l.serveAndDrain(ctx, listeners, r.ports)
}

// serveAndDrain serves the ports until ctx ends or one of them fails, then drains the service.
func (l *live) serveAndDrain(ctx context.Context, listeners []net.Listener, ports []daemon.Port) error {
	serves := []func(net.Listener) error{l.server.Serve, l.server.ServeWeb} // in the order of settings.ports
	failed := make(chan error, len(listeners))
	var open sync.WaitGroup
	for i, port := range listeners {
		open.Go(func() { // ends with Shutdown
			if err := serves[i](port); err != nil {
				failed <- fmt.Errorf("--%s: %w", ports[i].Flag, err)
			}
		})
	}
	err := l.follow(ctx, failed)
	l.logger.Info("draining", slog.Float64("drain_time_seconds", l.settings.DrainTime.Seconds()))
	end := time.Now().Add(l.settings.DrainTime)
	drain, cancel := context.WithDeadline(context.WithoutCancel(ctx), end)
	defer cancel()
	if late := l.server.Shutdown(drain); late != nil {
		err = errors.Join(err, fmt.Errorf("fetches outlasted --drain-time %s and were ended as SHUTDOWN: %w", l.settings.DrainTime, late))
	}
	open.Wait()
	abort, cancelAbort := context.WithDeadline(context.WithoutCancel(ctx), end.Add(abortTime))
	defer cancelAbort()
	if late := l.closeStores(drain, abort); late != nil {
		err = errors.Join(err, fmt.Errorf("unfinished uploads were left in a store: %w: fetchd clean removes them", late))
	}
	if err == nil {
		l.logger.Info("stopped")
	}
	flush, cancelFlush := context.WithDeadline(context.WithoutCancel(ctx), end.Add(flushTime))
	defer cancelFlush()
	l.flush(flush)
	return err
}

// flush sends the last traces.
func (l *live) flush(ctx context.Context) {
	if err := l.observer.Shutdown(ctx); err != nil {
		l.logger.Warn("the last traces are lost", slog.Any("error", err))
	}
}

// readEarly reads the files of the system that Go would read at the first fetch. If there were no
// descriptor at that time, Go would trust no authority, and use the wrong name server. Errors are those
// of the fetches.
func readEarly(ctx context.Context) {
	_, _ = x509.SystemCertPool()
	ctx, cancel := context.WithCancel(ctx)
	cancel() // the lookup itself is not needed
	_, _ = fetch.Resolver("").LookupNetIP(ctx, "ip", "localhost.")
}

// console returns nil if the console is off. open are the open ports.
func (s *settings) console(open []daemon.Port) http.Handler {
	if !s.Console {
		return nil
	}
	return console.Handler(console.Config{GRPC: open[0].At.String(), TLS: s.TLSCertFile != "", Token: s.TokenFile != "", Version: version.String()})
}

// serving returns the attributes of the first log line.
func (s *settings) serving(open []daemon.Port) []any {
	attrs := []any{slog.String("version", version.String())}
	for _, p := range open {
		attrs = append(attrs, slog.String(strings.ReplaceAll(p.Flag, "-", "_"), p.At.String()))
	}
	callers := "by address"
	switch {
	case s.TokenFile != "" && s.TLSClientCAFile != "":
		callers = "by certificate and token"
	case s.TokenFile != "":
		callers = "by token"
	case s.TLSClientCAFile != "":
		callers = "by certificate"
	}
	return append(attrs, slog.Bool("tls", s.TLSCertFile != ""), slog.String("callers", callers), slog.Bool("console", s.Console))
}

// authenticate returns nil if callers do not authenticate.
func authenticate(known *secure.Known) server.Authenticator {
	if known.Load().Callers == nil {
		return nil
	}
	return func(shown server.Credentials) (string, error) {
		return known.Load().Callers.Name(shown.Token, shown.TLS)
	}
}
