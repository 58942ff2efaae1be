package hostile

import (
	"errors"
	"net"
	"net/http"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"syscall"
	"testing"

	"fetchd/classify"
	"fetchd/fetch"
	"fetchd/test/need"
)

// TestSearchList checks names on a system with a search list, as in a cluster's pods. The name
// that is resolved must be exactly the name that the guard checked.
func TestSearchList(t *testing.T) {
	if os.Getenv(insideVariable) == "" {
		runInside(t)
		return
	}
	r, err := newRig(t)
	if err == nil {
		err = enterSystem(t, map[string]string{
			"resolv.conf": "nameserver 127.0.0.53\nsearch svc.cluster.local inner.test\noptions ndots:5\n",
			"hosts":       "127.0.0.1 localhost\n" + permitted + " listed listed.prod\n",
		})
	}
	if err != nil {
		need.Missing(t, "run it as root", "this network namespace cannot be used: %v", err)
	}
	for _, name := range []string{"redis.prod.svc.cluster.local", "redis.svc.cluster.local", "closed.inner.test", "www.public.test", "single"} {
		r.dns.Set(name, is(permitted))
	}
	allow := fetch.Egress{AllowCIDRs: []netip.Prefix{netip.MustParsePrefix(permitted + "/32")}, DenyHosts: []string{"*.inner.test"}}
	r.client = newClient(t, allow)
	t.Run("the search list is in force", r.testSearched)
	notFound := want{classify.DNSNotFound, "", 0, 3}
	for _, row := range []struct {
		name, host string
		asked      []string
		want       want
	}{
		{"two labels of a cluster's service", "redis.prod", []string{"redis.prod"}, notFound},
		{"one label of a cluster's service", "redis", []string{"redis"}, notFound},
		{"one label of a denied name", "closed", []string{"closed"}, notFound},
		{"the denied name", "closed.inner.test", nil, want{classify.TargetBlocked, "name_denied", 0, 1}},
		{"a whole name", "www.public.test", []string{"www.public.test"}, reached},
		{"a whole name with its dot", "www.public.test.", []string{"www.public.test"}, reached},
		{"one label that there is", "single", []string{"single"}, reached},
		{"one label in the file of hosts", "listed", nil, reached},
		{"two labels in the file of hosts", "listed.prod", nil, reached},
		{"localhost", "localhost", nil, blockedAddress},
		{"an address", permitted, nil, reached},
	} {
		t.Run(row.name, func(t *testing.T) {
			u := mustParse(t, "http://"+row.host+"/")
			r.dns.Forget()
			out := r.fetch(t, r.client, http.MethodGet, u)
			var got fetch.Failure
			if out.Failure != nil {
				got = *out.Failure
			}
			if got.Class != row.want.class || got.Reason != row.want.reason || out.Attempts != row.want.attempts {
				t.Errorf("class %s, reason %q, %d attempts, want %+v", got.Class, got.Reason, out.Attempts, row.want)
			}
			if asked := r.dns.Forget(); !slices.Equal(asked, row.asked) {
				t.Errorf("a fetch resolved %q, want %q", asked, row.asked)
			}
			_, err := r.client.CheckTarget(t.Context(), u, nil, nil)
			if missing := row.want.class == classify.DNSNotFound; (err != nil) != missing {
				t.Errorf("CheckTarget: %v, want an error: %t", err, missing)
			}
			if failed, ok := errors.AsType[*net.DNSError](err); ok && failed.Name != row.host {
				t.Errorf("CheckTarget: %v, want it to name %s", err, row.host)
			}
			if asked := r.dns.Forget(); !slices.Equal(asked, row.asked) {
				t.Errorf("CheckTarget resolved %q, want %q", asked, row.asked)
			}
		})
	}
}

// testSearched checks that the system would resolve the name through its search list.
func (r *rig) testSearched(t *testing.T) {
	for _, name := range []string{"redis.prod", "redis", "closed"} {
		if addrs, err := fetch.Resolver(nameServer).LookupHost(t.Context(), name); err != nil || !slices.Equal(addrs, []string{permitted}) {
			t.Errorf("%s: %q, %v, want %s, or this test proves nothing", name, addrs, err, permitted)
		}
	}
}

// enterSystem replaces /etc for this process by the given files until the test ends. Go has
// not read them before, because no name was resolved yet.
func enterSystem(t *testing.T, etc map[string]string) error {
	t.Helper()
	dir := t.TempDir()
	if err := os.Mkdir(filepath.Join(dir, "etc"), 0o755); err != nil {
		return err
	}
	for name, text := range etc {
		if err := os.WriteFile(filepath.Join(dir, "etc", name), []byte(text), 0o644); err != nil {
			return err
		}
	}
	root, err := os.Open("/")
	if err != nil {
		return err
	}
	t.Cleanup(func() {
		if err := errors.Join(root.Chdir(), syscall.Chroot("."), root.Close()); err != nil {
			t.Errorf("leave the test's own system: %v", err)
		}
	})
	return syscall.Chroot(dir)
}
