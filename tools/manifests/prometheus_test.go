package manifests

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"sigs.k8s.io/yaml"
)

// rules has the parts of a file of Prometheus rules that the tests use.
type rules struct {
	Groups []struct {
		Name  string
		Rules []struct {
			Alert       string
			Expr        string
			For         string
			Labels      map[string]string
			Annotations map[string]string
		}
	}
}

// shown is a program with alerts and a dashboard.
type shown struct {
	vocabulary
	alerts    string // in deploy/prometheus, with its tests in NAME_test.yaml
	dashboard string // in deploy/grafana
}

func programs(t *testing.T) []shown {
	t.Helper()
	return []shown{
		{fetchdVocabulary(t), "alerts.yaml", "fetchd.json"},
		{frontierVocabulary(t), "frontier-alerts.yaml", "frontier.json"},
	}
}

func (s shown) rules(t *testing.T) rules {
	t.Helper()
	var r rules
	if err := yaml.UnmarshalStrict(read(t, filepath.Join(root, "deploy/prometheus", s.alerts)), &r); err != nil {
		t.Fatal(err)
	}
	return r
}

func TestAlerts(t *testing.T) {
	page := string(read(t, filepath.Join(root, "docs/operating.md")))
	for _, program := range programs(t) {
		fires, quiet := program.alertTests(t)
		for _, group := range program.rules(t).Groups {
			for _, rule := range group.Rules {
				t.Run(rule.Alert, func(t *testing.T) {
					for _, fault := range program.faultsOf(rule.Expr) {
						t.Errorf("%s: %s", rule.Expr, fault)
					}
					if rule.For == "" && !strings.Contains(rule.Expr, "[15m]") {
						t.Error("it fires at once: add a for")
					}
					if s := rule.Labels["severity"]; s != "page" && s != "ticket" {
						t.Errorf("severity %q, want page or ticket", s)
					}
					if rule.Annotations["summary"] == "" {
						t.Error("it has no summary")
					}
					if !fires[rule.Alert] || !quiet[rule.Alert] {
						t.Errorf("the tests of %s: fires %t, does not fire %t, want both", program.alerts, fires[rule.Alert], quiet[rule.Alert])
					}
					if !strings.Contains(page, "| `"+rule.Alert+"` |") {
						t.Error("docs/operating.md has no row for it")
					}
				})
			}
		}
	}
}

// alertTests returns the alerts that have a test case in which they fire, and those that have
// one in which they do not fire, or only for some replicas.
func (s shown) alertTests(t *testing.T) (fires, quiet map[string]bool) {
	t.Helper()
	var file struct {
		Tests []struct {
			InputSeries []json.RawMessage `json:"input_series"`
			Cases       []struct {
				Alert string            `json:"alertname"`
				Want  []json.RawMessage `json:"exp_alerts"`
			} `json:"alert_rule_test"`
		}
	}
	name := strings.TrimSuffix(s.alerts, ".yaml") + "_test.yaml"
	if err := yaml.Unmarshal(read(t, filepath.Join(root, "deploy/prometheus", name)), &file); err != nil {
		t.Fatal(err)
	}
	fires, quiet = map[string]bool{}, map[string]bool{}
	for _, test := range file.Tests {
		for _, c := range test.Cases {
			if len(c.Want) > 0 {
				fires[c.Alert] = true
			}
			if len(c.Want) < len(test.InputSeries) {
				quiet[c.Alert] = true
			}
		}
	}
	return fires, quiet
}

// The alerts and the dashboard select their series by the name of the job.
func TestScrapeConfigs(t *testing.T) {
	both := []string{"alerts.yaml", "frontier-alerts.yaml"}
	for _, row := range []struct {
		file        string
		rules, jobs []string
	}{
		{"prometheus.yaml", both, []string{"fetchd", "frontier", "frontier-api"}},
		{"static.yaml", both, []string{"fetchd", "frontier", "frontier-api"}},
		{"kubernetes.yaml", both, []string{"fetchd", "frontier", "frontier-api"}},
		{"frontier.yaml", []string{"frontier-alerts.yaml"}, []string{"frontier", "frontier-api"}},
	} {
		t.Run(row.file, func(t *testing.T) {
			var config struct {
				RuleFiles     []string `json:"rule_files"`
				ScrapeConfigs []struct {
					Job string `json:"job_name"`
				} `json:"scrape_configs"`
			}
			if err := yaml.Unmarshal(read(t, filepath.Join(root, "deploy/prometheus", row.file)), &config); err != nil {
				t.Fatal(err)
			}
			var jobs []string
			for _, c := range config.ScrapeConfigs {
				jobs = append(jobs, c.Job)
			}
			if !slices.Equal(config.RuleFiles, row.rules) || !slices.Equal(jobs, row.jobs) {
				t.Errorf("got %+v, want the rules %q and the jobs %q", config, row.rules, row.jobs)
			}
		})
	}
}

// The HPA refers to a metric by the name that the adapter gives it.
func TestAdapterRule(t *testing.T) {
	var file struct {
		Rules []struct {
			SeriesQuery  string
			Resources    json.RawMessage
			Name         struct{ As string }
			MetricsQuery string
		}
	}
	if err := yaml.UnmarshalStrict(read(t, filepath.Join(root, "deploy/prometheus/adapter-rules.yaml")), &file); err != nil {
		t.Fatal(err)
	}
	fetchd := fetchdVocabulary(t)
	var given []string
	for _, r := range file.Rules {
		given = append(given, r.Name.As)
		for _, fault := range fetchd.faultsOf(r.SeriesQuery) {
			t.Errorf("%s: %s", r.SeriesQuery, fault)
		}
	}
	for _, h := range render(t, "fetchd").scalers {
		for _, m := range h.Spec.Metrics {
			if m.Pods != nil && !slices.Contains(given, m.Pods.Metric.Name) {
				t.Errorf("the HPA asks for %s, the adapter gives %v", m.Pods.Metric.Name, given)
			}
		}
	}
}

type panel struct {
	ID      int
	Type    string
	Title   string
	GridPos struct{ H, W, X, Y int }
	Targets []struct{ Expr string }
}

func (s shown) panels(t *testing.T) (panels []panel, exprs []string) {
	t.Helper()
	var d struct {
		UID         string
		Panels      []panel
		Annotations struct{ List []struct{ Expr string } }
	}
	if err := json.Unmarshal(read(t, filepath.Join(root, "deploy/grafana", s.dashboard)), &d); err != nil {
		t.Fatal(err)
	}
	for _, a := range d.Annotations.List {
		exprs = append(exprs, a.Expr)
	}
	for _, p := range d.Panels {
		for _, target := range p.Targets {
			exprs = append(exprs, target.Expr)
		}
	}
	return d.Panels, exprs
}

func TestDashboards(t *testing.T) {
	for _, program := range programs(t) {
		t.Run(program.dashboard, func(t *testing.T) {
			panels, exprs := program.panels(t)
			checkLayout(t, panels)
			for _, expr := range exprs {
				for _, fault := range program.faultsOf(expr) {
					t.Errorf("%s: %s", expr, fault)
				}
			}
			all := strings.Join(exprs, "\n")
			for name := range program.Metrics {
				if strings.HasPrefix(name, program.Program+"_") && !strings.Contains(all, name) {
					t.Errorf("no panel shows %s", name)
				}
			}
		})
	}
}

func checkLayout(t *testing.T, panels []panel) {
	t.Helper()
	ids := map[int]string{}
	taken := map[[2]int]string{}
	for _, p := range panels {
		if other, twice := ids[p.ID]; twice {
			t.Errorf("panels %q and %q have the id %d", other, p.Title, p.ID)
		}
		ids[p.ID] = p.Title
		if p.Type != "row" && len(p.Targets) == 0 {
			t.Errorf("panel %q shows nothing", p.Title)
		}
		for x := p.GridPos.X; x < p.GridPos.X+p.GridPos.W; x++ {
			for y := p.GridPos.Y; y < p.GridPos.Y+p.GridPos.H; y++ {
				if other := taken[[2]int{x, y}]; other != "" || x >= 24 {
					t.Fatalf("panel %q overlaps %q or the edge", p.Title, other)
				}
				taken[[2]int{x, y}] = p.Title
			}
		}
	}
}

// promtool reads rules, not dashboards, so the test passes it the panels as rules.
func TestSyntaxOfTheDashboards(t *testing.T) {
	promtool, err := exec.LookPath("promtool")
	if err != nil {
		t.Skip("promtool is not installed")
	}
	var exprs []string
	for _, program := range programs(t) {
		_, more := program.panels(t)
		exprs = append(exprs, more...)
	}
	type rule struct {
		Record string `json:"record"`
		Expr   string `json:"expr"`
	}
	var made []rule
	for i, expr := range exprs {
		made = append(made, rule{fmt.Sprintf("panel:%d", i), strings.ReplaceAll(expr, "$__rate_interval", "5m")})
	}
	text, err := yaml.Marshal(map[string]any{"groups": []any{map[string]any{"name": "panels", "rules": made}}})
	if err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(t.TempDir(), "panels.yaml")
	if err := os.WriteFile(file, text, 0o600); err != nil {
		t.Fatal(err)
	}
	if out, err := exec.Command(promtool, "check", "rules", file).CombinedOutput(); err != nil {
		t.Errorf("promtool check rules: %v\n%s", err, out)
	}
}

func TestEveryMetricIsExplained(t *testing.T) {
	page := string(read(t, filepath.Join(root, "docs/operating.md")))
	for name := range metricsOf(t, "fetchd") {
		if !strings.Contains(page, "`"+name) {
			t.Errorf("docs/operating.md does not explain %s", name)
		}
	}
}
