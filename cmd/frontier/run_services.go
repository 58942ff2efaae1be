package main

import (
	"context"
	"fmt"
	"log/slog"
	"net/netip"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/keepalive"

	"fetchd/client"
	"fetchd/fetch"
	"fetchd/frontier"
	"fetchd/internal/cli"
	"fetchd/internal/daemon"
	"fetchd/internal/dial"
	"fetchd/server"
	"fetchd/server/embed"
	"fetchd/stores"
)

// services are the flags of the services that make the fetches.
type services struct {
	Server []string `variable:"FETCHD_SERVER" placeholder:"HOST:PORT" group:"Service:" help:"Fetch through the fetchd at this address instead of the one inside ($$FETCHD_SERVER). Repeat it to balance fetches. dns:///NAME:PORT uses every address of a name."`
	dial.Flags
	AllowCIDR []netip.Prefix `name:"egress-allow-cidr" placeholder:"CIDR" group:"Service:" help:"Addresses that the fetchd inside may reach in addition to public ones. Repeatable."`
	AllowPort []uint16       `name:"egress-allow-port" placeholder:"PORT" group:"Service:" help:"Ports that it may reach in addition to 80 and 443. Repeatable."`
}

// connect connects to the services of the flags, or starts one for open fetches of at most longest,
// which records into records.
// The caller calls stop.
func (c services) connect(logger *slog.Logger, open int, longest time.Duration, records *stores.Set) (_ []frontier.Service, stop func(), err error) {
	if len(c.Server) == 0 {
		files := daemon.OpenFiles()
		idle := min(fetch.DefaultMaxIdle, files.Idle())
		warnFiles(logger, files, open, idle)
		return startInside(server.Config{
			Fetch: fetch.Config{
				Egress:    fetch.Egress{AllowCIDRs: c.AllowCIDR, AllowPorts: c.AllowPort},
				UserAgent: agent(), MaxIdle: idle,
			},
			Limits:       server.Limits{MaxFetches: 2 * open, MaxTotalTimeout: longest},
			MemoryBudget: daemon.Memory().Budget(),
			Stores:       records,
			Logger:       slog.New(warnings{logger.Handler()}),
		})
	}
	opts, err := c.Options()
	if err != nil {
		return nil, nil, err
	}
	opts = append(opts, grpc.WithDefaultServiceConfig(`{"loadBalancingConfig": [{"round_robin": {}}]}`),
		// Keepalive notices a service whose machine is gone.
		grpc.WithKeepaliveParams(keepalive.ClientParameters{Time: 30 * time.Second, Timeout: 10 * time.Second}))
	var all []frontier.Service
	var conns []*grpc.ClientConn
	stop = func() {
		for _, conn := range conns {
			_ = conn.Close() // its calls have ended
		}
	}
	for _, address := range c.Server {
		conn, err := grpc.NewClient(address, opts...)
		if err != nil {
			stop()
			return nil, nil, cli.UsageError("--server", fmt.Sprint(err))
		}
		conns = append(conns, conn)
		all = append(all, frontier.Service{Name: address, Client: client.New(conn)})
	}
	return all, stop, nil
}

// startInside starts a service inside this process.
func startInside(cfg server.Config) (_ []frontier.Service, stop func(), err error) {
	conn, stop, err := embed.Start(cfg, nil)
	if err != nil {
		return nil, nil, fmt.Errorf("%w: start fetchd inside: %w", frontier.ErrNoService, err)
	}
	return []frontier.Service{{Name: "inside", Client: client.New(conn)}}, stop, nil
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
