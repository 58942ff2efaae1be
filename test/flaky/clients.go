package main

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
)

// client is one of the clients that are compared.
type client struct {
	Name   string `json:"name"`
	File   string `json:"file"` // in test/flaky/clients
	Lines  int    `json:"lines"`
	With   string `json:"with"` // versions
	fetchd bool
	// packages are what With names: of Python, npm or Go.
	packages []string
}

const retryable = "github.com/hashicorp/go-retryablehttp"

var clients = []*client{
	{Name: "requests + Retry", File: "requests_retry.py", packages: []string{"requests", "urllib3"}},
	{Name: "httpx + loop", File: "httpx_loop.py", packages: []string{"httpx"}},
	{Name: "aiohttp + loop", File: "aiohttp_loop.py", packages: []string{"aiohttp"}},
	{Name: "got", File: "got_retry.mjs", packages: []string{"got"}},
	{Name: "go-retryablehttp", File: "retryablehttp/main.go", packages: []string{retryable}},
	{Name: "fetchd, Python", File: "fetchd_many.py", fetchd: true, packages: []string{"grpcio", "protobuf"}},
	{Name: "fetchd, Go", File: "many/main.go", fetchd: true, packages: []string{"google.golang.org/grpc"}},
}

// shop is a temporary folder with the clients and what they need.
type shop struct {
	program
	root, work string
	python     string           // empty: not installed yet
	failed     map[string]error // by what could not be installed
}

// newShop builds fetchd and copies the clients. The caller removes the folder work.
func newShop(ctx context.Context, p program, c *choices) (*shop, error) {
	work, err := os.MkdirTemp("", "flaky")
	if err != nil {
		return nil, err
	}
	s := &shop{program: p, work: work, python: c.Python, failed: make(map[string]error)}
	root, err := s.command(ctx, "", "go", "list", "-m", "-f", "{{.Dir}}")
	if err != nil {
		return s, err
	}
	s.root = strings.TrimSpace(root)
	_, err = s.command(ctx, s.root, "go", "build", "-o", work+"/", "./cmd/fetchd", "./test/flaky/clients/retryablehttp", "./test/flaky/clients/many")
	if err != nil {
		return s, err
	}
	return s, os.CopyFS(filepath.Join(work, "clients"), os.DirFS(filepath.Join(s.root, "test/flaky/clients")))
}

// command runs a program and returns its standard output.
func (s *shop) command(ctx context.Context, dir, name string, args ...string) (string, error) {
	cmd := exec.CommandContext(ctx, name, args...)
	cmd.Env, cmd.Dir = append(s.environ, "CGO_ENABLED=0"), dir
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		lines := strings.Split(strings.TrimSpace(stderr.String()), "\n")
		return "", fmt.Errorf("%s: %w: %s", name, err, lines[len(lines)-1])
	}
	return string(out), nil
}

// prepare installs what a client needs, counts its lines, and finds its versions.
func (s *shop) prepare(ctx context.Context, c *client) error {
	text, err := os.ReadFile(filepath.Join(s.work, "clients", c.File))
	if err != nil {
		return err
	}
	c.Lines = lines(string(text))
	switch filepath.Ext(c.File) {
	case ".py":
		err = s.install("Python", func() error { return s.installPython(ctx) })
		if err == nil {
			c.With, err = s.command(ctx, "", s.python, append([]string{"-c", pythonVersions}, c.packages...)...)
		}
	case ".mjs":
		err = s.install("Node", func() error { return s.installNode(ctx) })
		if err == nil {
			c.With, err = s.command(ctx, filepath.Join(s.work, "clients"), "node", append([]string{"-e", nodeVersions}, c.packages...)...)
		}
	default:
		c.With, err = s.command(ctx, s.root, "go", append([]string{"list", "-m", "-f", "{{.Path}} {{.Version}}"}, c.packages...)...)
	}
	c.With = strings.Join(strings.Fields(c.With), " ")
	return err
}

// pythonVersions and nodeVersions print the versions of the packages that they get as arguments.
const (
	pythonVersions = `import importlib.metadata as m, platform, sys
print(", ".join(["Python " + platform.python_version()] + [p + " " + m.version(p) for p in sys.argv[1:]]))`
	nodeVersions = `const fs = require("fs"); console.log(["Node " + process.versions.node, ...process.argv.slice(1).map(p =>
p + " " + JSON.parse(fs.readFileSync("node_modules/" + p + "/package.json")).version)].join(", "))`
)
