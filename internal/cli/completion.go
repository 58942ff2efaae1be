package cli

import (
	"cmp"
	"embed"
	"io"
	"strings"
	"text/template"

	"github.com/alecthomas/kong"
)

// scripts are the completion scripts, a template for each shell. They are executed with the [node] of a program.
//
//go:embed completion.*.tmpl
var scripts embed.FS

var completions = template.Must(template.New("").Funcs(template.FuncMap{
	"join":     strings.Join,
	"function": function,
	"next":     func(i int) int { return i + 1 },
	"long":     func(spelling string) bool { return strings.HasPrefix(spelling, "--") },
	"bare":     func(spelling string) string { return strings.TrimLeft(spelling, "-") },
	"quote":    quoteEscapes.Replace,
	"zsh":      func(text string) string { return quoteEscapes.Replace(zshEscapes.Replace(text)) },
	"fish":     fishEscapes.Replace,
}).ParseFS(scripts, "completion.*.tmpl"))

// Escapes of text in single quotes. In zsh some characters end a part of a specification.
var (
	quoteEscapes = strings.NewReplacer("'", `'\''`)
	zshEscapes   = strings.NewReplacer(`\`, `\\`, `[`, `\[`, `]`, `\]`, `:`, `\:`)
	fishEscapes  = strings.NewReplacer(`\`, `\\`, `'`, `\'`)
)

// writeCompletion writes the script with which a shell completes the commands, flags and values of a
// program, from its kong model. The script never calls the program and needs no other package.
//
// The values of a flag are those of its enum, or those of its tag complete:"A,B", which allows
// others as well. A flag whose placeholder contains FILE is completed with files, and one whose
// placeholder contains DIR with directories. Arguments are completed in the same way by their
// names. Hidden commands and flags are left out.
func writeCompletion(w io.Writer, shell string, model *kong.Application) error {
	return completions.ExecuteTemplate(w, "completion."+shell+".tmpl", nodeOf(model.Node, ""))
}

// node is a command, as the scripts need it.
type node struct {
	Name     string
	Path     string // the program, the parent commands and the name
	Help     string
	Flags    []flag // including those of parent commands
	Args     []values
	Commands []*node
}

// flag is a flag with all its spellings.
type flag struct {
	Spellings []string // with their dashes
	Help      string
	Takes     bool // has a value
	Repeats   bool
	Values    values
}

// values are the completions of a flag or an argument.
type values struct {
	Name  string // for people
	Words []string
	Paths string // files or folders; empty: neither
	Many  bool   // the argument repeats
}

// Known reports whether there is anything to complete with.
func (v values) Known() bool { return len(v.Words) > 0 || v.Paths != "" }

// nodeOf converts a node of kong, with the flags of its parents.
func nodeOf(k *kong.Node, above string, inherited ...flag) *node {
	n := &node{Name: k.Name, Path: strings.TrimPrefix(above+" "+k.Name, " "), Help: firstSentence(k.Help)}
	n.Flags = append(n.Flags, inherited...)
	for _, f := range k.Flags {
		if !f.Hidden {
			n.Flags = append(n.Flags, flagOf(f))
		}
	}
	for _, p := range k.Positional {
		argument := valuesOf(p, p.Name)
		argument.Many = p.IsCumulative()
		n.Args = append(n.Args, argument)
	}
	for _, child := range k.Children {
		if child.Type == kong.CommandNode && !child.Hidden {
			n.Commands = append(n.Commands, nodeOf(child, n.Path, n.Flags...))
		}
	}
	return n
}

func flagOf(f *kong.Flag) flag {
	out := flag{Help: firstSentence(f.Help), Takes: !f.IsBool() && !f.IsCounter(), Repeats: f.IsCumulative(), Values: valuesOf(f.Value, f.PlaceHolder)}
	if f.Short != 0 {
		out.Spellings = append(out.Spellings, "-"+string(f.Short))
	}
	out.Spellings = append(out.Spellings, "--"+f.Name)
	for _, alias := range f.Aliases {
		out.Spellings = append(out.Spellings, "--"+alias)
	}
	if f.IsBool() && f.Tag.Negatable != "" {
		out.Spellings = append(out.Spellings, "--no-"+f.Name)
	}
	return out
}

func valuesOf(v *kong.Value, placeholder string) values {
	out := values{Name: strings.ToLower(cmp.Or(placeholder, v.Name))}
	for word := range strings.SplitSeq(v.Enum+","+v.Tag.Get("complete"), ",") {
		if word = strings.TrimSpace(word); word != "" {
			out.Words = append(out.Words, word)
		}
	}
	switch upper := strings.ToUpper(placeholder); {
	case strings.Contains(upper, "FILE"):
		out.Paths = "files"
	case strings.Contains(upper, "DIR"):
		out.Paths = "folders"
	}
	return out
}

// All returns the node and all nodes below it.
func (n *node) All() []*node {
	all := []*node{n}
	for _, child := range n.Commands {
		all = append(all, child.All()...)
	}
	return all
}

// Names returns the names of the commands below the node.
func (n *node) Names() (names values) {
	for _, child := range n.Commands {
		names.Words = append(names.Words, child.Name)
	}
	return names
}

// AllSpellings returns those of all flags.
func (n *node) AllSpellings() (all values) {
	for _, f := range n.Flags {
		all.Words = append(all.Words, f.Spellings...)
	}
	return all
}

// Takers returns the spellings of the flags that have a value.
func (n *node) Takers() (takers []string) {
	for _, f := range n.Flags {
		if f.Takes {
			takers = append(takers, f.Spellings...)
		}
	}
	return takers
}

// firstSentence returns the part of a help text that is shown with a completion.
func firstSentence(help string) string {
	if i := strings.Index(help, ". "); i >= 0 {
		help = help[:i]
	}
	return strings.TrimRight(strings.Join(strings.Fields(help), " "), ".")
}

// function returns the name of a shell function for path.
func function(path string) string {
	return "_" + strings.Map(func(r rune) rune {
		if r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' {
			return r
		}
		return '_'
	}, path)
}
