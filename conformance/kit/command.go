package kit

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"time"
)

// Command is a program that is an HTTP client. It is called with a URL, writes the body, and
// exits with 0 if the fetch succeeded.
type Command struct {
	// Name is the name in the report.
	Name string
	// Args are the program and its arguments. {url} is replaced by the URL, {out} by a file
	// for the body, and {ca} by the file of [Command.Trust]. Without {url} the URL is the last
	// argument. Without {out} the program writes the body to standard output.
	Args []string
	// Env is the environment of the program, as in exec.Cmd.
	Env []string
	// Limit is how long the program may run. Zero means 30 s.
	Limit time.Duration

	ca string
}

// defaultLimit is the default of [Command.Limit].
const defaultLimit = 30 * time.Second

// maxVersion is how many bytes are read of what a program writes for --version.
const maxVersion = 16 << 10

// grace is how long a killed program may keep its output open.
const grace = time.Second

// NewCommand returns a command with the default name if name is empty: that of the program. args must not be empty.
func NewCommand(name string, args []string) Command {
	if name == "" {
		name = filepath.Base(args[0])
	}
	return Command{Name: name, Args: args}
}

// Describe implements [Client]. The version is the first line that the program writes if it is called with --version
// in place of the URL.
func (c *Command) Describe(ctx context.Context) (*Report, error) {
	ctx, cancel := context.WithTimeout(ctx, c.TimeLimit())
	defer cancel()
	args, _ := c.arguments("--version", os.DevNull)
	cmd := exec.CommandContext(ctx, args[0], args[1:]...)
	out := &limited{left: maxVersion}
	cmd.Env, cmd.Stdout, cmd.WaitDelay = c.Env, out, grace
	_ = runGroup(cmd) // the output counts even if the program fails
	return &Report{Subject: c.Name, Command: strings.Join(c.Args, " "), Version: firstLine(out.kept.Bytes())}, nil
}

// firstLine returns the first line without blanks around it.
func firstLine(text []byte) string {
	line, _, _ := strings.Cut(string(text), "\n")
	return strings.TrimSpace(line)
}

// TimeLimit returns how long the program may run.
func (c *Command) TimeLimit() time.Duration { return cmp.Or(max(c.Limit, 0), defaultLimit) }

// Trust implements [Client]. $ORIGIN_CA names the file, as {ca} does.
func (c *Command) Trust(authority []byte, folder string) error {
	c.ca = filepath.Join(folder, "ca.pem")
	c.Env = append(c.Env, "ORIGIN_CA="+c.ca)
	return os.WriteFile(c.ca, authority, 0o600)
}

// Run implements [Client]. The program runs in the folder.
func (c *Command) Run(ctx context.Context, url, folder string) (body []byte, exit int, err error) {
	within, cancel := context.WithTimeout(ctx, c.TimeLimit())
	defer cancel()
	out := filepath.Join(folder, "body")
	args, toFile := c.arguments(url, out)
	if strings.ContainsRune(args[0], os.PathSeparator) { // the program runs in another folder
		if args[0], err = filepath.Abs(args[0]); err != nil {
			return nil, 0, err
		}
	}
	cmd := exec.CommandContext(within, args[0], args[1:]...)
	stdout := &limited{left: maxBody}
	cmd.Dir, cmd.Env, cmd.Stdout, cmd.WaitDelay = folder, c.Env, stdout, grace
	err = runGroup(cmd)
	if ctx.Err() != nil {
		return nil, 0, ctx.Err()
	}
	body = stdout.kept.Bytes()
	if toFile {
		body = readOutput(out)
	}
	failed, ok := errors.AsType[*exec.ExitError](err)
	switch {
	case err == nil:
		return body, 0, nil
	case within.Err() != nil:
		return body, -1, nil
	case ok:
		return body, failed.ExitCode(), nil
	default:
		return nil, 0, fmt.Errorf("run %s: %w", c.Args[0], err)
	}
}

func (c *Command) arguments(url, out string) (args []string, toFile bool) {
	named := false
	for _, arg := range c.Args {
		named = named || strings.Contains(arg, "{url}")
		toFile = toFile || strings.Contains(arg, "{out}")
		args = append(args, strings.NewReplacer("{url}", url, "{out}", out, "{ca}", c.ca).Replace(arg))
	}
	if !named {
		args = append(args, url)
	}
	return args, toFile
}

// readOutput returns what a program wrote to its file: nil if there is no regular file, and no more than a body may have.
func readOutput(path string) []byte {
	f, err := os.OpenFile(path, os.O_RDONLY|syscall.O_NONBLOCK, 0) // opening a named pipe does not block
	if err != nil {
		return nil
	}
	defer func() { _ = f.Close() }() // it was only read
	if info, err := f.Stat(); err != nil || !info.Mode().IsRegular() {
		return nil
	}
	data, err := io.ReadAll(io.LimitReader(f, maxBody))
	if err != nil {
		return nil
	}
	return data
}
