package deploy

import (
	"fmt"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// metrics are the names that fetchd exports, with their labels. docs/operating.md
// has a row for each.
var metrics = map[string][]string{
	"fetchd_fetches_total":          {"outcome", "error_class"},
	"fetchd_attempts_total":         {"error_class", "verdict"},
	"fetchd_retry_delay_seconds":    {"source", "histogram"},
	"fetchd_fetch_seconds":          {"outcome", "histogram"},
	"fetchd_phase_seconds":          {"phase", "histogram"},
	"fetchd_resends_total":          nil,
	"fetchd_body_bytes_total":       nil,
	"fetchd_encoded_bytes_total":    nil,
	"fetchd_fetches_in_flight":      nil,
	"fetchd_fetches_limit":          nil,
	"fetchd_refused_total":          {"reason"},
	"fetchd_hold_back_bytes":        nil,
	"fetchd_hold_back_budget_bytes": nil,
	"fetchd_unread_answer_bytes":    nil,
	"fetchd_draining":               nil,
	"fetchd_build_info":             {"version"},
	"grpc_server_handled_total":     {"grpc_method", "grpc_code"},
	"grpc_server_started_total":     {"grpc_method"},
	"go_gc_gomemlimit_bytes":        nil,
	"go_goroutines":                 nil,
	"go_memstats_heap_inuse_bytes":  nil,
	"process_cpu_seconds_total":     nil,
	"process_max_fds":               nil,
	"process_open_fds":              nil,
	"process_resident_memory_bytes": nil,
	"process_start_time_seconds":    nil,
}

// outside are names that Prometheus itself makes.
var outside = []string{"up"}

// targets are labels that every series has from whoever reads it.
var targets = []string{"instance", "job", "namespace", "pod"}

// words are PromQL's own, where no parenthesis follows.
var words = []string{"and", "or", "unless", "bool", "offset", "inf", "nan"}

var (
	duration = regexp.MustCompile(`\[[^\]]*\]`)
	braces   = regexp.MustCompile(`\{([^{}]*)\}`)
	grouping = regexp.MustCompile(`\b(?:by|without|on|ignoring|group_left|group_right)\s*\(([^()]*)\)`)
	number   = regexp.MustCompile(`\b[0-9][0-9a-zA-Z_.]*`)
	call     = regexp.MustCompile(`\b[a-z_]+\s*\(`)
	name     = regexp.MustCompile(`[a-zA-Z_:][a-zA-Z0-9_:]*`)
	matcher  = regexp.MustCompile(`([a-zA-Z_]\w*)\s*(=~|!~|!=|=)\s*"([^"]*)"`)
)

// faultsOf names the metrics, labels and values in a PromQL expression that
// fetchd does not have. It reads the simple expressions in deploy/ and is no
// parser: promtool has the last word on the syntax.
func faultsOf(expr string, values map[string][]string) []string {
	var faults, labels []string
	rest := duration.ReplaceAllString(expr, " ")
	for _, inside := range braces.FindAllStringSubmatch(rest, -1) {
		for _, m := range matcher.FindAllStringSubmatch(inside[1], -1) {
			labels = append(labels, m[1])
			faults = append(faults, wrongValues(m[1], m[3], values)...)
		}
	}
	rest = braces.ReplaceAllString(rest, " ")
	for _, inside := range grouping.FindAllStringSubmatch(rest, -1) {
		labels = append(labels, name.FindAllString(inside[1], -1)...)
	}
	rest = number.ReplaceAllString(grouping.ReplaceAllString(rest, " "), " ")
	rest = call.ReplaceAllString(rest, "(")
	allowed := slices.Clone(targets)
	found := 0
	for _, n := range name.FindAllString(rest, -1) {
		if slices.Contains(words, n) {
			continue
		}
		found++
		has, known := labelsOf(n)
		if !known {
			faults = append(faults, fmt.Sprintf("metric %s is not one of fetchd's", n))
		}
		allowed = append(allowed, has...)
	}
	if found == 0 {
		faults = append(faults, "it names no metric")
	}
	for _, l := range labels {
		if !slices.Contains(allowed, l) {
			faults = append(faults, fmt.Sprintf("label %s is not one of these metrics'", l))
		}
	}
	return faults
}

// labelsOf knows the three series of a histogram.
func labelsOf(series string) ([]string, bool) {
	if slices.Contains(outside, series) {
		return nil, true
	}
	for _, suffix := range []string{"_bucket", "_sum", "_count"} {
		base, cut := strings.CutSuffix(series, suffix)
		if has := metrics[base]; cut && slices.Contains(has, "histogram") {
			return append(slices.Clone(has), "le"), true
		}
	}
	has, known := metrics[series]
	return has, known && !slices.Contains(has, "histogram")
}

func wrongValues(label, text string, values map[string][]string) []string {
	var faults []string
	known, closed := values[label]
	for v := range strings.SplitSeq(text, "|") {
		if closed && v != "" && !slices.Contains(known, v) {
			faults = append(faults, fmt.Sprintf("%s is never %q", label, v))
		}
	}
	return faults
}

// valuesOf reads what labels can be from the contract.
func valuesOf(t *testing.T) map[string][]string {
	t.Helper()
	proto := string(read(t, filepath.Join(root, "proto/fetchd/v1/fetch.proto")))
	enum := func(prefix string) []string {
		var found []string
		for _, m := range regexp.MustCompile(`(?m)^  `+prefix+`_(\w+) = [1-9]`).FindAllStringSubmatch(proto, -1) {
			found = append(found, strings.ToLower(m[1]))
		}
		if len(found) == 0 {
			t.Fatalf("the contract has no values %s_…", prefix)
		}
		return found
	}
	return map[string][]string{
		"outcome":     enum("OUTCOME_KIND"),
		"error_class": append(enum("ERROR_CLASS"), "none"),
		"verdict":     enum("RETRY_VERDICT"),
		"source":      enum("DELAY_SOURCE"),
		"phase":       {"resolve", "connect", "tls", "processing", "transfer"},
		"grpc_method": {"Fetch", "FetchUnary", "FetchMany", "Explain"},
		"grpc_code":   {"OK", "Canceled", "Unknown", "InvalidArgument", "DeadlineExceeded", "NotFound", "AlreadyExists", "PermissionDenied", "ResourceExhausted", "FailedPrecondition", "Aborted", "OutOfRange", "Unimplemented", "Internal", "Unavailable", "DataLoss", "Unauthenticated"},
	}
}

func TestWrongExpressionsAreFound(t *testing.T) {
	values := valuesOf(t)
	for _, row := range []struct{ name, expr, want string }{
		{"a good one", `histogram_quantile(0.9, sum by (le, phase) (rate(fetchd_phase_seconds_bucket{phase="tls"}[5m]))) > 1e3`, ""},
		{"a good one with a division", `sum(rate(fetchd_fetches_total{outcome="failed",error_class!~"cancelled|target_blocked"}[5m])) / on (instance) fetchd_fetches_limit > 0.5 and up == 1`, ""},
		{"a metric that is not there", `rate(fetchd_fetch_total[5m])`, "metric fetchd_fetch_total"},
		{"a histogram without its suffix", `rate(fetchd_fetch_seconds[5m])`, "metric fetchd_fetch_seconds"},
		{"a counter with a histogram's suffix", `fetchd_resends_total_bucket`, "metric fetchd_resends_total_bucket"},
		{"a label that is not there", `fetchd_refused_total{why="x"}`, "label why"},
		{"a group by a label that is not there", `sum by (outcome) (fetchd_refused_total)`, "label outcome"},
		{"a value that is never told", `fetchd_fetches_total{error_class="http_server_errors"}`, `never "http_server_errors"`},
		{"one of several values", `fetchd_fetches_total{outcome=~"failed|broken"}`, `never "broken"`},
		{"no metric", `vector(1)`, "names no metric"},
	} {
		t.Run(row.name, func(t *testing.T) {
			got := strings.Join(faultsOf(row.expr, values), "; ")
			if !strings.Contains(got, row.want) || row.want == "" && got != "" {
				t.Errorf("%s: got %q, want %q", row.expr, got, row.want)
			}
		})
	}
}
