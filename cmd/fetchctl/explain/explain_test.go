package explain

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"google.golang.org/protobuf/encoding/protojson"

	pb "fetchd/gen/fetchd/v1"
	"fetchd/internal/cli"
	"fetchd/test/clitest"
)

var fetchctl = clitest.Command("fetchctl", func() any {
	return new(struct {
		Explain Command `cmd:""`
	})
})

func TestExplain(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name string
		args string
		want []string
	}{
		{"a server error", "--status 503", []string{"503 Service Unavailable, attempt 1", "http_server_error, transient",
			"rule H1", "500 to 599", "retry: attempt 2 follows, from the first URL", "rule W1", "200ms, from backoff",
			"yes: a later fetch", "standard: 3 attempts, backoff from 100ms by 2 to 2s, Retry-After to 30s"}},
		{"the last attempt", "--status 503 --attempt 3", []string{"no retry: attempts_exhausted", "rule I4"}},
		{"a wait that was asked for", "--status 429 -H Retry-After:5", []string{"Retry-After: 5", "5s, from retry_after", "rule W2"}},
		{"too long a wait", "--status 429 -H Retry-After:120", []string{"retry_after_too_long", "rule W3", "asked for  2m0s"}},
		{"a fault", "--fault body-interrupted", []string{"body_interrupted", "rule N8"}},
		{"a fault by its proto name", "--fault ERROR_CLASS_TLS_CERTIFICATE", []string{"rule N6", "no retry: not_retried"}},
		{"two faults", "--fault body_timeout --fault shutdown", []string{"body_timeout, shutdown", "rule P5"}},
		{"delivered bytes", "--status 200 --fault body_interrupted --body-committed", []string{"body_committed", "rule B3"}},
		{"a POST", "--method POST --status 503", []string{"not_idempotent", "rule I2", "no: the request is not sent again, because it may have taken effect"}},
		{"a POST with a key", "--method POST --status 503 --idempotency-key k", []string{"retry: attempt 2"}},
		{"success", "--status 200", []string{"no retry: no_failure", "rule H0"}},
		{"not modified", "--status 304 --conditional", []string{"rule H7", "not_modified, if"}},
		{"a redirect", "--status 302 -H Location:https://other.example/x", []string{"follow the redirect", "GET https://other.example/x", "another origin"}},
		{"a redirect that keeps its body", "--method POST --status 307 -H Location:/x", []string{"POST http://origin.example/x", "with the body"}},
		{"a redirect too many", "--status 302 -H Location:/x --redirects 5", []string{"too_many_redirects", "rule R1"}},
		{"a redirect not followed", "--status 302 -H Location:/x --no-follow", []string{"rule H9"}},
		{"a download", "--profile download --status 408", []string{"rule H5", "from backoff", "plus jitter to 500ms"}},
		{"text that steers", "--status 200 -H X:\x1b[2J", []string{`X: \x1b[2J`}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			args := append([]string{"explain"}, strings.Fields(tt.args)...)
			for i := range args {
				args[i] = strings.ReplaceAll(args[i], "+", " ")
			}
			got := fetchctl.Run(t, args...)
			if got.Code != cli.ExitOK {
				t.Fatalf("explain %s: exit status %d\n%s", tt.args, got.Code, got.Err)
			}
			for _, want := range tt.want {
				if !strings.Contains(got.Out, want) {
					t.Errorf("explain %s: lacks %q\n%s", tt.args, want, got.Out)
				}
			}
		})
	}
}

func TestExplainUsage(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name, stdin string
		args        []string
		told        string
	}{
		{"nothing observed", "", nil, "give --status CODE, --fault CLASS or both"},
		{"no such class", "", []string{"--fault", "bad_luck"}, "dns_not_found, dns_failure"},
		{"a header without a response", "", []string{"-H", "Retry-After: 5"}, "--status: is missing"},
		{"no header", "", []string{"--status", "503", "-H", "Retry-After"}, "give Name: value"},
		{"a status that is none", "", []string{"--status", "0"}, "response.status_code: is 0"},
		{"all that is wrong", "", []string{"--status", "1000", "--method", "get"}, "method: is"},
		{"too many retries", "", []string{"--status", "503", "-r", "11"}, "give 0 to 10"},
		{"no such file", "", []string{"@missing.json"}, "missing.json"},
		{"neither file nor input", "", []string{"request.json"}, "neither @FILE.json nor -"},
		{"no JSON", "{", []string{"-"}, "-: "},
		{"no such field", `{"answer": 42}`, []string{"-"}, "answer"},
		{"flags beside JSON", "{}", []string{"-", "--status", "503"}, "one of the two"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			got := fetchctl.With(t.Context(), tt.stdin, nil, append([]string{"explain"}, tt.args...)...)
			if got.Code != cli.ExitUsage || !strings.Contains(got.Err, tt.told) || got.Out != "" {
				t.Errorf("exit status %d, %q; want %d and %q", got.Code, got.Err, cli.ExitUsage, tt.told)
			}
		})
	}
}

func TestExplainFile(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "request.json")
	clitest.Must(t, os.WriteFile(file, []byte(`{"response": {"status_code": 503}, "attempt": 2}`), 0o600))
	got := fetchctl.Run(t, "explain", "--json", "@"+file)
	resp := new(pb.ExplainResponse)
	if err := protojson.Unmarshal([]byte(got.Out), resp); err != nil {
		t.Fatalf("explain --json wrote %q: %v", got.Out, err)
	}
	if got.Code != cli.ExitOK || strings.Count(got.Out, "\n") != 1 || resp.GetRetryDecision().GetRetry().GetDelay().AsDuration().String() != "400ms" {
		t.Errorf("explain @FILE: exit status %d, %s; want a line that decides on 400ms", got.Code, got.Out)
	}
}
