package cli

import (
	"fmt"
	"io"
	"strings"

	"github.com/alecthomas/kong"
)

// shells are the shells that [Completion] supports, as a kong enum.
const shells = "bash,zsh,fish"

// writeCompletion writes the script with which a shell completes the commands, flags and values of a
// program, from its kong model. The script never calls the program and needs no other package.
//
// The values of a flag are those of its enum, or those of its tag complete:"A,B", which allows
// others as well. A flag whose placeholder contains FILE is completed with files, and one whose
// placeholder contains DIR with directories. Arguments are completed in the same way by their
// names. Hidden commands and flags are left out.
func writeCompletion(w io.Writer, shell string, model *kong.Application) error {
	root := nodeOf(model.Node, "")
	var script string
	switch shell {
	case "bash":
		script = bash(root)
	case "zsh":
		script = zsh(root)
	case "fish":
		script = fish(root)
	default:
		return fmt.Errorf("%q is not a supported shell: give %s", shell, strings.ReplaceAll(shells, ",", ", "))
	}
	_, err := io.WriteString(w, script)
	return err
}

// node is a command, as the scripts need it.
type node struct {
	name  string
	path  string // the program, the parent commands and the name
	help  string
	flags []flag // including those of parent commands
	args  []values
	many  bool // the last argument repeats
	nodes []*node
}

// flag is a flag with all its spellings.
type flag struct {
	long, short []string // with their dashes
	help        string
	takes       bool // has a value
	repeats     bool
	values
}

// values are the completions of a flag or an argument.
type values struct {
	name  string // for people
	words []string
	files kind
}

type kind int

const (
	nothing kind = iota
	files
	folders
)

// nodeOf converts a node of kong, with the flags of its parents.
func nodeOf(k *kong.Node, above string, inherited ...flag) *node {
	n := &node{name: k.Name, path: strings.TrimPrefix(above+" "+k.Name, " "), help: firstSentence(k.Help)}
	n.flags = append(n.flags, inherited...)
	for _, f := range k.Flags {
		if !f.Hidden {
			n.flags = append(n.flags, flagOf(f))
		}
	}
	for _, p := range k.Positional {
		n.args = append(n.args, valuesOf(p, p.Name))
		n.many = p.IsCumulative()
	}
	for _, child := range k.Children {
		if child.Type == kong.CommandNode && !child.Hidden {
			n.nodes = append(n.nodes, nodeOf(child, n.path, n.flags...))
		}
	}
	return n
}

func flagOf(f *kong.Flag) flag {
	out := flag{long: []string{"--" + f.Name}, help: firstSentence(f.Help), takes: !f.IsBool() && !f.IsCounter(),
		repeats: f.IsCumulative(), values: valuesOf(f.Value, f.PlaceHolder)}
	for _, alias := range f.Aliases {
		out.long = append(out.long, "--"+alias)
	}
	if f.IsBool() && f.Tag.Negatable != "" {
		out.long = append(out.long, "--no-"+f.Name)
	}
	if f.Short != 0 {
		out.short = []string{"-" + string(f.Short)}
	}
	return out
}

func valuesOf(v *kong.Value, placeholder string) values {
	out := values{name: strings.ToLower(placeholder)}
	if out.name == "" {
		out.name = strings.ToLower(v.Name)
	}
	for word := range strings.SplitSeq(v.Enum+","+v.Tag.Get("complete"), ",") {
		if word = strings.TrimSpace(word); word != "" {
			out.words = append(out.words, word)
		}
	}
	switch upper := strings.ToUpper(placeholder); {
	case strings.Contains(upper, "FILE"):
		out.files = files
	case strings.Contains(upper, "DIR"):
		out.files = folders
	}
	return out
}

// firstSentence returns the part of a help text that is shown with a completion.
func firstSentence(help string) string {
	if i := strings.Index(help, ". "); i >= 0 {
		help = help[:i]
	}
	return strings.TrimRight(strings.Join(strings.Fields(help), " "), ".")
}

// each calls f for the node and all nodes below it.
func (n *node) each(f func(*node)) {
	f(n)
	for _, child := range n.nodes {
		child.each(f)
	}
}

// spellings returns all spellings of the flag.
func (f *flag) spellings() []string { return append(append([]string{}, f.short...), f.long...) }

// quoted returns text in single quotes, which work in all three shells.
func quoted(text string) string { return "'" + strings.ReplaceAll(text, "'", `'\''`) + "'" }

// function returns the name of a shell function for path.
func function(path string) string {
	return "_" + strings.Map(func(r rune) rune {
		if r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' {
			return r
		}
		return '_'
	}, path)
}
