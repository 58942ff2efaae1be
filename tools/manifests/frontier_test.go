package manifests

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
)

// checkFrontier returns the inconsistencies of a release with pods of frontier. flags are those of each
// command.
func (c *cluster) checkFrontier(flags map[string][]string) []string {
	c.faults = nil
	if len(c.deployments) != 1 || len(c.namespaces) != 1 || len(c.policies) != 1 {
		return []string{fmt.Sprintf("%d Deployments, %d Namespaces, %d NetworkPolicies, want one of each", len(c.deployments), len(c.namespaces), len(c.policies))}
	}
	pod := &c.template().Spec
	c.checkNamespaces()
	c.selects("Deployment", c.deployments[0].Spec.Selector, c.template().Labels)
	c.selects("NetworkPolicy", &c.policies[0].Spec.PodSelector, c.template().Labels)
	c.checkPod(pod)
	for _, box := range slices.Concat(pod.InitContainers, pod.Containers) {
		c.checkFrontierBox(&box, flags)
	}
	for _, p := range c.box().Ports {
		c.expect(slices.Contains(c.box().Args, fmt.Sprintf("--%s-addr=:%d", p.Name, p.ContainerPort)), "container: no flag opens the port %s", p.Name)
	}
	for _, rule := range c.policies[0].Spec.Ingress {
		c.expect(len(rule.From) > 0 && len(rule.Ports) > 0, "NetworkPolicy: an ingress rule lets in everyone")
		for _, port := range rule.Ports {
			c.port("NetworkPolicy", *port.Port)
		}
	}
	for _, rule := range c.policies[0].Spec.Egress {
		c.expect(len(rule.To) > 0 && len(rule.Ports) > 0, "NetworkPolicy: an egress rule lets out everything")
		for _, to := range rule.To {
			c.expect(to.IPBlock == nil, "NetworkPolicy: a pod reaches the internet without fetchd")
		}
	}
	return c.faults
}

// checkWorkers returns the inconsistencies of the workers. service is the cluster with
// fetchd.
func (c *cluster) checkWorkers(flags map[string][]string, service *cluster) []string {
	if faults := c.checkFrontier(flags); len(faults) > 0 {
		return faults
	}
	pod := &c.template().Spec
	c.expect(c.template().Labels["fetchd-caller"] == "true", "pod: the network policy of fetchd blocks it")
	c.expect(pod.TerminationGracePeriodSeconds != nil && *pod.TerminationGracePeriodSeconds >= 35, "pod: the grace period is not 5 s longer than the drain time of 30 s")
	c.expect(len(pod.InitContainers) == 1 && pod.InitContainers[0].Args[0] == "add", "pod: no container creates the database")
	address := fmt.Sprintf("--server=dns:///%s.%s.svc:%d", service.services[0].Name, service.namespaces[0].Name, service.services[0].Spec.Ports[0].Port)
	c.expect(slices.Contains(c.box().Args, address), "container: want %s", address)
	return c.faults
}

// checkAPI returns the inconsistencies of the API of the frontier.
func (c *cluster) checkAPI(flags map[string][]string) []string {
	if faults := c.checkFrontier(flags); len(faults) > 0 {
		return faults
	}
	c.checkSelectors(c.deployments[0])
	box := c.box()
	for what, probe := range map[string]*corev1.Probe{"startup": box.StartupProbe, "readiness": box.ReadinessProbe, "liveness": box.LivenessProbe} {
		c.checkProbe(what, probe)
	}
	settings := map[string]any{}
	for _, arg := range box.Args {
		if name, value, _ := strings.Cut(arg, "="); name == "--drain-time" {
			settings["drain-time"] = value
		}
	}
	c.checkGrace(&c.template().Spec, settings)
	return c.faults
}

func (c *cluster) checkFrontierBox(box *corev1.Container, flags map[string][]string) {
	c.checkConfined(box)
	for _, e := range box.Env {
		if e.ValueFrom == nil || e.ValueFrom.SecretKeyRef == nil {
			c.fault("container: variable %s", e.Name)
			continue
		}
		c.expect(slices.Contains(secrets, e.ValueFrom.SecretKeyRef.Name), "container: the Secret of %s is not one that the operator creates", e.Name)
	}
	c.expect(box.Resources.Limits.Memory().Value() > 0, "container: it has no memory limit")
	for _, arg := range box.Args[1:] {
		name, _, _ := strings.Cut(arg, "=")
		if long, ok := strings.CutPrefix(name, "--"); ok {
			c.expect(slices.Contains(flags[box.Args[0]], long), "container: frontier %s has no flag %s", box.Args[0], name)
		}
	}
	c.expect(flags[box.Args[0]] != nil, "container: frontier has no command %s", box.Args[0])
}

func TestWorkers(t *testing.T) {
	flags := map[string][]string{"add": flagsOfCommand(t, "frontier", "add"), "crawl": flagsOfCommand(t, "frontier", "crawl")}
	service := render(t, "fetchd")
	for _, fault := range render(t, "frontier").checkWorkers(flags, service) {
		t.Error(fault)
	}
	for _, row := range []struct {
		name  string
		spoil func(*cluster)
		want  string
	}{
		{"a flag that is not there", func(c *cluster) { c.box().Args[1] = "--endles" }, "no flag --endles"},
		{"a command that is not there", func(c *cluster) { c.box().Args[0] = "start" }, "no command start"},
		{"another fetchd", func(c *cluster) { c.box().Args[3] = "--server=fetchd:8080" }, "want --server=dns:///fetchd.fetchd.svc:8080"},
		{"a port that no flag opens", func(c *cluster) { c.box().Ports[0].ContainerPort = 9 }, "no flag opens the port metrics"},
		{"a pod that fetchd does not know", func(c *cluster) { delete(c.template().Labels, "fetchd-caller") }, "blocks it"},
		{"no database", func(c *cluster) { c.template().Spec.InitContainers = nil }, "creates the database"},
		{"a Secret that is not there", func(c *cluster) { c.box().Env[0].ValueFrom.SecretKeyRef.Name = "x" }, "not one that the operator creates"},
		{"no memory limit", func(c *cluster) { delete(c.box().Resources.Limits, corev1.ResourceMemory) }, "no memory limit"},
		{"a kill before the drain is over", func(c *cluster) { *c.template().Spec.TerminationGracePeriodSeconds = 30 }, "is not 5 s longer"},
		{"a root that can be written to", func(c *cluster) { *c.box().SecurityContext.ReadOnlyRootFilesystem = false }, "can be written to"},
		{"a volume without a limit", func(c *cluster) { c.template().Spec.Volumes[0].EmptyDir.SizeLimit = nil }, "can fill the node's disk"},
		{"root", func(c *cluster) { *c.template().Spec.SecurityContext.RunAsUser = 0 }, "does not run as 65532"},
		{"egress to everything", func(c *cluster) { c.policies[0].Spec.Egress[0].To = nil }, "lets out everything"},
	} {
		t.Run(row.name, func(t *testing.T) {
			c := render(t, "frontier")
			row.spoil(c)
			if faults := c.checkWorkers(flags, service); !slices.ContainsFunc(faults, func(f string) bool { return strings.Contains(f, row.want) }) {
				t.Errorf("got faults %q, want one with %q", faults, row.want)
			}
		})
	}
}

func TestAPI(t *testing.T) {
	flags := map[string][]string{"serve": flagsOfCommand(t, "frontier", "serve")}
	for _, fault := range render(t, "frontier-api").checkAPI(flags) {
		t.Error(fault)
	}
	for _, row := range []struct {
		name  string
		spoil func(*cluster)
		want  string
	}{
		{"a flag that is not there", func(c *cluster) { c.box().Args[3] = "--plaintext" }, "no flag --plaintext"},
		{"a port that no flag opens", func(c *cluster) { c.box().Args[1] = "--grpc-addr=:9" }, "no flag opens the port grpc"},
		{"a probe of a port that is not there", func(c *cluster) { c.box().LivenessProbe.GRPC.Port = 9 }, "has no port 9"},
		{"no readiness probe", func(c *cluster) { c.box().ReadinessProbe = nil }, "no readiness probe"},
		{"a Service that selects no pod", func(c *cluster) { c.services[0].Spec.Selector = map[string]string{"app": "x"} }, "does not match the pod's labels"},
		{"a kill before the drain is over", func(c *cluster) { *c.template().Spec.TerminationGracePeriodSeconds = 19 }, "is not 5 s longer"},
		{"ingress for everyone", func(c *cluster) { c.policies[0].Spec.Ingress[0].From = nil }, "lets in everyone"},
		{"ingress to a port that is not there", func(c *cluster) { c.policies[0].Spec.Ingress[0].Ports[0].Port.StrVal = "rpc" }, "has no port rpc"},
		{"no memory limit", func(c *cluster) { delete(c.box().Resources.Limits, corev1.ResourceMemory) }, "no memory limit"},
		{"a Secret that is not there", func(c *cluster) { c.box().Env[0].ValueFrom.SecretKeyRef.Name = "x" }, "not one that the operator creates"},
	} {
		t.Run(row.name, func(t *testing.T) {
			c := render(t, "frontier-api")
			row.spoil(c)
			if faults := c.checkAPI(flags); !slices.ContainsFunc(faults, func(f string) bool { return strings.Contains(f, row.want) }) {
				t.Errorf("got faults %q, want one with %q", faults, row.want)
			}
		})
	}
}
