package clitest

import (
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"fetchd/test/need"
)

// ask is what bash runs: the script, and then the function that the script registered for the
// program, with the words of the line.
const ask = `source "$1" || exit; shift
call=$(complete -p "$1") || exit
call=${call#*-F } call=${call%% *}
COMP_WORDS=("$@"); COMP_CWORD=$(($# - 1)); "$call"; printf '%s\n' "${COMPREPLY[@]}"`

// Bash returns what the script in file offers for the last word of a line. It completes the names
// of files in the folder of the script. It skips the test if bash is not installed.
func Bash(t testing.TB, file, line string) []string {
	t.Helper()
	bash := need.Program(t, "bash", "bash")
	cmd := exec.CommandContext(t.Context(), bash, append([]string{"--norc", "--noprofile", "-c", ask, "bash", file}, words(line)...)...)
	cmd.Dir = filepath.Dir(file)
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("complete %q: %v\n%s", line, err, out)
	}
	var offers []string
	for offer := range strings.Lines(string(out)) {
		if offer = strings.TrimSuffix(offer, "\n"); offer != "" {
			offers = append(offers, offer)
		}
	}
	return offers
}

// words splits a line as bash does before it calls a completion.
func words(line string) []string {
	var words []string
	for word := range strings.SplitSeq(line, " ") {
		if word == "" {
			words = append(words, "")
			continue
		}
		broken := strings.NewReplacer("=", "\x00=\x00", ":", "\x00:\x00").Replace(word)
		words = append(words, strings.FieldsFunc(broken, func(r rune) bool { return r == 0 })...)
	}
	return words
}
