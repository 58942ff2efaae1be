package main

import (
	"fmt"
	"io"
	"os"
	"reflect"
	"strconv"
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
	var node *yaml.Node
	switch {
	case o.secret:
		node = scalar(o.text())
	case o.value.Kind() == reflect.Slice:
		node = &yaml.Node{Kind: yaml.SequenceNode, Style: yaml.FlowStyle}
		for i := range o.value.Len() {
			node.Content = append(node.Content, scalar(o.value.Index(i).Interface()))
		}
	default:
		node = scalar(o.value.Interface())
	}
	text, err := yaml.Marshal(node)
	return strings.TrimSuffix(string(text), "\n"), err
}

// scalar returns the node of a value that fits on one line.
func scalar(value any) *yaml.Node {
	switch v := value.(type) {
	case int, int64, uint16:
		return &yaml.Node{Kind: yaml.ScalarNode, Tag: "!!int", Value: fmt.Sprint(v)}
	case float64:
		return &yaml.Node{Kind: yaml.ScalarNode, Value: strconv.FormatFloat(v, 'f', -1, 64)}
	case bool:
		return &yaml.Node{Kind: yaml.ScalarNode, Tag: "!!bool", Value: strconv.FormatBool(v)}
	case time.Duration:
		return &yaml.Node{Kind: yaml.ScalarNode, Tag: "!!str", Value: v.String()}
	}
	node := &yaml.Node{Kind: yaml.ScalarNode, Tag: "!!str", Value: fmt.Sprint(value)}
	if strings.ContainsFunc(node.Value, func(r rune) bool { return !unicode.IsPrint(r) }) {
		node.Style = yaml.DoubleQuotedStyle
	}
	return node
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
