package cli

import (
	"fmt"
	"strings"
)

// bashScript is for bash 3.2 and later. %[1]s is the program, %[2]s the function, %[3]s the
// cases of commands, %[4]s those of flags with a value, %[5]s the values of flags, %[6]s the
// other words, and %[7]s the flags of each command.
//
// Bash splits words at "=" and ":". A flag, "=" and its value are therefore three words, and so
// are a host, ":" and its port.
const bashScript = `# bash completion for %[1]s
%[2]s() {
  local IFS=$'\n' cur=${COMP_WORDS[COMP_CWORD]} prev=${COMP_WORDS[COMP_CWORD-1]}
  local at='%[1]s' taker= word i args=0 only=
  if [ "$cur" = = ]; then
    cur=
  elif [ "$prev" = = ] && [ "$COMP_CWORD" -gt 2 ]; then
    prev=${COMP_WORDS[COMP_CWORD-2]}
  fi
  for ((i = 1; i < COMP_CWORD; i++)); do
    word=${COMP_WORDS[i]}
    case $word in
      =) continue ;;
      :) i=$((i + 1)); continue ;;
    esac
    if [ -n "$taker" ]; then taker=; continue; fi
    case "$only$at $word" in
%[3]s%[4]s      *) case "$only$word" in
        --) only=- ;;
        -?*) ;;
        *) args=$((args + 1)) ;;
      esac ;;
    esac
  done
  COMPREPLY=()
  if [ -n "$taker" ]; then
    case "$at $prev" in
%[5]s    esac
    return
  fi
  case "$only$cur" in
    -*) if [ -z "$only" ]; then %[2]s_flags; return; fi ;;
  esac
  case "$at $args" in
%[6]s  esac
}
%[2]s_flags() {
  case "$at" in
%[7]s  esac
}
complete -F %[2]s %[1]s
`

func bash(root *node) string {
	var commands, takers, given, words, flags strings.Builder
	root.each(func(n *node) {
		for _, child := range n.nodes {
			_, _ = fmt.Fprintf(&commands, "      %s) at=%s args=0 ;;\n", quoted(n.path+" "+child.name), quoted(child.path))
		}
		var all, take []string
		for i := range n.flags {
			f := &n.flags[i]
			all = append(all, f.spellings()...)
			if !f.takes {
				continue
			}
			var cases []string
			for _, s := range f.spellings() {
				cases = append(cases, quoted(n.path+" "+s))
			}
			take = append(take, cases...)
			if reply := bashReply(&f.values); reply != "" {
				_, _ = fmt.Fprintf(&given, "      %s) %s ;;\n", strings.Join(cases, "|"), reply)
			}
		}
		if len(take) > 0 {
			_, _ = fmt.Fprintf(&takers, "      %s) taker=$word ;;\n", strings.Join(take, "|"))
		}
		bashWords(&words, n)
		_, _ = fmt.Fprintf(&flags, "    %s) %s ;;\n", quoted(n.path), bashReply(&values{words: all}))
	})
	return fmt.Sprintf(bashScript, root.name, function(root.name), commands.String(), takers.String(), given.String(), words.String(), flags.String())
}

// bashWords writes the cases of words that are not flags: commands, or arguments by position.
func bashWords(out *strings.Builder, n *node) {
	if len(n.nodes) > 0 {
		var names values
		for _, child := range n.nodes {
			names.words = append(names.words, child.name)
		}
		_, _ = fmt.Fprintf(out, "    %s) %s ;;\n", quoted(n.path+" 0"), bashReply(&names))
	}
	for i := range n.args {
		reply, place := bashReply(&n.args[i]), fmt.Sprint(i)
		if reply == "" {
			continue
		}
		pattern := quoted(n.path + " " + place)
		if n.many && i == len(n.args)-1 {
			pattern = quoted(n.path+" ") + "*"
		}
		_, _ = fmt.Fprintf(out, "    %s) %s ;;\n", pattern, reply)
	}
}

// bashReply returns the command that completes with these values, or "" if there are none.
func bashReply(v *values) string {
	switch {
	case len(v.words) > 0:
		return fmt.Sprintf(`COMPREPLY=($(compgen -W %s -- "$cur"))`, quoted(strings.Join(v.words, "\n")))
	case v.files == files:
		return `compopt -o filenames 2>/dev/null; COMPREPLY=($(compgen -f -- "$cur"))`
	case v.files == folders:
		return `compopt -o filenames 2>/dev/null; COMPREPLY=($(compgen -d -- "$cur"))`
	}
	return ""
}
