package hostile

import (
	"fmt"
	"net"
	"net/http"
	"net/url"
	"os"
	"strconv"
	"strings"
	"testing"

	"fetchd/classify"
	"fetchd/conformance/space"
	"fetchd/fetch"
	"fetchd/fetch/urls"
	"fetchd/test/need"
)

// none is the class of a fetch that did not fail.
const none = classify.NoClass

// TestHostileTargets checks that no target of an attacker causes a connection to an address
// that is not allowed (spec P1).
func TestHostileTargets(t *testing.T) {
	if os.Getenv(insideVariable) == "" {
		runInside(t)
		return
	}
	r, err := newRig(t)
	if err != nil {
		need.Missing(t, "run it as root", "this network namespace cannot own every address: %v", err)
	}
	hit := r.provePots(t)
	t.Run("addresses", r.testAddresses)
	t.Run("spellings", r.testSpellings)
	t.Run("names", r.testNames)
	t.Run("redirects", r.testRedirects)
	t.Run("tools", r.testTools)
	// When these connections are accepted, all earlier ones have been accepted too.
	for _, port := range honeypotPorts {
		for _, ip := range []string{"198.18.255.254", "fd00:ec2::ffff"} {
			hit++
			if err := dial(t.Context(), net.JoinHostPort(ip, strconv.Itoa(port))); err != nil {
				t.Fatal(err)
			}
		}
	}
	if hits := r.pots.await(hit); len(hits) != hit {
		t.Errorf("%d connections reached a forbidden address or port, want none except those of this test itself (%d):\n%q", len(hits)-hit, hit, hits)
	}
}

// provePots checks that the network answers everywhere and that the client could reach it. It
// returns how many connections it opened.
func (r *rig) provePots(t *testing.T) int {
	t.Helper()
	hit := 0
	for _, row := range addresses {
		for _, port := range honeypotPorts {
			err := dial(t.Context(), net.JoinHostPort(row.addr, strconv.Itoa(port)))
			if (err != nil) != row.dead {
				t.Errorf("%s, port %d: connected past the guard with error %v, want one: %t", row.addr, port, err, row.dead)
			}
			if err == nil {
				hit++
			}
		}
	}
	r.pots.await(hit)
	for _, public := range []string{"http://8.8.8.8/", "http://[2606:4700::1111]/"} {
		before := opened(t)
		out := r.fetch(t, r.zero, http.MethodGet, mustParse(t, public))
		if out.Failure == nil || out.Failure.Class == classify.TargetBlocked {
			t.Errorf("%s: failure %+v, want a failure to connect: the target is not forbidden", public, out.Failure)
		}
		began := opened(t) - before
		if began == 0 {
			t.Errorf("%s: no connection was opened, so this network tests nothing", public)
		}
		hit += began
		r.pots.await(hit)
	}
	return hit
}

// want is how a fetch must end.
type want struct {
	class     classify.Class
	reason    string
	exchanges int // with the origin, one for each connection
	attempts  int
}

// check runs a fetch and compares its end with w, and its connections with the kernel's count.
func (r *rig) check(t *testing.T, c *fetch.Client, method string, u *url.URL, w want) {
	t.Helper()
	before := opened(t)
	out := r.fetch(t, c, method, u)
	began := opened(t) - before
	var got fetch.Failure
	if out.Failure != nil {
		got = *out.Failure
	}
	if got.Class != w.class || got.Reason != w.reason {
		t.Errorf("%s: class %s, reason %q, want %s, %q", u, got.Class, got.Reason, w.class, w.reason)
	}
	if got.Class == classify.TargetBlocked && (got.Phase != classify.PhasePolicy || got.Rule != "P1" || got.Retryable) {
		t.Errorf("%s: phase %s, rule %s, retryable %t, want policy, P1, false", u, got.Phase, got.Rule, got.Retryable)
	}
	if out.Exchanges != w.exchanges || out.Attempts != w.attempts {
		t.Errorf("%s: %d exchanges, %d attempts, want %d, %d", u, out.Exchanges, out.Attempts, w.exchanges, w.attempts)
	}
	if began != w.exchanges {
		t.Errorf("%s: %d connections opened, want %d to the origin and no other", u, began, w.exchanges)
	}
}

func mustParse(t *testing.T, raw string) *url.URL {
	t.Helper()
	u, err := urls.Parse(raw)
	if err != nil {
		t.Fatalf("%s: %v", raw, err)
	}
	return u
}

// testAddresses fetches each address in its usual form, on the allowed ports.
func (r *rig) testAddresses(t *testing.T) {
	for _, row := range addresses {
		t.Run(row.name, func(t *testing.T) {
			host := row.addr
			if strings.Contains(host, ":") {
				host = "[" + host + "]"
			}
			for _, raw := range []string{"http://" + host + "/", "https://" + host + "/", fmt.Sprintf("http://%s:%d/", host, extraPort)} {
				r.check(t, r.client, http.MethodGet, mustParse(t, raw), want{classify.TargetBlocked, "address_not_allowed", 0, 1})
			}
			r.check(t, r.client, http.MethodPost, mustParse(t, "http://"+host+"/"), want{classify.TargetBlocked, "address_not_allowed", 0, 1})
			for _, port := range []string{"22", "8080"} {
				r.check(t, r.client, http.MethodGet, mustParse(t, "http://"+host+":"+port+"/"), want{classify.TargetBlocked, "port_not_allowed", 0, 1})
			}
			r.check(t, r.zero, http.MethodGet, mustParse(t, "http://"+host+"/"), want{classify.TargetBlocked, "address_not_allowed", 0, 1})
		})
	}
}

// testSpellings fetches addresses in other forms. It also fetches URLs that urls.Parse refuses,
// as a caller might that does not use urls.Parse. For these only the absence of connections is
// promised, not a class.
func (r *rig) testSpellings(t *testing.T) {
	for _, row := range spellings {
		t.Run(row.name, func(t *testing.T) {
			u, err := urls.Parse(row.url)
			if row.class != classify.InvalidRequest {
				if err != nil {
					t.Fatalf("%s: %v", row.url, err)
				}
				w := want{row.class, row.reason, 0, 1}
				if row.class == none {
					w.exchanges = 1
				}
				r.check(t, r.client, http.MethodGet, u, w)
				return
			}
			if reason := reasonOf(err); reason != row.reason {
				t.Errorf("%s: refused for %q, want %q", row.url, reason, row.reason)
			}
			loose, err := url.Parse(row.url)
			if err != nil || row.origin {
				return
			}
			before := opened(t)
			out := r.fetch(t, r.client, http.MethodGet, loose)
			if began := opened(t) - before; began != 0 || out.Kind != classify.Failed {
				t.Errorf("%s, not parsed by urls.Parse: %s with %d connections opened, want failed with none", row.url, out.Kind, began)
			}
		})
	}
}

// testNames fetches names that resolve to forbidden addresses.
func (r *rig) testNames(t *testing.T) {
	for i, row := range nameRows {
		t.Run(row.name, func(t *testing.T) {
			raw := row.url
			if raw == "" {
				raw = "http://{name}/"
			}
			name := fmt.Sprintf("row%d.test", i)
			r.dns.Set(name, row.host)
			c := r.client
			if row.zero {
				c = r.zero
			}
			r.check(t, c, http.MethodGet, mustParse(t, strings.NewReplacer("{name}", name, "{NAME}", strings.ToUpper(name)).Replace(raw)), row.want)
		})
	}
}

// testRedirects fetches from the origin, which redirects to forbidden targets.
func (r *rig) testRedirects(t *testing.T) {
	r.dns.Set("private.test", is("10.0.0.1"))
	r.dns.Set("private6.test", is("fd00:ec2::254"))
	r.dns.Set("mapped.test", is("::ffff:169.254.169.254"))
	r.dns.Set("alias.test", space.Host{CNAME: "inner.corp.", Turns: [][]string{{"172.16.0.1"}}})
	for _, row := range redirects {
		t.Run(row.name, func(t *testing.T) {
			method := row.method
			if method == "" {
				method = http.MethodGet
			}
			r.check(t, r.client, method, row.first(t), row.want())
		})
	}
	// Each forbidden address as the target of each kind of redirect.
	for i, row := range addresses {
		host := row.addr
		if strings.Contains(host, ":") {
			host = "[" + host + "]"
		}
		red := redirectRow{status: followed[i%len(followed)], depth: i % 3, to: "http://" + host + "/",
			class: classify.TargetBlocked, reason: "address_not_allowed"}
		t.Run("to "+row.name, func(t *testing.T) {
			r.check(t, r.client, http.MethodGet, red.first(t), red.want())
		})
	}
}

var followed = []int{301, 302, 303, 307, 308}

func (row redirectRow) first(t *testing.T) *url.URL {
	t.Helper()
	query := url.Values{"status": {strconv.Itoa(row.status)}, "to": strings.Split(row.to, "\n")}
	if row.as != "" {
		query.Set("as", row.as)
	}
	return mustParse(t, fmt.Sprintf("http://%s/%d?%s", permitted, row.depth, query.Encode()))
}

func (row redirectRow) want() want {
	w := want{row.class, row.reason, row.depth + 1, 1}
	if row.stays {
		w.exchanges++
	}
	return w
}
