package cli

import (
	"fmt"
	"strings"
)

// zsh writes a function for each command, which calls _arguments. The script can be sourced,
// or be a file named _PROGRAM in a directory of fpath.
func zsh(root *node) string {
	var out strings.Builder
	_, _ = fmt.Fprintf(&out, "#compdef %[1]s\n# zsh completion for %[1]s\n", root.name)
	root.each(func(n *node) { zshFunction(&out, n) })
	_, _ = fmt.Fprintf(&out, "if [ \"${funcstack[1]}\" = %[1]s ]; then %[1]s \"$@\"; else compdef %[1]s %[2]s; fi\n", function(root.path), root.name)
	return out.String()
}

func zshFunction(out *strings.Builder, n *node) {
	_, _ = fmt.Fprintf(out, "%s() {\n  local curcontext=$curcontext state line\n", function(n.path))
	specs := zshFlags(n)
	if len(n.nodes) > 0 {
		specs = append(specs, quoted("1: :->command"), quoted("*:: :->rest"))
	}
	for i := range n.args {
		place := fmt.Sprint(i + 1)
		if n.many && i == len(n.args)-1 {
			place = "*"
		}
		specs = append(specs, quoted(place+":"+zshValues(&n.args[i])))
	}
	_, _ = fmt.Fprintf(out, "  _arguments -s -S -C \\\n    %s\n", strings.Join(specs, " \\\n    "))
	if len(n.nodes) > 0 {
		zshCommands(out, n)
	}
	_, _ = fmt.Fprint(out, "}\n")
}

// zshCommands completes the name of a command, or continues with the command that was named.
func zshCommands(out *strings.Builder, n *node) {
	_, _ = fmt.Fprint(out, "  case $state in\n    command)\n      local -a commands\n      commands=(\n")
	for _, child := range n.nodes {
		_, _ = fmt.Fprintf(out, "        %s\n", quoted(strings.ReplaceAll(child.name, ":", `\:`)+":"+child.help))
	}
	_, _ = fmt.Fprint(out, "      )\n      _describe -t commands command commands ;;\n    rest)\n      case ${line[1]} in\n")
	for _, child := range n.nodes {
		_, _ = fmt.Fprintf(out, "        %s) %s ;;\n", child.name, function(child.path))
	}
	_, _ = fmt.Fprint(out, "      esac ;;\n  esac\n")
}

// zshFlags writes the flags of a command for _arguments. A flag that is given suppresses its
// other spellings, unless it can be repeated.
func zshFlags(n *node) []string {
	var specs []string
	for i := range n.flags {
		f := &n.flags[i]
		before := "(" + strings.Join(f.spellings(), " ") + ")"
		if f.repeats {
			before = "*"
		}
		for _, s := range f.spellings() {
			spec := before + s
			if f.takes && strings.HasPrefix(s, "--") {
				spec += "=" // the value follows it, or is the next word
			} else if f.takes {
				spec += "+"
			}
			spec += "[" + zshText(f.help) + "]"
			if f.takes {
				spec += ":" + zshValues(&f.values)
			}
			specs = append(specs, quoted(spec))
		}
	}
	return specs
}

// zshValues returns a message and an action.
func zshValues(v *values) string {
	text := zshText(v.name)
	switch {
	case len(v.words) > 0:
		return text + ":(" + strings.Join(v.words, " ") + ")"
	case v.files == files:
		return text + ":_files"
	case v.files == folders:
		return text + ":_files -/"
	}
	return text + ": "
}

// zshText escapes characters that end a part of a specification.
func zshText(s string) string {
	return strings.NewReplacer(`\`, `\\`, `[`, `\[`, `]`, `\]`, `:`, `\:`).Replace(s)
}
