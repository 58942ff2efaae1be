package manifests

import (
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/util/intstr"
)

func TestManifestsFitTogether(t *testing.T) {
	known := flagsOf(t)
	for _, release := range []string{"fetchd", "fetchd, TLS"} {
		t.Run(release, func(t *testing.T) {
			for _, fault := range render(t, release).check(known, sizing(t)) {
				t.Error(fault)
			}
		})
	}
}

// TestInconsistenciesAreFound breaks one thing per row.
func TestInconsistenciesAreFound(t *testing.T) {
	known := []string{"config", "grpc-addr", "http-addr", "allow-plaintext", "max-fetches", "max-fetches-per-caller", "drain-time", "log-level", "log-format"}
	page := sizing(t)
	if faults := render(t, "fetchd").check(known, page); len(faults) > 0 {
		t.Fatalf("the chart is inconsistent before the test breaks it: %q", faults)
	}
	for _, row := range []struct {
		name  string
		spoil func(*cluster)
		want  string
	}{
		{"a Service that selects no pod", func(c *cluster) { c.services[0].Spec.Selector = map[string]string{"app": "fetch"} }, "does not match the pod's labels"},
		{"a Service to a port that is not there", func(c *cluster) { c.services[0].Spec.Ports[0].TargetPort = intstr.FromString("rpc") }, "has no port rpc"},
		{"no headless Service", func(c *cluster) {
			for _, s := range c.services {
				s.Spec.ClusterIP = ""
			}
		}, "no headless Service"},
		{"a pod that its Deployment does not select", func(c *cluster) { c.template().Labels = map[string]string{"app": "fetch"} }, "Deployment: selector"},
		{"a probe of a port that is not there", func(c *cluster) { c.box().LivenessProbe.GRPC.Port = 9 }, "has no port 9"},
		{"no readiness probe", func(c *cluster) { c.box().ReadinessProbe = nil }, "no readiness probe"},
		{"a budget for nobody", func(c *cluster) { c.budgets[0].Spec.Selector.MatchLabels["app.kubernetes.io/name"] = "x" }, "PodDisruptionBudget: selector"},
		{"an autoscaler of nothing", func(c *cluster) { c.scalers[0].Spec.ScaleTargetRef.Name = "x" }, "which is not there"},
		{"an autoscaler that comes too late", func(c *cluster) {
			c.scalers[0].Spec.Metrics[0].Pods.Target.AverageValue = resource.NewQuantity(2000, resource.DecimalSI)
		}, "is not under max-fetches"},
		{"replicas beside an autoscaler", func(c *cluster) { c.deployments[0].Spec.Replicas = new(int32) }, "sets replicas"},
		{"a setting that is no flag", func(c *cluster) { c.configs[0].Data[configuration] += "\nmax-fetchs: 1\n" }, "no flag --max-fetchs"},
		{"a setting given twice", func(c *cluster) { c.configs[0].Data[configuration] += "\nmax-fetches: 1\n" }, "already set"},
		{"an argument that is no flag", func(c *cluster) { c.box().Args = []string{"--konfig=x"} }, "no flag --konfig"},
		{"a variable that is no flag", func(c *cluster) { c.setenv("FETCHD_MAX_FETCHS", "1") }, "the variable of no flag"},
		{"no memory limit", func(c *cluster) { delete(c.box().Resources.Limits, corev1.ResourceMemory) }, "no memory limit"},
		{"a memory limit without a row in the docs", func(c *cluster) {
			c.box().Resources.Limits[corev1.ResourceMemory] = resource.MustParse("768Mi")
		}, "no row for a memory limit of 768 MiB"},
		{"GOMEMLIMIT, which fetchd derives", func(c *cluster) { c.setenv("GOMEMLIMIT", "900MiB") }, "GOMEMLIMIT is the variable of no flag"},
		{"a kill before the drain is over", func(c *cluster) { *c.template().Spec.TerminationGracePeriodSeconds = 35 }, "is not 5 s longer"},
		{"a ConfigMap that is not there", func(c *cluster) { c.template().Spec.Volumes[0].ConfigMap.Name = "x" }, "no ConfigMap x"},
		{"a root that can be written to", func(c *cluster) { *c.box().SecurityContext.ReadOnlyRootFilesystem = false }, "can be written to"},
		{"a capability", func(c *cluster) { c.box().SecurityContext.Capabilities.Add = []corev1.Capability{"NET_RAW"} }, "has capabilities"},
		{"root", func(c *cluster) { *c.template().Spec.SecurityContext.RunAsUser = 0 }, "does not run as 65532"},
		{"a token", func(c *cluster) { c.template().Spec.AutomountServiceAccountToken = nil }, "mounts a token"},
		{"links to Services", func(c *cluster) { c.template().Spec.EnableServiceLinks = nil }, "enableServiceLinks"},
		{"another namespace", func(c *cluster) { c.services[0].Namespace = "x" }, `namespace "x"`},
		{"ingress for everyone", func(c *cluster) { c.policies[0].Spec.Ingress[0].From = nil }, "lets in everyone"},
		{"egress to everything", func(c *cluster) { c.policies[0].Spec.Egress[0].To = nil }, "lets out everything"},
		{"egress to the metadata service", func(c *cluster) {
			block := c.policies[0].Spec.Egress[1].To[0].IPBlock
			block.Except = slices.DeleteFunc(block.Except, func(s string) bool { return s == "169.254.0.0/16" })
		}, "reaches 169.254.169.254"},
	} {
		t.Run(row.name, func(t *testing.T) {
			c := render(t, "fetchd")
			row.spoil(c)
			faults := c.check(known, page)
			if !slices.ContainsFunc(faults, func(f string) bool { return strings.Contains(f, row.want) }) {
				t.Errorf("got faults %q, want one with %q", faults, row.want)
			}
		})
	}
}
