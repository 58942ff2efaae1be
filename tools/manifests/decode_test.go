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
	"sigs.k8s.io/kustomize/api/krusty"
	kustomize "sigs.k8s.io/kustomize/api/types"
	"sigs.k8s.io/kustomize/kyaml/filesys"
	"sigs.k8s.io/yaml"
)

// root is the root of the project, relative to this package.
const root = "../.."

// kinds are the documents that may be in deploy/, by apiVersion and kind.
var kinds = map[string]func() any{
	"v1 ConfigMap":                                  func() any { return new(corev1.ConfigMap) },
	"v1 Namespace":                                  func() any { return new(corev1.Namespace) },
	"v1 Service":                                    func() any { return new(corev1.Service) },
	"v1 ServiceAccount":                             func() any { return new(corev1.ServiceAccount) },
	"apps/v1 Deployment":                            func() any { return new(appsv1.Deployment) },
	"autoscaling/v2 HorizontalPodAutoscaler":        func() any { return new(autoscalingv2.HorizontalPodAutoscaler) },
	"networking.k8s.io/v1 NetworkPolicy":            func() any { return new(networkingv1.NetworkPolicy) },
	"policy/v1 PodDisruptionBudget":                 func() any { return new(policyv1.PodDisruptionBudget) },
	"kustomize.config.k8s.io/v1beta1 Kustomization": func() any { return new(kustomize.Kustomization) },
	"monitoring.coreos.com/v1 PodMonitor":           func() any { return new(podMonitor) },
	"monitoring.coreos.com/v1 PrometheusRule":       func() any { return new(prometheusRule) },
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

// render returns what `kubectl apply -k` would send for a folder of deploy/.
func render(t *testing.T, folder string) *cluster {
	t.Helper()
	made, err := krusty.MakeKustomizer(krusty.MakeDefaultOptions()).Run(filesys.MakeFsOnDisk(), filepath.Join(root, "deploy", folder))
	if err != nil {
		t.Fatalf("kustomize %s: %v", folder, err)
	}
	text, err := made.AsYaml()
	if err != nil {
		t.Fatal(err)
	}
	var c cluster
	for _, document := range documents(text) {
		object, err := decode(document)
		if err != nil {
			t.Fatalf("%s: %v\n%s", folder, err, document)
		}
		c.add(object)
	}
	return &c
}

// configuration is the file that fetchd reads with --config. It is not a manifest.
const configuration = "fetchd.yaml"

// folders are those of deploy/ that kubectl applies.
var folders = []string{"kubernetes", "kubernetes-tls", "kubernetes-frontier", "prometheus-operator"}

func TestEveryDocumentIsDecodedStrictly(t *testing.T) {
	for _, folder := range folders {
		files, err := filepath.Glob(filepath.Join(root, "deploy", folder, "*"))
		if err != nil || len(files) == 0 {
			t.Fatalf("no files in deploy/%s: %v", folder, err)
		}
		for _, file := range files {
			if filepath.Base(file) == configuration {
				continue
			}
			t.Run(folder+"/"+filepath.Base(file), func(t *testing.T) {
				for i, document := range documents(read(t, file)) {
					if _, err := decode(document); err != nil {
						t.Errorf("document %d: %v", i+1, err)
					}
				}
			})
		}
	}
}

// kubectl does not apply a file that is missing in the kustomization of its folder.
func TestEveryFileIsNamedInTheKustomization(t *testing.T) {
	for _, folder := range folders {
		text := string(read(t, filepath.Join(root, "deploy", folder, "kustomization.yaml")))
		files, _ := filepath.Glob(filepath.Join(root, "deploy", folder, "*"))
		for _, file := range files {
			name := filepath.Base(file)
			if name != "kustomization.yaml" && !strings.Contains(text, " "+name+"\n") {
				t.Errorf("deploy/%s/%s is not in its kustomization.yaml", folder, name)
			}
		}
	}
}

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
