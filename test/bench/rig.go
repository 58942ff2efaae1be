package main

import (
	"bytes"
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/protobuf/types/known/emptypb"

	"fetchd/test/bench/caller"
	"fetchd/test/bench/process"
	"fetchd/test/wait"
)

// workshop holds what every measurement needs: the programs, a working folder, and the
// environment.
type workshop struct {
	root    string // of the module
	self    string // this program
	fetchd  string
	work    string
	environ []string
	choices *choices
}

// build builds fetchd as released. The caller removes the folder work.
func build(ctx context.Context, c *choices, environ []string) (*workshop, error) {
	work, err := os.MkdirTemp("", "bench")
	if err != nil {
		return nil, err
	}
	w := &workshop{fetchd: filepath.Join(work, "fetchd"), work: work, environ: environ, choices: c}
	if w.self, err = os.Executable(); err != nil {
		return w, err
	}
	root, err := command(ctx, environ, "", "go", "list", "-m", "-f", "{{.Dir}}")
	if err != nil {
		return w, err
	}
	w.root = string(bytes.TrimSpace(root))
	_, err = command(ctx, append(environ, "CGO_ENABLED=0"), w.root, "go", "build", "-o", w.fetchd, "./cmd/fetchd")
	return w, err
}

// command runs a program and returns its standard output.
func command(ctx context.Context, environ []string, dir, name string, args ...string) ([]byte, error) {
	cmd := exec.CommandContext(ctx, name, args...)
	cmd.Env, cmd.Dir = environ, dir
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		return nil, fmt.Errorf("%v: %w: %s", cmd.Args, err, bytes.TrimSpace(stderr.Bytes()))
	}
	return out, nil
}

// service is a program that fetches for others.
type service struct {
	*process.Child
	GRPC    string `json:"grpc"`
	Metrics string `json:"metrics"` // HOST:PORT of /metrics; empty if there is none
	Proxy   string `json:"-"`       // HOST:PORT that stands for the origin's; empty: it is no reverse proxy
}

// rig is the origin and the services of a group, each in its own process.
type rig struct {
	*workshop
	origin    *process.Child
	addrs     map[string]string // of the origin's listeners, by name
	authority string            // file
	services  map[string]*service
	traces    *grpc.Server
}

// start starts the origin and the services that the subjects use. [rig.stop] ends them.
func (w *workshop) start(ctx context.Context, subjects []subject) (*rig, error) {
	r := &rig{workshop: w, services: make(map[string]*service), authority: filepath.Join(w.work, "authority.pem")}
	err := r.startOrigin(ctx)
	for _, s := range subjects {
		if err == nil && s.service != "" && r.services[s.service] == nil {
			r.services[s.service], err = r.startService(ctx, s.service)
		}
	}
	if err != nil {
		return nil, errors.Join(err, r.stop())
	}
	return r, nil
}

func (r *rig) stop() error {
	var err error
	for _, s := range r.services {
		if s != nil {
			err = errors.Join(err, s.Stop())
		}
	}
	if r.origin != nil {
		err = errors.Join(err, r.origin.Stop())
	}
	if r.traces != nil {
		r.traces.Stop()
	}
	return err
}

func (r *rig) startOrigin(ctx context.Context) error {
	var err error
	if r.origin, err = process.Start(ctx, process.Spec{Path: r.self, Args: []string{"origin"}, Env: r.few()}); err != nil {
		return err
	}
	if err = readReady(ctx, r.origin, &r.addrs); err != nil {
		return err
	}
	return os.WriteFile(r.authority, []byte(r.addrs["authority"]), 0o600)
}

// readReady reads the line of JSON that a program writes when it is ready.
func readReady(ctx context.Context, c *process.Child, into any) error {
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	line, err := c.Line(ctx)
	if err == nil {
		err = json.Unmarshal([]byte(line), into)
	}
	if err != nil {
		return fmt.Errorf("process %d did not become ready: %w: %s", c.PID(), err, c.LastWords())
	}
	return nil
}

func (r *rig) startService(ctx context.Context, name string) (*service, error) {
	switch name {
	case "relay":
		return r.startRelay(ctx)
	case "relay-heap":
		return r.startRelay(ctx, "--hold-heap")
	case "timer":
		return r.startRelay(ctx, "--wait", "10m")
	case "traced":
		sink, err := r.collect()
		if err != nil {
			return nil, err
		}
		return r.startFetchd(ctx, "--trace-endpoint", sink, "--trace-ratio", "0.001")
	case "nginx", "squid":
		return r.startProxy(ctx, name)
	default:
		return r.startFetchd(ctx)
	}
}

// startRelay starts the relay, which writes its addresses to standard output.
func (r *rig) startRelay(ctx context.Context, more ...string) (_ *service, err error) {
	s := new(service)
	s.Child, err = process.Start(ctx, process.Spec{Path: r.self, Env: r.few(),
		Args: append([]string{"relay", "--authority", r.authority}, more...)})
	if err != nil {
		return nil, err
	}
	return s, readReady(ctx, s.Child, s)
}

// startFetchd starts fetchd with its defaults, plus slots of which one caller gets 10,000, access to the
// origin on loopback, and stores in
// the working folder. Its log goes into a file.
func (r *rig) startFetchd(ctx context.Context, more ...string) (*service, error) {
	stores := filepath.Join(r.work, "stores.yaml")
	if err := os.WriteFile(stores, caller.Stores(r.work), 0o600); err != nil {
		return nil, err
	}
	args := append([]string{"--grpc-addr", "127.0.0.1:0", "--http-addr", "127.0.0.1:0",
		"--egress-allow-cidr", "127.0.0.0/8", "--max-fetches", "11635", "--egress-ca-file", r.authority, "--stores-file", stores}, more...)
	for _, name := range []string{"http", "https", "h2"} {
		_, port, err := net.SplitHostPort(r.addrs[name])
		if err != nil {
			return nil, err
		}
		args = append(args, "--egress-allow-port", port)
	}
	s := new(service)
	log, err := os.Create(filepath.Join(r.work, rand.Text()+".log"))
	if err != nil {
		return nil, err
	}
	s.Child, err = process.Start(ctx, process.Spec{Path: r.fetchd, Args: args, Log: log})
	if err := errors.Join(err, log.Close()); err != nil { // the child has its own descriptor
		return nil, err
	}
	return s, s.serving(ctx, log.Name())
}

// serving waits for the log line with the addresses.
func (s *service) serving(ctx context.Context, path string) error {
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	return wait.Poll(ctx, 5*time.Millisecond, func() (bool, error) {
		text, err := os.ReadFile(path)
		if err != nil {
			return false, err
		}
		first, _, whole := bytes.Cut(text, []byte("\n"))
		if !whole {
			return false, nil
		}
		var line struct {
			Msg      string `json:"msg"`
			GRPCAddr string `json:"grpc_addr"`
			HTTPAddr string `json:"http_addr"`
		}
		if err := json.Unmarshal(first, &line); err != nil || line.Msg != "serving" {
			return false, fmt.Errorf("fetchd does not serve: %s", first)
		}
		s.GRPC, s.Metrics = line.GRPCAddr, line.HTTPAddr
		return true, nil
	})
}

// collect serves a collector that discards traces, and returns its address.
func (r *rig) collect() (string, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return "", err
	}
	r.traces = grpc.NewServer(grpc.UnknownServiceHandler(func(_ any, s grpc.ServerStream) error {
		return errors.Join(s.RecvMsg(new(emptypb.Empty)), s.SendMsg(new(emptypb.Empty)))
	}))
	go func() { _ = r.traces.Serve(l) }() // ends with stop
	return l.Addr().String(), nil
}
