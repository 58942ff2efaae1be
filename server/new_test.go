package server_test

import (
	"errors"
	"net"
	"net/netip"
	"testing"

	"fetchd/fetch"
	pb "fetchd/gen/fetchd/v1"
	"fetchd/server"
)

// TestNewRefuses calls New with invalid configurations.
func TestNewRefuses(t *testing.T) {
	t.Parallel()
	for _, row := range []struct {
		name string
		cfg  server.Config
	}{
		{"negative MaxTotalTimeout", server.Config{Limits: server.Limits{MaxTotalTimeout: -1}}},
		{"negative MaxBodyBytes", server.Config{Limits: server.Limits{MaxBodyBytes: -1}}},
		{"negative Heartbeat", server.Config{Heartbeat: -1}},
		{"negative memory budget", server.Config{MemoryBudget: -1}},
		{"invalid prefix", server.Config{Fetch: fetch.Config{Egress: fetch.Egress{AllowCIDRs: []netip.Prefix{{}}}}}},
	} {
		t.Run(row.name, func(t *testing.T) {
			if s, err := server.New(row.cfg); err == nil || s != nil {
				t.Errorf("New(%+v) = %v, %v; want an error", row.cfg, s, err)
			}
		})
	}
}

// TestZeroConfigIsSafe checks that a server with the zero configuration does not reach loopback.
func TestZeroConfigIsSafe(t *testing.T) {
	t.Parallel()
	r := newRig(t, func(c *server.Config) { *c = server.Config{} })
	for _, url := range []string{r.Origin.URL("http", "/s/k/200"), "http://127.0.0.1/", "http://[::ffff:127.0.0.1]/", "http://169.254.169.254/"} {
		o := r.mustFetch(&pb.FetchRequest{Url: url}).outcome
		wantClass(t, o, pb.ErrorClass_ERROR_CLASS_TARGET_BLOCKED, pb.StopReason_STOP_REASON_NOT_RETRIED, 1)
		if o.GetExchangeCount() != 0 {
			t.Errorf("%s: %d exchanges, want none", url, o.GetExchangeCount())
		}
	}
	r.wantNoConnections()
}

// TestServeAfterShutdown checks that Serve returns nil if Shutdown was called before.
func TestServeAfterShutdown(t *testing.T) {
	t.Parallel()
	s, err := server.New(server.Config{})
	must(t, err)
	if err := s.Shutdown(t.Context()); err != nil {
		t.Errorf("Shutdown = %v", err)
	}
	for name, serve := range map[string]func(net.Listener) error{"Serve": s.Serve, "ServeWeb": s.ServeWeb} {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		must(t, err)
		if err := serve(l); err != nil {
			t.Errorf("%s = %v, want nil", name, err)
		}
		if _, err := l.Accept(); !errors.Is(err, net.ErrClosed) {
			t.Errorf("%s leaves its listener open: %v", name, err)
		}
	}
}
