package main

import (
	"net"
	"os"
	"strings"
	"testing"

	"go.uber.org/goleak"

	"fetchd/internal/cli"
	"fetchd/internal/version"
)

// asProgram in the environment has the test binary be fetchd.
const asProgram = "RUN_AS_FETCHD"

func TestMain(m *testing.M) {
	if os.Getenv(asProgram) != "" {
		main()
	}
	goleak.VerifyTestMain(m)
}

// TestCommandLine runs what ends by itself.
func TestCommandLine(t *testing.T) {
	for _, row := range []struct {
		name, env, value string
		args             []string
		code             int
		stdout, stderr   string
	}{
		{name: "version", args: []string{"--version"}, stdout: "fetchd " + version.Long() + "\n"},
		{name: "version is no variable", args: []string{"--version"}, env: "FETCHD_VERSION", value: "v1", stdout: "fetchd "},
		{name: "help", args: []string{"--help"}, stdout: "--egress-allow-cidr"},
		{name: "version with a bad file", args: []string{"--version"}, env: "FETCHD_CONFIG", value: "/nowhere.yaml", stdout: "fetchd "},
		{name: "help with a bad file", args: []string{"--help"}, env: "FETCHD_CONFIG", value: "/nowhere.yaml", stdout: "--egress-allow-cidr"},
		{name: "a flag that left", args: []string{"--healthcheck"}, code: cli.ExitUsage, stderr: "--healthcheck: there is no such flag: the command fetchd healthcheck"},
		{name: "unknown flag", args: []string{"--nonsense"}, code: cli.ExitUsage, stderr: "--nonsense"},
		{name: "help of a command", args: []string{"token", "--help"}, stdout: "1 to 64 bytes"},
		{name: "help of keys new", args: []string{"keys", "new", "--help"}, stdout: "  -h, --help                     Show context-sensitive help.\n\n      --algorithm="},
		{name: "examples of keys new", args: []string{"keys", "new", "--help"}, stdout: "Examples:\n  fetchd keys new /etc/fetchd/keys\n"},
		{name: "flags of keys directory", args: []string{"keys", "directory", "--help"}, stdout: "Flags:\n  -h, --help    Show context-sensitive help.\n\nExit codes:"},
		{name: "unknown command", args: []string{"tokn"}, code: cli.ExitUsage, stderr: `did you mean "token"`},
		{name: "bad prefix", args: []string{"--egress-allow-cidr", "10.0.0.0"}, code: cli.ExitUsage, stderr: "--egress-allow-cidr: 10.0.0.0 is not a prefix: give one such as 10.1.0.0/16, or 1.2.3.4/32"},
		{name: "bad prefix in the environment", env: "FETCHD_EGRESS_ALLOW_CIDR", value: "x", code: cli.ExitUsage, stderr: "egress-allow-cidr"},
		{name: "mapped prefix", args: []string{"--egress-allow-cidr", "::ffff:10.0.0.0/104"}, code: cli.ExitUsage, stderr: "IPv4-mapped"},
		{name: "bad port", args: []string{"--egress-allow-port", "70000"}, code: cli.ExitUsage, stderr: "--egress-allow-port"},
		{name: "no time", args: []string{"--max-total-timeout", "0s"}, code: cli.ExitUsage, stderr: "--max-total-timeout"},
		{name: "bad level", args: []string{"--log-level", "loud"}, code: cli.ExitUsage, stderr: "--log-level"},
		{name: "address that is none", args: []string{"--grpc-addr", "nowhere"}, code: cli.ExitUsage, stderr: "--grpc-addr=nowhere: "},
		{name: "HTTP address that is none", args: []string{"--http-addr", "nowhere"}, code: cli.ExitUsage, stderr: "--http-addr=nowhere: "},
		{name: "port that is taken", args: []string{"--grpc-addr", taken(t), "--http-addr="}, code: cli.ExitFailed, stderr: "--grpc-addr: "},
		{name: "HTTP port that is taken", args: []string{"--grpc-addr", "127.0.0.1:0", "--http-addr", taken(t)}, code: cli.ExitFailed, stderr: "--http-addr: "},
		{name: "no authorities for origins", args: []string{"--egress-ca-file", "/nowhere/ca.pem"}, code: cli.ExitUsage, stderr: "--egress-ca-file: "},
		{name: "health of nothing", args: []string{"healthcheck", "--grpc-addr", "127.0.0.1:1"}, code: cli.ExitFailed, stderr: "127.0.0.1:1"},
	} {
		t.Run(row.name, func(t *testing.T) {
			if row.env != "" {
				t.Setenv(row.env, row.value)
			}
			code, stdout, stderr := command(t, row.args...)
			if code != row.code || !strings.Contains(stdout, row.stdout) || !strings.Contains(stderr, row.stderr) {
				t.Errorf("fetchd %v: code %d, stdout %.200q, stderr %q; want code %d, %q in stdout, %q in stderr",
					row.args, code, stdout, stderr, row.code, row.stdout, row.stderr)
			}
		})
	}
}

// taken is an address that something listens on.
func taken(t *testing.T) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	must(t, err)
	t.Cleanup(func() { _ = l.Close() })
	return l.Addr().String()
}

// TestEgressCheck says what would happen, by the exit codes that scripts use.
func TestEgressCheck(t *testing.T) {
	rules := newFolder(t).write("policies.yaml", []byte("routes: {berlin: {proxy: 'http://proxy.example:3128'}, deaf: {resolver: '127.0.0.1:1', ip-family: ipv4}}\n"+
		"policies: {a: {egress: {allow-names: [www.example.com], deny-names: ['*.ads.example']}}, b: {}, c: {egress: {route: berlin}}, d: {egress: {route: deaf}}}\n"+
		"callers: [{caller: team, policy: a}, {caller: far, policy: c}, {caller: deaf, policy: d}, {address: 10.0.0.0/8, policy: a}]\ndefault: b\n"))
	of := func(caller, u string) []string {
		return []string{"--policies-file", rules, "egress-check", "--caller", caller, u}
	}
	for _, row := range []struct {
		name   string
		args   []string
		code   int
		stdout string
	}{
		{"a public address", []string{"egress-check", "http://8.8.8.8/"}, cli.ExitOK, "allowed: 8.8.8.8"},
		{"loopback", []string{"egress-check", "http://127.0.0.1/"}, cli.ExitFailed, "address_not_allowed"},
		{"loopback, opened", []string{"--egress-allow-cidr", "127.0.0.0/8", "egress-check", "http://127.0.0.1/"}, cli.ExitOK, "allowed"},
		{"opened and closed", []string{"--egress-allow-cidr", "127.0.0.0/8", "--egress-deny-cidr", "127.0.0.1/32", "egress-check", "http://127.0.0.1/"}, cli.ExitFailed, "address_denied"},
		{"the service itself", []string{"--egress-allow-cidr", "127.0.0.0/8", "--egress-allow-port", "8080", "egress-check", "http://127.0.0.1:8080/"}, cli.ExitFailed, "own_listener"},
		{"the service itself, on every address", serviceAt(":8080", "127.0.0.9"), cli.ExitFailed, "own_listener"},
		{"the service itself, on every address, IPv6", serviceAt(":8080", "[::1]"), cli.ExitFailed, "own_listener"},
		{"the service itself, by name", serviceAt("localhost:8080", "127.0.0.1"), cli.ExitFailed, "own_listener"},
		{"the service itself, unspecified", serviceAt("localhost:8080", "0.0.0.0"), cli.ExitFailed, "own_listener"},
		{"beside the service itself", serviceAt("localhost:8080", "127.0.0.2"), cli.ExitOK, "allowed: 127.0.0.2:8080\n"},
		{"a service that could not listen", serviceAt("nowhere", "127.0.0.1"), cli.ExitFailed, ""},
		{"a name through the proxy", byProxy("http://www.example.com/"), cli.ExitOK, "allowed: www.example.com (through the proxy; its addresses are the proxy's to judge)\n"},
		{"an address through the proxy", byProxy("http://8.8.8.8/"), cli.ExitOK, "allowed: 8.8.8.8 (through the proxy)\n"},
		{"a closed address through the proxy", byProxy("http://10.0.0.1/"), cli.ExitFailed, "address_not_allowed"},
		{"a closed name through the proxy", byProxy("http://db.internal/"), cli.ExitFailed, "name_not_allowed"},
		{"a proxy that cannot be", []string{"--egress-proxy", "http://proxy:99999", "egress-check", "http://8.8.8.8/"}, cli.ExitFailed, ""},
		{"the service itself, by HTTP", []string{"--egress-allow-cidr", "127.0.0.0/8", "--egress-allow-port", "8081", "egress-check", "http://127.0.0.1:8081/"}, cli.ExitFailed, "own_listener"},
		{"a port", []string{"egress-check", "http://8.8.8.8:22/"}, cli.ExitFailed, "port_not_allowed"},
		{"a name inside", []string{"egress-check", "http://db.internal/"}, cli.ExitFailed, "name_not_allowed"},
		{"a name that is closed", []string{"--egress-deny-host", "*.example.com", "egress-check", "http://www.example.com/"}, cli.ExitFailed, "name_denied"},
		{"a name that cannot be looked up", []string{"--egress-resolver", "127.0.0.1:1", "egress-check", "http://www.example.com/"}, cli.ExitFailed,
			"unknown: www.example.com: the name is not forbidden, but its addresses could not be looked up\n"},
		{"a policy", of("team", "http://8.8.8.8/"), cli.ExitFailed, "forbidden (P1): 8.8.8.8: name_not_allowed: the policy \"a\" of this caller forbids"},
		{"a policy by address", of("address:10.1.1.1", "http://x.ads.example/"), cli.ExitFailed, "its name is in deny-names (*.ads.example)"},
		{"a policy, rule by rule", of("team", "http://x.ads.example/"), cli.ExitFailed, `
TARGET         BY        RULE                                 RESULT
x.ads.example  settings  scheme                               passed
x.ads.example  settings  --egress-allow-port                  passed
x.ads.example  settings  --egress-deny-host                   passed
x.ads.example  settings  names of metadata services           passed
x.ads.example  settings  names inside a network               passed
x.ads.example  a         schemes                              passed
x.ads.example  a         ports                                passed
x.ads.example  a         deny-names                           failed
x.ads.example  a         names of metadata services           not asked
x.ads.example  a         allow-names, names inside a network  not asked
its addresses  settings  listeners of this service            not asked
`},
		{"the settings, rule by rule", of("other", "http://10.0.0.1/"), cli.ExitFailed, `
10.0.0.1  settings  --egress-deny-cidr                   passed
10.0.0.1  settings  --egress-allow-cidr                  failed
10.0.0.1  b         schemes                              not asked
`},
		{"an address for a name", of("10.1.1.1", "http://8.8.8.8/"), cli.ExitUsage, ""},
		{"a name for an address", of("address:team", "http://8.8.8.8/"), cli.ExitUsage, ""},
		{"the policy of all others", of("other", "http://10.0.0.1/"), cli.ExitFailed, "address_not_allowed"},
		{"a route through a proxy", of("far", "http://www.example.com/"), cli.ExitOK, "allowed: www.example.com (through the proxy; its addresses are the proxy's to judge)\n" +
			"far has the policy \"c\", mode enforce\nthe route \"berlin\": through the proxy http://proxy.example:3128, which looks up the names of origins, so that only the URL is checked\n"},
		{"a closed address over a route through a proxy", of("far", "http://10.0.0.1/"), cli.ExitFailed, "address_not_allowed"},
		{"a direct route", of("deaf", "http://8.8.8.8/"), cli.ExitOK, "the route \"deaf\": direct, with the resolver 127.0.0.1:1, only over IPv4\n"},
		{"the resolver of a route", of("deaf", "http://www.example.com/"), cli.ExitFailed, "unknown: www.example.com: the name is not forbidden, but its addresses could not be looked up\n"},
		{"a caller without policies", []string{"egress-check", "--caller", "team", "http://8.8.8.8/"}, cli.ExitUsage, ""},
		{"no URL", []string{"egress-check", "http://user@8.8.8.8/"}, cli.ExitUsage, "invalid"},
		{"a number", []string{"egress-check", "http://2130706433/"}, cli.ExitUsage, "invalid"},
	} {
		t.Run(row.name, func(t *testing.T) {
			code, stdout, stderr := command(t, row.args...)
			if code != row.code || !strings.Contains(stdout, row.stdout) {
				t.Errorf("code %d, stdout %q, stderr %q, want code %d and %q", code, stdout, stderr, row.code, row.stdout)
			}
			if told := strings.HasPrefix(stdout, "allowed"); told != (row.code == cli.ExitOK) {
				t.Errorf("stdout %q with code %d", stdout, row.code)
			}
		})
	}
}

// serviceAt checks port 8080 of a host against a service at an address.
func serviceAt(address, host string) []string {
	return []string{"--grpc-addr", address, "--egress-allow-cidr", "127.0.0.0/8", "--egress-allow-cidr", "::1/128",
		"--egress-allow-port", "8080", "egress-check", "http://" + host + ":8080/"}
}

// byProxy checks a URL where nothing can be looked up here.
func byProxy(u string) []string {
	return []string{"--egress-proxy", "http://proxy.example:3128", "--egress-resolver", "127.0.0.1:1", "egress-check", u}
}

// TestKeyLog: no start with a file for TLS keys in the environment.
func TestKeyLog(t *testing.T) {
	t.Setenv("SSLKEYLOGFILE", "/nowhere")
	if code, _, stderr := command(t, "--grpc-addr", "127.0.0.1:0"); code != cli.ExitUsage {
		t.Errorf("code %d, stderr %q, want %d", code, stderr, cli.ExitUsage)
	}
}
