package main

import (
	"fmt"
	"io"
	"os"
	"regexp"
	"strconv"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"golang.org/x/term"
)

// secrets are the places of an address where a password can stand. In that of a
// database what is taken for one is rather too long than too short.
var secrets = regexp.MustCompile(`(?i)(postgres(?:ql)?://)\S*@|(://)[^\s/?#]*@|(password\s*=\s*)(?:'[^']*'|[^\s&]+)`)

// safe makes text fit for one line that anyone may read: no controls, no passwords.
func safe(s string) string {
	return escape(secrets.ReplaceAllStringFunc(strings.Join(strings.Fields(s), " "), func(match string) string {
		if strings.HasSuffix(match, "@") {
			return match[:strings.Index(match, "://")+3] + "xxxxx@"
		}
		name, _, _ := strings.Cut(match, "=")
		return name + "=xxxxx"
	}))
}

// escape makes text fit for a terminal: control and format characters, invalid
// bytes and line ends are written as in a Go string.
func escape(s string) string {
	var b strings.Builder
	for i := 0; i < len(s); {
		r, n := utf8.DecodeRuneInString(s[i:])
		switch {
		case r == utf8.RuneError && n == 1:
			fmt.Fprintf(&b, `\x%02x`, s[i])
		case unicode.IsGraphic(r): // neither Cc nor Cf: no controls, no direction overrides
			b.WriteRune(r)
		default:
			quoted := strconv.QuoteRune(r)
			b.WriteString(quoted[1 : len(quoted)-1])
		}
		i += n
	}
	return b.String()
}

// count writes a number with its noun: "1 URL", "2 URLs".
func count(n int64, noun string) string {
	if n == 1 {
		return "1 " + noun
	}
	return fmt.Sprintf("%d %ss", n, noun)
}

// relative says how far t is from now: "in 4m10s", "3s ago", "now".
func relative(t, now time.Time) string {
	d := t.Sub(now)
	switch {
	case d >= time.Second/2:
		return "in " + span(d)
	case d <= -time.Second/2:
		return span(-d) + " ago"
	}
	return "now"
}

// span writes a duration to the second, and one of two days or more to the hour.
func span(d time.Duration) string {
	const day = 24 * time.Hour
	if d >= 2*day {
		return fmt.Sprintf("%dd%dh", d/day, d%day/time.Hour)
	}
	return d.Round(time.Second).String()
}

// stamp is a time as this program writes it: RFC 3339 in UTC, to the millisecond.
func stamp(t time.Time) string { return t.UTC().Format("2006-01-02T15:04:05.000Z07:00") }

// isTerminal tells whether w is one.
func isTerminal(w io.Writer) bool {
	f, ok := w.(*os.File)
	return ok && term.IsTerminal(int(f.Fd()))
}

// printer writes text and keeps the first error, after which it writes nothing.
type printer struct {
	w   io.Writer
	err error
}

// Write implements io.Writer.
func (p *printer) Write(b []byte) (int, error) {
	if p.err != nil {
		return 0, p.err
	}
	var n int
	n, p.err = p.w.Write(b)
	return n, p.err
}

func (p *printer) printf(format string, args ...any) {
	if p.err == nil {
		_, p.err = fmt.Fprintf(p.w, format, args...)
	}
}

// end is the error of what was written, as a command returns it.
func (p *printer) end() error {
	if p.err != nil {
		return &outputError{p.err}
	}
	return nil
}
