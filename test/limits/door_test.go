//go:build linux

package limits

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"

	pb "fetchd/gen/fetchd/v1"
	frontierpb "fetchd/gen/frontier/v1"
	"fetchd/test/need"
	"fetchd/test/rig"
	"fetchd/test/selfsigned"
	"fetchd/test/wait"
)

// How a crowd uses its connections.
const (
	silent    = "silent"    // it sends nothing, and resets them
	paced     = "paced"     // the same, 10,000 times a second
	partial   = "partial"   // it sends the first byte of a request or a preface
	tlsSilent = "tls"       // it sends nothing to a port with TLS
	handshake = "handshake" // it makes TLS handshakes, and then resets them
	idle      = "idle"      // no connections: a loop that uses as much of its core
	flooding  = "flooding"  // it sends a flood on each
)

// crowd is a run of the attacker. The test program runs itself as the attacker, on its own core.
type crowd struct {
	Kind, Target string
	Addresses    int
	IPv6         bool          // from as many networks of 64 bits
	Rate         int           // connections a second; 0: as many as the core makes
	Time         time.Duration // of the run
	Core         int           // its processor; -1: any

	Flood, Program, Token string // of flooding
}

// crowdVariable has the crowd of a process that is an attacker.
const crowdVariable = "FETCHD_CROWD"

// from returns the address of connection n.
func (f crowd) from(n int) net.IP {
	n %= f.Addresses
	if f.IPv6 {
		return net.ParseIP(fmt.Sprintf("2001:db8:%x:%x::1", n>>16, n&0xffff))
	}
	return net.IPv4(127, 1, byte(n/250), byte(1+n%250)).To4()
}

// run makes the connections and prints their number.
func (f crowd) run() error {
	if f.Core >= 0 {
		if err := pin(f.Core); err != nil {
			return err
		}
	}
	var made atomic.Int64
	until := time.Now().Add(f.Time)
	pace := func(n int) bool {
		now := time.Now()
		if f.Rate > 0 {
			if early := time.Duration(n)*time.Second/time.Duration(f.Rate) - f.Time + until.Sub(now); early > 0 {
				wait.For(context.Background(), early)
			}
		}
		return now.Before(until)
	}
	var err error
	switch f.Kind {
	case idle:
		for time.Now().Before(until) {
		}
	case handshake:
		err = f.handshakes(pace, &made)
	case flooding:
		err = f.flood()
	default:
		err = f.connections(pace, &made)
	}
	_, _ = fmt.Fprintln(os.Stdout, made.Load())
	return err
}

// openConnections is how many connections a crowd keeps open: more than a service accepts of strangers.
const openConnections = 2500

// connections opens connections and resets the oldest.
func (f crowd) connections(pace func(int) bool, made *atomic.Int64) error {
	to, err := net.ResolveTCPAddr("tcp", f.Target)
	if err != nil {
		return err
	}
	open := make([]int, openConnections)
	end := func(fd int) {
		if fd == 0 {
			return
		}
		if info, err := unix.GetsockoptTCPInfo(fd, unix.SOL_TCP, unix.TCP_INFO); err == nil && info.State != unix.BPF_TCP_SYN_SENT {
			made.Add(1) // it was in the queue of the service
		}
		_ = unix.Close(fd)
	}
	defer func() {
		for _, fd := range open {
			end(fd)
		}
	}()
	for n := 0; pace(n); n++ {
		var local, remote unix.Sockaddr
		family := unix.AF_INET6
		if f.IPv6 {
			local, remote = &unix.SockaddrInet6{Addr: [16]byte(f.from(n))}, &unix.SockaddrInet6{Port: to.Port, Addr: [16]byte(to.IP.To16())}
		} else {
			family, local, remote = unix.AF_INET, &unix.SockaddrInet4{Addr: [4]byte(f.from(n))}, &unix.SockaddrInet4{Port: to.Port, Addr: [4]byte(to.IP.To4())}
		}
		fd, err := unix.Socket(family, unix.SOCK_STREAM|unix.SOCK_NONBLOCK|unix.SOCK_CLOEXEC, 0)
		if err != nil {
			return err
		}
		_ = unix.SetsockoptLinger(fd, unix.SOL_SOCKET, unix.SO_LINGER, &unix.Linger{Onoff: 1})
		_ = unix.SetsockoptInt(fd, unix.SOL_IP, unix.IP_BIND_ADDRESS_NO_PORT, 1)
		if err := unix.Bind(fd, local); err != nil {
			return fmt.Errorf("bind to %s: %w", f.from(n), err)
		}
		_ = unix.Connect(fd, remote) // it is in progress
		if f.Kind == partial {
			_, _ = unix.Write(fd, []byte("P")) // it fails if the queue of the service is full
		}
		end(open[n%openConnections])
		open[n%openConnections] = fd
	}
	return nil
}

// handshakes makes handshakes in a few goroutines.
func (f crowd) handshakes(pace func(int) bool, made *atomic.Int64) error {
	var lanes sync.WaitGroup
	var next atomic.Int64
	for range 16 {
		lanes.Go(func() {
			for {
				n := int(next.Add(1))
				if !pace(n) {
					return
				}
				d := tls.Dialer{NetDialer: &net.Dialer{LocalAddr: &net.TCPAddr{IP: f.from(n)}, Timeout: 2 * time.Second},
					Config: &tls.Config{InsecureSkipVerify: true, NextProtos: []string{"h2", "http/1.1"}}} //nolint:gosec // it checks nothing
				c, err := d.DialContext(context.Background(), "tcp", f.Target)
				if err != nil {
					continue
				}
				made.Add(1)
				if tcp, ok := c.(*tls.Conn).NetConn().(*net.TCPConn); ok {
					_ = tcp.SetLinger(0)
					_ = tcp.Close()
				}
			}
		})
	}
	lanes.Wait()
	return nil
}

// attackerCore and serviceCore are the processors of the attacker, and of the service and its callers.
const attackerCore, serviceCore = 0, 1

// pin limits the threads of this process, and those that it starts, to a processor.
func pin(core int) error {
	var set unix.CPUSet
	set.Set(core)
	threads, err := os.ReadDir("/proc/self/task")
	if err != nil {
		return err
	}
	for _, t := range threads {
		var id int
		if _, err := fmt.Sscan(t.Name(), &id); err != nil {
			return err
		}
		if err := unix.SchedSetaffinity(id, &set); err != nil && !errors.Is(err, unix.ESRCH) {
			return err
		}
	}
	return nil
}

// start runs the attacker until it ends, and returns how many connections it made.
func (f crowd) start(t *testing.T) (made func() int64) {
	t.Helper()
	config, err := json.Marshal(f)
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(t.Context(), "/proc/self/exe")
	cmd.Env = []string{crowdVariable + "=" + string(config)}
	cmd.Stderr = os.Stderr
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	return func() int64 {
		var n int64
		if _, err := fmt.Fscan(out, &n); err != nil {
			t.Errorf("the attacker: %v", err)
		}
		if err := cmd.Wait(); err != nil {
			t.Errorf("the attacker: %v", err)
		}
		return n
	}
}

// doorService is a program with tokens, and what its callers need.
type doorService struct {
	*rig.Process
	program, token string
	evil           string            // the token of an attacker
	ports          map[string]string // addresses of "grpc" and "http"
	tls            *tls.Config       // of callers; nil: plaintext
	host           string
}

// doorOptions say how a program is started.
type doorOptions struct {
	program, host string
	secured       bool
	memory        int64 // limit of its cgroup, with the connections that it allows by itself; 0: no limit, and many connections
}

// startDoor starts a program that requires tokens.
func startDoor(t *testing.T, o doorOptions) *doorService {
	t.Helper()
	program, host := o.program, o.host
	dir := t.TempDir()
	callers, err := newTokens(dir)
	if err != nil {
		t.Fatal(err)
	}
	s := &doorService{program: program, token: callers.bystander, evil: callers.attacker, host: host, ports: map[string]string{"grpc": rig.FreeAddress(t, host), "http": rig.FreeAddress(t, host)}}
	args := []string{rig.Program(program)}
	if program == "frontier" {
		args = append(args, "serve", "--db", filepath.Join(dir, "frontier.db"))
	} else if o.memory == 0 {
		args = append(args, "--max-connections", "4096")
	}
	args = append(args, "--token-file", callers.file, "--grpc-addr", s.ports["grpc"], "--http-addr", s.ports["http"])
	if o.secured {
		_, cert, key, err := selfsigned.New()
		if err != nil {
			t.Fatal(err)
		}
		certFile, keyFile := filepath.Join(dir, "cert.pem"), filepath.Join(dir, "key.pem")
		if err := errors.Join(os.WriteFile(certFile, cert, 0o600), os.WriteFile(keyFile, key, 0o600)); err != nil {
			t.Fatal(err)
		}
		roots := x509.NewCertPool()
		roots.AppendCertsFromPEM(cert)
		s.tls = &tls.Config{RootCAs: roots, ServerName: "127.0.0.1"}
		args = append(args, "--tls-cert-file", certFile, "--tls-key-file", keyFile)
	}
	if o.memory > 0 {
		group, err := rig.NewCgroup(o.memory)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = group.Remove(context.WithoutCancel(t.Context())) })
		args = group.Command(args...)
	}
	var log rig.Log
	if s.Process, err = rig.Start(args, nil, log.Add); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.Stop)
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	if err := wait.Until(ctx, 20*time.Millisecond, func() bool { return strings.Contains(log.String(), `"msg":"serving"`) }); err != nil {
		t.Fatalf("%s does not serve: %s", program, log.String())
	}
	return s
}

// dial connects to a port, and waits for delay before anything is sent.
func (s *doorService) dial(ctx context.Context, port string, delay time.Duration) (net.Conn, error) {
	lane, _ := ctx.Value(laneKey{}).(int)
	local := net.IPv4(127, 9, 9, byte(1+lane))
	if s.host == "::1" {
		local = net.ParseIP(fmt.Sprintf("2001:db8:ffff:%x::1", 1+lane))
	}
	c, err := (&net.Dialer{LocalAddr: &net.TCPAddr{IP: local}}).DialContext(ctx, "tcp", s.ports[port])
	if err == nil {
		wait.For(ctx, delay)
	}
	return c, err
}

// answerTime is how long a caller waits for its answer, in addition to its delay: longer than any attack of the gate.
const answerTime = 30 * time.Second

// get makes a request on a new connection.
func (s *doorService) get(ctx context.Context, method, path, body string, delay time.Duration) error {
	transport := &http.Transport{DisableKeepAlives: true, TLSClientConfig: s.tls, DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) { return s.dial(ctx, "http", delay) }}
	scheme := "http"
	if s.tls != nil {
		scheme = "https"
	}
	request, err := http.NewRequestWithContext(ctx, method, scheme+"://"+s.ports["http"]+path, strings.NewReader(body))
	if err != nil {
		return err
	}
	request.Header.Set("Authorization", "Bearer "+s.token)
	request.Header.Set("Content-Type", "application/json")
	response, err := transport.RoundTrip(request)
	if err != nil {
		return err
	}
	defer response.Body.Close()
	_, err = io.Copy(io.Discard, response.Body)
	if err == nil && response.StatusCode != http.StatusOK {
		err = errors.New(response.Status)
	}
	return err
}

// call makes a call of a caller on a new connection.
func (s *doorService) call(ctx context.Context, port string, delay time.Duration) error {
	if port == "http" {
		if s.program == "frontier" {
			return s.get(ctx, http.MethodGet, "/v1/stats", "", delay)
		}
		return s.get(ctx, http.MethodPost, "/v1/explain", `{"response":{"status_code":503}}`, delay)
	}
	return s.rpc(ctx, delay, func(ctx context.Context, c *grpc.ClientConn) error {
		ctx = withToken(ctx, s.token)
		var err error
		if s.program == "frontier" {
			_, err = frontierpb.NewFrontierServiceClient(c).Stats(ctx, new(frontierpb.StatsRequest))
		} else {
			_, err = pb.NewFetchServiceClient(c).Explain(ctx, &pb.ExplainRequest{Response: &pb.HttpResponse{StatusCode: 503}})
		}
		return err
	})
}

// health asks for the health on a new connection.
func (s *doorService) health(ctx context.Context, port string) error {
	if port == "http" {
		return s.get(ctx, http.MethodGet, "/healthz", "", 0)
	}
	return s.rpc(ctx, 0, func(ctx context.Context, c *grpc.ClientConn) error {
		_, err := healthpb.NewHealthClient(c).Check(ctx, new(healthpb.HealthCheckRequest))
		return err
	})
}

func (s *doorService) rpc(ctx context.Context, delay time.Duration, call func(context.Context, *grpc.ClientConn) error) error {
	creds := insecure.NewCredentials()
	if s.tls != nil {
		creds = credentials.NewTLS(s.tls)
	}
	c, err := grpc.NewClient("passthrough:///"+s.ports["grpc"], grpc.WithTransportCredentials(creds), grpc.WithNoProxy(),
		grpc.WithContextDialer(func(dialing context.Context, _ string) (net.Conn, error) {
			return s.dial(context.WithValue(dialing, laneKey{}, ctx.Value(laneKey{})), "grpc", delay)
		}))
	if err != nil {
		return err
	}
	defer c.Close()
	return call(ctx, c)
}

// doorDelays are the times between a caller's connection and the first byte of its call.
var doorDelays = []time.Duration{0, 50 * time.Millisecond, 150 * time.Millisecond, 300 * time.Millisecond, 900 * time.Millisecond}

// answers are the answers to the calls of one kind.
type answers struct {
	calls, answered int
	times           rig.Times // without the delay
	last            error
}

// laneKey is the context key of the number of a caller, each of which has its own address.
type laneKey struct{}

// ask makes n calls, one after the other in each of a few lanes. The lanes are numbered from first.
func ask(ctx context.Context, n, first, lanes int, delay time.Duration, call func(context.Context) error) *answers {
	a := new(answers)
	var mu sync.Mutex
	var all sync.WaitGroup
	for lane := range lanes {
		all.Go(func() {
			for range n / lanes {
				began := time.Now()
				limited, cancel := context.WithTimeout(context.WithValue(ctx, laneKey{}, first+lane), answerTime+delay)
				err := call(limited)
				cancel()
				mu.Lock()
				a.calls++
				if err == nil {
					a.answered++
					a.times = append(a.times, time.Since(began)-delay)
				} else {
					a.last = err
				}
				mu.Unlock()
			}
		})
	}
	all.Wait()
	return a
}

// TestDoor crowds the ports of both programs with connections of strangers. Callers with a token and
// health checks must be answered, however long the callers are silent at first. The times are printed,
// next to those while the attacker only uses its processor; no test fails for them.
func TestDoor(t *testing.T) {
	rig.Long(t, time.Hour)
	all := os.Getenv("FETCHD_LIMITS") == "all"
	if os.Getuid() != 0 {
		need.Missing(t, "run it as root", "a separate network needs root")
	}
	if os.Getenv("FETCHD_DOOR_NETWORK") == "" {
		inOwnNetwork(t)
		return
	}
	if all && runtime.NumCPU() >= 2 {
		if err := pin(serviceCore); err != nil {
			t.Fatal(err)
		}
	}
	calls, sources, kinds := 20, []int{2}, []string{silent, handshake}
	if all {
		calls, sources, kinds = 100, []int{1, 2, 64, 1000, -1000}, []string{silent, paced, partial, tlsSilent, handshake} // -1000: of IPv6
	}
	_, _ = fmt.Fprintf(os.Stdout, "\n| program | port | strangers | addresses | connections/s | calls answered at 0, 50, 150, 300, 900 ms | p50 | p50 without | health |\n|---|---|---|---|---|---|---|---|---|\n")
	for _, program := range []string{"fetchd", "frontier"} {
		for _, kind := range kinds {
			for _, port := range []string{"http", "grpc"} {
				for _, addresses := range sources {
					name := fmt.Sprintf("%s-%s-%s-%d", program, port, kind, addresses)
					t.Run(name, func(t *testing.T) { doorRow(t, program, kind, port, addresses, calls, all) })
				}
			}
		}
	}
}

// inOwnNetwork runs the test again in a network namespace that has all addresses.
func inOwnNetwork(t *testing.T) {
	t.Helper()
	ip := need.Program(t, "ip", "iproute2")
	self, err := os.Open("/proc/self/exe")
	if err != nil {
		t.Fatal(err)
	}
	defer self.Close()
	args := []string{"-c", `"$0" link set lo up && "$0" -6 route add local 2001:db8::/32 dev lo && echo 1 >/proc/sys/net/ipv6/ip_nonlocal_bind && exec /proc/self/fd/3 "$@"`, ip, "-test.v", "-test.timeout=0"}
	pattern := flag.Lookup("test.run").Value.String()
	if !strings.Contains(pattern, "TestDoor") {
		pattern = "^TestDoor$"
	}
	cmd := exec.CommandContext(t.Context(), "/bin/sh", append(args, "-test.run="+pattern)...)
	cmd.ExtraFiles = []*os.File{self}
	cmd.Env = append(os.Environ(), "FETCHD_DOOR_NETWORK=1", "TEST_PROGRAMS="+filepath.Dir(rig.Program("fetchd")))
	cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWNET, Pdeathsig: syscall.SIGKILL}
	cmd.Stdout, cmd.Stderr = os.Stdout, os.Stderr
	if err := cmd.Run(); err != nil {
		t.Errorf("the test in its own network: %v", err)
	}
}

func doorRow(t *testing.T, program, kind, port string, addresses, calls int, all bool) {
	f := crowd{Kind: kind, Addresses: addresses, Core: -1}
	if all && runtime.NumCPU() >= 2 {
		f.Core = attackerCore
	}
	host := "127.0.0.1"
	if addresses < 0 {
		f.Addresses, f.IPv6, host = -addresses, true, "::1"
	}
	switch kind {
	case paced:
		f.Kind, f.Rate = silent, 10_000
	case tlsSilent:
		f.Kind = silent
	case handshake:
		f.Rate = 500
	}
	if !all && (f.Rate == 0 || f.Rate > 1000) {
		f.Rate = 1000 // the machine of the gate is busy
	}
	s := startDoor(t, doorOptions{program: program, host: host, secured: kind == tlsSilent || kind == handshake})
	f.Target = s.ports[port]
	f.Time = 2*time.Second + time.Duration(calls)*100*time.Millisecond
	run := func(f crowd) (perSecond float64, byDelay []*answers, health *answers) {
		made := f.start(t)
		wait.For(t.Context(), time.Second)
		byDelay = make([]*answers, len(doorDelays))
		var lanes sync.WaitGroup
		for i, delay := range doorDelays {
			lanes.Go(func() {
				byDelay[i] = ask(t.Context(), calls, 10*i, 1+int(delay/(150*time.Millisecond)), delay, func(ctx context.Context) error { return s.call(ctx, port, delay) })
			})
		}
		lanes.Go(func() {
			health = ask(t.Context(), calls, 100, 1, 0, func(ctx context.Context) error { return s.health(ctx, port) })
		})
		lanes.Wait()
		return float64(made()) / f.Time.Seconds(), byDelay, health
	}
	without := slices.Repeat([]*answers{new(answers)}, len(doorDelays))
	if all {
		quiet := f
		quiet.Kind = idle
		_, without, _ = run(quiet)
	}
	perSecond, byDelay, health := run(f)
	var counts, p50, p50Without []string
	for i, a := range byDelay {
		counts = append(counts, fmt.Sprintf("%d/%d", a.answered, a.calls))
		p50 = append(p50, a.times.Percentile(50).Round(100*time.Microsecond).String())
		p50Without = append(p50Without, without[i].times.Percentile(50).Round(100*time.Microsecond).String())
		if a.answered*100 < a.calls*99 {
			t.Errorf("%d of %d calls after %s are answered, want 99 of 100; the last error: %v", a.answered, a.calls, doorDelays[i], a.last)
		}
	}
	if health.answered < health.calls {
		t.Errorf("%d of %d health checks are answered, want all; the last error: %v", health.answered, health.calls, health.last)
	}
	_, _ = fmt.Fprintf(os.Stdout, "| %s | %s | %s | %d | %.0f | %s | %s | %s | %d/%d |\n", program, port, kind, addresses, perSecond,
		strings.Join(counts, " "), strings.Join(p50, " "), strings.Join(p50Without, " "), health.answered, health.calls)
}

// runCrowd runs the crowd of a process that is an attacker.
func runCrowd(config string) {
	var f crowd
	err := json.Unmarshal([]byte(config), &f)
	if err == nil {
		err = f.run()
	}
	if err != nil {
		_, _ = fmt.Fprintln(os.Stderr, "the attacker:", err)
	}
}
