package server_test

import (
	"strings"
	"testing"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"fetchd/fetch/auth"
	pb "fetchd/gen/fetchd/v1"
	"fetchd/internal/badrequest"
	"fetchd/server"
)

// TestProviderReasons checks that programs can see why a request cannot have its auth provider (A1).
func TestProviderReasons(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	provider := func(origin string, callers ...string) server.AuthProvider {
		made, err := auth.New(auth.Config{Static: "token", Origins: []string{origin}})
		must(t, err)
		return server.AuthProvider{Provider: made, Callers: callers}
	}
	own := strings.TrimSuffix(r.Origin.URL("http", "/"), "/")
	must(t, r.Service.SetOrigins(nil, map[string]server.AuthProvider{"own": provider(own), "elsewhere": provider("https://elsewhere.test"), "others": provider(own, "nobody")}))
	for _, row := range []struct {
		name, provider string
		code           codes.Code
		reason         string
	}{
		{"usable", "own", codes.OK, ""},
		{"unknown", "nothing", codes.InvalidArgument, "AUTH_PROVIDER_UNKNOWN"},
		{"another origin", "elsewhere", codes.InvalidArgument, "AUTH_PROVIDER_ORIGIN"},
		{"another caller", "others", codes.PermissionDenied, "AUTH_PROVIDER_CALLER"},
	} {
		t.Run(row.name, func(t *testing.T) {
			r := r.in(t)
			in := r.request("/s/" + row.provider + "/200")
			in.AuthProvider = row.provider
			_, err := r.Client.FetchUnary(t.Context(), in)
			if got := badrequest.Reason(err, "auth_provider"); status.Code(err) != row.code || got != row.reason {
				t.Errorf("%v with the reason %q, want %v with %q", err, got, row.code, row.reason)
			}
			many := r.many(t.Context())
			many.start(&pb.Task{Tag: "t", Request: in})
			many.until(1)
			many.finish("t")
			if got := many.outcomes["t"][0].GetError().GetReason(); got != strings.ToLower(row.reason) {
				t.Errorf("FetchMany has the reason %q, want %q", got, strings.ToLower(row.reason))
			}
		})
	}
}
