package server_test

import (
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	pb "fetchd/gen/fetchd/v1"
	"fetchd/internal/policies"
)

const routedPolicies = `
routes:
  a: {source-address: 127.0.0.2}
  b: {source-address: 127.0.0.3}
policies:
  one: {egress: {route: a, routes: [b], allow-addresses: [127.0.0.1], PORTS}}
  two: {egress: {route: b, allow-addresses: [127.0.0.1], PORTS}}
  trial: {mode: report, egress: {route: b}}
  nothing: {mode: report, permit: nothing}
  none: {egress: {allow-addresses: [127.0.0.1], PORTS}}
callers:
- {caller: alice, policy: one}
- {caller: bob, policy: two}
- {caller: dora, policy: trial}
- {caller: nora, policy: nothing}
default: none
`

// fetchFrom runs a fetch for a token over a route, and returns the hosts from which the origin got its requests.
func (r *rig) fetchFrom(token, listener, path, route string) (hosts []string, err error) {
	r.Helper()
	in := r.request(path)
	in.Url, in.EgressRoute = r.Origin.URL(listener, path), route
	before := len(r.Origin.Requests("k"))
	ctx := r.Context()
	if token != "" {
		ctx = as(ctx, token)
	}
	resp, err := r.Client.FetchUnary(ctx, in)
	if err == nil && (resp.GetOutcome().GetKind() != pb.OutcomeKind_OUTCOME_KIND_SUCCESS || resp.GetEffectiveRequest().GetEgressRoute() != route) {
		r.Errorf("%v with the effective route %q", resp.GetOutcome(), resp.GetEffectiveRequest().GetEgressRoute())
	}
	for _, seen := range r.Origin.Requests("k")[before:] {
		host, _, _ := net.SplitHostPort(seen.RemoteAddr)
		hosts = append(hosts, host)
	}
	return hosts, err
}

// TestEgressRoutes checks by which route each request of a fetch leaves, and who may name which.
func TestEgressRoutes(t *testing.T) {
	t.Parallel()
	for _, row := range []struct {
		name, token, listener, path, route string
		from                               string // hosts that the origin sees; empty: denied
	}{
		{"that of the policy", "a", "http", "/s/k/200", "", "127.0.0.2"},
		{"that of the policy, over HTTP/2", "a", "https", "/s/k/200", "", "127.0.0.2"},
		{"that of the policy, by its name", "a", "http", "/s/k/200", "a", "127.0.0.2"},
		{"one that the policy permits", "a", "http", "/s/k/200", "b", "127.0.0.3"},
		{"that of another policy", "b", "http", "/s/k/200", "", "127.0.0.3"},
		{"one that another policy permits", "b", "http", "/s/k/200", "a", ""},
		{"one that another policy permits, in mode report", "d", "http", "/s/k/200", "a", ""},
		{"that of the policy, in mode report", "d", "http", "/s/k/200", "", "127.0.0.3"},
		{"one that does not exist, of a policy that permits nothing in mode report", "n", "http", "/s/k/200", "vpn", ""},
		{"no route", "e", "http", "/s/k/200", "", "127.0.0.1"},
		{"one without a route", "e", "http", "/s/k/200", "b", ""},
		{"one that does not exist", "a", "http", "/s/k/200", "c", ""},
		{"one with another case", "a", "http", "/s/k/200", "A", ""},
		{"retries", "a", "http", "/s/k/503/503/200", "b", "127.0.0.3 127.0.0.3 127.0.0.3"},
		{"redirects", "a", "http", "/r/k/302/2/200", "b", "127.0.0.3 127.0.0.3 127.0.0.3"},
		{"a body that continues", "a", "http", "/s/k/200:size=100000,etag=%22v%22,range,cut=50000/200:size=100000,etag=%22v%22,range", "b", "127.0.0.3 127.0.0.3"},
	} {
		t.Run(row.name, func(t *testing.T) {
			t.Parallel()
			callers := &roster{names: map[string]string{"a": "alice", "b": "bob", "d": "dora", "e": "eve", "n": "nora"}}
			r := newRig(t, callers.change)
			r.Service.SetPolicies(policySet(t, r, routedPolicies))
			for _, token := range []string{"a", "b", "e"} { // the pool is warm from each
				if _, err := r.fetchFrom(token, row.listener, "/s/warm/200", ""); err != nil {
					t.Fatal(err)
				}
			}
			hosts, err := r.fetchFrom(row.token, row.listener, row.path, row.route)
			if got := strings.Join(hosts, " "); got != row.from {
				t.Errorf("requests from %q, want %q", got, row.from)
			}
			if row.from == "" {
				if field := deniedField(err); status.Code(err) != codes.PermissionDenied || field != "egress_route" {
					t.Errorf("%v for the field %q, want PERMISSION_DENIED for egress_route", err, field)
				}
				return
			}
			must(t, err)
			lines := r.logs.lines(t, "fetch finished")
			want := map[string]any{"127.0.0.1": nil, "127.0.0.2": "a", "127.0.0.3": "b"}[strings.Fields(row.from)[0]]
			if got := lines[len(lines)-1]["route"]; got != want {
				t.Errorf("the log has the route %v, want %v", got, want)
			}
		})
	}
}

// deniedField returns the first field that an error names.
func deniedField(err error) string {
	for _, detail := range status.Convert(err).Details() {
		if bad, ok := detail.(*errdetails.BadRequest); ok {
			return bad.GetFieldViolations()[0].GetField()
		}
	}
	return ""
}

// TestDeniedRoutes checks that no caller learns which routes others have, and that without policies there are
// none.
func TestDeniedRoutes(t *testing.T) {
	t.Parallel()
	callers := &roster{names: map[string]string{"b": "bob", "d": "dora"}}
	r := newRig(t, callers.change)
	if _, err := r.fetchFrom("b", "http", "/s/k/200", "a"); status.Code(err) != codes.PermissionDenied || deniedField(err) != "egress_route" {
		t.Errorf("without policies: %v", err)
	}
	r.Service.SetPolicies(policySet(t, r, routedPolicies))
	for _, token := range []string{"b", "d"} {
		told := make(map[string]bool)
		for _, name := range []string{"a", "x", strings.Repeat("x", 1<<20)} {
			_, err := r.fetchFrom(token, "http", "/s/k/200", name)
			s := status.Convert(err)
			text := fmt.Sprint(s.Message(), s.Details())
			if len(text) > 4<<10 || s.Code() != codes.PermissionDenied {
				t.Errorf("an error of %d bytes, %s", len(text), s.Code())
			}
			if len(name) == 1 {
				told[strings.NewReplacer(`\"`+name+`\"`, "NAME", `"`+name+`"`, "NAME").Replace(text)] = true
			}
		}
		if len(told) != 1 {
			t.Errorf("%s: a route of others and one that does not exist have different answers: %v", token, told)
		}
	}
	in := r.request("/s/k/200")
	in.EgressRoute = "x"
	m := r.many(as(t.Context(), "b"))
	m.start(&pb.Task{Tag: "t", Request: in})
	m.finish("t")
	if got := m.outcomes["t"][0].GetError(); got.GetErrorClass() != pb.ErrorClass_ERROR_CLASS_INVALID_REQUEST {
		t.Errorf("%v, want INVALID_REQUEST for the task alone", got)
	}
}

// TestRoutesReload checks what a new file means for the connections of routes.
func TestRoutesReload(t *testing.T) {
	t.Parallel()
	for _, row := range []struct {
		name, listener, old, new string
		kept                     bool // the connection of alice
	}{
		{"a change elsewhere", "http", "127.0.0.3", "127.0.0.4", true},
		{"a change elsewhere, over HTTP/2", "https", "127.0.0.3", "127.0.0.4", true},
		{"the same route by another definition", "http", "source-address: 127.0.0.2", "source-address: 127.0.0.2, ip-family: ipv4", false},
		{"the same route by another definition, over HTTP/2", "https", "source-address: 127.0.0.2", "source-address: 127.0.0.2, ip-family: ipv4", false},
		{"no route any more", "http", "route: a, routes: [b]", "routes: [a, b]", false},
	} {
		t.Run(row.name, func(t *testing.T) {
			t.Parallel()
			callers := &roster{names: map[string]string{"a": "alice"}}
			r := newRig(t, callers.change)
			path := filepath.Join(t.TempDir(), "policies.yaml")
			var set *policies.Set
			apply := func(text string) {
				must(t, os.WriteFile(path, []byte(policyText(t, r, text)), 0o600))
				var err error
				set, err = policies.Read(path, set)
				must(t, err)
				r.Service.SetPolicies(set)
			}
			apply(routedPolicies)
			for range 2 {
				_, err := r.fetchFrom("a", row.listener, "/s/k/200", "")
				must(t, err)
			}
			apply(strings.Replace(routedPolicies, row.old, row.new, 1))
			_, err := r.fetchFrom("a", row.listener, "/s/k/200", "")
			must(t, err)
			seen := r.Origin.Requests("k")
			if seen[0].Connection != seen[1].Connection || (seen[1].Connection == seen[2].Connection) != row.kept {
				t.Errorf("connections %d, %d and %d, want the last one kept: %t", seen[0].Connection, seen[1].Connection, seen[2].Connection, row.kept)
			}
		})
	}
}
