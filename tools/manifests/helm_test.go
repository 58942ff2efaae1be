package manifests

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"helm.sh/helm/v4/pkg/chart/common"
	"helm.sh/helm/v4/pkg/chart/common/util"
	"helm.sh/helm/v4/pkg/chart/v2/lint"
	"helm.sh/helm/v4/pkg/chart/v2/lint/support"
	"helm.sh/helm/v4/pkg/chart/v2/loader"
	"helm.sh/helm/v4/pkg/engine"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/yaml"
)

const (
	chartFolder  = root + "/deploy/helm/fetchd"
	valuesSchema = chartFolder + "/values.schema.json"
)

// template returns the files that `helm template` renders in a namespace. values is YAML.
func template(t *testing.T, namespace, values string) (map[string]string, error) {
	t.Helper()
	chart, err := loader.Load(chartFolder)
	if err != nil {
		t.Fatal(err)
	}
	set, err := common.ReadValues([]byte(values))
	if err != nil {
		t.Fatal(err)
	}
	all, err := util.ToRenderValues(chart, set, common.ReleaseOptions{Name: "first", Namespace: namespace, IsInstall: true}, nil)
	if err != nil {
		return nil, err
	}
	return engine.Engine{Strict: true}.Render(chart, all)
}

// renderChart returns what `helm install` would send.
func renderChart(t *testing.T, namespace, values string) *cluster {
	t.Helper()
	files, err := template(t, namespace, values)
	if err != nil {
		t.Fatal(err)
	}
	c := new(cluster)
	c.add(&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: namespace}})
	for _, name := range slices.Sorted(maps.Keys(files)) {
		if filepath.Ext(name) == ".yaml" {
			c.read(t, name, files[name])
		}
	}
	for _, o := range c.objects {
		o.SetNamespace(namespace) // as helm does
	}
	return c
}

// frontierOnly are the values of a release without fetchd.
const frontierOnly = "enabled: false\nfrontier: {fetchdNamespace: fetchd, enabled: %t}\nfrontierApi: {enabled: %t}\n"

// releases are the usual ones, each with a Deployment.
var releases = map[string]struct{ namespace, values string }{
	"fetchd":       {"fetchd", ""},
	"fetchd, TLS":  {"fetchd", "tls: {enabled: true}"},
	"frontier":     {"frontier", fmt.Sprintf(frontierOnly, true, false)},
	"frontier-api": {"frontier", fmt.Sprintf(frontierOnly, false, true)},
}

// render returns the objects of one of the usual releases.
func render(t *testing.T, release string) *cluster {
	t.Helper()
	r := releases[release]
	return renderChart(t, r.namespace, r.values)
}

// released are the labels that every object has.
var released = []string{"app.kubernetes.io/name", "app.kubernetes.io/instance", "app.kubernetes.io/version", "app.kubernetes.io/managed-by", "helm.sh/chart"}

func TestChartLabels(t *testing.T) {
	for name := range releases {
		for _, o := range render(t, name).objects {
			for _, label := range released {
				if o.GetLabels()[label] == "" {
					t.Errorf("%s: %T %s has no label %s", name, o, o.GetName(), label)
				}
			}
		}
	}
}

// TestRendered compares deploy/kubernetes.yaml with the chart. Tests that must not need Helm read that file. UPDATE=1 writes it.
func TestRendered(t *testing.T) {
	const file = root + "/deploy/kubernetes.yaml"
	files, err := template(t, "fetchd", "")
	if err != nil {
		t.Fatal(err)
	}
	var want strings.Builder
	want.WriteString("# What the chart in helm/fetchd installs without values. To write it again:\n#\n#   UPDATE=1 go -C tools test ./manifests -run TestRendered\n")
	for _, name := range slices.Sorted(maps.Keys(files)) {
		if text := strings.TrimSpace(files[name]); filepath.Ext(name) == ".yaml" && text != "" {
			fmt.Fprintf(&want, "---\n%s\n", strings.TrimPrefix(text, "---\n"))
		}
	}
	if os.Getenv("UPDATE") != "" {
		if err := os.WriteFile(file, []byte(want.String()), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if diff := cmp.Diff(want.String(), string(read(t, file))); diff != "" {
		t.Errorf("deploy/kubernetes.yaml: run UPDATE=1 go -C tools test ./manifests -run TestRendered\n%s", diff)
	}
}

func TestChartFitsTogether(t *testing.T) {
	known, page := flagsOf(t), sizing(t)
	for _, row := range []struct{ name, values string }{
		{"tls with tokens", "tls: {enabled: true, requireClientCertificate: false}\nsettings: {token-file: /etc/tokens/tokens.yaml}\nvolumes: [{name: tokens, secret: {secretName: fetchd-tls}}]\nvolumeMounts: [{name: tokens, mountPath: /etc/tokens, readOnly: true}]"},
		{"settings", "settings: {max-fetches: 500, max-body-bytes: 2000000000, drain-time: 2m, egress-allow-cidr: [10.1.0.0/16]}"},
		{"memory", "resources: {requests: {memory: 512Mi}, limits: {memory: 512Mi}}"},
		{"pods", "podLabels: {team: a}\npodAnnotations: {a: b}\nnodeSelector: {a: b}\ntolerations: [{operator: Exists}]\nimagePullSecrets: [{name: a}]\npriorityClassName: high\naffinity: {nodeAffinity: {}}"},
		{"variables", "env: [{name: FETCHD_USER_AGENT, value: a}]"},
	} {
		t.Run(row.name, func(t *testing.T) {
			for _, fault := range renderChart(t, "fetchd", row.values).check(known, page) {
				t.Error(fault)
			}
		})
	}
	t.Run("everything in one namespace", func(t *testing.T) {
		flags := map[string][]string{"add": flagsOfCommand(t, "frontier", "add"), "crawl": flagsOfCommand(t, "frontier", "crawl")}
		workers := renderChart(t, "crawl", "enabled: false\nfrontier: {enabled: true, args: [--tls]}")
		for _, fault := range workers.checkWorkers(flags, renderChart(t, "crawl", "")) {
			t.Error(fault)
		}
		all := renderChart(t, "crawl", "frontier: {enabled: true}\nfrontierApi: {enabled: true}")
		if got := len(all.deployments); got != 3 {
			t.Errorf("%d Deployments, want 3", got)
		}
	})
}

// TestChartValues checks what single values change.
func TestChartValues(t *testing.T) {
	for _, row := range []struct {
		name, values string
		got          func(*cluster) any
		want         any
	}{
		{"an image", "image: {repository: host/fetchd, tag: v1}", func(c *cluster) any { return c.box().Image }, "host/fetchd:v1"},
		{"an image by its digest", "image: {digest: sha256:" + strings.Repeat("0", 64) + "}", func(c *cluster) any { return c.box().Image }, "fetchd@sha256:" + strings.Repeat("0", 64)},
		{"a setting", "settings: {max-fetches: 500}", func(c *cluster) any { return asInt(c.settings()["max-fetches"]) }, int64(500)},
		{"a large setting", "settings: {max-body-bytes: 2000000000}", func(c *cluster) any { return asInt(c.settings()["max-body-bytes"]) }, int64(2_000_000_000)},
		{"the autoscaler follows max-fetches", "settings: {max-fetches: 500}", func(c *cluster) any {
			return c.scalers[0].Spec.Metrics[0].Pods.Target.AverageValue.Value()
		}, int64(300)},
		{"the grace period follows drain-time", "settings: {drain-time: 2m}", func(c *cluster) any { return *c.template().Spec.TerminationGracePeriodSeconds }, int64(135)},
		{"no autoscaler", "autoscaling: {enabled: false}\nsettings: {max-fetches: 0}", func(c *cluster) any { return *c.deployments[0].Spec.Replicas }, int32(3)},
		{"no network policies", "networkPolicy: {enabled: false}\nfrontier: {enabled: true}\nfrontierApi: {enabled: true}", func(c *cluster) any { return len(c.policies) }, 0},
		{"no one may call", "networkPolicy: {callers: []}", func(c *cluster) any { return len(c.policies[0].Spec.Ingress) }, 1},
		{"another rule of egress", "networkPolicy: {egress: [{to: [{ipBlock: {cidr: 10.1.0.0/16}}], ports: [{port: 8080}]}]}", func(c *cluster) any {
			return c.policies[0].Spec.Egress[2].To[0].IPBlock.CIDR
		}, "10.1.0.0/16"},
		{"values of a parent chart", "global: {a: b}", func(c *cluster) any { return len(c.deployments) }, 1},
	} {
		t.Run(row.name, func(t *testing.T) {
			if got := row.got(renderChart(t, "fetchd", row.values)); !reflect.DeepEqual(got, row.want) {
				t.Errorf("got %v, want %v", got, row.want)
			}
		})
	}
	checksum := func(values string) string {
		return renderChart(t, "fetchd", values).template().Annotations["checksum/config"]
	}
	if a, b := checksum(""), checksum("settings: {log-level: debug}"); a == b {
		t.Error("a change of the settings does not restart the pods")
	}
}

func TestWrongValuesAreRefused(t *testing.T) {
	for _, row := range []struct{ name, values, want string }{
		{"a value that is not there", "replicaCount: 2", "additional properties 'replicaCount' not allowed"},
		{"a value that is not there, further down", "autoscaling: {maxReplica: 2}", "at '/autoscaling': additional properties 'maxReplica' not allowed"},
		{"a setting that is no flag", "settings: {max-fetchs: 1}", "at '/settings': additional properties 'max-fetchs' not allowed"},
		{"a setting that the chart makes", "settings: {http-addr: ':9'}", "at '/settings': additional properties 'http-addr' not allowed"},
		{"a setting of another type", "settings: {max-fetches: many}", "at '/settings/max-fetches': got string, want integer"},
		{"a time without a unit", "settings: {drain-time: '30'}", "at '/settings/drain-time': '30' does not match pattern"},
		{"a word for a switch", "tls: {enabled: 'yes'}", "at '/tls/enabled': got string, want boolean"},
		{"a tag that is a number", "image: {tag: 1.2}", "at '/image/tag': got number, want string"},
		{"a digest without its algorithm", "image: {digest: '00'}", "at '/image/digest'"},
		{"one replica at least", "autoscaling: {minReplicas: 1}", "at '/autoscaling/minReplicas': minimum: got 1, want 2"},
		{"no memory limit", "resources: {limits: {memory: null}}", "at '/resources/limits': missing property 'memory'"},
		{"an argument that is no flag", "frontier: {args: [endless]}", "at '/frontier/args/0'"},
		{"an autoscaler without a number", "settings: {max-fetches: 0}", "the autoscaler needs a number in settings.max-fetches"},
	} {
		t.Run(row.name, func(t *testing.T) {
			_, err := template(t, "fetchd", row.values)
			if got := fmt.Sprint(err); !strings.Contains(got, row.want) {
				t.Errorf("got error %s, want one with %q", got, row.want)
			}
		})
	}
}

// TestChartSchema compares the schema of the settings with deploy/schema, without what the chart itself sets, and the
// names of the values with those of the schema. UPDATE=1 writes the schema.
func TestChartSchema(t *testing.T) {
	var schema, settings struct {
		Schema     string         `json:"$schema,omitempty"`
		Title      string         `json:"title,omitempty"`
		Type       string         `json:"type"`
		Additional bool           `json:"additionalProperties"`
		Properties map[string]any `json:"properties"`
	}
	for file, into := range map[string]any{valuesSchema: &schema, root + "/deploy/schema/fetchd.json": &settings} {
		if err := json.Unmarshal(read(t, file), into); err != nil {
			t.Fatal(err)
		}
	}
	for _, own := range []string{"allow-plaintext", "grpc-addr", "http-addr", "tls-cert-file", "tls-client-ca-file", "tls-key-file"} {
		delete(settings.Properties, own)
	}
	schema.Properties["settings"] = map[string]any{"type": settings.Type, "additionalProperties": false, "properties": settings.Properties}
	var want bytes.Buffer
	encoder := json.NewEncoder(&want)
	encoder.SetEscapeHTML(false)
	encoder.SetIndent("", "  ")
	if err := encoder.Encode(schema); err != nil {
		t.Fatal(err)
	}
	if os.Getenv("UPDATE") != "" {
		if err := os.WriteFile(valuesSchema, want.Bytes(), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if diff := cmp.Diff(want.String(), string(read(t, valuesSchema))); diff != "" {
		t.Errorf("values.schema.json: run UPDATE=1 go -C tools test ./manifests -run TestChartSchema\n%s", diff)
	}

	var values map[string]any
	if err := yaml.UnmarshalStrict(read(t, chartFolder+"/values.yaml"), &values); err != nil {
		t.Fatal(err)
	}
	delete(schema.Properties, "global")
	if got, want := slices.Sorted(maps.Keys(values)), slices.Sorted(maps.Keys(schema.Properties)); !slices.Equal(got, want) {
		t.Errorf("values.yaml has %q, the schema %q", got, want)
	}
}

func TestChartLint(t *testing.T) {
	for _, values := range []string{"", "tls: {enabled: true}", "frontier: {enabled: true}\nfrontierApi: {enabled: true}"} {
		set, err := common.ReadValues([]byte(values))
		if err != nil {
			t.Fatal(err)
		}
		for _, m := range lint.RunAll(chartFolder, set, "fetchd").Messages {
			if m.Severity > support.InfoSev {
				t.Errorf("%s: %v", values, m)
			}
		}
	}
}

func TestChartNotes(t *testing.T) {
	for _, row := range []struct{ name, values, want, not string }{
		{"defaults", "", "dns:///fetchd.crawl.svc:8080", "Secret"},
		{"tls", "tls: {enabled: true}", "Secret fetchd-tls with tls.crt, tls.key and ca.crt.", "http://"},
		{"the frontier", "enabled: false\nfrontier: {enabled: true}", "Secret frontier-database with the key dsn", "fetchd-caller"},
		{"workers without certificates", "tls: {enabled: true}\nfrontier: {enabled: true}", "set frontier.args", "http://"},
	} {
		t.Run(row.name, func(t *testing.T) {
			files, err := template(t, "crawl", row.values)
			if err != nil {
				t.Fatal(err)
			}
			if got := files["fetchd/templates/NOTES.txt"]; !strings.Contains(got, row.want) || strings.Contains(got, row.not) {
				t.Errorf("got %s\nwant %q in it, and not %q", got, row.want, row.not)
			}
		})
	}
}
