package main

import (
	"os"
	"strings"
	"testing"

	"fetchd/internal/cli"

	"github.com/google/go-cmp/cmp"
)

// inForce runs fetchd config and returns its lines by key.
func inForce(t *testing.T, args ...string) map[string]string {
	t.Helper()
	lines := make(map[string]string)
	for line := range strings.Lines(printed(t, args...)) {
		key, rest, _ := strings.Cut(strings.TrimSuffix(line, "\n"), ": ")
		lines[key] = rest
	}
	return lines
}

func printed(t *testing.T, args ...string) string {
	t.Helper()
	code, stdout, stderr := command(t, append([]string{"config"}, args...)...)
	if code != cli.ExitOK {
		t.Fatalf("fetchd config %q: code %d, stderr %q", args, code, stderr)
	}
	return stdout
}

// TestPrecedence: a flag, the environment, the file, the default.
func TestPrecedence(t *testing.T) {
	const unset = "\x00"
	for _, setting := range []struct {
		key, variable, flag, environment, file, byDefault string
		read                                              map[string]string // as printed, where that differs
	}{
		{key: "max-fetches", variable: "FETCHD_MAX_FETCHES", flag: "1", environment: "2", file: "3", byDefault: "0"},
		{key: "max-total-timeout", variable: "FETCHD_MAX_TOTAL_TIMEOUT", flag: "1s", environment: "2s", file: "3s", byDefault: "15m0s"},
		{key: "allow-plaintext", variable: "FETCHD_ALLOW_PLAINTEXT", flag: "true", environment: "false", file: "true", byDefault: "false"},
		{key: "non-idempotent-retries", variable: "FETCHD_NON_IDEMPOTENT_RETRIES", flag: "forbid", environment: "by-request", file: "forbid", byDefault: "by-request"},
		{key: "trace-ratio", variable: "FETCHD_TRACE_RATIO", flag: "0.25", environment: "0", file: "0.5", byDefault: "1"},
		{key: "user-agent", variable: "FETCHD_USER_AGENT", flag: "a", environment: "b c", file: "d#e", byDefault: `""`},
		{key: "http-addr", variable: "FETCHD_HTTP_ADDR", flag: "127.0.0.1:1", environment: "", file: "127.0.0.1:3", byDefault: "127.0.0.1:8081",
			read: map[string]string{"": `""`}},
		{key: "egress-allow-port", variable: "FETCHD_EGRESS_ALLOW_PORT", flag: "1,2", environment: "3", file: "[4, 5]", byDefault: "[]",
			read: map[string]string{"1,2": "[1, 2]", "3": "[3]"}},
		{key: "egress-allow-cidr", variable: "FETCHD_EGRESS_ALLOW_CIDR", flag: "10.0.0.0/8", environment: "10.1.0.0/16,::1/128", file: "[10.2.0.0/16]", byDefault: "[]",
			read: map[string]string{"10.0.0.0/8": "[10.0.0.0/8]", "10.1.0.0/16,::1/128": "[10.1.0.0/16, '::1/128']"}},
		{key: "egress-deny-host", variable: "FETCHD_EGRESS_DENY_HOST", flag: "a.example", environment: "b.example", file: `["*.example"]`, byDefault: "[]",
			read: map[string]string{"a.example": "[a.example]", "b.example": "[b.example]", `["*.example"]`: "['*.example']"}},
		{key: "egress-no-reuse", variable: "FETCHD_EGRESS_NO_REUSE", flag: "*", environment: "b.example:81", file: `["Bücher.example", "[2001:db8::1]:443"]`, byDefault: "[]",
			read: map[string]string{"*": "['*']", "b.example:81": "['b.example:81']", `["Bücher.example", "[2001:db8::1]:443"]`: "[Bücher.example, '[2001:db8::1]:443']"}},
	} {
		for _, row := range []struct {
			name                    string
			flag, environment, file bool
		}{
			{"all", true, true, true}, {"flag and environment", true, true, false}, {"flag and file", true, false, true}, {"flag", true, false, false},
			{"environment and file", false, true, true}, {"environment", false, true, false}, {"file", false, false, true}, {"none", false, false, false},
		} {
			t.Run(setting.key+"/"+row.name, func(t *testing.T) {
				f, args, environment := newFolder(t), []string(nil), unset
				want := setting.byDefault + " # default"
				show := func(value, from string) {
					if shown, differs := setting.read[value]; differs {
						value = shown
					}
					want = value + " # " + from
				}
				if row.file {
					path := f.write("fetchd.yaml", []byte("# first\n"+setting.key+": "+setting.file+"\n"))
					args = append(args, "--config", path)
					show(setting.file, "file "+path+":2")
				}
				if row.environment {
					environment = setting.environment
					show(environment, "environment "+setting.variable)
				}
				if row.flag {
					args = append(args, "--"+setting.key+"="+setting.flag)
					show(setting.flag, "flag")
				}
				if environment != unset {
					t.Setenv(setting.variable, environment)
				}
				if got := inForce(t, args...)[setting.key]; got != want {
					t.Errorf("%s: got %q, want %q", setting.key, got, want)
				}
			})
		}
	}
}

// TestConfigInTheEnvironment: FETCHD_CONFIG names a file too, and the flag wins.
func TestConfigInTheEnvironment(t *testing.T) {
	f := newFolder(t)
	a, b := f.write("a.yaml", []byte("max-fetches: 1\n")), f.write("b.yaml", []byte("max-fetches: 2\n"))
	t.Setenv("FETCHD_CONFIG", a)
	if got := inForce(t)["max-fetches"]; got != "1 # file "+a+":1" {
		t.Errorf("by the environment: %q", got)
	}
	if got := inForce(t, "--config", b)["max-fetches"]; got != "2 # file "+b+":1" {
		t.Errorf("by the flag: %q", got)
	}
}

// TestConfigIsAFile: what is printed says the same again when it is read.
func TestConfigIsAFile(t *testing.T) {
	f, a := newFolder(t), newAuthority(t)
	first := printed(t, append(f.certify(a, wish{}), "--tls-client-ca-file", f.write("ca.pem", a.pem), "--tls-allow-san", `urn:a\,b`, "--tls-allow-san", "c", "--user-agent", "x: y # z\t\"q\"", "--trace-ratio", "0.125",
		"--egress-allow-cidr", "10.0.0.0/8", "--egress-allow-port", "9080", "--http-addr=", "--log-format", "text", "--drain-time", "1m30s")...)
	again := printed(t, "--config", f.write("again.yaml", []byte(first)))
	strip := func(text string) (bare []string) {
		for line := range strings.Lines(text) {
			if end := strings.LastIndex(line, " # "); end >= 0 {
				line = line[:end]
			}
			bare = append(bare, line) // the certificates at the end are comments
		}
		return bare
	}
	if diff := cmp.Diff(strip(first), strip(again)); diff != "" {
		t.Errorf("printed and read again (-first +again):\n%s", diff)
	}
	if n := len(strip(first)); n != strings.Count(first, "\n") || n < 25 {
		t.Errorf("%d settings on %d lines", n, strings.Count(first, "\n"))
	}
}

// TestProxyIsHidden wherever its user and password might be shown.
func TestProxyIsHidden(t *testing.T) {
	const url = "http://alice:hunter2@proxy.example:3128"
	f := newFolder(t)
	for _, row := range []struct {
		name, environment string
		args              []string
		code              int
	}{
		{name: "by a flag", args: []string{"config", "--egress-proxy", url}},
		{name: "by the environment", environment: url, args: []string{"config"}},
		{name: "by the file", args: []string{"config", "--config", f.write("a.yaml", []byte("egress-proxy: "+url+"\n"))}},
		{name: "a list", args: []string{"config", "--config", f.write("b.yaml", []byte("egress-proxy: ["+url+"]\n"))}, code: cli.ExitUsage},
		{name: "no URL", args: []string{"config", "--egress-proxy", url + "\x7f"}, code: cli.ExitUsage},
		{name: "no URL in the environment", environment: "http://alice:hunter2@[", args: []string{"config"}, code: cli.ExitUsage},
		{name: "no proxy", args: []string{"config", "--egress-proxy", "ftp://alice:hunter2@proxy.example"}, code: cli.ExitUsage},
		{name: "a bare word", args: []string{"config", "--egress-proxy", "alice:hunter2"}, code: cli.ExitUsage},
	} {
		t.Run(row.name, func(t *testing.T) {
			if row.environment != "" {
				t.Setenv("FETCHD_EGRESS_PROXY", row.environment)
			}
			code, stdout, stderr := command(t, row.args...)
			all := stdout + stderr
			if code != row.code || strings.Contains(all, "hunter2") || strings.Contains(all, "alice") {
				t.Errorf("%q: code %d, want %d, and no user or password:\n%s", row.args, code, row.code, all)
			}
			if want := "egress-proxy: http://xxxxx@proxy.example:3128 # "; code == cli.ExitOK && !strings.Contains(all, want) {
				t.Errorf("no %q in:\n%s", want, all)
			}
		})
	}
}

// TestWrongSettings: what is said names the place, the value and the remedy, and
// says the same for a start and for fetchd config.
func TestWrongSettings(t *testing.T) {
	f := newFolder(t)
	a := newAuthority(t)
	cert, key := a.sign(wish{})
	_, other := a.sign(wish{})
	certFile, keyFile, otherKey := f.write("cert.pem", cert), f.write("key.pem", key), f.write("other.pem", other)
	pair := []string{"--tls-cert-file", certFile, "--tls-key-file", keyFile}
	ca := append([]string{"--tls-client-ca-file", f.write("ca.pem", a.pem)}, pair...)
	const hash = "9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08"
	for _, row := range []struct {
		name, file, tokens string
		variable, value    string
		args               []string
		want               []string
	}{
		{name: "unknown key", file: "max-fetches: 1\nmax-fetchs: 2\n", want: []string{"fetchd.yaml:2: max-fetchs: is not a setting"}},
		{name: "a flag that is a request", file: "healthcheck: true\n", want: []string{"fetchd.yaml:1: healthcheck: is not a setting"}},
		{name: "the file itself", file: "config: x\n", want: []string{"fetchd.yaml:1: config: is not a setting"}},
		{name: "duplicate key", file: "max-fetches: 1\n\nmax-fetches: 2\n", want: []string{"fetchd.yaml:3: max-fetches: is already set on line 1: keep one"}},
		{name: "merge key", file: "<<: {max-fetches: 1}\n", want: []string{"fetchd.yaml:1: <<: is not a setting"}},
		{name: "a key that is a list", file: "[max-fetches]: 1\n", want: []string{"fetchd.yaml:1: "}},
		{name: "text for a number", file: "max-fetches: many\n", want: []string{`fetchd.yaml:1: max-fetches: "many" is not usable: want a whole number`}},
		{name: "a number in quotes", file: `max-fetches: "5"`, want: []string{`fetchd.yaml:1: max-fetches: "5" is not usable`}},
		{name: "nothing", file: "max-fetches:\n", want: []string{"fetchd.yaml:1: max-fetches: "}},
		{name: "a list for a number", file: "max-fetches: [1]\n", want: []string{"fetchd.yaml:1: max-fetches: is not usable"}},
		{name: "an alias", file: "max-fetches: &a 1\nmax-connections: *a\n", want: []string{"fetchd.yaml:2: max-connections: "}},
		{name: "a number for a time", file: "drain-time: 30\n", want: []string{`fetchd.yaml:1: drain-time: "30" is not usable: want a time with its unit, such as 15m`}},
		{name: "yes for true", file: "allow-plaintext: yes\n", want: []string{`allow-plaintext: "yes" is not usable: want true or false`}},
		{name: "a number for text", file: "user-agent: 12\n", want: []string{`user-agent: "12" is not usable: want text, in quotes`}},
		{name: "no list", file: "egress-allow-port: 9080\n", want: []string{`egress-allow-port: "9080" is not usable: want a list, [A, B], of port numbers`}},
		{name: "a port that is none", file: "egress-allow-port:\n- 80\n- 70000\n", want: []string{"egress-allow-port: is not usable: want a list, [A, B], of port numbers from 1 to 65535"}},
		{name: "port 0", file: "egress-allow-port: [0]\n", want: []string{"fetchd.yaml:1: egress-allow-port: [0]: 0 is not a port"}},
		{name: "a prefix that is none", file: "egress-allow-cidr: [10.0.0.0]\n", want: []string{"egress-allow-cidr: is not usable: want a list, [A, B], of prefixes such as"}},
		{name: "an empty item", file: `egress-deny-host: [""]`, want: []string{"egress-deny-host: is not usable"}},
		{name: "out of range", file: "\nmax-fetches: -5\n", want: []string{"fetchd.yaml:2: max-fetches: -5: is out of range, give a positive value"}},
		{name: "out of range in the environment", variable: "FETCHD_MAX_FETCHES", value: "-1", want: []string{"FETCHD_MAX_FETCHES=-1: is out of range"}},
		{name: "out of range by a flag", args: []string{"--drain-time=-1s"}, want: []string{"--drain-time=-1s: is out of range"}},
		{name: "no level", file: "log-level: loud\n", want: []string{"fetchd.yaml:1: log-level: loud: is not a level, give debug, info, warn or error"}},
		{name: "no such leave", variable: "FETCHD_NON_IDEMPOTENT_RETRIES", value: "allow", want: []string{"FETCHD_NON_IDEMPOTENT_RETRIES=allow: is not valid, give by-request or forbid"}},
		{name: "no form", variable: "FETCHD_LOG_FORMAT", value: "xml", want: []string{"FETCHD_LOG_FORMAT=xml: is not a format, give json or text"}},
		{name: "no ratio", file: "trace-ratio: 1.5\n", want: []string{"trace-ratio: 1.5: is out of range, give a number from 0 to 1"}},
		{name: "no ratio at all", file: "trace-ratio: .nan\n", want: []string{"trace-ratio: "}},
		{name: "no endpoint", args: []string{"--trace-endpoint", "collector"}, want: []string{"--trace-endpoint=collector: is not an address, give HOST:PORT"}},
		{name: "a host that is none", file: "egress-deny-host: [Upper]\n", want: []string{`fetchd.yaml:1: egress-deny-host: [Upper]: "Upper" is not usable: give a name in lower case, *.name`}},
		{name: "an address for a host", args: []string{"--egress-deny-host", "1.2.3.4"}, want: []string{`"1.2.3.4" is an address, which no name matches: give --egress-deny-cidr 1.2.3.4/32`}},
		{name: "an IPv6 address for a host", args: []string{"--egress-deny-host", "[2001:db8::1]"}, want: []string{`"[2001:db8::1]" is an address, which no name matches: give --egress-deny-cidr 2001:db8::1/128`}},
		{name: "part of an address for a host", args: []string{"--egress-deny-host", "*.2.3.0x4"}, want: []string{`"*.2.3.0x4" is an address`}},
		{name: "a resolver without a port", args: []string{"--egress-resolver", "127.0.0.1"}, want: []string{"--egress-resolver=127.0.0.1: is not usable, give IP:PORT"}},
		{name: "a resolver with a name", file: "egress-resolver: 'dns.local:53'\n", want: []string{"fetchd.yaml:1: egress-resolver: dns.local:53: is not usable"}},
		{name: "a control character", file: `user-agent: "a\nb"`, want: []string{"user-agent: ", "has a character that is not allowed in a header"}},
		{name: "a host to reuse nothing of that is a URL", file: "egress-no-reuse: [a.example, 'http://b.example']\n",
			want: []string{`fetchd.yaml:1: egress-no-reuse: [a.example http://b.example]: "http://b.example" is not a host: give *, NAME, NAME:PORT, or an IP address`}},
		{name: "no YAML", file: "max-fetches: [\n", want: []string{"fetchd.yaml: yaml: line"}},
		{name: "no mapping", file: "- max-fetches\n", want: []string{"fetchd.yaml:1: want settings such as"}},
		{name: "two documents", file: "max-fetches: 1\n---\nmax-fetches: 2\n", want: []string{"fetchd.yaml: has more than one YAML document"}},
		{name: "no such file", args: []string{"--config", "/nowhere/fetchd.yaml"}, want: []string{"--config: open /nowhere/fetchd.yaml: no such file"}},
		{name: "a setting that is overridden is checked", file: "max-fetches: many\n", args: []string{"--max-fetches", "1"}, want: []string{"fetchd.yaml:1: max-fetches"}},

		{name: "a console without its port", args: []string{"--console", "--http-addr="}, want: []string{"--console=true: needs --http-addr"}},
		{name: "a name without a console", args: []string{"--console-host", "a.example"}, want: []string{"--console-host=[a.example]: needs --console"}},
		{name: "a name with a port", file: "console: true\nconsole-host: [\"a.example:80\"]\n", want: []string{"fetchd.yaml:2: console-host: [a.example:80]: is not a host name"}},
		{name: "a name that is a URL", args: []string{"--console", "--console-host", "https://a.example"}, want: []string{"is not a host name"}},
		{name: "a console for everyone", args: []string{"--console", "--http-addr", ":0"}, want: []string{"--http-addr=:0: is not on loopback", "--allow-plaintext"}},
		{name: "plaintext for everyone", args: []string{"--grpc-addr", ":0"}, want: []string{"--grpc-addr=:0: is not on loopback", "--tls-cert-file and --tls-key-file", "--allow-plaintext"}},
		{name: "plaintext over HTTP", args: []string{"--grpc-addr", "127.0.0.1:0"}, file: `http-addr: "[::]:0"`, want: []string{"fetchd.yaml:1: http-addr: [::]:0: is not on loopback"}},
		{name: "no key", args: pair[:2], want: []string{"--tls-cert-file=" + certFile + ": needs --tls-key-file"}},
		{name: "no certificate", args: pair[2:], want: []string{"--tls-key-file=" + keyFile + ": needs --tls-cert-file"}},
		{name: "authorities without TLS", args: ca[:2], want: []string{"--tls-client-ca-file=", "needs --tls-cert-file and --tls-key-file"}},
		{name: "names without authorities", args: append([]string{"--tls-allow-san", "a.example"}, pair...), want: []string{"--tls-allow-san=[a.example]: needs --tls-client-ca-file"}},
		{name: "a name with a backslash", args: append([]string{"--tls-allow-san", `a\b`}, ca...), want: []string{"names are compared exactly"}},
		{name: "a name with a wildcard", args: append([]string{"--tls-allow-san", "*.example"}, ca...), want: []string{"--tls-allow-san=[*.example]: names are compared exactly"}},
		{name: "certificate that is missing", args: []string{"--tls-cert-file", "/nowhere/cert.pem", "--tls-key-file", keyFile}, want: []string{"--tls-cert-file: open /nowhere/cert.pem"}},
		{name: "key that is missing", args: []string{"--tls-cert-file", certFile, "--tls-key-file", "/nowhere/key.pem"}, want: []string{"--tls-key-file: open /nowhere/key.pem"}},
		{name: "authorities that are missing", args: append([]string{"--tls-client-ca-file", "/nowhere/ca.pem"}, pair...), want: []string{"--tls-client-ca-file: open /nowhere/ca.pem"}},
		{name: "key of another", args: []string{"--tls-cert-file", certFile, "--tls-key-file", otherKey}, want: []string{certFile, otherKey, "does not match"}},
		{name: "authorities that are none", args: append([]string{"--tls-client-ca-file", keyFile}, pair...), want: []string{keyFile + ": contains a PRIVATE KEY: keep only certificates"}},
		{name: "authorities and rubbish", args: append([]string{"--tls-client-ca-file", f.write("rubbish.pem", append([]byte(nil), append(a.pem, "rubbish"...)...))}, pair...), want: []string{"rubbish.pem: must contain only certificates"}},
		{name: "no authorities", args: append([]string{"--tls-client-ca-file", f.write("empty.pem", nil)}, pair...), want: []string{"empty.pem: must contain only certificates"}},

		{name: "tokens that are missing", args: []string{"--token-file", "/nowhere/tokens.yaml"}, want: []string{"--token-file: open /nowhere/tokens.yaml"}},
		{name: "tokens that are wrong", tokens: "- {name: a, sha256: " + hash + "}\n- {name: a, sha256: x}\n", want: []string{"--token-file: ", "tokens.yaml:2: sha256: want the SHA-256"}},
	} {
		t.Run(row.name, func(t *testing.T) {
			f, args := newFolder(t), row.args
			if row.file != "" {
				args = append([]string{"--config", f.write("fetchd.yaml", []byte(row.file))}, args...)
			}
			if row.tokens != "" {
				args = append([]string{"--token-file", f.write("tokens.yaml", []byte(row.tokens))}, args...)
			}
			if row.variable != "" {
				t.Setenv(row.variable, row.value)
			}
			said := make(map[string]string)
			for _, name := range []string{"serve", "config"} {
				code, stdout, stderr := command(t, append([]string{name}, args...)...)
				said[name] = stderr
				if code != cli.ExitUsage || stdout != "" {
					t.Errorf("fetchd %s %q: code %d, stdout %q, want code %d and nothing", name, args, code, stdout, cli.ExitUsage)
				}
			}
			for _, want := range row.want {
				if !strings.Contains(said["serve"], want) {
					t.Errorf("fetchd %q: stderr %q, want %q in it", args, said["serve"], want)
				}
			}
			if said["serve"] != said["config"] {
				t.Errorf("fetchd %q: a start says %q, fetchd config %q", args, said["serve"], said["config"])
			}
		})
	}
}

// TestFilesThatSetNothing are no mistake.
func TestFilesThatSetNothing(t *testing.T) {
	for name, text := range map[string]string{"empty": "", "a comment": "# nothing\n", "null": "null\n", "a marker": "---\n", "no pairs": "{}\n"} {
		t.Run(name, func(t *testing.T) {
			if got := inForce(t, "--config", newFolder(t).write("fetchd.yaml", []byte(text)))["max-fetches"]; got != "0 # default" {
				t.Errorf("%q: max-fetches is %q", text, got)
			}
		})
	}
}

// TestPlaintext: what may be served without TLS.
func TestPlaintext(t *testing.T) {
	f := newFolder(t)
	pair := f.certify(newAuthority(t), wish{})
	for _, row := range []struct {
		name string
		args []string
	}{
		{"loopback", []string{"--grpc-addr", "127.9.9.9:8080"}},
		{"loopback, IPv6", []string{"--grpc-addr", "[::1]:8080"}},
		{"loopback by name", []string{"--grpc-addr", "localhost:8080"}},
		{"no HTTP", []string{"--http-addr="}},
		{"allowed", []string{"--grpc-addr", ":8080", "--http-addr", "0.0.0.0:8081", "--allow-plaintext"}},
		{"TLS", append([]string{"--grpc-addr", ":8080", "--http-addr", "0.0.0.0:8081"}, pair...)},
	} {
		t.Run(row.name, func(t *testing.T) {
			if got := inForce(t, row.args...)["max-fetches"]; got == "" {
				t.Errorf("%q: nothing is printed", row.args)
			}
		})
	}
}

// TestToken: fetchd token makes what a token file takes, whatever the settings.
func TestToken(t *testing.T) {
	t.Setenv("FETCHD_CONFIG", "/nowhere/fetchd.yaml")
	f := newFolder(t)
	made := func(name string) (token, line string) {
		code, stdout, stderr := command(t, "token", name)
		if code != cli.ExitOK {
			t.Fatalf("fetchd token %q: code %d, stderr %q", name, code, stderr)
		}
		token, line, _ = strings.Cut(stdout, "\n")
		if strings.Contains(stderr+line, token) || strings.Count(stdout, "\n") != 2 {
			t.Errorf("fetchd token %q prints the token more than once, or not two lines:\n%s%s", name, stdout, stderr)
		}
		return token, line
	}
	a, first := made("a")
	b, second := made(`x: "y" # ü`)
	if len(a) != len("fetchd_")+43 || !strings.HasPrefix(a, "fetchd_") || a == b {
		t.Errorf("tokens %q and %q, want 256 random bits each", a, b)
	}
	file := f.write("tokens.yaml", []byte(first+second))
	must(t, os.Unsetenv("FETCHD_CONFIG"))
	if got := inForce(t, "--token-file", file)["token-file"]; got != file+" # flag" {
		t.Errorf("a token file of both lines: %q", got)
	}
	for name, want := range map[string]string{"": "1 to 64", strings.Repeat("x", 65): "1 to 64", "a\nb": "printable", " a": "space", a: "must not start with fetchd_"} {
		code, _, stderr := command(t, "token", name)
		if code != cli.ExitUsage || !strings.Contains(stderr, want) || strings.Contains(stderr, a) {
			t.Errorf("fetchd token %q: code %d, stderr %q, want code %d and %q", name, code, stderr, cli.ExitUsage, want)
		}
	}
}

// TestStrayVariables: a variable that looks like a setting and is none is reported, by the
// service in its log. What Kubernetes sets for a Service, and clients' variables, are not.
func TestStrayVariables(t *testing.T) {
	for name, value := range map[string]string{
		"FETCHD_MAX_FETCHS": "hush", "FETCHD_PORT": "tcp://10.0.0.1:8080", "FETCHD_SERVICE_HOST": "10.0.0.1", "FETCHD_SERVICE_PORT_GRPC": "8080",
		"FETCHD_PORT_8080_TCP_ADDR": "10.0.0.1", "FETCHD_SERVER": "a:1", "FETCHD_MAX_FETCHES": "4",
	} {
		t.Setenv(name, value)
	}
	code, _, got := command(t, "config")
	const want = "fetchd: the environment variable \"FETCHD_MAX_FETCHS\" is not a setting and is ignored: did you mean FETCHD_MAX_FETCHES?\n"
	if code != cli.ExitOK || got != want {
		t.Errorf("fetchd config: code %d, stderr %q; want code %d, %q", code, got, cli.ExitOK, want)
	}
	s := start(t)
	line := s.await("environment variable is no setting")
	for _, part := range []string{`"level":"WARN"`, `"variable":"FETCHD_MAX_FETCHS"`, `"nearest":"FETCHD_MAX_FETCHES"`} {
		if !strings.Contains(line, part) {
			t.Errorf("line %s, want %s in it", line, part)
		}
	}
	if text := s.log.String(); strings.Count(text, "is no setting") != 1 || strings.Contains(text, "hush") {
		t.Errorf("the log has %s; want one such line, without the value", text)
	}
}
