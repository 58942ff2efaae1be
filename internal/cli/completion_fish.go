package cli

import (
	"fmt"
	"strings"
)

// fish writes a line for each command, flag and argument. Its condition is that the command
// was named.
func fish(root *node) string {
	var out strings.Builder
	_, _ = fmt.Fprintf(&out, "# fish completion for %[1]s\ncomplete -c %[1]s -f\n", root.name)
	root.each(func(n *node) {
		when := fishWhen(root, n)
		for _, child := range n.nodes {
			_, _ = fmt.Fprintf(&out, "complete -c %s%s -a %s -d %s\n", root.name, when, child.name, fishQuoted(child.help))
		}
		for i := range n.args {
			if action := fishValues(&n.args[i]); action != "" {
				_, _ = fmt.Fprintf(&out, "complete -c %s%s%s\n", root.name, when, action)
			}
		}
		for i := range n.flags {
			_, _ = fmt.Fprintf(&out, "complete -c %s%s%s\n", root.name, when, fishFlag(&n.flags[i]))
		}
	})
	return out.String()
}

// fishWhen returns the condition that a command is the current one.
func fishWhen(root, n *node) string {
	var conditions []string
	if n != root {
		conditions = append(conditions, "__fish_seen_subcommand_from "+n.name)
	}
	if len(n.nodes) > 0 {
		var names []string
		for _, child := range n.nodes {
			names = append(names, child.name)
		}
		conditions = append(conditions, "not __fish_seen_subcommand_from "+strings.Join(names, " "))
	}
	if len(conditions) == 0 {
		return ""
	}
	return " -n " + fishQuoted(strings.Join(conditions, "; and "))
}

func fishFlag(f *flag) string {
	var text strings.Builder
	for _, s := range f.short {
		_, _ = fmt.Fprintf(&text, " -s %s", strings.TrimPrefix(s, "-"))
	}
	for _, l := range f.long {
		_, _ = fmt.Fprintf(&text, " -l %s", strings.TrimPrefix(l, "--"))
	}
	if f.takes {
		text.WriteString(" -x") // a value is needed; files only if it asks for them
		text.WriteString(fishValues(&f.values))
	}
	_, _ = fmt.Fprintf(&text, " -d %s", fishQuoted(f.help))
	return text.String()
}

func fishValues(v *values) string {
	switch {
	case len(v.words) > 0:
		return " -a " + fishQuoted(strings.Join(v.words, " "))
	case v.files == files:
		return " -a '(__fish_complete_path)'"
	case v.files == folders:
		return " -a '(__fish_complete_directories)'"
	}
	return ""
}

// fishQuoted returns text in single quotes. Fish has two escapes there.
func fishQuoted(text string) string {
	return "'" + strings.NewReplacer(`\`, `\\`, `'`, `\'`).Replace(text) + "'"
}
