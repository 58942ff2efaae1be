package main

import (
	"regexp"
	"strings"
)

var (
	stepBegins = regexp.MustCompile(`^step_([\w-]+)\(\) \{$`)
	stepIsRun  = regexp.MustCompile(`^run ([\w-]+) '`)
)

// gate has the lines of the steps that .ci/run always runs.
type gate struct {
	names []string // in order
	lines map[string]map[string]bool
}

// readGate reads .ci/run. It omits steps that the script does not always run, such as
// limits-all.
func readGate(script string) *gate {
	g := &gate{lines: make(map[string]map[string]bool)}
	name := ""
	for line := range strings.Lines(script) {
		line = strings.TrimRight(line, "\n")
		if found := stepBegins.FindStringSubmatch(line); found != nil {
			name = found[1]
			g.lines[name] = make(map[string]bool)
			continue
		}
		if found := stepIsRun.FindStringSubmatch(line); found != nil {
			g.names = append(g.names, found[1])
		}
		if line == "}" {
			name = ""
		}
		if name != "" {
			g.lines[name][strings.TrimPrefix(strings.TrimSpace(line), "tests ")] = true
		}
	}
	return g
}

// step returns the step that runs all commands word for word, or "".
func (g *gate) step(commands []string) string {
	for _, name := range g.names {
		all := len(commands) > 0
		for _, command := range commands {
			all = all && g.lines[name][command]
		}
		if all {
			return name
		}
	}
	return ""
}
