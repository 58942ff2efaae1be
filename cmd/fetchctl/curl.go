package main

import (
	"context"
	"encoding/base64"
	"fmt"
	"net/http"
	"os"
	"strings"

	"golang.org/x/term"

	"fetchd/internal/cli"
)

// curlRow is a row of the table of curl's flags in the help.
type curlRow struct{ curl, get string }

// curlTable says which flags of get do what a flag of curl does.
var curlTable = []curlRow{
	{"-L, --location", "the default; --no-follow does not follow"},
	{"-f, --fail", "the default: a status 4xx or 5xx fails"},
	{"--compressed", "the default: bodies are decoded"},
	{"-I, --head", "-I; -v prints the head of a status 4xx or 5xx"},
	{"-A, --user-agent", "-A"},
	{"-u, --user", "-u"},
	{"-x, --proxy", "-x, with the port; or http_proxy and the like"},
	{"--cacert", "--cacert"},
	{"-s, --silent", "-s, or -q; -S prints failures"},
	{"-O, --remote-name", "-O: the name may be the origin's; no file is replaced"},
	{"-o, --output", "-o: the file appears when the body is complete"},
	{"-X, -H, -d", "the same; -d sets no Content-Type"},
	{"-i, -v", "the same"},
	{"-m, --max-time 5", "--timeout 5s"},
	{"--retry 3", "-r 3; retries are on by default"},
	{"-C, --continue-at -", "fetchctl download continues files"},
	{"-k, --insecure", "no: trust the origin's authority with --cacert"},
}

// curlHelp returns the table as text.
func curlHelp() string {
	var b strings.Builder
	b.WriteString("Equivalents:\n")
	fmt.Fprintf(&b, "  %-21s %s\n", "curl", "fetchctl get")
	for _, row := range curlTable {
		fmt.Fprintf(&b, "  %-21s %s\n", row.curl, row.get)
	}
	return b.String()
}

// checkCurl rejects flags of curl that get does not support, and says what to use instead. It rejects
// flags that contradict each other.
func (c *getCmd) checkCurl() error {
	switch {
	case c.Insecure:
		return cli.UsageError("-k", "is not supported: without a check of the certificate anyone on the way could read and change the answer. Give the certificate of the origin or its authority with --cacert FILE")
	case c.ContinueAt != nil:
		return cli.UsageError("-C", "is not supported: \"fetchctl download URL\" continues an unfinished file, if the origin still has the same one")
	case c.MaxTime != nil:
		return cli.UsageError("-m", "is called --timeout, and has a unit: --timeout 5s")
	case c.Retry != nil:
		return cli.UsageError("--retry", "is called --max-retries, or -r")
	case c.Head && c.Request != "" && c.Request != http.MethodHead:
		return cli.UsageError("-I", "sends HEAD, but -X says "+c.Request+": leave out one of them")
	case c.Head && c.Data != nil:
		return cli.UsageError("-I", "sends HEAD, which has no body: leave out -d")
	case c.RemoteName && c.Output != "":
		return cli.UsageError("-O", "names the file, and so does -o: leave out one of them")
	case c.RemoteName && c.Store != "":
		return cli.UsageError("-O", "writes a file, and with --store the body goes to the store: leave out one of them")
	}
	return nil
}

// curl converts flags of curl to those of get.
func (c *getCmd) curl(ctx context.Context) error {
	if err := c.checkCurl(); err != nil {
		return err
	}
	c.Quiet = c.Quiet || c.Silent
	if c.Head {
		c.Request, c.Include = http.MethodHead, true
	}
	if c.UserAgent != nil {
		if err := c.addHeader("-A", "User-Agent", *c.UserAgent); err != nil {
			return err
		}
	}
	if c.User == "" {
		return nil
	}
	user, password, ok := strings.Cut(c.User, ":")
	if !ok {
		var err error
		if password, err = readPassword(ctx, user); err != nil {
			return err
		}
	}
	return c.addHeader("-u", "Authorization", "Basic "+base64.StdEncoding.EncodeToString([]byte(user+":"+password)))
}

// addHeader adds a header for the named flag, unless -H has it too.
func (c *getCmd) addHeader(flag, name, value string) error {
	for _, line := range c.Header {
		if given, _, _ := strings.Cut(line, ":"); strings.EqualFold(strings.TrimSpace(given), name) {
			return cli.UsageError(flag, fmt.Sprintf("sets %s, and so does -H: leave out one of them", name))
		}
	}
	c.Header = append(c.Header[:len(c.Header):len(c.Header)], name+": "+value)
	return nil
}

// readPassword asks for a password on the terminal of the process, without echo. Standard input may
// be something else, such as the request body.
func readPassword(ctx context.Context, user string) (string, error) {
	tty, err := os.OpenFile("/dev/tty", os.O_RDWR, 0)
	if err != nil {
		return "", cli.UsageError("-u", "has no password, and there is no terminal to ask for it: give USER:PASSWORD, or USER: if it is empty")
	}
	defer func() { _ = tty.Close() }() // it is only read
	before, err := term.GetState(int(tty.Fd()))
	if err != nil {
		return "", cli.UsageError("-u", fmt.Sprintf("the password cannot be read from the terminal: %v", err))
	}
	_, _ = fmt.Fprintf(tty, "Password for %s: ", cli.Escape(user))
	type result struct {
		password []byte
		err      error
	}
	read := make(chan result, 1)
	go func() {
		password, err := term.ReadPassword(int(tty.Fd()))
		read <- result{password, err}
	}()
	select {
	case r := <-read:
		_, _ = fmt.Fprintln(tty) // the line end was not echoed
		if r.err != nil {
			return "", cli.UsageError("-u", fmt.Sprintf("the password cannot be read from the terminal: %v", r.err))
		}
		return string(r.password), nil
	case <-ctx.Done():
		_ = term.Restore(int(tty.Fd()), before) // a terminal without echo would be left behind
		_, _ = fmt.Fprintln(tty)
		return "", ctx.Err()
	}
}
