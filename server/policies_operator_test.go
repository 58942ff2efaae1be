package server_test

import (
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"sync/atomic"
	"testing"

	"fetchd/fetch/auth"
	pb "fetchd/gen/fetchd/v1"
	"fetchd/server"
)

// operators is a server of the operator at an address that the policy of the caller forbids: a token endpoint, a bucket
// and a proxy.
type operators struct {
	*httptest.Server
	tokens, objects, proxied atomic.Int64
}

func newOperators(t *testing.T) *operators {
	t.Helper()
	l, err := new(net.ListenConfig).Listen(t.Context(), "tcp", "127.0.0.2:0")
	must(t, err)
	o := new(operators)
	o.Server = httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch {
		case r.URL.IsAbs():
			o.proxied.Add(1)
			_, _ = w.Write([]byte("by the proxy"))
		case r.URL.Path == "/token":
			o.tokens.Add(1)
			w.Header().Set("Content-Type", "application/json")
			_, _ = w.Write([]byte(`{"access_token":"t","token_type":"Bearer"}`))
		default:
			o.objects.Add(1)
			w.Header().Set("ETag", `"e"`)
		}
	}))
	_ = o.Listener.Close()
	o.Listener = l
	o.Start()
	t.Cleanup(o.Close)
	return o
}

// TestPolicyOfOperator checks that the connections of the operator (to a token endpoint, a store and a proxy) are not
// judged by the policy of the caller.
func TestPolicyOfOperator(t *testing.T) {
	t.Parallel()
	const text = "policies: {p: {egress: {allow-addresses: [127.0.0.1], deny-names: [forbidden.example], PORTS}}}\ndefault: p\n"
	o := newOperators(t)
	store := withStoresOf(t, `  bucket: {url: "s3://bucket?region=eu-central-1&use_path_style=true&endpoint=`+o.URL+`", access-key-id: a, secret-access-key: b}`+"\n")
	r := newRig(t, store)
	provider, err := auth.New(auth.Config{Origins: []string{strings.TrimSuffix(r.Origin.URL("http", "/"), "/")}, Client: &auth.ClientCredentials{TokenURL: o.URL + "/token", ID: "me", Secret: "hush"}})
	must(t, err)
	must(t, r.Service.SetOrigins(nil, map[string]server.AuthProvider{"api": {Provider: provider}}))
	r.Service.SetPolicies(policySet(t, r, text))
	in := r.request("/s/k/200:body=x")
	in.AuthProvider, in.BodyPolicy = "api", &pb.BodyPolicy{Delivery: &pb.BodyPolicy_Store{Store: &pb.StoreDelivery{Store: "bucket", Key: "k"}}}
	resp, err := r.Client.FetchUnary(t.Context(), in)
	must(t, err)
	if out := resp.GetOutcome(); out.GetKind() != pb.OutcomeKind_OUTCOME_KIND_SUCCESS || o.tokens.Load() != 1 || o.objects.Load() == 0 {
		t.Errorf("%v, %d tokens, %d requests of the store; want a success by both", out, o.tokens.Load(), o.objects.Load())
	}
	direct := r.request("/")
	direct.Url = o.URL
	if resp, err = r.Client.FetchUnary(t.Context(), direct); err != nil || resp.GetOutcome().GetError().GetErrorClass() != pb.ErrorClass_ERROR_CLASS_TARGET_BLOCKED {
		t.Errorf("a fetch from there: %v, %v; want TARGET_BLOCKED", resp.GetOutcome(), err)
	}
}

// TestPolicyThroughProxy checks that the URL is judged and that the addresses are the proxy's to judge.
func TestPolicyThroughProxy(t *testing.T) {
	t.Parallel()
	o := newOperators(t)
	proxy, err := url.Parse(o.URL)
	must(t, err)
	r := newRig(t, func(c *server.Config) { c.Fetch.Proxy = proxy })
	r.Service.SetPolicies(policySet(t, r, "policies: {p: {egress: {allow-names: [allowed.example, '*.leads.example'], deny-names: [no.leads.example]}}}\ndefault: p\n"))
	for _, row := range []struct{ host, reason string }{
		{"allowed.example", ""},
		{"inside.leads.example", ""}, // whatever its address is
		{"no.leads.example", "name_denied"},
		{"other.example", "name_not_allowed"},
		{"10.0.0.1", "address_not_allowed"}, // by the settings
		{"127.0.0.2", "name_not_allowed"},
		{"allowed.example:8080", "port_not_allowed"},
	} {
		before := o.proxied.Load()
		resp, err := r.Client.FetchUnary(t.Context(), &pb.FetchRequest{Url: "http://" + row.host + "/"})
		must(t, err)
		out, sent := resp.GetOutcome(), o.proxied.Load()-before
		if out.GetError().GetReason() != row.reason || (sent == 0) != (row.reason != "") {
			t.Errorf("%s: %v, %d requests at the proxy; want the reason %q", row.host, out, sent, row.reason)
		}
	}
}
