package robots_test

import (
	"fmt"
	"testing"
	"time"

	"fetchd/frontier/robots"
)

const closed = "User-agent: *\nDisallow: /"

func TestJudge(t *testing.T) {
	for _, row := range []struct {
		name   string
		answer robots.Answer
		want   robots.Reason
		cause  string
	}{
		{"200", robots.Answer{Status: 200, Body: []byte(closed)}, robots.ByRule, ""},
		{"206", robots.Answer{Status: 206, Body: []byte(closed)}, robots.ByRule, ""},
		{"200 without a body", robots.Answer{Status: 200}, robots.NoRule, ""},
		{"200 whose body was asked for", robots.Answer{Status: 200, ErrorClass: "empty_body"}, robots.NoRule, ""},
		{"200 that broke off", robots.Answer{Status: 200, ErrorClass: "body_interrupted", Body: []byte(closed)}, robots.Unreachable, "body_interrupted"},
		{"200 that does not decode", robots.Answer{Status: 200, ErrorClass: "undecodable"}, robots.Unreachable, "undecodable"},
		{"300 without a target", robots.Answer{Status: 300}, robots.Unavailable, "status 300"},
		{"304 to a request without a condition", robots.Answer{Status: 304, ErrorClass: "unexpected_not_modified"}, robots.Unreachable, "unexpected_not_modified"},
		{"a loop", robots.Answer{Status: 301, ErrorClass: "redirect_loop"}, robots.Unavailable, "redirect_loop"},
		{"403", robots.Answer{Status: 403, ErrorClass: "forbidden"}, robots.Unavailable, "status 403"},
		{"404 with rules in its body", robots.Answer{Status: 404, ErrorClass: "http_client_error", Body: []byte(closed)}, robots.Unavailable, "status 404"},
		{"429", robots.Answer{Status: 429, ErrorClass: "rate_limited"}, robots.Unavailable, "status 429"},
		{"500", robots.Answer{Status: 500, ErrorClass: "http_server_error"}, robots.Unreachable, "http_server_error"},
		{"503 without a class", robots.Answer{Status: 503}, robots.Unreachable, "status 503"},
		{"600", robots.Answer{Status: 600}, robots.Unreachable, "status 600"},
		{"no such host", robots.Answer{ErrorClass: "dns_not_found"}, robots.Unreachable, "dns_not_found"},
		{"deadline", robots.Answer{ErrorClass: "deadline"}, robots.Unreachable, "deadline"},
		{"nothing", robots.Answer{}, robots.Unreachable, "no response"},
	} {
		t.Run(row.name, func(t *testing.T) {
			policy := robots.Judge(row.answer, "a")
			got := policy.Decide("/x")
			if got.Reason != row.want || policy.Cause != row.cause {
				t.Errorf("Judge(%+v): reason %v, cause %q; want %v, %q", row.answer, got.Reason, policy.Cause, row.want, row.cause)
			}
			if policy.Deferred() != (row.want == robots.Unreachable) {
				t.Errorf("Judge(%+v): deferred %t", row.answer, policy.Deferred())
			}
			allowed := row.want == robots.Unavailable || row.want == robots.NoRule
			if got.Allowed != allowed {
				t.Errorf("Judge(%+v): allowed %t, want %t", row.answer, got.Allowed, allowed)
			}
			if own := policy.Decide("/robots.txt"); !own.Allowed {
				t.Errorf("Judge(%+v): /robots.txt is not allowed: %+v", row.answer, own)
			}
		})
	}
}

func TestEveryStatus(t *testing.T) {
	for status := range 1000 {
		want := robots.Unreachable
		switch status / 100 {
		case 2:
			want = robots.NoRule
		case 3, 4:
			want = robots.Unavailable
		}
		if got := robots.Judge(robots.Answer{Status: status}, "a").Decide("/x").Reason; got != want {
			t.Errorf("status %d: %v, want %v", status, got, want)
		}
	}
}

func TestAfter(t *testing.T) {
	stale := robots.Parse([]byte(closed), "a")
	deferred, absent, fresh := robots.Judge(robots.Answer{Status: 503}, "a"), robots.Judge(robots.Answer{Status: 404}, "a"), robots.Judge(robots.Answer{Status: 200}, "a")
	for _, row := range []struct {
		name   string
		policy robots.Policy
		since  time.Duration
		stale  *robots.Rules
		want   robots.Reason
	}{
		{"at once", deferred, 0, stale, robots.Unreachable},
		{"just before", deferred, robots.DeferFor - 1, stale, robots.Unreachable},
		{"stale rules", deferred, robots.DeferFor, stale, robots.ByRule},
		{"no stale rules", deferred, robots.DeferFor, nil, robots.Unavailable},
		{"no stale rules before", deferred, robots.DeferFor - 1, nil, robots.Unreachable},
		{"there was no file", absent, robots.DeferFor, stale, robots.Unavailable},
		{"there is a file", fresh, robots.DeferFor, stale, robots.NoRule},
		{"the zero policy", robots.Policy{}, robots.DeferFor, stale, robots.ByRule},
	} {
		t.Run(row.name, func(t *testing.T) {
			if got := row.policy.After(row.since, row.stale).Decide("/x").Reason; got != row.want {
				t.Errorf("after %v: %v, want %v", row.since, got, row.want)
			}
		})
	}
}

func TestReasonString(t *testing.T) {
	seen := map[string]bool{}
	for r := robots.Unreachable; r <= robots.ByRule; r++ {
		if text := r.String(); text == fmt.Sprintf("reason_%d", int(r)) || seen[text] {
			t.Errorf("Reason(%d) has the text %q", int(r), text)
		} else {
			seen[text] = true
		}
	}
	if got := robots.Reason(99).String(); got != "reason_99" {
		t.Errorf("Reason(99) = %q", got)
	}
}
