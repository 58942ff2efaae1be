package manifests

import (
	"fmt"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// outside are metrics of Prometheus, of Go and its process, and of the library for gRPC.
var outside = map[string][]string{
	"up":                            nil,
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

// targets are labels that Prometheus adds to every series.
var targets = []string{"instance", "job", "namespace", "pod"}

// words are keywords of PromQL without a following parenthesis.
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

// vocabulary has the names that expressions about a program may use.
type vocabulary struct {
	Program string
	Metrics map[string][]string // labels of each metric, and "histogram" for a histogram
	Values  map[string][]string // all values of labels with fixed values
}

// faultsOf returns the metrics, labels and values in a PromQL expression that the program does
// not have. It reads the simple expressions in deploy/ and is not a full parser: promtool
// checks the syntax.
func (v vocabulary) faultsOf(expr string) []string {
	var faults, labels []string
	rest := duration.ReplaceAllString(expr, " ")
	for _, inside := range braces.FindAllStringSubmatch(rest, -1) {
		for _, m := range matcher.FindAllStringSubmatch(inside[1], -1) {
			labels = append(labels, m[1])
			faults = append(faults, wrongValues(m[1], m[3], v.Values)...)
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
		has, known := v.labelsOf(n)
		if !known {
			faults = append(faults, fmt.Sprintf("metric %s is not one of %s's", n, v.Program))
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

// labelsOf returns the labels of a series, which may be one of the three of a histogram.
func (v vocabulary) labelsOf(series string) ([]string, bool) {
	if has, known := outside[series]; known {
		return has, true
	}
	for _, suffix := range []string{"_bucket", "_sum", "_count"} {
		base, cut := strings.CutSuffix(series, suffix)
		if has := v.Metrics[base]; cut && slices.Contains(has, "histogram") {
			return append(slices.Clone(has), "le"), true
		}
	}
	has, known := v.Metrics[series]
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

var grpcCodes = []string{"OK", "Canceled", "Unknown", "InvalidArgument", "DeadlineExceeded", "NotFound", "AlreadyExists", "PermissionDenied", "ResourceExhausted", "FailedPrecondition", "Aborted", "OutOfRange", "Unimplemented", "Internal", "Unavailable", "DataLoss", "Unauthenticated"}

var (
	metric = regexp.MustCompile(`(?m)^(\w+)\{([\w,]*)\} (counter|gauge|histogram)$`)
	method = regexp.MustCompile(`(?m)^  rpc (\w+)\(`)
	class  = regexp.MustCompile(`(?m)^\tClass\w+ += "(\w+)"`)
	// These find values of labels of gauges and counters.
	kind   = regexp.MustCompile(`"(\w+)"(?:, |\})`)
	reason = regexp.MustCompile(`(?m)^\t"[A-Z_]+": +"(\w+)",`)
	state  = regexp.MustCompile(`"(\w+)": +c\.Hosts`)
	cause  = regexp.MustCompile(`\{"(\w+)", w\.`)
	// storeCall finds where a call of the store is timed.
	storeCall = regexp.MustCompile(`\.(?:storeCall\(|(?:called|measured)\(ctx, )"(\w+)"`)
)

// found returns what the group of a pattern matches in the files of the tree, at least once.
func found(t *testing.T, pattern *regexp.Regexp, files string) (all []string) {
	t.Helper()
	paths, err := filepath.Glob(filepath.Join(root, files))
	if err != nil {
		t.Fatal(err)
	}
	for _, path := range paths {
		for _, m := range pattern.FindAllStringSubmatch(string(read(t, path)), -1) {
			all = append(all, m[1])
		}
	}
	if len(all) == 0 {
		t.Fatalf("%s has no %s", files, pattern)
	}
	return all
}

// enum returns the values of an enumeration of a contract, in lower case and without the prefix.
func enum(t *testing.T, contract, prefix string) (values []string) {
	t.Helper()
	for _, v := range found(t, regexp.MustCompile(`(?m)^  `+prefix+`_(\w+) = [1-9]`), contract) {
		values = append(values, strings.ToLower(v))
	}
	return values
}

const (
	fetchdContract   = "proto/fetchd/v1/fetch.proto"
	frontierContract = "proto/frontier/v1/frontier.proto"
)

// metricsOf returns the metrics of a program and their labels, which docs/surface.txt lists.
func metricsOf(t *testing.T, program string) map[string][]string {
	t.Helper()
	metrics := make(map[string][]string)
	for _, m := range metric.FindAllStringSubmatch(string(read(t, filepath.Join(root, "docs/surface.txt"))), -1) {
		if strings.HasPrefix(m[1], program+"_") {
			metrics[m[1]] = append(strings.Split(m[2], ","), m[3])
		}
	}
	if len(metrics) == 0 {
		t.Fatalf("docs/surface.txt has no metrics of %s", program)
	}
	return metrics
}

// fetchdVocabulary reads the values of labels from the contract.
func fetchdVocabulary(t *testing.T) vocabulary {
	t.Helper()
	return vocabulary{"fetchd", metricsOf(t, "fetchd"), map[string][]string{
		"outcome":     enum(t, fetchdContract, "OUTCOME_KIND"),
		"error_class": append(enum(t, fetchdContract, "ERROR_CLASS"), "none"),
		"decision":    append(enum(t, fetchdContract, "STOP_REASON"), "retry"),
		"source":      enum(t, fetchdContract, "DELAY_SOURCE"),
		"phase":       {"resolve", "connect", "tls", "processing", "transfer"},
		"kind":        found(t, kind, "internal/budget/budget.go"),
		"reason":      append(found(t, reason, "server/observe/metrics.go"), "other"),
		"mode":        {"enforce", "report"},
		"use":         {"service", "service_chain", "client_authority", "egress_authority", "origin_client", "origin_authority"},
		"grpc_method": found(t, method, fetchdContract),
		"grpc_code":   grpcCodes,
	}}
}

// frontierVocabulary reads the values of labels from the contract and the code.
func frontierVocabulary(t *testing.T) vocabulary {
	t.Helper()
	return vocabulary{"frontier", metricsOf(t, "frontier"), map[string][]string{
		"status":      enum(t, frontierContract, "STATUS"),
		"error_class": append(enum(t, fetchdContract, "ERROR_CLASS"), found(t, class, "frontier/class.go")...),
		"cause":       found(t, cause, "frontier/store/read.go"),
		"state":       found(t, state, "frontier/metrics.go"),
		"result":      {"ok", "error"},
		"call":        found(t, storeCall, "frontier/*.go"),
		"method":      found(t, method, frontierContract),
		"code":        grpcCodes,
		"use":         {"service", "service_chain", "client_authority"},
	}}
}

func TestWrongExpressionsAreFound(t *testing.T) {
	fetchd, frontier := fetchdVocabulary(t), frontierVocabulary(t)
	for _, row := range []struct {
		name string
		of   vocabulary
		expr string
		want string
	}{
		{"a good one", fetchd, `histogram_quantile(0.9, sum by (le, phase) (rate(fetchd_phase_seconds_bucket{phase="tls"}[5m]))) > 1e3`, ""},
		{"a good one with a division", fetchd, `sum(rate(fetchd_fetches_total{outcome="failed",error_class!~"cancelled|target_blocked"}[5m])) / on (instance) fetchd_fetches_limit > 0.5 and up == 1`, ""},
		{"a metric that is not there", fetchd, `rate(fetchd_fetch_total[5m])`, "metric fetchd_fetch_total"},
		{"a histogram without its suffix", fetchd, `rate(fetchd_fetch_seconds[5m])`, "metric fetchd_fetch_seconds"},
		{"a counter with a histogram's suffix", fetchd, `fetchd_body_bytes_total_bucket`, "metric fetchd_body_bytes_total_bucket"},
		{"a label that is not there", fetchd, `fetchd_refused_total{why="x"}`, "label why"},
		{"a group by a label that is not there", fetchd, `sum by (outcome) (fetchd_refused_total)`, "label outcome"},
		{"a good one that sums over kinds", fetchd, `sum without (kind) (fetchd_memory_bytes{kind="answer"}) / fetchd_memory_budget_bytes > 0.25`, ""},
		{"a kind of memory that does not exist", fetchd, `fetchd_memory_bytes{kind="unread"}`, `never "unread"`},
		{"a method that does not exist", frontier, `rate(frontier_api_call_duration_seconds_count{method="Take"}[5m])`, `never "Take"`},
		{"a reason that does not exist", fetchd, `fetchd_refused_total{reason="answers_unread"}`, `never "answers_unread"`},
		{"a value that is never told", fetchd, `fetchd_fetches_total{error_class="http_server_errors"}`, `never "http_server_errors"`},
		{"one of several values", fetchd, `fetchd_fetches_total{outcome=~"failed|broken"}`, `never "broken"`},
		{"no metric", fetchd, `vector(1)`, "names no metric"},
		{"a good one of the frontier", frontier, `histogram_quantile(0.9, sum by (le, call) (rate(frontier_store_duration_seconds_bucket{call="claim",result="ok"}[5m])))`, ""},
		{"a good one of the frontier with a class of its own", frontier, `sum by (job) (rate(frontier_outcomes_total{status!="fetched",error_class!~"robots_disallowed|content_type"}[5m])) unless frontier_urls{status="pending"} > 0`, ""},
		{"a metric of the other program", frontier, `fetchd_fetches_in_flight`, "metric fetchd_fetches_in_flight is not one of frontier's"},
		{"a class that only the frontier has", fetchd, `fetchd_fetches_total{error_class="robots_disallowed"}`, `never "robots_disallowed"`},
		{"a metric of the frontier that is not there", frontier, `rate(frontier_fetches_total[5m])`, "metric frontier_fetches_total"},
		{"a histogram of the frontier without its suffix", frontier, `frontier_store_duration_seconds`, "metric frontier_store_duration_seconds"},
		{"a label that the frontier's metric has not", frontier, `frontier_urls{state="due"}`, "label state"},
		{"a status that is none", frontier, `frontier_urls{status="waiting"}`, `never "waiting"`},
		{"a state that is none", frontier, `frontier_hosts{state="pending"}`, `never "pending"`},
		{"another good one of the frontier", frontier, `rate(frontier_store_duration_seconds_count{call=~"claim|extend|reap|record|recrawl|seen|sweep"}[5m])`, ""},
		{"a call that is not timed", frontier, `frontier_store_duration_seconds_count{call="put"}`, `never "put"`},
	} {
		t.Run(row.name, func(t *testing.T) {
			got := strings.Join(row.of.faultsOf(row.expr), "; ")
			if !strings.Contains(got, row.want) || row.want == "" && got != "" {
				t.Errorf("%s: got %q, want %q", row.expr, got, row.want)
			}
		})
	}
}
