package classify

import (
	"bytes"
	"math"
	"strings"
	"time"
)

// RetryAfter parses the value of a Retry-After field and returns the wait. Of
// several values that are joined by commas only the first counts. It is a number
// of [Seconds], or a date in one of the three HTTP-date forms, which counts from
// [ResponseTime]. RetryAfter returns false for anything else and for a date in the
// past.
//
// # Source
//
// Spec W2; RFC 9110 §10.2.3 and §5.6.7; RFC 9111 §5.1.
func RetryAfter(value, date, age string, observed time.Time) (time.Duration, bool) {
	number, _, _ := strings.Cut(value, ",")
	if seconds, ok := Seconds(strings.Trim(number, " \t")); ok {
		return seconds, true
	}
	value = firstDate(strings.Trim(value, " \t"))
	from := ResponseTime(date, age, observed)
	until, ok := httpDate(value, from)
	if !ok || until.Before(from) {
		return 0, false
	}
	return until.Sub(from), true // Sub saturates
}

// ResponseTime returns date plus age, the response's Date and Age fields, if date is
// valid, and observed otherwise. An age that is no number of seconds counts as 0.
func ResponseTime(date, age string, observed time.Time) time.Time {
	from, ok := httpDate(strings.Trim(date, " \t"), observed)
	if !ok {
		return observed
	}
	stored, _ := delaySeconds(age)
	return from.Add(stored)
}

// Seconds parses 1*DIGIT or 1*DIGIT "." 1*DIGIT, and rounds up to whole seconds. A
// number that exceeds time.Duration gives the maximum.
func Seconds(s string) (time.Duration, bool) {
	whole, fraction, dotted := strings.Cut(s, ".")
	n, ok := delaySeconds(whole)
	if !dotted {
		return n, ok
	}
	rest, valid := delaySeconds(fraction)
	if rest != 0 {
		n = addSaturating(n, time.Second)
	}
	return n, ok && valid
}

// firstDate returns the first of values that are joined by commas, if it is a date. Two
// of the three forms have a comma of their own, behind the day of the week.
func firstDate(values string) string {
	day, rest, _ := strings.Cut(values, ",")
	if rest == "" || strings.Contains(day, " ") {
		return day
	}
	date, _, _ := strings.Cut(rest, ",")
	return strings.TrimRight(values[:len(day)+len(",")+len(date)], " \t")
}

// delaySeconds parses 1*DIGIT.
func delaySeconds(s string) (time.Duration, bool) {
	const limit = math.MaxInt64 / int64(time.Second)
	n := int64(0)
	for _, c := range []byte(s) {
		if c < '0' || c > '9' {
			return 0, false
		}
		n = min(n*10+int64(c-'0'), limit+1)
	}
	if n > limit {
		return math.MaxInt64, s != ""
	}
	return time.Duration(n) * time.Second, s != ""
}

// httpDate parses the three forms of RFC 9110 §5.6.7. The position of the comma
// identifies the form. The two-digit year of the rfc850 form is relative to now.
func httpDate(s string, now time.Time) (time.Time, bool) {
	const (
		imf     = "Mon, 02 Jan 2006 15:04:05 GMT"
		rfc850  = "Monday, 02-Jan-06 15:04:05 GMT"
		asctime = "Mon Jan _2 15:04:05 2006"
		asctwo  = "Mon Jan 02 15:04:05 2006" // asctime with a two-digit day
	)
	switch strings.IndexByte(s, ',') {
	case -1:
		if t, ok := parse(asctime, s); ok {
			return t, true
		}
		return parse(asctwo, s)
	case 3:
		return parse(imf, s)
	}
	t, ok := parse(rfc850, s)
	return nearCentury(t, now), ok
}

func parse(layout, s string) (time.Time, bool) {
	if len(s) < len("Mon Jan _2 15:04:05 2006") { // no form is shorter
		return time.Time{}, false
	}
	t, err := time.Parse(layout, s)
	return t, err == nil && isExact(t, layout, s)
}

// isExact reports whether s is exactly t in the layout. time.Parse is more
// lenient than RFC 9110 §5.6.7: it accepts fractions of a second, hours of one
// digit, more spaces and other cases. The day of the week may be wrong, because
// it does not affect the time.
func isExact(t time.Time, layout, s string) bool {
	var buffer [40]byte
	exact := t.AppendFormat(buffer[:0], layout)
	day := strings.IndexByte(s, ' ')
	return string(exact[bytes.IndexByte(exact, ' '):]) == s[day:] &&
		strings.ToUpper(s[:1]) == s[:1] && strings.ToLower(s[1:day]) == s[1:day]
}

// nearCentury moves a date with a two-digit year into the century in which it is
// at most 50 years after now, as RFC 9110 §5.6.7 requires.
func nearCentury(t, now time.Time) time.Time {
	switch {
	case t.After(now.AddDate(50, 0, 0)):
		return t.AddDate(-100, 0, 0)
	case !t.After(now.AddDate(-50, 0, 0)):
		return t.AddDate(100, 0, 0)
	}
	return t
}
