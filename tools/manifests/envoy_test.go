package manifests

import (
	"path/filepath"
	"strings"
	"testing"

	bootstrapv3 "github.com/envoyproxy/go-control-plane/envoy/config/bootstrap/v3"
	// The types that typed_config may name.
	_ "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/http/router/v3"
	_ "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/network/http_connection_manager/v3"
	_ "github.com/envoyproxy/go-control-plane/envoy/extensions/retry/host/previous_hosts/v3"
	_ "github.com/envoyproxy/go-control-plane/envoy/extensions/transport_sockets/tls/v3"
	_ "github.com/envoyproxy/go-control-plane/envoy/extensions/upstreams/http/v3"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protopath"
	"google.golang.org/protobuf/reflect/protorange"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/types/known/anypb"
	"sigs.k8s.io/yaml"
)

// envoy decodes a bootstrap strictly and checks it against the constraints in Envoy's API,
// including those inside typed_config.
func envoy(text []byte) (*bootstrapv3.Bootstrap, error) {
	made, err := yaml.YAMLToJSONStrict(text)
	if err != nil {
		return nil, err
	}
	var b bootstrapv3.Bootstrap
	if err := protojson.Unmarshal(made, &b); err != nil {
		return nil, err
	}
	return &b, validate(&b)
}

func validate(m proto.Message) error {
	if v, ok := m.(interface{ ValidateAll() error }); ok {
		if err := v.ValidateAll(); err != nil {
			return err
		}
	}
	return protorange.Range(m.ProtoReflect(), func(at protopath.Values) error {
		inner, ok := at.Index(-1).Value.Interface().(protoreflect.Message)
		if !ok {
			return nil
		}
		wrapped, ok := inner.Interface().(*anypb.Any)
		if !ok {
			return nil
		}
		opened, err := wrapped.UnmarshalNew()
		if err != nil {
			return err
		}
		return validate(opened)
	})
}

func TestEnvoy(t *testing.T) {
	b, err := envoy(read(t, filepath.Join(root, "deploy/envoy/envoy.yaml")))
	if err != nil {
		t.Fatal(err)
	}
	clusters := map[string]bool{}
	for _, c := range b.GetStaticResources().GetClusters() {
		clusters[c.GetName()] = true
		if len(c.GetHealthChecks()) == 0 || c.GetCircuitBreakers() == nil {
			t.Errorf("cluster %s: want health checks and circuit breakers", c.GetName())
		}
	}
	text := string(read(t, filepath.Join(root, "deploy/envoy/envoy.yaml")))
	if !clusters["fetchd"] || strings.Count(text, "cluster: fetchd") != 2 {
		t.Errorf("clusters %v, but not both routes lead to fetchd", clusters)
	}
}

func TestBrokenEnvoyIsRefused(t *testing.T) {
	sound := string(read(t, filepath.Join(root, "deploy/envoy/envoy.yaml")))
	for _, row := range []struct{ name, old, new, want string }{
		{"a field that is not there", "circuit_breakers:", "circuit_brakers:", "unknown field"},
		{"a field inside a typed_config", "stream_idle_timeout:", "stream_idle_time:", "unknown field"},
		{"a value that is not there", "LEAST_REQUEST", "LEAST_REQUESTS", "invalid value"},
		{"a port out of range", "port_value: 8080", "port_value: 80800", "65535"},
		{"a limit inside a typed_config", "stat_prefix: fetchd", `stat_prefix: ""`, "StatPrefix"},
		{"a type that is not there", "router.v3.Router", "router.v3.Rooter", "unable to resolve"},
	} {
		t.Run(row.name, func(t *testing.T) {
			_, err := envoy([]byte(strings.Replace(sound, row.old, row.new, 1)))
			if err == nil || !strings.Contains(err.Error(), row.want) {
				t.Errorf("got error %v, want one with %q", err, row.want)
			}
		})
	}
}
