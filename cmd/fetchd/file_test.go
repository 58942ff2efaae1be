package main

import (
	"strings"
	"testing"

	"github.com/alecthomas/kong"
)

// FuzzFile: a file is refused, with its name and place in the error, or what it
// sets can be set.
func FuzzFile(f *testing.F) {
	f.Add("max-fetches: 5\negress-allow-port: [1, 2]\negress-deny-host: [a, \"b,c\"]\n")
	f.Add("&a drain-time: !!str 5s\n? trace-ratio\n: .5\n")
	f.Add("---\n...\n---\n")
	f.Add("{user-agent: 'x', <<: *a}")
	f.Add("{max-fetches: 1, max-fetches: 2}")
	parser, err := kong.New(new(commandLine), kong.Name("fetchd"), kong.DefaultEnvars("FETCHD"), kong.Vars{"version": ""})
	must(f, err)
	known := make(map[string]*kong.Flag)
	for _, flag := range parser.Model.Flags {
		if storable(flag) {
			known[flag.Name] = flag
		}
	}
	f.Fuzz(func(t *testing.T, text string) {
		entries, err := parseFile("fetchd.yaml", []byte(text), known)
		if err != nil {
			if !strings.HasPrefix(err.Error(), "fetchd.yaml:") { //nolint:forbidigo // the text is what is promised
				t.Errorf("%q: error %v, want the file's name first", text, err)
			}
			return
		}
		for name, e := range entries {
			if known[name] == nil || e.line < 1 {
				t.Errorf("%q: %s on line %d is no setting", text, name, e.line)
			}
		}
	})
}
