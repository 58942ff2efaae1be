package manifests

import (
	"fmt"
	"net/netip"
	"slices"

	appsv1 "k8s.io/api/apps/v1"
	autoscalingv2 "k8s.io/api/autoscaling/v2"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	policyv1 "k8s.io/api/policy/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/util/intstr"
)

// cluster has the objects of one release, or of one folder.
type cluster struct {
	namespaces  []*corev1.Namespace
	accounts    []*corev1.ServiceAccount
	configs     []*corev1.ConfigMap
	services    []*corev1.Service
	deployments []*appsv1.Deployment
	budgets     []*policyv1.PodDisruptionBudget
	scalers     []*autoscalingv2.HorizontalPodAutoscaler
	policies    []*networkingv1.NetworkPolicy
	monitors    []*podMonitor
	alerts      []*prometheusRule

	objects []metav1.Object // all objects in the namespace
	faults  []string
}

func (c *cluster) add(object any) {
	if o, ok := object.(metav1.Object); ok {
		if _, itself := object.(*corev1.Namespace); !itself {
			c.objects = append(c.objects, o)
		}
	}
	switch o := object.(type) {
	case *corev1.Namespace:
		c.namespaces = append(c.namespaces, o)
	case *corev1.ServiceAccount:
		c.accounts = append(c.accounts, o)
	case *corev1.ConfigMap:
		c.configs = append(c.configs, o)
	case *corev1.Service:
		c.services = append(c.services, o)
	case *appsv1.Deployment:
		c.deployments = append(c.deployments, o)
	case *policyv1.PodDisruptionBudget:
		c.budgets = append(c.budgets, o)
	case *autoscalingv2.HorizontalPodAutoscaler:
		c.scalers = append(c.scalers, o)
	case *networkingv1.NetworkPolicy:
		c.policies = append(c.policies, o)
	case *podMonitor:
		c.monitors = append(c.monitors, o)
	case *prometheusRule:
		c.alerts = append(c.alerts, o)
	}
}

func (c *cluster) fault(format string, args ...any) {
	c.faults = append(c.faults, fmt.Sprintf(format, args...))
}

func (c *cluster) expect(ok bool, format string, args ...any) {
	if !ok {
		c.fault(format, args...)
	}
}

// secrets are created by the operator, not by a file here.
var secrets = []string{"fetchd-tls", "frontier-database"}

// check returns the inconsistencies. known are the flags of fetchd, and page is the section of
// the docs about memory.
func (c *cluster) check(known []string, page string) []string {
	c.faults = nil
	if len(c.deployments) != 1 || len(c.namespaces) != 1 {
		return []string{fmt.Sprintf("%d Deployments and %d Namespaces, want one of each", len(c.deployments), len(c.namespaces))}
	}
	d := c.deployments[0]
	c.checkNamespaces()
	c.checkSelectors(d)
	c.checkScaler(d)
	c.checkPod(&d.Spec.Template.Spec)
	c.checkContainer(d, known)
	c.checkMemory(page)
	c.checkWalls()
	return c.faults
}

func (c *cluster) checkNamespaces() {
	want := c.namespaces[0].Name
	for _, o := range c.objects {
		c.expect(o.GetNamespace() == want, "%T %s: namespace %q, want %q", o, o.GetName(), o.GetNamespace(), want)
	}
}

func (c *cluster) checkSelectors(d *appsv1.Deployment) {
	pod := labels.Set(d.Spec.Template.Labels)
	c.selects("Deployment", d.Spec.Selector, pod)
	for _, b := range c.budgets {
		c.selects("PodDisruptionBudget", b.Spec.Selector, pod)
	}
	for _, p := range c.policies {
		c.selects("NetworkPolicy", &p.Spec.PodSelector, pod)
	}
	for _, spread := range d.Spec.Template.Spec.TopologySpreadConstraints {
		c.selects("topology spread", spread.LabelSelector, pod)
	}
	headless := false
	for _, s := range c.services {
		c.expect(len(s.Spec.Selector) > 0 && labels.SelectorFromSet(s.Spec.Selector).Matches(pod),
			"Service %s: selector %v does not match the pod's labels %v", s.Name, s.Spec.Selector, pod)
		headless = headless || s.Spec.ClusterIP == corev1.ClusterIPNone
		for _, p := range s.Spec.Ports {
			c.port("Service "+s.Name, p.TargetPort)
		}
	}
	c.expect(headless, "no headless Service: clients cannot see the replicas")
	c.expect(len(c.budgets) == 1 && len(c.policies) == 1, "want one PodDisruptionBudget and one NetworkPolicy")
}

func (c *cluster) selects(what string, selector *metav1.LabelSelector, pod labels.Set) {
	s, err := metav1.LabelSelectorAsSelector(selector)
	c.expect(err == nil && s != nil && !s.Empty() && s.Matches(pod), "%s: selector %v does not match the pod's labels %v (%v)", what, selector, pod, err)
}

// port checks that the container declares a referenced port.
func (c *cluster) port(what string, port intstr.IntOrString) {
	for _, p := range c.deployments[0].Spec.Template.Spec.Containers[0].Ports {
		if port.String() == p.Name || port.IntVal == p.ContainerPort && port.Type == intstr.Int {
			return
		}
	}
	c.fault("%s: the container has no port %s", what, port.String())
}

func (c *cluster) checkScaler(d *appsv1.Deployment) {
	c.expect(d.Spec.Replicas == nil, "Deployment: it sets replicas, which the autoscaler does")
	for _, h := range c.scalers {
		ref := h.Spec.ScaleTargetRef
		c.expect(ref.APIVersion == "apps/v1" && ref.Kind == "Deployment" && ref.Name == d.Name, "HorizontalPodAutoscaler: it scales %v, which is not there", ref)
		c.expect(h.Spec.MinReplicas != nil && *h.Spec.MinReplicas >= 2, "HorizontalPodAutoscaler: fewer than two replicas are no service")
		for _, m := range h.Spec.Metrics {
			if m.Pods == nil {
				continue
			}
			limit := asInt(c.settings()["max-fetches"])
			target := m.Pods.Target.AverageValue.Value()
			c.expect(target > 0 && target < limit, "HorizontalPodAutoscaler: target %d is not under max-fetches %d", target, limit)
		}
	}
	c.expect(len(c.scalers) == 1, "%d autoscalers, want one", len(c.scalers))
}

// inside are addresses that the network policy must block.
var inside = []string{"10.0.0.1", "127.0.0.1", "169.254.169.254", "172.16.0.1", "192.168.1.1", "100.64.0.1", "0.0.0.0", "224.0.0.1", "255.255.255.255", "::1", "fd00::1", "fe80::1", "ff02::1", "::ffff:10.0.0.1", "64:ff9b::a00:1", "2002:a00:1::"}

func (c *cluster) checkWalls() {
	for _, p := range c.policies {
		c.expect(slices.Contains(p.Spec.PolicyTypes, networkingv1.PolicyTypeIngress) && slices.Contains(p.Spec.PolicyTypes, networkingv1.PolicyTypeEgress),
			"NetworkPolicy: want Ingress and Egress, got %v", p.Spec.PolicyTypes)
		for _, rule := range p.Spec.Ingress {
			c.expect(len(rule.From) > 0 && len(rule.Ports) > 0, "NetworkPolicy: an ingress rule lets in everyone")
			for _, port := range rule.Ports {
				c.port("NetworkPolicy", *port.Port)
			}
		}
		public := false
		for _, rule := range p.Spec.Egress {
			c.expect(len(rule.To) > 0 && len(rule.Ports) > 0, "NetworkPolicy: an egress rule lets out everything")
			for _, to := range rule.To {
				if to.IPBlock != nil {
					public = c.checkBlock(to.IPBlock) || public
				}
			}
		}
		c.expect(public, "NetworkPolicy: the internet is not reached")
	}
}

// checkBlock reports whether the block reaches a public address.
func (c *cluster) checkBlock(block *networkingv1.IPBlock) bool {
	whole, err := netip.ParsePrefix(block.CIDR)
	if err != nil {
		c.fault("NetworkPolicy: %v", err)
		return false
	}
	var out []netip.Prefix
	for _, text := range block.Except {
		p, err := netip.ParsePrefix(text)
		c.expect(err == nil && p == p.Masked() && whole.Bits() <= p.Bits() && whole.Contains(p.Addr()), "NetworkPolicy: except %s is not inside %s (%v)", text, whole, err)
		out = append(out, p)
	}
	reaches := func(text string) bool {
		a := netip.MustParseAddr(text)
		return whole.Contains(a) && !slices.ContainsFunc(out, func(p netip.Prefix) bool { return p.Contains(a) })
	}
	for _, a := range inside {
		c.expect(!reaches(a), "NetworkPolicy: %s reaches %s", whole, a)
	}
	return reaches("1.1.1.1") || reaches("2606:4700::1111")
}

func (c *cluster) template() *corev1.PodTemplateSpec { return &c.deployments[0].Spec.Template }
func (c *cluster) box() *corev1.Container            { return &c.template().Spec.Containers[0] }

// setenv adds a variable to the container's environment.
func (c *cluster) setenv(name, value string) {
	c.box().Env = append(c.box().Env, corev1.EnvVar{Name: name, Value: value})
}
