package service

import (
	"context"
	"encoding/base64"
	"fmt"
	"os"
	"slices"
	"strings"

	"golang.org/x/term"

	pb "fetchd/gen/fetchd/v1"
	"fetchd/internal/cli"
)

// Sent has the flags for the headers of a request.
type Sent struct {
	Header []string `short:"H" sep:"none" group:"Request:" placeholder:"NAME: VALUE" help:"Request header. Repeatable."`
	User   string   `short:"u" group:"Request:" placeholder:"USER[:PASSWORD]" help:"Send this user and password with the Basic scheme. Without a password it is read from the terminal."`
}

// Headers returns the headers of the request.
func (s *Sent) Headers() ([]*pb.Header, error) {
	if s.Sends("Host") {
		return nil, cli.UsageError("--header", "has Host, which is that of the URL: give a URL with that name, and a line of the hosts file or a proxy for its address")
	}
	return Headers("--header", s.Header)
}

// Complete adds the header of -u to those of -H. It may ask for a password.
func (s *Sent) Complete(ctx context.Context) error {
	if s.User == "" {
		return nil
	}
	user, password, ok := strings.Cut(s.User, ":")
	if !ok {
		var err error
		if password, err = readPassword(ctx, user); err != nil {
			return err
		}
	}
	return s.Add("-u", "Authorization", "Basic "+base64.StdEncoding.EncodeToString([]byte(user+":"+password)))
}

// Secret returns the names of the headers that WARC files do not have.
func (s *Sent) Secret() []string {
	if s.User == "" {
		return nil
	}
	return []string{"Authorization"}
}

// Sends reports whether a header is given.
func (s *Sent) Sends(name string) bool {
	return slices.ContainsFunc(s.Header, func(line string) bool {
		given, _, _ := strings.Cut(line, ":")
		return strings.EqualFold(strings.TrimSpace(given), name)
	})
}

// Add adds a header for the named flag, unless -H has it too.
func (s *Sent) Add(flag, name, value string) error {
	if s.Sends(name) {
		return cli.UsageError(flag, fmt.Sprintf("sets %s, and so does -H: leave out one of them", name))
	}
	s.Header = append(s.Header[:len(s.Header):len(s.Header)], name+": "+value)
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
