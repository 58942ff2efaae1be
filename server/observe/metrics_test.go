package observe_test

import (
	"net/http"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"fetchd/fetch"
)

// moved returns the counters of this package that differ between two states, except those by caller
// ([TestCallers]). Of times it returns only the counts.
func moved(before, after map[string]float64) map[string]float64 {
	diff := map[string]float64{}
	for key, v := range after {
		if strings.HasPrefix(key, "fetchd_") && !strings.HasPrefix(key, "fetchd_caller_") && !strings.HasSuffix(key, " sum") && v != before[key] {
			diff[key] = v - before[key]
		}
	}
	return diff
}

// encoded counts bytes as received; coded stands for any number that the coding makes.
const encoded, coded = "fetchd_encoded_bytes_total", -1

// fetches lists fetches and the counters that they change.
var fetches = []struct {
	name, listener, path string
	change               func(*fetch.Request)
	want                 map[string]float64
}{
	{"success on a new connection", "http", "/s/a/200:size=1000", nil, map[string]float64{
		"fetchd_fetches_total{error_class=none,outcome=success}":      1,
		"fetchd_attempts_total{decision=no_failure,error_class=none}": 1,
		"fetchd_fetch_seconds{outcome=success} count":                 1,
		"fetchd_phase_seconds{phase=connect} count":                   1,
		"fetchd_phase_seconds{phase=processing} count":                1,
		"fetchd_phase_seconds{phase=transfer} count":                  1,
		"fetchd_body_bytes_total":                                     1000,
		"fetchd_encoded_bytes_total":                                  1000,
	}},
	{"TLS, coded, by name", "https", "/s/b/200:bomb=10000,coding=gzip", byName, map[string]float64{
		"fetchd_fetches_total{error_class=none,outcome=success}":      1,
		"fetchd_attempts_total{decision=no_failure,error_class=none}": 1,
		"fetchd_fetch_seconds{outcome=success} count":                 1,
		"fetchd_phase_seconds{phase=resolve} count":                   1,
		"fetchd_phase_seconds{phase=connect} count":                   1,
		"fetchd_phase_seconds{phase=tls} count":                       1,
		"fetchd_phase_seconds{phase=processing} count":                1,
		"fetchd_phase_seconds{phase=transfer} count":                  1,
		"fetchd_body_bytes_total":                                     10000,
		encoded:                                                       coded,
	}},
	{"redirect, then retries, one of them as the origin asks", "http", "/r/c/302/1/503/429:retry-after=0/200:size=1", nil, map[string]float64{
		"fetchd_fetches_total{error_class=none,outcome=success}":              1,
		"fetchd_attempts_total{decision=retry,error_class=http_server_error}": 1,
		"fetchd_attempts_total{decision=retry,error_class=rate_limited}":      1,
		"fetchd_attempts_total{decision=no_failure,error_class=none}":         1,
		"fetchd_retry_delay_seconds{source=backoff} count":                    1,
		"fetchd_retry_delay_seconds{source=retry_after} count":                1,
		"fetchd_fetch_seconds{outcome=success} count":                         1,
		"fetchd_phase_seconds{phase=processing} count":                        6,
		"fetchd_phase_seconds{phase=transfer} count":                          6,
		"fetchd_body_bytes_total":                                             1,
		"fetchd_encoded_bytes_total":                                          1,
	}},
	{"the origin has it not", "http", "/s/d/404", nil, map[string]float64{
		"fetchd_fetches_total{error_class=http_client_error,outcome=failed}":        1,
		"fetchd_attempts_total{decision=not_retried,error_class=http_client_error}": 1,
		"fetchd_fetch_seconds{outcome=failed} count":                                1,
		"fetchd_phase_seconds{phase=processing} count":                              1,
		"fetchd_phase_seconds{phase=transfer} count":                                1,
	}},
	{"nothing listens", "refused", "/", func(r *fetch.Request) { r.Policy.MaxAttempts = 2 }, map[string]float64{
		"fetchd_fetches_total{error_class=connect_refused,outcome=failed}":               1,
		"fetchd_attempts_total{decision=retry,error_class=connect_refused}":              1,
		"fetchd_attempts_total{decision=attempts_exhausted,error_class=connect_refused}": 1,
		"fetchd_retry_delay_seconds{source=backoff} count":                               1,
		"fetchd_fetch_seconds{outcome=failed} count":                                     1,
		"fetchd_phase_seconds{phase=connect} count":                                      2,
	}},
	{"a redirect that is not followed", "http", "/r/e/302/1/200", func(r *fetch.Request) { r.Policy.Follow = false }, map[string]float64{
		"fetchd_fetches_total{error_class=none,outcome=redirect}":     1,
		"fetchd_attempts_total{decision=no_failure,error_class=none}": 1,
		"fetchd_fetch_seconds{outcome=redirect} count":                1,
		"fetchd_phase_seconds{phase=processing} count":                1,
		"fetchd_phase_seconds{phase=transfer} count":                  1,
	}},
	{"not modified", "http", "/s/f/304", func(r *fetch.Request) { r.Header = http.Header{"If-None-Match": {"*"}} }, map[string]float64{
		"fetchd_fetches_total{error_class=none,outcome=not_modified}": 1,
		"fetchd_attempts_total{decision=no_failure,error_class=none}": 1,
		"fetchd_fetch_seconds{outcome=not_modified} count":            1,
		"fetchd_phase_seconds{phase=processing} count":                1,
		"fetchd_phase_seconds{phase=transfer} count":                  1,
	}},
	{"on a connection that the origin then closes", "http", "/s/g/close-idle:size=2", nil, map[string]float64{
		"fetchd_fetches_total{error_class=none,outcome=success}":      1,
		"fetchd_attempts_total{decision=no_failure,error_class=none}": 1,
		"fetchd_fetch_seconds{outcome=success} count":                 1,
		"fetchd_phase_seconds{phase=processing} count":                1,
		"fetchd_phase_seconds{phase=transfer} count":                  1,
		"fetchd_body_bytes_total":                                     2,
		"fetchd_encoded_bytes_total":                                  2,
	}},
	{"on that connection, and then on a new one", "http", "/s/h/200:size=3", nil, map[string]float64{
		"fetchd_fetches_total{error_class=none,outcome=success}":             1,
		"fetchd_attempts_total{decision=retry,error_class=connection_reset}": 1,
		"fetchd_attempts_total{decision=no_failure,error_class=none}":        1,
		"fetchd_retry_delay_seconds{source=backoff} count":                   1,
		"fetchd_fetch_seconds{outcome=success} count":                        1,
		"fetchd_phase_seconds{phase=connect} count":                          1,
		"fetchd_phase_seconds{phase=processing} count":                       1,
		"fetchd_phase_seconds{phase=transfer} count":                         1,
		"fetchd_body_bytes_total":                                            3,
		"fetchd_encoded_bytes_total":                                         3,
	}},
}

func byName(r *fetch.Request) { r.URL.Host = "localhost:" + r.URL.Port() }

// TestMetricsMove checks that real fetches change the expected counters and no others.
func TestMetricsMove(t *testing.T) {
	r := counted(t)
	for _, row := range fetches {
		t.Run(row.name, func(t *testing.T) {
			r := r.in(t)
			before := r.series()
			out := r.fetch(row.listener, row.path, func(req *fetch.Request) {
				if row.change != nil {
					row.change(req)
				}
			})
			if row.want[encoded] == coded && out.Body.EncodedSize > 0 && out.Body.EncodedSize < out.Body.Size {
				row.want[encoded] = float64(out.Body.EncodedSize)
			}
			if diff := cmp.Diff(row.want, moved(before, r.series())); diff != "" {
				t.Errorf("%s, %v: moved (-want +got):\n%s", out.Kind, out.Failure, diff)
			}
		})
	}
}
