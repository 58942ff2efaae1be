package manifests

import (
	"encoding/json"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/util/intstr"
	"sigs.k8s.io/yaml"
)

// podMonitor has the fields of the Prometheus operator's PodMonitor that deploy/ uses. The module of its
// types would bring more than this test needs.
type podMonitor struct {
	metav1.TypeMeta
	metav1.ObjectMeta `json:"metadata"`
	Spec              struct {
		JobLabel  string               `json:"jobLabel"`
		Selector  metav1.LabelSelector `json:"selector"`
		Endpoints []struct {
			Port     string `json:"port"`
			Interval string `json:"interval"`
		} `json:"podMetricsEndpoints"`
	} `json:"spec"`
}

type prometheusRule struct {
	metav1.TypeMeta
	metav1.ObjectMeta `json:"metadata"`
	Spec              json.RawMessage `json:"spec"`
}

// checkMonitors checks that the pods of a cluster are scraped under the names of the jobs that alerts and
// dashboards use.
func (c *cluster) checkMonitors(monitors []*podMonitor, job string) {
	pod := c.template()
	for _, m := range monitors {
		selector, err := metav1.LabelSelectorAsSelector(&m.Spec.Selector)
		if err != nil || selector.Empty() || m.Namespace != c.namespaces[0].Name || !selector.Matches(labels.Set(pod.Labels)) {
			continue
		}
		c.expect(pod.Labels[m.Spec.JobLabel] == job, "PodMonitor %s: the job is %q, want %q", m.Name, pod.Labels[m.Spec.JobLabel], job)
		c.expect(len(m.Spec.Endpoints) == 1, "PodMonitor %s: %d endpoints, want one", m.Name, len(m.Spec.Endpoints))
		for _, e := range m.Spec.Endpoints {
			c.port("PodMonitor "+m.Name, intstr.FromString(e.Port))
		}
		return
	}
	c.fault("no PodMonitor selects the pods of %s", job)
}

func TestMonitors(t *testing.T) {
	monitors := operator(t).monitors
	for release := range releases {
		c := render(t, release)
		job, _, _ := strings.Cut(release, ",")
		c.checkMonitors(monitors, job)
		for _, fault := range c.faults {
			t.Errorf("%s: %s", release, fault)
		}
	}
	for _, row := range []struct {
		name  string
		spoil func(*podMonitor)
	}{
		{"another namespace", func(m *podMonitor) { m.Namespace = "x" }},
		{"another label", func(m *podMonitor) { m.Spec.Selector.MatchLabels["app.kubernetes.io/name"] = "x" }},
		{"every pod", func(m *podMonitor) { m.Spec.Selector.MatchLabels = nil }},
		{"another job", func(m *podMonitor) { m.Spec.JobLabel = "app" }},
		{"a port that is not there", func(m *podMonitor) { m.Spec.Endpoints[0].Port = "web" }},
		{"no port", func(m *podMonitor) { m.Spec.Endpoints = nil }},
	} {
		c, broken := render(t, "fetchd"), operator(t).monitors
		for _, m := range broken {
			row.spoil(m)
		}
		if c.checkMonitors(broken, "fetchd"); len(c.faults) == 0 {
			t.Errorf("%s: it was accepted", row.name)
		}
	}
}

// The objects have the rules that promtool checks.
func TestOperatorRules(t *testing.T) {
	operator := operator(t)
	if len(operator.alerts) != len(programs(t)) {
		t.Fatalf("%d objects, want %d", len(operator.alerts), len(programs(t)))
	}
	for i, program := range programs(t) {
		var want, got any
		if err := yaml.Unmarshal(read(t, filepath.Join(root, "deploy/prometheus", program.alerts)), &want); err != nil {
			t.Fatal(err)
		}
		if err := json.Unmarshal(operator.alerts[i].Spec, &got); err != nil {
			t.Fatal(err)
		}
		if !reflect.DeepEqual(got, want) {
			t.Errorf("%s: the rules are not those of %s: run .ci/generated", operator.alerts[i].Name, program.alerts)
		}
	}
}
