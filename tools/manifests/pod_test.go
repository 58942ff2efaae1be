package manifests

import (
	"fmt"
	"maps"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"sigs.k8s.io/yaml"
)

func (c *cluster) checkPod(pod *corev1.PodSpec) {
	c.expect(slices.ContainsFunc(c.accounts, func(a *corev1.ServiceAccount) bool {
		return a.Name == pod.ServiceAccountName && isFalse(a.AutomountServiceAccountToken)
	}), "pod: no ServiceAccount %q without a token", pod.ServiceAccountName)
	c.expect(isFalse(pod.AutomountServiceAccountToken), "pod: it mounts a token of the API server")
	c.expect(isFalse(pod.EnableServiceLinks), "pod: enableServiceLinks puts FETCHD_… into the environment")
	s := pod.SecurityContext
	c.expect(s != nil && isTrue(s.RunAsNonRoot) && s.RunAsUser != nil && *s.RunAsUser == 65532, "pod: it does not run as 65532")
	c.expect(s != nil && s.SeccompProfile != nil && s.SeccompProfile.Type == corev1.SeccompProfileTypeRuntimeDefault, "pod: seccomp is not RuntimeDefault")
	c.expect(!pod.HostNetwork && !pod.HostPID && !pod.HostIPC, "pod: it shares a namespace with the host")
	for _, v := range pod.Volumes {
		switch {
		case v.ConfigMap != nil:
			c.expect(c.config(v.ConfigMap.Name) != nil, "pod: volume %s: no ConfigMap %s", v.Name, v.ConfigMap.Name)
		case v.EmptyDir != nil:
			c.expect(v.EmptyDir.SizeLimit != nil, "pod: volume %s can fill the node's disk", v.Name)
		case v.Secret != nil:
			c.expect(slices.Contains(secrets, v.Secret.SecretName), "pod: volume %s: Secret %s is not one the operator is told of", v.Name, v.Secret.SecretName)
		default:
			c.fault("pod: volume %s is neither a ConfigMap, a Secret nor an emptyDir", v.Name)
		}
	}
}

func (c *cluster) config(name string) *corev1.ConfigMap {
	for _, m := range c.configs {
		if m.Name == name {
			return m
		}
	}
	return nil
}

// settings returns the file that fetchd reads with --config.
func (c *cluster) settings() map[string]any {
	made := map[string]any{}
	for _, m := range c.configs {
		if err := yaml.UnmarshalStrict([]byte(m.Data[configuration]), &made); err != nil {
			c.fault("%s: %v", configuration, err)
		}
	}
	return made
}

func (c *cluster) checkContainer(d *appsv1.Deployment, known []string) {
	pod := d.Spec.Template.Spec
	c.expect(len(pod.Containers) == 1, "%d containers, want one", len(pod.Containers))
	box := pod.Containers[0]
	c.checkConfined(&box)
	c.expect(len(pod.TopologySpreadConstraints) > 0, "pod: replicas are not spread")

	set := c.settings()
	c.expect(len(set) > 0, "no %s in a ConfigMap", configuration)
	for _, key := range slices.Sorted(maps.Keys(set)) {
		c.expect(slices.Contains(known, key), "%s: fetchd has no flag --%s", configuration, key)
	}
	for _, e := range box.Env {
		c.expect(isVariable(e.Name, known), "container: %s is the variable of no flag", e.Name)
	}
	for _, arg := range box.Args {
		name, _, _ := strings.Cut(strings.TrimPrefix(arg, "--"), "=")
		c.expect(strings.HasPrefix(arg, "--") && slices.Contains(known, name), "container: fetchd has no flag %s", arg)
	}
	for _, m := range box.VolumeMounts {
		c.expect(m.ReadOnly, "container: %s can be written to", m.MountPath)
		c.expect(slices.ContainsFunc(pod.Volumes, func(v corev1.Volume) bool { return v.Name == m.Name }), "container: no volume %s", m.Name)
	}
	for _, p := range box.Ports {
		address, _ := set[p.Name+"-addr"].(string)
		c.expect(address == fmt.Sprintf(":%d", p.ContainerPort), "%s: %s-addr is %q, and the container's port is %d", configuration, p.Name, address, p.ContainerPort)
	}
	for what, probe := range map[string]*corev1.Probe{"startup": box.StartupProbe, "readiness": box.ReadinessProbe, "liveness": box.LivenessProbe} {
		c.checkProbe(what, probe)
	}
	c.checkGrace(&pod, set)
}

func (c *cluster) checkConfined(box *corev1.Container) {
	s := box.SecurityContext
	c.expect(s != nil && isTrue(s.ReadOnlyRootFilesystem), "container: its root can be written to")
	c.expect(s != nil && isFalse(s.AllowPrivilegeEscalation), "container: it may gain privileges")
	c.expect(s != nil && s.Capabilities != nil && slices.Equal(s.Capabilities.Drop, []corev1.Capability{"ALL"}) && len(s.Capabilities.Add) == 0, "container: it has capabilities")
}

func (c *cluster) checkProbe(what string, probe *corev1.Probe) {
	switch {
	case probe == nil:
		c.fault("container: no %s probe", what)
	case probe.GRPC != nil && probe.Exec == nil && probe.TCPSocket == nil:
		c.port(what+" probe", intstr.FromInt32(probe.GRPC.Port))
	case probe.TCPSocket != nil && probe.GRPC == nil && probe.Exec == nil:
		c.port(what+" probe", probe.TCPSocket.Port)
		c.expect(what != "readiness", "%s probe: it does not ask for health", what)
	case probe.Exec != nil && probe.GRPC == nil && probe.TCPSocket == nil:
		c.expect(slices.Contains(probe.Exec.Command, "healthcheck"), "%s probe: it does not ask for health", what)
		c.expect(probe.TimeoutSeconds > 3 || what != "readiness", "%s probe: healthcheck takes up to 3 s", what)
	default:
		c.fault("%s probe: want either grpc, exec or tcpSocket", what)
	}
}

// checkGrace checks the grace period. The kubelet includes preStop in it.
func (c *cluster) checkGrace(pod *corev1.PodSpec, set map[string]any) {
	text, _ := set["drain-time"].(string)
	drain, err := time.ParseDuration(text)
	c.expect(err == nil, "%s: drain-time: %v", configuration, err)
	if l := pod.Containers[0].Lifecycle; l != nil && l.PreStop != nil && l.PreStop.Sleep != nil {
		drain += time.Duration(l.PreStop.Sleep.Seconds) * time.Second
	}
	grace := time.Duration(0)
	if pod.TerminationGracePeriodSeconds != nil {
		grace = time.Duration(*pod.TerminationGracePeriodSeconds) * time.Second
	}
	c.expect(grace >= drain+5*time.Second, "pod: grace period %s is not 5 s longer than preStop and drain-time, %s", grace, drain)
}

// checkMemory checks the memory limit, from which fetchd derives its budget.
func (c *cluster) checkMemory(page string) {
	limit := c.box().Resources.Limits.Memory().Value()
	c.expect(limit > 0, "container: it has no memory limit")
	err := named(page, limit)
	c.expect(err == nil, "container: %v", err)
}

// named returns an error if no table row on the page starts with the memory limit.
func named(page string, limit int64) error {
	text := fmt.Sprintf("%d MiB", limit>>20)
	if limit%(1<<30) == 0 {
		text = fmt.Sprintf("%d GiB", limit>>30)
	}
	if !strings.Contains(page, "\n| "+text+" |") {
		return fmt.Errorf("docs/operating.md, \"Size it\", has no row for a memory limit of %s", text)
	}
	return nil
}

// sizing returns the section of the docs about the memory that deploy/ configures.
func sizing(t *testing.T) string {
	t.Helper()
	_, rest, found := strings.Cut(string(read(t, filepath.Join(root, "docs/operating.md"))), "\n## Size it\n")
	section, _, ends := strings.Cut(rest, "\n## ")
	if !found || !ends {
		t.Fatal(`docs/operating.md has no section "Size it"`)
	}
	return section
}

func isTrue(b *bool) bool  { return b != nil && *b }
func isFalse(b *bool) bool { return b != nil && !*b }

func asInt(v any) int64 {
	f, _ := v.(float64)
	return int64(f)
}
