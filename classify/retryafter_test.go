package classify_test

import (
	"math"
	"net/http"
	"regexp"
	"strings"
	"testing"
	"time"

	"fetchd/classify"
)

// TestRetryAfter tests parsing. The vectors test what a parsed value leads to.
func TestRetryAfter(t *testing.T) {
	t.Parallel()
	observed := time.Date(2026, 3, 2, 7, 0, 0, 0, time.UTC)
	const (
		own  = "Mon, 02 Mar 2026 08:00:00 GMT" // an hour ahead of observed
		none = -1
	)
	for _, tt := range []struct {
		name, value, date string
		want              time.Duration
	}{
		{"zero", "0", "", 0},
		{"seconds", "120", "", 2 * time.Minute},
		{"seconds do not look at the Date", "120", own, 2 * time.Minute},
		{"leading zeros", "0005", "", 5 * time.Second},
		{"space around", " \t5\t ", "", 5 * time.Second},
		{"the most that fits", "9223372036", "", 9223372036 * time.Second},
		{"one more", "9223372037", "", math.MaxInt64},
		{"2 to the power of 64", "18446744073709551616", "", math.MaxInt64},
		{"a thousand digits", strings.Repeat("9", 1000), "", math.MaxInt64},
		{"a thousand zeros", strings.Repeat("0", 1000), "", 0},
		{"IMF-fixdate", "Mon, 02 Mar 2026 07:00:20 GMT", "", 20 * time.Second},
		{"RFC 850", "Monday, 02-Mar-26 07:00:20 GMT", "", 20 * time.Second},
		{"asctime", "Mon Mar  2 07:00:20 2026", "", 20 * time.Second},
		{"asctime with two digits for the day", "Mon Mar 02 07:00:20 2026", "", 20 * time.Second},
		{"date from the Date", "Mon, 02 Mar 2026 08:00:20 GMT", own, 20 * time.Second},
		{"date that is the Date", own, own, 0},
		{"year 9999", "Fri, 31 Dec 9999 23:59:59 GMT", "", math.MaxInt64},
		{"the first of two numbers", "1 , 2", "", time.Second},
		{"a number before a date", "1,Mon, 02 Mar 2026 07:00:20 GMT", "", time.Second},
		{"the first of two dates", "Mon, 02 Mar 2026 07:00:20 GMT, Mon, 02 Mar 2026 07:00:30 GMT", "", 20 * time.Second},
		{"asctime before a number", "Mon Mar  2 07:00:20 2026, 5", "", 20 * time.Second},
		{"leap day", "Tue, 29 Feb 2028 07:00:00 GMT", "Mon, 28 Feb 2028 07:00:00 GMT", 24 * time.Hour},

		{"empty", "", "", none},
		{"space only", " \t ", "", none},
		{"sign", "+5", "", none},
		{"negative", "-5", "", none},
		{"fraction", "1.5", "", 2 * time.Second},
		{"hexadecimal", "0x5", "", none},
		{"digits of another script", "５", "", none},
		{"digits and a NUL", "5\x00", "", none},
		{"a new line", "5\n", "", none},
		{"past", "Mon, 02 Mar 2026 06:59:59 GMT", "", none},
		{"past by the Date", "Mon, 02 Mar 2026 07:00:20 GMT", own, none},
		{"no leap year", "Mon, 29 Feb 2027 07:00:00 GMT", "", none},
		{"leap second", "Wed, 30 Jun 2027 23:59:60 GMT", "", none},
		{"no such weekday", "Mun, 02 Mar 2026 07:00:20 GMT", "", none},
		{"short weekday in RFC 850", "Mon, 02-Mar-26 07:00:20 GMT", "", none},
		{"long weekday in IMF-fixdate", "Monday, 02 Mar 2026 07:00:20 GMT", "", none},
		{"the first of two dates is past", "Mon, 02 Mar 2026 06:59:59 GMT, Mon, 02 Mar 2026 07:00:20 GMT", "", none},
		{"an empty value before a number", ", 5", "", none},
		{"a word before a number", "soon, 5", "", none},
		{"far too long", strings.Repeat("Mon, 02 Mar 2026 07:00:20 GMT", 100), "", none},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			got, ok := classify.RetryAfter(tt.value, tt.date, "", observed)
			if want := max(tt.want, 0); got != want || ok != (tt.want != none) {
				t.Errorf("RetryAfter(%.60q, %q) = %v, %t; want %v, %t", tt.value, tt.date, got, ok, want, tt.want != none)
			}
		})
	}
}

// TestTwoDigitYear checks a century of dates: a year less than fifty years ahead is
// in the future, and any other is in the past (RFC 9110 §5.6.7).
func TestTwoDigitYear(t *testing.T) {
	t.Parallel()
	for _, now := range []int{1950, 1968, 1970, 1999, 2000, 2026, 2049, 2068, 2069, 2100} {
		observed := time.Date(now, 7, 1, 0, 0, 0, 0, time.UTC)
		for ahead := range 50 {
			want := observed.AddDate(ahead, 0, 0)
			value := want.Format("Monday, 02-Jan-06 15:04:05 GMT")
			got, ok := classify.RetryAfter(value, "", "", observed)
			if !ok || got != want.Sub(observed) {
				t.Errorf("read in %d: RetryAfter(%q) = %v, %t; want %v", now, value, got, ok, want.Sub(observed))
			}
			past := observed.AddDate(-ahead-1, 0, 0).Format("Monday, 02-Jan-06 15:04:05 GMT")
			if got, ok := classify.RetryAfter(past, "", "", observed); ok && ahead < 49 {
				t.Errorf("read in %d: RetryAfter(%q) = %v, want none: that is past", now, past, got)
			}
		}
	}
}

// forms are the four forms of spec W2, alone or before a comma, stated independently of the code.
var forms = regexp.MustCompile(`^[ \t]*(?:[0-9]+` +
	`|(?:Mon|Tue|Wed|Thu|Fri|Sat|Sun), [0-9]{2} ` + month + ` [0-9]{4} ` + clock + ` GMT` +
	`|(?:Mon|Tues|Wednes|Thurs|Fri|Satur|Sun)day, [0-9]{2}-` + month + `-[0-9]{2} ` + clock + ` GMT` +
	`|(?:Mon|Tue|Wed|Thu|Fri|Sat|Sun) ` + month + ` (?:[0-9]{2}| [0-9]) ` + clock + ` [0-9]{4}` +
	`)[ \t]*(?s:,.*)?$`)

const (
	month = `(?:Jan|Feb|Mar|Apr|May|Jun|Jul|Aug|Sep|Oct|Nov|Dec)`
	clock = `[0-9]{2}:[0-9]{2}:[0-9]{2}`
)

// FuzzRetryAfter checks that the wait is never negative, that only the four forms
// are accepted, and that a date is parsed as net/http parses it.
func FuzzRetryAfter(f *testing.F) {
	for _, value := range []string{
		"0", "120", "99999999999999999999", "-1", " 5\t", "Mon, 02 Mar 2026 07:00:20 GMT", "Monday, 02-Mar-26 07:00:20 GMT",
		"Mon Mar  2 07:00:20 2026", "Mon, 02 Mar 2026 7:00:20 GMT", "Mon, 02 Mar 2026 07:00:20.5 GMT", "soon",
		"Mon Mar 02 07:00:20 2026", "mon, 02 mar 2026 07:00:20 GMT", "Mon Mar 2 07:00:20 2026", "Monday, 02-Mar-77 07:00:20 GMT", "Mon,\x00",
	} {
		f.Add(value, "", int64(1772434800), int64(0))
		f.Add(value, "Mon, 02 Mar 2026 07:00:00 GMT", int64(0), int64(0))
		f.Add("Mon, 02 Mar 2026 07:00:20 GMT", value, int64(1772434800), int64(1))
	}
	f.Fuzz(func(t *testing.T, value, date string, seconds, nanoseconds int64) {
		observed := time.Unix(seconds%(1<<40), nanoseconds).UTC()
		got, ok := classify.RetryAfter(value, date, "", observed)
		if got < 0 || !ok && got != 0 {
			t.Errorf("RetryAfter(%q, %q, %v) = %v, %t", value, date, observed, got, ok)
		}
		matches := forms.MatchString(value)
		if ok && !matches {
			t.Errorf("RetryAfter(%q) = %v, but it has none of the four forms", value, got)
		}
		trimmed := strings.Trim(value, " \t")
		until, err := http.ParseTime(trimmed)
		if !matches || err != nil || strings.Contains(trimmed, "-") || date != "" {
			return
		}
		if want := until.Sub(observed); ok != !until.Before(observed) || ok && got != want {
			t.Errorf("RetryAfter(%q, none, %v) = %v, %t; net/http reads %v, %v later", value, observed, got, ok, until, want)
		}
	})
}
