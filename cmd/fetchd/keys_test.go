package main

import (
	"fmt"
	"log/slog"
	"os"
	"strings"
	"testing"
	"time"

	"fetchd/fetch/auth/httpsig"
	"fetchd/internal/cli"
)

// made writes a key to the folder keys, and returns its id.
func (f *folder) made(name string, from, until time.Time) string {
	f.Helper()
	k, err := httpsig.NewKey(httpsig.Ed25519)
	must(f, err)
	k.NotBefore, k.NotAfter = from, until
	raw, err := k.JWK()
	must(f, err)
	f.write("keys/"+name, raw)
	return k.ID
}

// signingFile writes an --origins-file with a provider that signs with the folder keys, and one with a token.
func (f *folder) signingFile() string {
	f.Helper()
	must(f, os.Mkdir(f.path("keys"), 0o700))
	return f.write("origins.yaml", fmt.Appendf(nil, "providers: {bot: {origins: ['https://*'], http-signature: {profile: web-bot-auth, agent: 'https://bot.example', key-files: [%s]}}, api: {origins: ['https://a.example'], token: hush}}",
		f.path("keys")))
}

// TestWatchKeys has keys that start and end. Each change is logged once.
func TestWatchKeys(t *testing.T) {
	t.Parallel()
	f, now := newFolder(t), time.Unix(1_700_000_000, 0)
	file := f.signingFile()
	first := f.made("a", time.Time{}, now.Add(time.Hour))
	second := f.made("b", now.Add(30*time.Minute), now.Add(2*time.Hour))
	found, err := readOrigins(file, new(origins))
	must(t, err)
	log := new(output)
	l := &live{files: files{origins: found}, logger: slog.New(slog.NewJSONHandler(log, nil))}
	for _, row := range []struct {
		name string
		at   time.Duration
		want []string // of the line; nil: there is none
	}{
		{"the start", 0, []string{"INFO", "requests are signed with this key", `"auth_provider":"bot"`, first}},
		{"a minute later", time.Minute, nil},
		{"the second starts", 30 * time.Minute, []string{"INFO", `"auth_provider":"bot"`, second}},
		{"the first ends", time.Hour, nil},
		{"the second ends", 2 * time.Hour, []string{"WARN", "no valid key", `"auth_provider":"bot"`, first + `\" ended at 2023-11-14T23:13:20Z`, second + `\" ended at 2023-11-15T00:13:20Z`}},
		{"it has ended", 3 * time.Hour, nil},
		{"the clock is set back", 0, []string{"INFO", first}},
	} {
		before := len(log.String())
		l.watchKeys(now.Add(row.at))
		got := log.String()[before:]
		for _, want := range row.want {
			if !strings.Contains(got, want) {
				t.Errorf("%s: %s, want %s", row.name, got, want)
			}
		}
		if lines := strings.Count(got, "\n"); lines != min(len(row.want), 1) {
			t.Errorf("%s: %d lines: %s", row.name, lines, got)
		}
	}
	if strings.Contains(log.String(), `"api"`) || strings.Contains(log.String(), "hush") {
		t.Error("a token is a key:", log)
	}
}

// TestNoValidKey has a provider whose keys have ended or start later, in each place where an operator looks.
func TestNoValidKey(t *testing.T) {
	t.Parallel()
	f, now := newFolder(t), time.Now()
	file := f.signingFile()
	over, later := f.made("over", time.Time{}, now.Add(-time.Hour)), f.made("later", now.Add(time.Hour), time.Time{})
	ended := "ended at " + now.Add(-time.Hour).UTC().Format(time.RFC3339)
	wantSays(t, cli.ExitOK, "fetchd: provider bot: no key is valid now: key \""+later+"\" starts at ", "config", "--origins-file", file)
	wantSays(t, cli.ExitOK, "key \""+over+"\" "+ended+"\n", "config", "--origins-file", file)
	wantSays(t, cli.ExitOK, "fetchd: no key is valid now: key \""+over+"\" "+ended+"\n", "keys", "directory", f.path("keys/over"))

	s := start(t, "--origins-file", file)
	for _, want := range []string{`"level":"WARN"`, `"auth_provider":"bot"`, over + `\" ` + ended} {
		if line := s.await("a provider has no valid key"); !strings.Contains(line, want) {
			t.Errorf("%s, want %s", line, want)
		}
		*s.seen = 0
	}
	s.look <- time.Time{}
	s.reload(`"reloaded"`)
	id := f.made("now", now.Add(-time.Hour), time.Time{})
	s.look <- time.Time{}
	s.await(`"requests are signed with this key","auth_provider":"bot","keyid":"` + id + `"`)
	if n := strings.Count(s.log.String(), "no valid key"); n != 1 {
		t.Errorf("%d warnings, want 1:\n%s", n, s.log)
	}
	must(t, os.Remove(f.path("keys/now")))
	s.reload("a provider has no valid key")
	for _, args := range [][]string{{"config", "--origins-file", file}, {"keys", "directory", f.path("keys")}} {
		f.made("now", time.Time{}, time.Time{})
		if _, _, log := command(t, args...); strings.Contains(log, "valid") {
			t.Errorf("%q: %s", args, log)
		}
	}
}
