package main

import (
	"fmt"
	"io"
	"os"
	"strings"
	"time"
	"unicode"

	"go.yaml.in/yaml/v3"

	"fetchd/internal/cli"
	"fetchd/internal/secure"
	"fetchd/internal/tlswatch"
)

// program is the environment of one run.
type program struct {
	args           []string
	stdout, stderr io.Writer
	hangup         <-chan os.Signal // triggers a reload
	look           <-chan time.Time // triggers a check of the certificates and the --origins-file
	libraries      func(io.Writer)  // redirects the errors of libraries; nil in tests
}

// print writes the settings as a file that can be read again, each with its source. Comments at its
// end have the certificates in the files. What is wrong with one goes to standard error, too.
func (p *program) print(s *settings, certificates []tlswatch.Certificate) error {
	var out strings.Builder
	for _, o := range s.options {
		text, err := o.yaml()
		if err != nil {
			return fmt.Errorf("%s: %w", o.name, err)
		}
		note := ""
		if o.secret && o.text() != o.value.String() {
			note = "; user and password are not printed: add them again"
		}
		_, _ = fmt.Fprintf(&out, "%s: %s # %s%s\n", o.name, text, o.from, note)
	}
	now := time.Now()
	for i := range certificates {
		c := &certificates[i]
		note := ""
		if fault := c.Fault(now); fault != "" {
			note = ": " + fault
			_, _ = fmt.Fprintf(p.stderr, "fetchd: certificate %s: %s\n", c, fault) // a failed write cannot be reported
		}
		_, _ = fmt.Fprintf(&out, "# certificate %s: not after %s%s\n", c, c.NotAfter.UTC().Format(time.RFC3339), note)
	}
	if _, err := fmt.Fprint(p.stdout, out.String()); err != nil {
		return cli.OutputError(err)
	}
	return nil
}

// yaml returns the value on one line.
func (o *option) yaml() (string, error) {
	value := o.value.Interface()
	if o.secret {
		value = o.text()
	}
	var node yaml.Node
	if err := node.Encode(value); err != nil {
		return "", err
	}
	switch text := node.Value; {
	case node.Kind == yaml.SequenceNode:
		node.Style = yaml.FlowStyle
	case strings.ContainsFunc(text, func(r rune) bool { return !unicode.IsPrint(r) }):
		node.Style = yaml.DoubleQuotedStyle
	}
	text, err := yaml.Marshal(&node)
	return strings.TrimSuffix(string(text), "\n"), err
}

// printCapacity writes the capacity as a comment below the settings.
func (p *program) printCapacity(has *capacity) error {
	if _, err := fmt.Fprintf(p.stdout, "# in effect: %s\n", has); err != nil {
		return cli.OutputError(err)
	}
	return nil
}

// makeToken prints a token and its line for --token-file: two lines, also for scripts. The
// explanation goes to standard error.
func (p *program) makeToken(name string) error {
	token, line, err := secure.NewToken(name)
	if err != nil {
		return unusable(err)
	}
	if _, err := fmt.Fprintf(p.stdout, "%s\n%s\n", token, line); err != nil {
		return cli.OutputError(err)
	}
	_, _ = fmt.Fprintln(p.stderr, "The first line is the token for the caller; it is not stored anywhere. Add the second line to the file of --token-file, then send SIGHUP.")
	return nil
}
