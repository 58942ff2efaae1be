package tools

import (
	"strings"
	"testing"
)

// TestExplain asks what follows from failures.
func TestExplain(t *testing.T) {
	t.Parallel()
	r := start(t, Config{Structured: true}, nil)
	for _, row := range []struct {
		name      string
		arguments map[string]any
		want      []string
	}{
		{"a status that is retried", map[string]any{"status": 503}, []string{"http_server_error, transient", "A later fetch may succeed.", "Decision: retry in 200ms (W1 backoff).", "Rule H1: ", "Rule W1: "}},
		{"the last attempt", map[string]any{"status": 503, "attempt": 3}, []string{"Decision: no retry: attempts_exhausted"}},
		{"a status that is not", map[string]any{"status": 404}, []string{"http_client_error, permanent", "not expected to succeed", "Rule H6: "}},
		{"a wait", map[string]any{"status": 429, "retry_after": "7"}, []string{"rate_limited", "The origin asks to wait 7s.", "Decision: retry in 7s"}},
		{"a fault", map[string]any{"fault": "tls_certificate"}, []string{"tls_certificate, permanent", "Rule N6: "}},
		{"a method", map[string]any{"status": 503, "method": "POST"}, []string{"no retry: not_idempotent", "The request is not sent again, because it may have taken effect."}},
		{"a success", map[string]any{"status": 200}, []string{"This is not a failure: success."}},
		{"a redirect without a target", map[string]any{"status": 302}, []string{"redirect"}},
	} {
		t.Run(row.name, func(t *testing.T) {
			t.Parallel()
			got := r.call(t, "explain", row.arguments)
			for _, text := range row.want {
				if got.IsError || got.StructuredContent == nil || !strings.Contains(got.texts[0], text) {
					t.Errorf("error %t: %q, want %q", got.IsError, got.texts, text)
				}
			}
		})
	}
}
