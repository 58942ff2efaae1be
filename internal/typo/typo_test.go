package typo_test

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"fetchd/internal/typo"
)

func TestFind(t *testing.T) {
	t.Parallel()
	known := []string{"FETCHD_MAX_FETCHES", "FETCHD_MAX_FETCHES_PER_CALLER", "FETCHD_EGRESS_ALLOW_PORT", "FETCHD_LOG_LEVEL", "FETCHD_TOKEN_FILE"}
	for _, row := range []struct {
		name, entry string
		want        []typo.Variable
	}{
		{"a setting", "FETCHD_MAX_FETCHES=3", nil},
		{"another program's", "PATH=/bin", nil},
		{"a longer prefix", "FETCHDX_LOG_LEVEL=x", nil},
		{"a letter is missing", "FETCHD_MAX_FETCHS=3", []typo.Variable{{Name: "FETCHD_MAX_FETCHS", Nearest: "FETCHD_MAX_FETCHES"}}},
		{"a letter too many", "FETCHD_LOG_LEVELL=x", []typo.Variable{{Name: "FETCHD_LOG_LEVELL", Nearest: "FETCHD_LOG_LEVEL"}}},
		{"lower case", "fetchd_log_level=x", []typo.Variable{{Name: "fetchd_log_level", Nearest: "FETCHD_LOG_LEVEL"}}},
		{"hyphens", "FETCHD-LOG-LEVEL=x", []typo.Variable{{Name: "FETCHD-LOG-LEVEL", Nearest: "FETCHD_LOG_LEVEL"}}},
		{"a word is missing", "FETCHD_ALLOW_PORT=80", []typo.Variable{{Name: "FETCHD_ALLOW_PORT", Nearest: "FETCHD_EGRESS_ALLOW_PORT"}}},
		{"nothing is near", "FETCHD_COLOUR=red", []typo.Variable{{Name: "FETCHD_COLOUR"}}},
		{"a port that Kubernetes did not set", "FETCHD_PORT=9090", []typo.Variable{{Name: "FETCHD_PORT"}}},
		{"without a value", "FETCHD_LOGLEVEL", []typo.Variable{{Name: "FETCHD_LOGLEVEL", Nearest: "FETCHD_LOG_LEVEL"}}},
		{"Kubernetes: host", "FETCHD_SERVICE_HOST=10.0.0.1", nil},
		{"Kubernetes: port", "FETCHD_SERVICE_PORT=8080", nil},
		{"Kubernetes: named port", "FETCHD_SERVICE_PORT_GRPC=8080", nil},
		{"Kubernetes: URL", "FETCHD_PORT=tcp://10.0.0.1:8080", nil},
		{"Kubernetes: URL by port", "FETCHD_PORT_8080_TCP=tcp://10.0.0.1:8080", nil},
		{"Kubernetes: address by port", "FETCHD_PORT_8080_TCP_ADDR=10.0.0.1", nil},
		{"Kubernetes: protocol by port", "FETCHD_PORT_8080_TCP_PROTO=tcp", nil},
		{"Kubernetes: port by port", "FETCHD_PORT_8080_TCP_PORT=8080", nil},
		{"Kubernetes: a Service with a longer name", "FETCHD_METRICS_SERVICE_HOST=10.0.0.1", nil},
	} {
		if diff := cmp.Diff(row.want, typo.Find([]string{"HOME=/", row.entry}, "FETCHD_", known)); diff != "" {
			t.Errorf("%s: %s (-want +got)\n%s", row.name, row.entry, diff)
		}
	}
}

func TestDistance(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		a, b string
		want int
	}{{"", "", 0}, {"abc", "", 3}, {"", "abc", 3}, {"kitten", "sitting", 3}, {"flaw", "lawn", 2}, {"same", "same", 0}} {
		if got := typo.Distance(tt.a, tt.b); got != tt.want {
			t.Errorf("Distance(%q, %q) = %d, want %d", tt.a, tt.b, got, tt.want)
		}
	}
}
