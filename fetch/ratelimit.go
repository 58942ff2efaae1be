package fetch

import (
	"math"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/dunglas/httpsfv"

	"fetchd/classify"
)

// Limits of what is read about rate limits.
const (
	maxRateLimits     = 16
	maxRateLimitBytes = 2 << 10 // of a field, with all its lines
	maxRateLimitName  = 64
)

// RateLimitSource is the field that a [RateLimit] comes from. Its numbers are those of fetchd.v1.RateLimitSource.
type RateLimitSource uint8

// The sources of rate limits.
const (
	_                   RateLimitSource = iota
	RateLimitField                      // RateLimit and RateLimit-Policy
	XRateLimitField                     // X-RateLimit-Limit, -Remaining and -Reset
	XRateLimitWithEpoch                 // the same, with a reset in seconds since 1970
)

// RateLimit is what a response says about one limit. Numbers below 0 are unknown.
type RateLimit struct {
	Name             string
	Source           RateLimitSource
	Remaining, Quota int64
	// Reset is the time from the response to the reset, and Window the time for which Quota is.
	Reset, Window time.Duration
}

// RateLimits returns the rate limits in the header of a response that arrived at a time (spec W2). What is
// malformed or too long is ignored.
func RateLimits(h http.Header, observed time.Time) []RateLimit {
	var all []RateLimit
	for _, item := range rateLimitItems(h["Ratelimit"]) {
		name, _ := item.Value.(string) // every item is a string
		remaining, reset := parameter(item, "r", -1), parameter(item, "t", unknown)
		if remaining >= 0 && reset >= unknown {
			all = append(all, RateLimit{Name: name, Source: RateLimitField, Remaining: remaining, Quota: -1, Reset: seconds(reset), Window: -1})
		}
	}
	for _, item := range rateLimitItems(h["Ratelimit-Policy"]) {
		name, _ := item.Value.(string) // as above
		quota, window := parameter(item, "q", -1), parameter(item, "w", unknown)
		if quota >= 0 && window >= unknown {
			all = withPolicy(all, name, quota, seconds(window))
		}
	}
	if x := xRateLimit(h, observed); x.Remaining >= 0 || x.Quota >= 0 || x.Reset >= 0 {
		all = append(all, x)
	}
	return all[:min(len(all), maxRateLimits)]
}

// rateLimitItems returns the items of a list that are strings, or none if the list is malformed.
func rateLimitItems(lines []string) (items []httpsfv.Item) {
	size := -len(", ")
	for _, l := range lines {
		size += len(l) + len(", ")
	}
	if size <= 0 || size > maxRateLimitBytes {
		return nil
	}
	list, err := httpsfv.UnmarshalList(lines)
	if err != nil {
		return nil
	}
	for _, member := range list {
		item, _ := member.(httpsfv.Item)
		if name, ok := item.Value.(string); ok && len(name) <= maxRateLimitName && len(items) < maxRateLimits {
			items = append(items, item)
		}
	}
	return items
}

const (
	unknown = -1
	invalid = math.MinInt64
)

// parameter returns an integer that is not negative. A parameter that is missing is without, and another value is
// invalid.
func parameter(item httpsfv.Item, name string, without int64) int64 {
	value, ok := item.Params.Get(name)
	if !ok {
		return without
	}
	if n, ok := value.(int64); ok && n >= 0 {
		return n
	}
	return invalid
}

// seconds saturates, and keeps unknown.
func seconds(n int64) time.Duration {
	if n < 0 {
		return unknown
	}
	return time.Duration(min(n, math.MaxInt64/int64(time.Second))) * time.Second
}

// withPolicy adds a policy to the limits of that name. If there is none, it is one itself.
func withPolicy(all []RateLimit, name string, quota int64, window time.Duration) []RateLimit {
	known := false
	for i := range all {
		if l := &all[i]; l.Name == name {
			l.Quota, l.Window, known = quota, window, true
		}
	}
	if !known {
		all = append(all, RateLimit{Name: name, Source: RateLimitField, Remaining: -1, Quota: quota, Reset: unknown, Window: window})
	}
	return all
}

// epochFrom is the least number of seconds that is a time since 1970 and no wait.
const epochFrom = 1_000_000_000 * time.Second

// xRateLimit reads the fields X-RateLimit-*, which have no standard.
func xRateLimit(h http.Header, observed time.Time) RateLimit {
	x := RateLimit{Source: XRateLimitField, Remaining: count(h["X-Ratelimit-Remaining"]), Quota: count(h["X-Ratelimit-Limit"]), Reset: unknown, Window: unknown}
	if name := first(h, "X-Ratelimit-Resource"); len(name) <= maxRateLimitName {
		x.Name = strings.ToValidUTF8(name, "")
	}
	reset, ok := classify.Seconds(firstOf(h["X-Ratelimit-Reset"]))
	switch {
	case !ok || reset == math.MaxInt64: // milliseconds since 1970 saturate
	case reset >= epochFrom:
		x.Source = XRateLimitWithEpoch
		from := classify.ResponseTime(first(h, "Date"), first(h, "Age"), observed)
		x.Reset = max(time.Unix(int64(reset/time.Second), 0).Sub(from), 0)
	default:
		x.Reset = reset
	}
	return x
}

// firstOf returns the first of values, whether they are lines or joined by commas.
func firstOf(lines []string) string {
	if len(lines) == 0 {
		return ""
	}
	value, _, _ := strings.Cut(lines[0], ",")
	return strings.Trim(value, " \t")
}

// count returns a number of requests.
func count(lines []string) int64 {
	if len(lines) == 0 {
		return -1 // the error would cost an allocation
	}
	n, err := strconv.ParseUint(firstOf(lines), 10, 63)
	if err != nil {
		return -1
	}
	return int64(n)
}

// Exhausted returns the longest time to the reset of a limit that has nothing left, or 0.
func Exhausted(limits []RateLimit) time.Duration {
	longest := time.Duration(0)
	for i := range limits {
		if limits[i].Remaining == 0 {
			longest = max(longest, limits[i].Reset)
		}
	}
	return longest
}
