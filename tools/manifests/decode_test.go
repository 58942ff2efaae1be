package manifests

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	autoscalingv2 "k8s.io/api/autoscaling/v2"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	policyv1 "k8s.io/api/policy/v1"
	"sigs.k8s.io/json"
	"sigs.k8s.io/yaml"
)

// root is the root of the project, relative to this package.
const root = "../.."

// kinds are the documents that may be in deploy/, by apiVersion and kind.
var kinds = map[string]func() any{
	"v1 ConfigMap":                            func() any { return new(corev1.ConfigMap) },
	"v1 Namespace":                            func() any { return new(corev1.Namespace) },
	"v1 Service":                              func() any { return new(corev1.Service) },
	"v1 ServiceAccount":                       func() any { return new(corev1.ServiceAccount) },
	"apps/v1 Deployment":                      func() any { return new(appsv1.Deployment) },
	"autoscaling/v2 HorizontalPodAutoscaler":  func() any { return new(autoscalingv2.HorizontalPodAutoscaler) },
	"networking.k8s.io/v1 NetworkPolicy":      func() any { return new(networkingv1.NetworkPolicy) },
	"policy/v1 PodDisruptionBudget":           func() any { return new(policyv1.PodDisruptionBudget) },
	"monitoring.coreos.com/v1 PodMonitor":     func() any { return new(podMonitor) },
	"monitoring.coreos.com/v1 PrometheusRule": func() any { return new(prometheusRule) },
}

// decode reads a document as the API server does with
// fieldValidation=Strict.
func decode(document []byte) (any, error) {
	text, err := yaml.YAMLToJSONStrict(document)
	if err != nil {
		return nil, err
	}
	var head struct{ APIVersion, Kind string }
	if err := yaml.Unmarshal(text, &head); err != nil {
		return nil, err
	}
	empty, known := kinds[head.APIVersion+" "+head.Kind]
	if !known {
		return nil, fmt.Errorf("a document of apiVersion %q, kind %q is not known here", head.APIVersion, head.Kind)
	}
	object := empty()
	strict, err := json.UnmarshalStrict(text, object)
	return object, errors.Join(append(strict, err)...)
}

// documents splits a YAML file at its "---" lines and drops empty parts.
func documents(text []byte) [][]byte {
	var found [][]byte
	for part := range bytes.SplitSeq(append([]byte("\n"), text...), []byte("\n---\n")) {
		if made, err := yaml.YAMLToJSON(part); err != nil || string(made) != "null" {
			found = append(found, part)
		}
	}
	return found
}

// operator returns the objects of the Prometheus operator.
func operator(t *testing.T) *cluster {
	t.Helper()
	c := new(cluster)
	for _, name := range []string{"podmonitors.yaml", "rules.yaml"} {
		c.read(t, name, string(read(t, filepath.Join(root, "deploy/prometheus-operator", name))))
	}
	return c
}

// read adds the objects of a file.
func (c *cluster) read(t *testing.T, name, text string) {
	t.Helper()
	for _, document := range documents([]byte(text)) {
		object, err := decode(document)
		if err != nil {
			t.Fatalf("%s: %v\n%s", name, err, document)
		}
		c.add(object)
	}
}

// configuration is the file that fetchd reads with --config. It is not a manifest.
const configuration = "fetchd.yaml"

func TestBrokenDocumentsAreRefused(t *testing.T) {
	const service = "apiVersion: v1\nkind: Service\nmetadata: {name: a}\nspec:\n  ports: [{port: 80}]\n"
	if _, err := decode([]byte(service)); err != nil {
		t.Fatalf("the document is invalid before the test breaks it: %v", err)
	}
	for _, row := range []struct{ name, old, new, want string }{
		{"a field that is not there", "ports:", "prots:", `unknown field "spec.prots"`},
		{"a field in other letters", "ports:", "Ports:", `unknown field "spec.Ports"`},
		{"a number that is a word", "port: 80", "port: http", "cannot unmarshal string"},
		{"a list that is a word", "[{port: 80}]", "http", "cannot unmarshal string"},
		{"a key given twice", "metadata: {name: a}", "metadata: {name: a}\nmetadata: {name: b}", `"metadata" already set`},
		{"a kind that is not known here", "kind: Service", "kind: Sevrice", "is not known here"},
		{"a version that is gone", "apiVersion: v1", "apiVersion: v1beta1", "is not known here"},
		{"no kind at all", "kind: Service\n", "", "is not known here"},
	} {
		t.Run(row.name, func(t *testing.T) {
			broken := strings.Replace(service, row.old, row.new, 1)
			_, err := decode([]byte(broken))
			if err == nil || !strings.Contains(err.Error(), row.want) {
				t.Errorf("%s\ngot error %v, want one with %q", broken, err, row.want)
			}
		})
	}
}

func read(t *testing.T, file string) []byte {
	t.Helper()
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	return text
}
