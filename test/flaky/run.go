package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"fetchd/conformance/origin"
	"fetchd/test/bench/process"
)

// patience is how long a client may be without a result before it is ended. No answer of the origin takes half of
// that, except a Retry-After of an hour.
const patience = 30 * time.Second

// install installs something once.
func (s *shop) install(what string, f func() error) error {
	if err, done := s.failed[what]; done {
		return err
	}
	_, _ = fmt.Fprintf(s.stderr, "installing the packages for %s\n", what)
	s.failed[what] = f()
	return s.failed[what]
}

// installPython makes a virtual environment, unless a Python was given.
func (s *shop) installPython(ctx context.Context) error {
	if s.python != "" {
		return nil
	}
	if _, err := exec.LookPath("python3"); err != nil {
		return errors.New("python3 is not on the PATH: install Python 3.9 or newer with venv, or give --python")
	}
	venv := filepath.Join(s.work, "venv")
	if _, err := s.command(ctx, "", "python3", "-m", "venv", venv); err != nil {
		return fmt.Errorf("%w (on Debian, install python3-venv)", err)
	}
	s.python = filepath.Join(venv, "bin", "python")
	_, err := s.command(ctx, "", s.python, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--retries", "1",
		"-r", filepath.Join(s.work, "clients", "requirements.txt"))
	if err != nil {
		return fmt.Errorf("%w (to use packages that are installed, give --python)", err)
	}
	return nil
}

func (s *shop) installNode(ctx context.Context) error {
	if _, err := exec.LookPath("npm"); err != nil {
		return errors.New("npm is not on the PATH: install Node 20 or newer")
	}
	_, err := s.command(ctx, filepath.Join(s.work, "clients"), "npm", "ci", "--ignore-scripts", "--no-audit", "--no-fund")
	return err
}

// lines counts the lines that are neither empty nor a comment.
func lines(text string) (n int) {
	for line := range strings.Lines(text) {
		line = strings.TrimSpace(line)
		if line != "" && !strings.HasPrefix(line, "#") && !strings.HasPrefix(line, "//") {
			n++
		}
	}
	return n
}

// once runs a client once, with a new origin.
func (s *shop) once(ctx context.Context, c *client, mix []*job) (*result, error) {
	o, err := origin.Start(origin.Config{})
	if err != nil {
		return nil, err
	}
	defer func() { _ = o.Close() }() // always nil
	environ, pid := direct(s.environ), 0
	if c.fetchd {
		service, address, err := s.startFetchd(ctx, o)
		if err != nil {
			return nil, err
		}
		defer func() { _ = service.Stop() }() // it is not needed anymore
		environ = append(environ, "FETCHD="+address, "PYTHONPATH="+filepath.Join(s.root, "client/python/src"), "PYTHONDONTWRITEBYTECODE=1")
		pid = service.PID()
	}
	var list strings.Builder
	for _, j := range mix {
		fmt.Fprintf(&list, "%s %s\n", j.method, j.url(o))
	}
	empty, err := s.call(ctx, c, environ, "")
	if err != nil {
		return nil, err
	}
	before := serviceCPU(pid)
	full, err := s.call(ctx, c, environ, list.String())
	if err != nil {
		return nil, err
	}
	r := judgeAll(mix, full.answers, o)
	r.CPU, r.StartCPU, r.ServiceCPU = full.cpu, empty.cpu, serviceCPU(pid)-before
	r.Seconds, r.Ended = full.seconds, full.ended
	return r, nil
}

// direct returns the environment without its proxies, which some clients would use to reach the origin on loopback.
func direct(environ []string) []string {
	return slices.DeleteFunc(slices.Clone(environ), func(variable string) bool {
		name, _, _ := strings.Cut(strings.ToLower(variable), "=")
		return name == "http_proxy" || name == "https_proxy" || name == "all_proxy"
	})
}

// serviceCPU returns the CPU seconds of a process: 0 without a process, or where they cannot be read.
func serviceCPU(pid int) float64 {
	if pid == 0 {
		return 0
	}
	cpu, _ := process.CPU(pid)
	return cpu.Seconds()
}

// startFetchd starts a fetchd that may reach the origin, and returns its address.
func (s *shop) startFetchd(ctx context.Context, o *origin.Origin) (*process.Child, string, error) {
	args := []string{"--grpc-addr", "127.0.0.1:0", "--http-addr", "", "--egress-allow-cidr", "127.0.0.0/8"}
	for _, name := range []string{"http", deadTLS, "refused"} {
		_, port, err := net.SplitHostPort(o.Addr(name))
		if err != nil {
			return nil, "", err
		}
		args = append(args, "--egress-allow-port", port)
	}
	address := make(chan string, 1)
	service, err := process.Start(ctx, process.Spec{Path: filepath.Join(s.work, "fetchd"), Args: args, Stderr: func(line string) {
		var serving struct {
			Msg      string `json:"msg"`
			GRPCAddr string `json:"grpc_addr"`
		}
		if json.Unmarshal([]byte(line), &serving) == nil && serving.Msg == "serving" {
			address <- serving.GRPCAddr
		}
	}})
	if err != nil {
		return nil, "", err
	}
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	select {
	case at := <-address:
		return service, at, nil
	case <-ctx.Done():
		return nil, "", errors.Join(fmt.Errorf("fetchd does not serve: %s", service.LastWords()), service.Stop())
	}
}

// called is the result of a call.
type called struct {
	answers      map[string]*answer
	cpu, seconds float64
	ended        string
}

// call runs a client with a list of requests until it ends, or has no result for too long.
func (s *shop) call(ctx context.Context, c *client, environ []string, list string) (*called, error) {
	file := filepath.Join(s.work, "list")
	if err := os.WriteFile(file, []byte(list), 0o600); err != nil {
		return nil, err
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	cmd := s.start(ctx, c, file)
	cmd.Env, cmd.Dir = environ, s.work
	var stderr strings.Builder
	cmd.Stderr = &stderr
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	begin := time.Now()
	idle := time.AfterFunc(patience, cancel)
	defer idle.Stop()
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	out := &called{answers: make(map[string]*answer)}
	for scan := bufio.NewScanner(stdout); scan.Scan(); {
		a := new(answer)
		if err := json.Unmarshal(scan.Bytes(), a); err != nil {
			return nil, errors.Join(fmt.Errorf("%s wrote %q: %w", c.File, scan.Text(), err), cmd.Wait())
		}
		out.answers[a.URL] = a
		idle.Reset(patience)
	}
	err = cmd.Wait()
	out.cpu = (cmd.ProcessState.UserTime() + cmd.ProcessState.SystemTime()).Seconds()
	out.seconds = time.Since(begin).Seconds()
	switch {
	case ctx.Err() != nil:
		out.ended = fmt.Sprintf("ended after %.0f s without a result", patience.Seconds())
	case err != nil:
		stderr := strings.Split(strings.TrimSpace(stderr.String()), "\n")
		out.ended = fmt.Sprintf("%v: %s", err, stderr[len(stderr)-1])
	}
	return out, nil
}

// start returns the command of a client.
func (s *shop) start(ctx context.Context, c *client, list string) *exec.Cmd {
	script := filepath.Join(s.work, "clients", c.File)
	switch filepath.Ext(c.File) {
	case ".py":
		return exec.CommandContext(ctx, s.python, script, list)
	case ".mjs":
		return exec.CommandContext(ctx, "node", script, list)
	default:
		return exec.CommandContext(ctx, filepath.Join(s.work, filepath.Base(filepath.Dir(c.File))), list)
	}
}
