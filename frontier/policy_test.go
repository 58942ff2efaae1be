package frontier

import (
	"maps"
	"math"
	"strings"
	"testing"
	"time"
)

func TestEnvironment(t *testing.T) {
	t.Parallel()
	const follow, limit = "CRAWLER_FOLLOW_REDIRECTS", "CRAWLER_MAX_REDIRECTS"
	for _, row := range []struct {
		name   string
		env    map[string]string
		follow bool
		max    int
		fault  []string // parts of the error
	}{
		{"nothing set", nil, true, 5, nil},
		{"set to nothing", map[string]string{follow: "", limit: ""}, true, 5, nil},
		{"not followed", map[string]string{follow: "false"}, false, 5, nil},
		{"in other words", map[string]string{follow: "0"}, false, 5, nil},
		{"followed", map[string]string{follow: "TRUE"}, true, 5, nil},
		{"none", map[string]string{limit: "0"}, true, 0, nil},
		{"most", map[string]string{limit: "20"}, true, 20, nil},
		{"both", map[string]string{follow: "false", limit: "7"}, false, 7, nil},
		{"another variable", map[string]string{"CRAWLER_REDIRECTS": "x", "crawler_max_redirects": "x"}, true, 5, nil},
		{"no truth", map[string]string{follow: "yes"}, true, 5, []string{follow, `"yes"`, "true or false"}},
		{"a space", map[string]string{follow: " true"}, true, 5, []string{follow, `" true"`, "true or false"}},
		{"one too many", map[string]string{limit: "21"}, true, 5, []string{limit, `"21"`, "0 to 20"}},
		{"negative", map[string]string{limit: "-1"}, true, 5, []string{limit, `"-1"`, "0 to 20"}},
		{"no number", map[string]string{limit: "five"}, true, 5, []string{limit, `"five"`, "0 to 20"}},
		{"a fraction", map[string]string{limit: "1.5"}, true, 5, []string{limit, `"1.5"`, "0 to 20"}},
		{"beyond any number", map[string]string{limit: strings.Repeat("9", 30)}, true, 5, []string{limit, "999", "0 to 20"}},
	} {
		t.Run(row.name, func(t *testing.T) {
			t.Parallel()
			p := DefaultPolicy()
			err := p.Environment(func(name string) string { return row.env[name] })
			if p.FollowRedirects != row.follow || p.MaxRedirects != row.max {
				t.Errorf("%v: follow %v, at most %d; want %v, %d", row.env, p.FollowRedirects, p.MaxRedirects, row.follow, row.max)
			}
			wantFault(t, err, row.fault)
		})
	}
}

// wantFault checks that an error contains all parts. Without parts there must be no error.
func wantFault(t *testing.T, err error, parts []string) {
	t.Helper()
	if (err == nil) != (len(parts) == 0) {
		t.Fatalf("error %v, want one that says %q", err, parts)
	}
	for _, part := range parts {
		if !strings.Contains(strings.ToLower(errorText(err)), strings.ToLower(part)) {
			t.Errorf("error %v does not say %q", err, part)
		}
	}
}

func TestSet(t *testing.T) {
	t.Parallel()
	for _, row := range []struct {
		rule  string
		want  map[string]Action // in addition to earlier rules
		fault []string
	}{
		{"forbidden=abort-host", map[string]Action{"forbidden": AbortHost}, nil},
		{"http_client_error=retry", map[string]Action{"http_client_error": Retry}, nil},
		{"auth_required=abort-crawl", map[string]Action{"auth_required": AbortCrawl}, nil},
		{"dns_not_found=retry", map[string]Action{"dns_not_found": Retry}, nil}, // replaces an earlier rule
		{"robots_disallowed=skip", map[string]Action{"robots_disallowed": Skip}, nil},
		{"forbidden", nil, []string{`"forbidden"`, "CLASS=ACTION"}},
		{"", nil, []string{`""`, "CLASS=ACTION"}},
		{"=skip", nil, []string{`""`, "error class", "forbidden"}},
		{"FORBIDDEN=skip", nil, []string{`"FORBIDDEN"`, "error class", "forbidden"}},
		{"unspecified=skip", nil, []string{`"unspecified"`, "error class"}},
		{"403=skip", nil, []string{`"403"`, "error class"}},
		{"forbidden=", nil, []string{`""`, "abort-host"}},
		{"forbidden=skip=skip", nil, []string{`"skip=skip"`, "abort-host"}},
		{"forbidden= skip", nil, []string{`" skip"`, "abort-host"}},
		{"forbidden=abort_host", nil, []string{`"abort_host"`, "abort-host"}},
	} {
		t.Run(row.rule, func(t *testing.T) {
			t.Parallel()
			before := map[string]Action{"dns_not_found": Skip}
			p := Policy{On: before}
			wantFault(t, p.Set(row.rule), row.fault)
			want := map[string]Action{"dns_not_found": Skip}
			maps.Copy(want, row.want)
			if !maps.Equal(p.On, want) {
				t.Errorf("On is %v, want %v", p.On, want)
			}
			if len(before) != 1 || before["dns_not_found"] != Skip {
				t.Errorf("the map that was given is %v now", before)
			}
		})
	}
}

func TestAction(t *testing.T) {
	t.Parallel()
	p := Policy{On: map[string]Action{"forbidden": AbortHost, "http_server_error": Skip, "too_many_redirects": AbortCrawl}}
	for _, row := range []struct {
		name      string
		p         Policy
		class     string
		retryable bool
		want      Action
	}{
		{"may pass", Policy{}, "http_server_error", true, Retry},
		{"will not pass", Policy{}, "http_client_error", false, Skip},
		{"too many redirects", Policy{}, "too_many_redirects", false, Retry},
		{"a loop", Policy{}, "redirect_loop", false, Retry},
		{"a redirect that cannot be followed", Policy{}, "redirect_rejected", false, Skip},
		{"a rule over a loop", Policy{On: map[string]Action{"redirect_loop": Skip}}, "redirect_loop", false, Skip},
		{"a rule over what may pass", p, "http_server_error", true, Skip},
		{"a rule over what will not", p, "forbidden", false, AbortHost},
		{"a rule over too many redirects", p, "too_many_redirects", false, AbortCrawl},
		{"a rule about another class", p, "auth_required", false, Skip},
	} {
		if got := row.p.action(row.class, row.retryable); got != row.want {
			t.Errorf("%s: action(%s, %v) = %s, want %s", row.name, row.class, row.retryable, got, row.want)
		}
	}
}

func TestRetryIn(t *testing.T) {
	t.Parallel()
	minutes := func(first, most int) Policy {
		return Policy{RetryDelay: time.Duration(first) * time.Minute, MaxRetryDelay: time.Duration(most) * time.Minute}
	}
	forever := Policy{RetryDelay: time.Minute, MaxRetryDelay: math.MaxInt64}
	for _, row := range []struct {
		name     string
		p        Policy
		failures int
		asked    time.Duration
		want     time.Duration
	}{
		{"the first", minutes(1, 60), 1, 0, time.Minute},
		{"the second", minutes(1, 60), 2, 0, 2 * time.Minute},
		{"the sixth", minutes(1, 60), 6, 0, 32 * time.Minute},
		{"capped", minutes(1, 60), 7, 0, time.Hour},
		{"exactly the cap", minutes(1, 32), 6, 0, 32 * time.Minute},
		{"beyond it", minutes(1, 32), 7, 0, 32 * time.Minute},
		{"the delay is the cap", minutes(5, 5), 3, 0, 5 * time.Minute},
		{"asked for less", minutes(1, 60), 3, time.Minute, 4 * time.Minute},
		{"asked for more", minutes(1, 60), 1, 2 * time.Hour, 2 * time.Hour},
		{"no delay", minutes(0, 60), math.MaxInt, 0, 0},
		{"no delay, asked for one", minutes(0, 60), 9, time.Second, time.Second},
		{"many failures", minutes(1, 60), math.MaxInt, 0, time.Hour},
		{"many failures and no cap to speak of", forever, math.MaxInt, 0, math.MaxInt64},
		{"no failure", minutes(1, 60), 0, 0, time.Minute},
	} {
		if got := row.p.retryIn(row.failures, row.asked); got != row.want {
			t.Errorf("%s: retryIn(%d, %v) = %v, want %v", row.name, row.failures, row.asked, got, row.want)
		}
	}
}

func TestPolicyCheck(t *testing.T) {
	t.Parallel()
	for _, row := range []struct {
		name   string
		change func(p *Policy)
		fault  []string
	}{
		{"the default", func(*Policy) {}, nil},
		{"zero", func(p *Policy) { *p = Policy{} }, nil},
		{"twenty redirects", func(p *Policy) { p.MaxRedirects = 20 }, nil},
		{"a rule", func(p *Policy) { p.On = map[string]Action{"crashed": Retry} }, nil},
		{"one more", func(p *Policy) { p.MaxRedirects = 21 }, []string{"MaxRedirects is 21", "0 to 20"}},
		{"fewer than none", func(p *Policy) { p.MaxRedirects = -1 }, []string{"MaxRedirects is -1"}},
		{"retries", func(p *Policy) { p.MaxURLRetries = -1 }, []string{"MaxURLRetries is -1", "negative"}},
		{"crashes", func(p *Policy) { p.MaxCrashes = -2 }, []string{"MaxCrashes is -2", "negative"}},
		{"a negative delay", func(p *Policy) { p.RetryDelay = -1 }, []string{"RetryDelay is -1ns"}},
		{"a cap below the delay", func(p *Policy) { p.MaxRetryDelay = time.Second }, []string{"RetryDelay is 1m0s", "MaxRetryDelay is 1s"}},
		{"no such class", func(p *Policy) { p.On = map[string]Action{"oops": Retry} }, []string{`"oops"`, "error class"}},
		{"no such action", func(p *Policy) { p.On = map[string]Action{"forbidden": "abort"} }, []string{`"abort"`, "abort-host"}},
	} {
		t.Run(row.name, func(t *testing.T) {
			t.Parallel()
			p := DefaultPolicy()
			row.change(&p)
			wantFault(t, p.check(), row.fault)
		})
	}
}

func TestNewRefuses(t *testing.T) {
	t.Parallel()
	services := []Service{{Name: "one"}}
	for _, row := range []struct {
		name     string
		services []Service
		change   func(c *Config)
		fault    []string
	}{
		{"nothing", services, func(*Config) {}, nil},
		{"no service", nil, func(*Config) {}, []string{"no service"}},
		{"Open", services, func(c *Config) { c.Open = -1 }, []string{"Open is -1"}},
		{"MaxAttempts", services, func(c *Config) { c.MaxAttempts = 12 }, []string{"MaxAttempts is 12", "1 to 11"}},
		{"MaxBodyBytes", services, func(c *Config) { c.MaxBodyBytes = 1<<40 + 1 }, []string{"MaxBodyBytes is 1099511627777", "1099511627776"}},
		{"a lease as long as a fetch", services, func(c *Config) { c.Lease = time.Minute + leaseReserve }, []string{"Lease is 1m10s", "TotalTimeout (1m0s)"}},
		{"a lease long enough", services, func(c *Config) { c.Lease = time.Minute + leaseReserve + 1 }, nil},
		{"a negative time", services, func(c *Config) { c.DrainTime = -1 }, []string{"DrainTime is -1ns"}},
		{"Policy", services, func(c *Config) { c.Policy.MaxRedirects = 21 }, []string{"Policy", "MaxRedirects is 21"}},
		{"two faults", services, func(c *Config) { c.Open, c.MaxAttempts = -1, -1 }, []string{"Open is -1", "MaxAttempts is -1"}},
	} {
		t.Run(row.name, func(t *testing.T) {
			t.Parallel()
			var c Config
			row.change(&c)
			_, err := New(noStore(), row.services, c)
			wantFault(t, err, row.fault)
		})
	}
}
