package main

import (
	"strings"
	"testing"
	"time"

	pb "fetchd/gen/fetchd/v1"
	"fetchd/internal/cli"
)

// TestPoliciesReload adds, breaks and removes policies while the service runs.
func TestPoliciesReload(t *testing.T) {
	t.Parallel()
	f := newFolder(t)
	const none, open = "policies: {p: {}}\ndefault: p\n", "policies: {p: {egress: {allow-addresses: [127.0.0.1], ports: [9]}}}\ndefault: p\n"
	s := start(t, "--egress-allow-cidr", "127.0.0.0/8", "--egress-allow-port", "9", "--policies-file", f.write("policies.yaml", []byte(none)))
	c := s.dial(nil)
	for _, row := range []struct {
		name, text, log string
		look            bool // the service looks by itself, without a signal
		class           pb.ErrorClass
	}{
		{"what the settings open", open, `"reloaded","changed":["policies-file"]`, false, pb.ErrorClass_ERROR_CLASS_CONNECT_REFUSED},
		{"nothing", open, `"reloaded","changed":[]`, false, pb.ErrorClass_ERROR_CLASS_CONNECT_REFUSED},
		{"a broken file", "policies: {p: {egres: {}}}\n", `policies.yaml:1: unknown key \"egres\"`, false, pb.ErrorClass_ERROR_CLASS_CONNECT_REFUSED},
		{"a change that is found", none, `"reloaded","changed":["policies-file"]`, true, pb.ErrorClass_ERROR_CLASS_TARGET_BLOCKED},
	} {
		t.Run(row.name, func(t *testing.T) {
			s := s.in(t)
			f.in(t).write("policies.yaml", []byte(row.text))
			if row.look {
				s.look <- time.Time{}
			} else {
				s.hangup <- nil
			}
			if line := s.await("reloaded"); !strings.Contains(line, row.log) {
				t.Errorf("log line %s, want %s in it", line, row.log)
			}
			one := int32(1)
			out, err := c.FetchUnary(t.Context(), &pb.FetchRequest{Url: "http://127.0.0.1:9/", RetryPolicy: &pb.RetryPolicy{MaxAttempts: &one}})
			if got := out.GetOutcome().GetError().GetErrorClass(); err != nil || got != row.class {
				t.Errorf("%v (%v), want %s", got, err, row.class)
			}
		})
	}
}

// TestPoliciesCheck prints what a file says, or what is wrong with it.
func TestPoliciesCheck(t *testing.T) {
	t.Parallel()
	f := newFolder(t)
	good := f.write("good.yaml", []byte("policies: {a: {mode: report}, b: {}}\ncallers: [{caller: 'x-*', policy: a}, {address: 10.1.0.0/16, policy: b}]\ndefault: b\n"))
	bad := f.write("bad.yaml", []byte("policies: {a: {mode: watch}}\ndefault: c\n"))
	a, sum := newAuthority(t), strings.Repeat("0", 63)
	tokens := f.write("tokens.yaml", []byte("- {name: y, sha256: "+sum+"1}\n- {name: x-1, sha256: "+sum+"2}\n"))
	certified := append(f.certify(a, wish{}), "--tls-client-ca-file", f.write("ca.pem", a.pem))
	certified = certified[:len(certified):len(certified)]
	for _, row := range []struct {
		name, file, stdout string
		code               int
		more               []string
	}{
		{"a team without a token", f.write("misspelt.yaml", []byte("policies: {a: {}, b: {permit: nothing}}\ncallers: [{caller: team-shpo, policy: a}, {address: 10.1.0.0/16, policy: a}]\ndefault: b\n")),
			"without an entry, so they have b: y, x-1\nentries that match none of these names: team-shpo\n", cli.ExitFailed, []string{"--token-file", tokens}},
		{"callers without an entry", good, "all others\nwithout an entry, so they have b: y\n", cli.ExitOK,
			append(certified, "--token-file", tokens, "--tls-allow-san", "z.example")}, // tokens name callers
		{"callers named by certificates", f.write("san.yaml", []byte("policies: {a: {}, b: {}}\ncallers: [{caller: 'san:y', policy: a}]\ndefault: b\n")),
			"all others\nwithout an entry, so they have b: san:z.example\n", cli.ExitOK, append(certified, "--tls-allow-san", "z.example", "--tls-allow-san", "y")},
		{"no tokens", good, "", cli.ExitUsage, []string{"--token-file", f.path("none")}},
		{"good", good, "a (report): x-*\nb (enforce): 10.1.0.0/16, all others\n", cli.ExitOK, nil},
		{"ports that no setting opens", f.write("ports.yaml", []byte("policies: {a: {egress: {ports: [443, 8443, 9443, 9444]}}}\ndefault: a\n")),
			"all others\na has ports that no setting opens: give the service --egress-allow-port 9443 9444\n", cli.ExitOK, []string{"--egress-allow-port", "8443"}},
		{"bad", bad, bad + ":1: mode: is \"watch\": give enforce or report\n" + bad + ":2: default: is \"c\", which is not among policies\n", cli.ExitUsage, nil},
		{"none", f.path("none.yaml"), "no such file", cli.ExitUsage, nil},
	} {
		t.Run(row.name, func(t *testing.T) {
			t.Parallel()
			if code, stdout, stderr := command(t, append([]string{"policies", "check", row.file}, row.more...)...); code != row.code || !strings.Contains(stdout, row.stdout) {
				t.Errorf("code %d, stdout %q, stderr %q, want %d, %q", code, stdout, stderr, row.code, row.stdout)
			}
		})
	}
}

// TestPoliciesOfNoCaller checks that a misspelt team is reported by the command config, at startup and after a reload.
func TestPoliciesOfNoCaller(t *testing.T) {
	t.Parallel()
	f := newFolder(t)
	_, tokens := f.tokenOf("team-05", "")
	text := func(caller string) []byte {
		return []byte("policies: {a: {}, b: {}}\ncallers: [{caller: " + caller + ", policy: a}]\ndefault: b\n")
	}
	args := []string{"--token-file", tokens, "--policies-file", f.write("policies.yaml", text("taem-05")),
		"--origins-file", f.write("origins.yaml", []byte("providers: {p: {origins: ['https://a.example'], callers: [team-05, team-6], token: secret}}\n")),
		"--stores-file", f.write("stores.yaml", []byte("stores: {s: {url: 'file://"+f.path("bodies")+"', callers: [team-7, team-05]}}\n"))}
	if code, _, stderr := command(t, append([]string{"config"}, args...)...); code != cli.ExitOK || !strings.Contains(stderr, "match no caller: taem-05, team-6, team-7\n") {
		t.Errorf("config: code %d, stderr %q, want the entry", code, stderr)
	}
	s := start(t, args...)
	const warning = `"entries of the settings files match no caller","entries":`
	s.await(warning + `["taem-05","team-6","team-7"]`)
	f.write("policies.yaml", text("taem-*"))
	s.hangup <- nil
	s.await(warning + `["taem-*","team-6","team-7"]`)
	f.write("origins.yaml", []byte("providers: {}\n"))
	f.write("stores.yaml", []byte("stores: {}\n"))
	f.write("policies.yaml", text("team-*"))
	s.hangup <- nil
	if line := s.await(`"reloaded"`); strings.Contains(s.log.String()[strings.LastIndex(s.log.String(), "taem-*"):], warning) {
		t.Errorf("a warning after %s", line)
	}
}

// TestPoliciesLog sums up a log.
func TestPoliciesLog(t *testing.T) {
	t.Parallel()
	f := newFolder(t)
	log := f.write("log", []byte(`{"time":"2026-11-26T23:59:57Z","msg":"policy would deny","caller":"a","policy":"p","reason":"name_not_allowed","policy_rule":"","host":"old.example"}
{"time":"2026-11-26T23:59:58Z","msg":"reloaded","changed":["policies-file"]}
{"time":"2026-11-26T23:59:59Z","msg":"policy would deny","caller":"a","policy":"p","reason":"name_not_allowed","policy_rule":"","host":"x.example"}
{"time":"2026-11-27T00:00:01Z","msg":"policy would deny","caller":"b","policy":"p","reason":"name_not_allowed","policy_rule":"","host":"x.example"}
{"time":"2026-11-27T00:00:01Z","msg":"policy would deny","caller":"b","policy":"p","reason":"name_denied","policy_rule":"*.ads.example","host":"y.ads.example","count":7}
{"time":"2026-11-27T00:00:02Z","msg":"policy would deny","caller":"b","policy":"q","reason":"name_not_allowed","policy_rule":"","host":"192.0.2.1"}
{"time":"2026-11-27T00:00:02Z","msg":"policy would deny","caller":"b","policy":"q","reason":"name_not_allowed","policy_rule":"","host":"db.internal"}
not JSON
{"time":"2026-11-26T23:59:59Z","msg":"fetch finished","caller":"a","policy":"p"}
`))
	for _, row := range []struct {
		name, file, stdout string
		code               int
	}{
		{"report", log, "POLICY  HOST           REASON            RULE           TIMES  CALLERS  TO PERMIT IT\n" +
			"p       y.ads.example  name_denied       *.ads.example  7      1        remove *.ads.example from deny-names\n" +
			"p       x.example      name_not_allowed                 2      2        add x.example to allow-names\n" +
			"q       192.0.2.1      name_not_allowed                 1      1        add 192.0.2.1 to allow-addresses\n" +
			"q       db.internal    name_not_allowed                 1      1        add its address to allow-addresses; add db.internal to allow-names only if the policy has these\n", cli.ExitOK},
		{"no log", f.write("text", []byte("hello\n")), "", cli.ExitUsage},
		{"no file", f.path("none"), "", cli.ExitUsage},
	} {
		t.Run(row.name, func(t *testing.T) {
			t.Parallel()
			if code, stdout, stderr := command(t, "policies", "report", row.file); code != row.code || row.code == cli.ExitOK && stdout != row.stdout {
				t.Errorf("code %d, stdout\n%s, stderr %q, want %d,\n%s", code, stdout, stderr, row.code, row.stdout)
			}
		})
	}
}
