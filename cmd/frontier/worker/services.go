package worker

import (
	"context"
	"fmt"
	"log/slog"
	"strings"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/keepalive"
	"google.golang.org/grpc/status"

	"fetchd/client"
	"fetchd/fetch"
	"fetchd/frontier"
	pb "fetchd/gen/fetchd/v1"
	"fetchd/internal/badrequest"
	"fetchd/internal/cli"
	"fetchd/internal/daemon"
	"fetchd/internal/dial"
	"fetchd/internal/version"
	"fetchd/server"
	"fetchd/server/embed"
	"fetchd/stores"
)

// probeTime limits the check whether bodies can be stored, or fetches recorded.
const probeTime = 30 * time.Second

// Services are the services that make the fetches.
type Services struct {
	Servers []string     // addresses; none: a fetchd inside this process
	Dial    dial.Flags   // how to connect to them
	Egress  fetch.Egress // of the fetchd inside

	Providers map[string]server.AuthProvider // of the fetchd inside
}

// Agent is the default User-Agent of the crawler.
func Agent() string { return "frontier/" + version.String() }

// connect connects to the services, or starts one for the fetches of c, which records into records. The
// caller calls stop.
func (s *Services) connect(c *frontier.Config, records *stores.Set) (_ []frontier.Service, stop func(), err error) {
	if len(s.Servers) == 0 {
		files := daemon.OpenFiles()
		idle := min(fetch.DefaultMaxIdle, files.Idle())
		warnFiles(c.Logger, files, c.Open, idle)
		return Inside(server.Config{
			Fetch:        fetch.Config{Egress: s.Egress, UserAgent: Agent(), MaxIdle: idle},
			Limits:       server.Limits{MaxFetches: 2 * c.Open, MaxTotalTimeout: c.TotalTimeout},
			MemoryBudget: daemon.Memory().Budget(),
			Stores:       records, AuthProviders: s.Providers,
			Logger: slog.New(warnings{c.Logger.Handler()}),
		})
	}
	var all []frontier.Service
	var conns []*grpc.ClientConn
	stop = func() {
		for _, conn := range conns {
			_ = conn.Close() // its calls have ended
		}
	}
	for _, address := range s.Servers {
		conn, err := s.dial(address)
		if err != nil {
			stop()
			return nil, nil, err
		}
		conns = append(conns, conn)
		all = append(all, frontier.Service{Name: address, Client: client.New(conn)})
	}
	return all, stop, nil
}

// dial connects to the service at an address.
func (s *Services) dial(address string) (*grpc.ClientConn, error) {
	target, options, err := s.Dial.Target("--server", address)
	if err != nil {
		return nil, err
	}
	options = append(options, grpc.WithDefaultServiceConfig(`{"loadBalancingConfig": [{"round_robin": {}}]}`),
		// Keepalive notices a service whose machine is gone.
		grpc.WithKeepaliveParams(keepalive.ClientParameters{Time: 30 * time.Second, Timeout: 10 * time.Second}))
	conn, err := grpc.NewClient(target, options...)
	if err != nil {
		return nil, cli.UsageError("--server", fmt.Sprint(err))
	}
	return conn, nil
}

// checkRecords returns an error if a service has no store for records with that name. No service
// accepts its request, so no service fetches anything. A service that does not answer is not checked.
func checkRecords(ctx context.Context, services []frontier.Service, name string) error {
	ctx, cancel := context.WithTimeout(ctx, probeTime)
	defer cancel()
	for _, s := range services {
		_, err := s.Client.Do(ctx, &pb.FetchRequest{RecordPolicy: &pb.RecordPolicy{Store: name, Earlier: new(pb.EarlierRecord)}})
		answer, _ := status.FromError(err)
		if answer.Code() != codes.InvalidArgument {
			continue
		}
		known := false
		for _, v := range badrequest.Of(answer) {
			if v.GetField() == "record_policy.store" {
				return cli.UsageError("--warc", fmt.Sprintf("%s: the name %s", s.Name, v.GetDescription()))
			}
			known = known || strings.HasPrefix(v.GetField(), "record_policy.")
		}
		if !known {
			return cli.UsageError("--warc", s.Name+": this fetchd cannot record fetches: use a newer one, or remove --server")
		}
	}
	return nil
}

// checkIdentity returns an error if a service has no auth provider with that name. A service that does not answer is not
// checked.
func checkIdentity(ctx context.Context, services []frontier.Service, name string) error {
	ctx, cancel := context.WithTimeout(ctx, probeTime)
	defer cancel()
	for _, s := range services {
		_, err := s.Client.Do(ctx, &pb.FetchRequest{AuthProvider: name}) // without a URL nothing is fetched
		if badrequest.Reason(err, "auth_provider") != "" {
			return cli.UsageError("--identity", fmt.Sprintf("%s has no auth provider %.60q: give the name of one in its --origins-file", s.Name, name))
		}
	}
	return nil
}

// Inside starts a service inside this process.
func Inside(cfg server.Config) (_ []frontier.Service, stop func(), err error) {
	rpc, stop, err := embed.Inside(cfg)
	if err != nil {
		return nil, nil, fmt.Errorf("%w: start fetchd inside: %w", frontier.ErrNoService, err)
	}
	return []frontier.Service{{Name: "inside", Client: client.Wrap(rpc)}}, stop, nil
}

// warnings passes on errors of the service inside, and drops its line for each call and fetch.
type warnings struct{ slog.Handler }

// Enabled implements slog.Handler.
func (w warnings) Enabled(ctx context.Context, level slog.Level) bool {
	return level >= slog.LevelError && w.Handler.Enabled(ctx, level)
}

// WithAttrs implements slog.Handler.
func (w warnings) WithAttrs(attrs []slog.Attr) slog.Handler {
	return warnings{w.Handler.WithAttrs(attrs)}
}

// WithGroup implements slog.Handler.
func (w warnings) WithGroup(name string) slog.Handler { return warnings{w.Handler.WithGroup(name)} }

// warnFiles logs if so many fetches need more files and sockets than this process may have open.
func warnFiles(logger *slog.Logger, files daemon.FileLimit, open, idle int) {
	if need := daemon.FilesNeeded(open, 0, idle); need > int(files) {
		logger.Warn("a setting needs more files than the process may have open", slog.String("setting", fmt.Sprintf("--open=%d", open)),
			slog.String("remedy", fmt.Sprintf("raise the limit of %d files and sockets to %d (ulimit -n, LimitNOFILE of systemd), or give at most %d",
				files, need, max(int(files)-daemon.FilesNeeded(0, 0, idle), 2)/2)))
	}
}
