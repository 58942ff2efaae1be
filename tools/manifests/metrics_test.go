package manifests

import (
	"encoding/json"
	"fmt"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// metrics are the metrics of fetchd with their labels. docs/operating.md has a row for each.
var metrics = map[string][]string{
	"fetchd_fetches_total":          {"outcome", "error_class"},
	"fetchd_attempts_total":         {"error_class", "decision"},
	"fetchd_retry_delay_seconds":    {"source", "histogram"},
	"fetchd_fetch_seconds":          {"outcome", "histogram"},
	"fetchd_phase_seconds":          {"phase", "histogram"},
	"fetchd_body_bytes_total":       nil,
	"fetchd_encoded_bytes_total":    nil,
	"fetchd_fetches_in_flight":      nil,
	"fetchd_fetches_limit":          nil,
	"fetchd_refused_total":          {"reason"},
	"fetchd_memory_bytes":           {"kind"},
	"fetchd_memory_budget_bytes":    nil,
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

	"fetchd_caller_fetches_total":     {"caller", "outcome"},
	"fetchd_caller_attempts_total":    {"caller"},
	"fetchd_caller_body_bytes_total":  {"caller"},
	"fetchd_caller_refused_total":     {"caller", "reason"},
	"fetchd_caller_fetches_in_flight": {"caller"},

	"fetchd_connections_open":          nil,
	"fetchd_connections_idle":          nil,
	"fetchd_connections_dialled_total": nil,
	"fetchd_connections_reused_total":  nil,
	"fetchd_connections_stale_total":   nil,
	"fetchd_connections_surplus_total": nil,
	"fetchd_log_lines_dropped_total":   nil,

	"fetchd_certificate_not_before_timestamp_seconds": {"use", "name", "serial"},
	"fetchd_certificate_not_after_timestamp_seconds":  {"use", "name", "serial"},
	"fetchd_tls_handshake_failures_total":             {"cause"},

	"fetchd_store_up":                   {"store"},
	"fetchd_store_uploads_in_flight":    {"store"},
	"fetchd_store_uploads_total":        {"store", "result"},
	"fetchd_store_bytes_total":          {"store"},
	"fetchd_store_request_errors_total": {"store"},

	"fetchd_archive_up":                     {"store"},
	"fetchd_archive_records_total":          {"store", "type"},
	"fetchd_archive_bytes_total":            {"store"},
	"fetchd_archive_errors_total":           {"store"},
	"fetchd_archive_spool_bytes":            {"store"},
	"fetchd_archive_files_open":             {"store"},
	"fetchd_archive_files_waiting":          {"store"},
	"fetchd_archive_waiting_bytes":          {"store"},
	"fetchd_archive_oldest_waiting_seconds": {"store"},
}

// outside are metrics that Prometheus itself creates.
var outside = []string{"up"}

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
	if slices.Contains(outside, series) {
		return nil, true
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

// fetchdVocabulary reads the values of labels from the contract.
func fetchdVocabulary(t *testing.T) vocabulary {
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
	return vocabulary{"fetchd", metrics, map[string][]string{
		"outcome":     enum("OUTCOME_KIND"),
		"error_class": append(enum("ERROR_CLASS"), "none"),
		"decision":    append(enum("STOP_REASON"), "retry"),
		"source":      enum("DELAY_SOURCE"),
		"phase":       {"resolve", "connect", "tls", "processing", "transfer"},
		"kind":        {"answer", "body", "decoder", "fetch", "head", "hold_back", "idle", "receiving", "request"},
		"reason":      {"cancelled_calls", "conns_of_caller", "memory", "other", "quota", "strangers_calls", "too_many_fetches", "too_many_fetches_of_caller", "too_many_streams", "too_many_streams_of_caller"},
		"use":         {"service", "service_chain", "client_authority", "egress_authority", "origin_client", "origin_authority"},
		"grpc_method": {"Fetch", "FetchUnary", "FetchMany", "Explain"},
		"grpc_code":   grpcCodes,
	}}
}

var method = regexp.MustCompile(`(?m)^  rpc (\w+)\(`)

// storeCall finds where a call of the store is timed.
var storeCall = regexp.MustCompile(`\.(?:storeCall\(|(?:called|measured)\(ctx, )"(\w+)"`)

// frontierVocabulary returns the metrics that the frontier of this tree registers.
func frontierVocabulary(t *testing.T) vocabulary {
	t.Helper()
	command := exec.Command("go", "run", "./tools/manifests/testdata/metrics/main.go")
	command.Dir = root
	var stderr strings.Builder
	command.Stderr = &stderr
	text, err := command.Output()
	if err != nil {
		t.Fatalf("go run: %v\n%s", err, stderr.String())
	}
	v := vocabulary{Program: "frontier"}
	if err := json.Unmarshal(text, &v); err != nil {
		t.Fatal(err)
	}
	v.Values["result"], v.Values["code"] = []string{"ok", "error"}, grpcCodes
	for _, m := range method.FindAllStringSubmatch(string(read(t, filepath.Join(root, "proto/frontier/v1/frontier.proto"))), -1) {
		v.Values["method"] = append(v.Values["method"], m[1])
	}
	files, err := filepath.Glob(filepath.Join(root, "frontier/*.go"))
	if err != nil {
		t.Fatal(err)
	}
	for _, file := range files {
		for _, m := range storeCall.FindAllStringSubmatch(string(read(t, file)), -1) {
			v.Values["call"] = append(v.Values["call"], m[1])
		}
	}
	return v
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
