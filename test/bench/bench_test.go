package main

import (
	"bytes"
	"context"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"fetchd/test/bench/caller"
	"fetchd/test/bench/report"
	"fetchd/test/must"
	"fetchd/test/need"
)

// TestMain makes the test binary act as bench when bench starts itself again.
func TestMain(m *testing.M) {
	if os.Getenv(asProgram) != "" {
		main()
		return
	}
	m.Run()
}

func bench1(t *testing.T, args ...string) (code int, stdout, stderr string) {
	t.Helper()
	var out, problems bytes.Buffer
	code = program{args, append(os.Environ(), asProgram+"=1"), &out, &problems}.run(t.Context())
	return code, out.String(), problems.String()
}

// TestRun makes a short run of some cases with all processes.
func TestRun(t *testing.T) {
	onLinux(t)
	code, stdout, stderr := bench1(t, "--quick", "--out", "", "--only", "^(unary|unary-traced|stream|decide|node-unary)$")
	if code != exitOK {
		t.Fatalf("exit code %d\n%s", code, stderr)
	}
	for _, want := range []string{"| unary |", "| unary-traced |", "| decide |", "left out: Node, got"} {
		if !strings.Contains(stdout, want) {
			t.Errorf("the table does not contain %q:\n%s", want, stdout)
		}
	}
	if strings.Contains(stdout, "node-unary") {
		t.Errorf("the table has a row that was left out:\n%s", stdout)
	}
	if !strings.Contains(stderr, "fetchd, FetchUnary: ") {
		t.Errorf("there is no progress:\n%s", stderr)
	}
}

func TestFlags(t *testing.T) {
	for _, row := range []struct {
		name string
		args []string
		code int
		want string // on one of the two outputs
	}{
		{"help", []string{"--help"}, exitOK, "--rounds"},
		{"a list", []string{"--list"}, exitOK, "memory-origin"},
		{"a part of the list", []string{"--list", "--only", "^python"}, exitOK, "python-rate"},
		{"no such flag", []string{"--other"}, exitUsage, "--other"},
		{"no such case", []string{"--only", "other", "--out", ""}, exitError, "matches no case"},
		{"an invalid pattern", []string{"--only", "(", "--out", ""}, exitUsage, "--only"},
		{"no rounds", []string{"--rounds", "0"}, exitUsage, "--rounds=0"},
		{"no time", []string{"--seconds", "0"}, exitUsage, "--seconds=0"},
		{"a part in place of the page", []string{"--only", "unary"}, exitUsage, "--out="},
		{"a short run in place of the page", []string{"--quick"}, exitUsage, "--out="},
		{"a file of ratios that is missing", []string{"--recorded", "none.txt", "--out", ""}, exitUsage, "none.txt"},
		{"an unknown kind of load", []string{"call", "--kind", "other", "--target", "http://127.0.0.1/b/1"}, exitError, "give one of"},
		{"an authority without a certificate", []string{"relay", "--authority", os.DevNull}, exitError, "no certificate"},
	} {
		t.Run(row.name, func(t *testing.T) {
			code, stdout, stderr := bench1(t, row.args...)
			if code != row.code || !strings.Contains(stdout+stderr, row.want) {
				t.Errorf("%v: exit code %d with %q and %q, want %d with %q", row.args, code, stdout, stderr, row.code, row.want)
			}
		})
	}
	if _, stdout, _ := bench1(t, "--list", "--only", "^python"); strings.Contains(stdout, "unary  ") {
		t.Errorf("the part of the list has more:\n%s", stdout)
	}
}

// TestPlan checks that the names of groups, subjects and rows are unique.
func TestPlan(t *testing.T) {
	names, groups := make(map[string]bool), make(map[string]bool)
	for _, g := range plan() {
		if groups[g.name] {
			t.Errorf("two groups are called %s", g.name)
		}
		groups[g.name] = true
		subjects := make(map[string]bool)
		for _, s := range g.subjects() {
			if subjects[s.name] {
				t.Errorf("%s: two subjects are called %q", g.name, s.name)
			}
			subjects[s.name] = true
			if s.program == "go" && !slices.Contains(caller.Kinds(), s.kind) {
				t.Errorf("%s: %q has the kind %q, which callers in Go do not have", g.name, s.name, s.kind)
			}
			_, proxied := proxies[s.service]
			if through := strings.HasPrefix(s.kind, "grpc-"); through != (s.service != "" && !proxied) {
				t.Errorf("%s: %q is of the kind %q and goes through %q", g.name, s.name, s.kind, s.service)
			}
		}
		for _, r := range g.rows {
			if names[r.name] {
				t.Errorf("two rows are called %s", r.name)
			}
			names[r.name] = true
			if r.of.name == "" || r.base.name == "" && r.mode != alone {
				t.Errorf("%s: row %s compares %q with %q, which do not all exist", g.name, r.name, r.of.name, r.base.name)
			}
		}
	}
}

func TestSelected(t *testing.T) {
	kept := selected(plan(), regexp.MustCompile("^(many|curl)$"))
	var got []string
	for _, g := range kept {
		for _, s := range g.subjects() {
			got = append(got, g.name+": "+s.name)
		}
	}
	want := []string{"unary: relay, FetchUnary", "unary: relay, FetchUnary, heap of fetchd", "unary: fetchd, FetchMany", "curl: curl, a process for each fetch", "curl: fetchd, FetchUnary"}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("subjects (-want +got):\n%s", diff)
	}
}

func TestRounds(t *testing.T) {
	for _, row := range []struct{ share, rounds, want int }{{0, 5, 5}, {1, 5, 5}, {2, 5, 3}, {3, 5, 2}, {3, 1, 1}} {
		g := group{share: row.share}
		if got := g.rounds(row.rounds); got != row.want {
			t.Errorf("one in %d of %d rounds = %d, want %d", row.share, row.rounds, got, row.want)
		}
	}
}

// TestValue compares runs with known figures.
func TestValue(t *testing.T) {
	load := func(fetches int64, service time.Duration, p50 float64) *run {
		return &run{Result: caller.Result{Fetches: fetches, P50: p50, Seconds: 2}, service: service}
	}
	m := &measured{runs: map[string][]*run{
		"a": {load(10, 30*time.Microsecond, 9), load(10, 20*time.Microsecond, 7)},
		"b": {load(10, 10*time.Microsecond, 4), load(10, 20*time.Microsecond, 4)},
	}}
	for _, row := range []struct {
		row  row
		want []string
	}{
		{row{name: "ratio", of: subject{name: "a"}, base: subject{name: "b"}, figure: serviceCPU, goal: report.AtMost(1.2)},
			[]string{"ratio", "", "2.00 [1.00–3.00]", "≤ 1.2", "**missed by 0.80**", "", "2.50 / 1.50 " + serviceCPU.unit}},
		{row{name: "with the heap rule", of: subject{name: "a"}, base: subject{name: "b"}, heap: subject{name: "a"}, figure: serviceCPU, goal: report.AtMost(2)},
			[]string{"with the heap rule", "", "2.00 [1.00–3.00]", "≤ 2", "met", "1.00 [1.00–1.00]", "2.50 / 1.50 " + serviceCPU.unit}},
		{row{name: "difference", of: subject{name: "a"}, base: subject{name: "b"}, figure: p50, mode: difference, goal: report.AtMost(4)},
			[]string{"difference", "", "4.00 [3.00–5.00] " + p50.unit, "≤ 4", "met", "", "8.00 / 4.00 " + p50.unit}},
		{row{name: "alone", of: subject{name: "a"}, figure: rate, mode: alone}, []string{"alone", "", "5.00 [5.00–5.00] fetches/s", "", "", "", "5.00 fetches/s"}},
	} {
		if diff := cmp.Diff(row.want, m.cells(row.row)); diff != "" {
			t.Errorf("%s (-want +got):\n%s", row.row.name, diff)
		}
	}
}

// TestSince checks that CPU times are scaled to the span that the caller measured.
func TestSince(t *testing.T) {
	at := time.Unix(1, 0)
	before := clocks{at: at, service: time.Second, origin: 5 * time.Second}
	after := clocks{at: at.Add(4 * time.Second), service: 3 * time.Second, origin: 6 * time.Second}
	service, origin := after.since(before, 2)
	if service != time.Second || origin != 500*time.Millisecond {
		t.Errorf("of 2 s in 4: service %v, origin %v, want half of 2 s and of 1 s", service, origin)
	}
}

func TestJudge(t *testing.T) {
	for _, row := range []struct {
		name            string
		fetches, failed int64
		faults, good    bool
	}{
		{"all went well", 100, 0, false, true},
		{"one failed", 100, 1, false, false},
		{"one of a hundred, with faults", 100, 1, true, true},
		{"two of a hundred, with faults", 100, 2, true, false},
		{"none ended", 0, 0, true, false},
	} {
		t.Run(row.name, func(t *testing.T) {
			s := subject{name: "it", faults: row.faults}
			err := s.judge(&run{Result: caller.Result{Fetches: row.fetches, Failed: row.failed}}, "why")
			if (err == nil) != row.good {
				t.Errorf("%d of %d failed: error %v, want one: %t", row.failed, row.fetches, err, !row.good)
			}
		})
	}
}

// TestWrite checks that the part that people write is kept, and that a page is not replaced if
// that part could be lost.
func TestWrite(t *testing.T) {
	folder := t.TempDir()
	path := filepath.Join(folder, "benchmarks.md")
	page := func() *report.Page {
		return &report.Page{Command: "go run ./test/bench", Plots: []report.Plot{{Title: "CPU", Name: "cpu.svg", SVG: "<svg/>"}}}
	}
	must.Succeed(t, write(folder, page()))
	text, err := os.ReadFile(path)
	must.Succeed(t, err)
	const mark = "<!-- by hand: begin -->\n"
	edited := strings.Replace(string(text), mark, mark+"What I saw.", 1)
	must.Succeed(t, os.WriteFile(path, []byte(edited), 0o600))
	must.Succeed(t, write(folder, page()))
	if text, err = os.ReadFile(path); err != nil || strings.Count(string(text), "What I saw.") != 1 {
		t.Errorf("the text of people is not in the page exactly once: %v\n%s", err, text)
	}
	if picture, err := os.ReadFile(filepath.Join(folder, "benchmarks", "cpu.svg")); err != nil || string(picture) != "<svg/>" {
		t.Errorf("the picture: %q, %v", picture, err)
	}
	must.Succeed(t, os.WriteFile(path, []byte(strings.Replace(edited, mark, "", 1)), 0o600))
	if err := write(folder, page()); err == nil {
		t.Error("a page with only one mark was replaced")
	}
}

// TestPlots draws what was measured, and nothing where nothing was.
func TestPlots(t *testing.T) {
	r := &run{Result: caller.Result{Fetches: 1, P50: 1, P90: 2, P99: 3}, held: 1 << 12}
	all := selected(plan(), regexp.MustCompile("^(unary|python-rate|latency|memory-many)$"))
	var results []measured
	for _, g := range all {
		m := measured{group: g, runs: make(map[string][]*run)}
		for _, s := range g.subjects() {
			m.runs[s.name] = []*run{r}
		}
		results = append(results, m)
	}
	var got []string
	for _, p := range plots(results) {
		got = append(got, p.Name)
	}
	if diff := cmp.Diff([]string{"cpu.svg", "languages.svg", "latency.svg", "memory.svg"}, got); diff != "" {
		t.Errorf("pictures (-want +got):\n%s", diff)
	}
	if got := plots(nil); len(got) != 0 {
		t.Errorf("%d pictures of nothing", len(got))
	}
}

// TestOrder checks that the second round is in reverse order.
func TestOrder(t *testing.T) {
	progress := new(bytes.Buffer)
	b := &bench{workshop: &workshop{choices: new(choices)}, rounds: 2, progress: progress, began: time.Now()}
	g := group{name: "decisions", rows: []row{{of: subject{name: "b", decide: true}, base: subject{name: "a", decide: true}}}}
	if _, err := b.all(context.Background(), []group{g}); err != nil {
		t.Fatal(err)
	}
	var order []string
	for line := range strings.Lines(progress.String()) {
		name, _, _ := strings.Cut(line[strings.LastIndex(line, "  ")+2:], ":")
		order = append(order, name)
	}
	if diff := cmp.Diff([]string{"a", "b", "b", "a"}, order); diff != "" {
		t.Errorf("order (-want +got):\n%s", diff)
	}
}

// onLinux skips tests that read the clocks of processes.
func onLinux(t *testing.T) {
	t.Helper()
	need.Linux(t, "the CPU time and memory of a process are read from Linux")
}
