package rulebook

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"fetchd/frontier/robots"
	"fetchd/frontier/store"
)

func TestStateOf(t *testing.T) {
	t.Parallel()
	const origin, day = "http://a.test", 24 * time.Hour
	body := []byte("User-agent: bot\nDisallow: /p/\nSitemap: s\n")
	byRule := robots.Decision{Reason: robots.ByRule, Line: robots.Line{Number: 2, Text: "Disallow: /p/"}}
	for _, tt := range []struct {
		name  string
		row   store.Robots
		agent string
		want  State
	}{
		{"forbidden", store.Robots{Status: 200, Body: body, HasBody: true, BodyStatus: 200, Age: time.Hour}, "bot/1.0",
			State{Decision: byRule, Age: time.Hour, Fresh: true}},
		{"another crawler", store.Robots{Status: 200, Body: body, HasBody: true, BodyStatus: 200, Age: time.Hour}, "other/1.0",
			State{Decision: robots.Decision{Allowed: true, Reason: robots.NoRule}, Age: time.Hour, Fresh: true}},
		{"old", store.Robots{Status: 200, Body: body, HasBody: true, BodyStatus: 200, Age: day}, "bot/1.0",
			State{Decision: byRule, Age: day}},
		{"no file", store.Robots{Status: 404, HasBody: true, BodyStatus: 404}, "bot/1.0",
			State{Decision: robots.Decision{Allowed: true, Reason: robots.Unavailable}, Cause: "status 404", Fresh: true}},
		{"out of reach", store.Robots{ErrorClass: "dns_not_found", Unreachable: true, Body: body, HasBody: true, BodyStatus: 200, UnreachableFor: day}, "bot/1.0",
			State{Cause: "dns_not_found", UnreachableFor: day}},
		{"out of reach for long", store.Robots{ErrorClass: "dns_not_found", Unreachable: true, Body: body, HasBody: true, BodyStatus: 200, UnreachableFor: 30 * day}, "bot/1.0",
			State{Decision: byRule, Cause: "dns_not_found", UnreachableFor: 30 * day}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			tt.row.Origin, tt.want.Origin, tt.want.Known = origin, origin, true
			tt.want.Status = tt.row.Status
			got := stateOf(tt.row, tt.agent, "/p/1")
			if hasFile := tt.row.BodyStatus == 200; (got.Rules != nil) != hasFile || (got.Sitemaps != nil) != hasFile {
				t.Errorf("rules %v and sitemaps %q, want them: %v", got.Rules, got.Sitemaps, hasFile)
			}
			if d := cmp.Diff(tt.want, got, cmpopts.IgnoreFields(State{}, "Rules", "Sitemaps")); d != "" {
				t.Errorf("(-want +got):\n%s", d)
			}
		})
	}
}

func TestAsk(t *testing.T) {
	t.Parallel()
	s, err := store.Open(t.Context(), t.TempDir()+"/frontier.db", store.Config{})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = s.Close() }() // reading has no other errors
	if err := s.SaveRobots(t.Context(), store.Robots{Origin: "https://a.test:8443", Status: 200, Body: []byte("User-agent: *\nDisallow: /p?x\n")}); err != nil {
		t.Fatal(err)
	}
	for _, tt := range []struct {
		url            string
		known, allowed bool
	}{
		{"https://a.test:8443/p?x=1", true, false},
		{"https://a.test:8443/p", true, true},
		{"https://a.test/p?x=1", false, false},
		{"http://a.test:8443/p?x=1", false, false},
	} {
		got, err := Ask(t.Context(), s, "bot", tt.url)
		if err != nil || got.Known != tt.known || got.Decision.Allowed != tt.allowed {
			t.Errorf("Ask(%s) = %+v, %v, want known %v and allowed %v", tt.url, got, err, tt.known, tt.allowed)
		}
	}
}
