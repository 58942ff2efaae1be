package get

import (
	"strings"
	"testing"

	"fetchd/internal/cli"
	"fetchd/internal/reflex"
	"fetchd/test/rig"
)

// TestAnswers checks that each flag of curl or wget that get does not have says what to use instead.
func TestAnswers(t *testing.T) {
	t.Parallel()
	answers := reflex.GetAnswers()
	n := 0
	for flag, answer := range answers {
		got := fetchctl.Run(t, "get", flag, "http://127.0.0.1:1/")
		want := "fetchctl: " + flag + ": there is no such flag: " + answer + "\n"
		switch {
		case got.Code == cli.ExitUsage && got.Err == want:
			n++
		case strings.Contains(got.Err, "no such flag") || strings.Contains(got.Err, "unknown flag"):
			t.Errorf("%s: exit status %d, %q, want %q", flag, got.Code, got.Err, want)
		}
	}
	if n < 80 {
		t.Errorf("%d flags are answered, want 80 or more", n)
	}
}

// TestStray checks what is said to an argument that get does not take.
func TestStray(t *testing.T) {
	t.Parallel()
	const urls = "get takes one URL"
	for _, tt := range []struct {
		name string
		args []string
		want string
	}{
		{"a second URL", []string{"http://127.0.0.1:1/", "http://127.0.0.1:1/b"}, urls},
		{"a word behind a flag with a URL", []string{"-x", "http://127.0.0.1:1", "http://127.0.0.1:1/", "foo"}, "unexpected argument foo"},
		{"a name for -O", []string{"-O", "name", "http://127.0.0.1:1/"}, "-O takes no name"},
	} {
		if got := fetchctl.Run(t, append([]string{"get"}, tt.args...)...); got.Code != cli.ExitUsage || !strings.Contains(got.Err, tt.want) {
			t.Errorf("%s: exit status %d, %q, want %q", tt.name, got.Code, got.Err, tt.want)
		}
	}
}

// TestWholeErrors checks that errors of the service inside name resolvers and proxies.
func TestWholeErrors(t *testing.T) {
	t.Parallel()
	o := rig.Origin(t)
	refused := o.Addr("refused")
	for _, tt := range []struct {
		name string
		args []string
		want string
	}{
		{"a proxy", []string{"-x", "http://user:hush@" + refused, "http://a.test/"}, "a.test: proxyconnect tcp: dial tcp " + refused + ": connect: connection refused"},
		{"an origin", []string{o.URL("refused", "/")}, refused + ": dial tcp: connect: connection refused"},
		{"a status", []string{o.URL("http", "/s/status/503")}, o.Addr("http") + ": status 503 Service Unavailable\n"},
	} {
		for _, output := range []string{"--no-follow", "--json"} {
			got := fetchctl.Run(t, append([]string{"get", "-r", "1", output}, tt.args...)...)
			if n := strings.Count(got.Err, strings.TrimSuffix(tt.want, "\n")); n != 2 && output == "--no-follow" || n < 2 || strings.Contains(got.Err, "hush") {
				t.Errorf("%s, %s: %d times %q in\n%s", tt.name, output, n, tt.want, got.Err)
			}
		}
	}
}
