package show

import (
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"google.golang.org/protobuf/reflect/protoreflect"

	pb "fetchd/gen/fetchd/v1"
)

// Label returns the name of an enum value in lower case without its prefix, such as
// "http_server_error".
func Label(e protoreflect.Enum) string {
	values := e.Descriptor().Values()
	value := values.ByNumber(e.Number())
	if value == nil {
		return fmt.Sprintf("unknown_%d", e.Number())
	}
	prefix := strings.TrimSuffix(string(values.ByNumber(0).Name()), "UNSPECIFIED")
	return strings.ToLower(strings.TrimPrefix(string(value.Name()), prefix))
}

// StatusLine returns a status with its standard reason phrase. The service does not report
// that of the origin.
func StatusLine(code int32) string {
	if reason := http.StatusText(int(code)); reason != "" {
		return fmt.Sprintf("%d %s", code, reason)
	}
	return strconv.Itoa(int(code))
}

// Size formats a number of bytes for people.
func Size(n int64) string {
	if n < 1<<10 {
		return fmt.Sprintf("%d B", n)
	}
	units, value := "KMGTPE", float64(n)/(1<<10)
	for value >= 1023.95 && len(units) > 1 {
		units, value = units[1:], value/(1<<10)
	}
	return fmt.Sprintf("%.1f %ciB", value, units[0])
}

// Took formats a measured time with three digits.
func Took(d time.Duration) string {
	switch {
	case d < time.Millisecond:
		return fmt.Sprintf("%d µs", d.Microseconds())
	case d < time.Second:
		return fmt.Sprintf("%d ms", d.Milliseconds())
	case d < time.Minute:
		return fmt.Sprintf("%.2f s", d.Seconds())
	}
	return d.Round(time.Second).String()
}

// HeadersOf returns the headers of a response that are text.
func HeadersOf(r *pb.HttpResponse) http.Header {
	h := make(http.Header)
	for _, f := range r.GetHeaders() {
		if len(f.GetRawValue()) == 0 {
			h.Add(f.GetName(), f.GetValue())
		}
	}
	return h
}

// TotalOf returns the length of the complete body, or -1 if the response does not contain it.
func TotalOf(r *pb.HttpResponse) int64 {
	switch {
	case CodingOf(r) != "": // the length is that of the encoded bytes
		return -1
	case r.GetStatusCode() == http.StatusPartialContent:
		return totalOfRange(HeadersOf(r).Get("Content-Range"))
	case r == nil || r.ContentLength == nil:
		return -1
	}
	return r.GetContentLength()
}

// totalOfRange returns the total length in "bytes FIRST-LAST/TOTAL".
func totalOfRange(s string) int64 {
	_, size, _ := strings.Cut(s, "/")
	if n, err := strconv.ParseInt(size, 10, 64); err == nil && n >= 0 {
		return n
	}
	return -1
}

// WholeRunes returns the length of b without an unfinished character or line end.
func WholeRunes(b []byte) int {
	if len(b) > 0 && b[len(b)-1] == '\r' {
		return len(b) - 1
	}
	for i := len(b) - 1; i >= 0 && i >= len(b)-utf8.UTFMax; i-- {
		if utf8.RuneStart(b[i]) {
			if !utf8.FullRune(b[i:]) {
				return i
			}
			break
		}
	}
	return len(b)
}

// CodingOf returns the Content-Encoding of a response.
func CodingOf(r *pb.HttpResponse) string {
	for _, h := range r.GetHeaders() {
		if h.GetName() == "Content-Encoding" {
			return h.GetValue()
		}
	}
	return ""
}

// cut shortens s to width characters.
func cut(s string, width int) string {
	if utf8.RuneCountInString(s) <= width {
		return s
	}
	return string([]rune(s)[:max(width-1, 0)]) + "…"
}

// Wait redraws the line each second until stop is called: how long the service still waits before a retry, or
// how long an attempt has taken. stop removes the line. It draws nothing for other events, and unless
// [Progress.Waits] is set. No other method may be called before stop, which may be called twice.
func (p *Progress) Wait(m *pb.FetchEvent) (stop func()) {
	text, first := waitText(m)
	if p == nil || !p.Waits || text == nil {
		return func() {}
	}
	begun, end, ended := time.Now(), make(chan struct{}), make(chan struct{})
	go func() {
		defer close(ended)
		timer := time.NewTimer(first)
		defer timer.Stop()
		for {
			select {
			case <-end:
				return
			case <-timer.C:
				p.draw(text(time.Since(begun)))
				timer.Reset(time.Second)
			}
		}
	}()
	return func() {
		if end != nil {
			close(end)
			<-ended
			end = nil
			p.Clear()
		}
	}
}

// waitText returns the text of a wait after some time, and when it is first drawn. It returns nil if nothing
// is waited for after an event.
func waitText(m *pb.FetchEvent) (text func(time.Duration) string, first time.Duration) {
	if started := m.GetAttemptStarted(); started != nil {
		return func(since time.Duration) string {
			return fmt.Sprintf("attempt %d: waiting for the origin, %s", started.GetAttempt(), since.Round(time.Second))
		}, time.Second
	}
	retry := m.GetAttemptFinished().GetRetryDecision().GetRetry()
	if retry.GetDelay().AsDuration() < time.Second {
		return nil, 0
	}
	return func(since time.Duration) string {
		left := max(retry.GetDelay().AsDuration()-since, 0)
		return fmt.Sprintf("attempt %d in %s: %s", retry.GetAttempt(), (left + time.Second - 1).Truncate(time.Second), waitReason(retry))
	}, 0
}

// waitReason says what asked for a wait.
func waitReason(retry *pb.Retry) string {
	if retry.GetDelaySource() == pb.DelaySource_DELAY_SOURCE_RETRY_AFTER {
		return fmt.Sprintf("the origin asked for %s (Retry-After)", retry.GetDelay().AsDuration())
	}
	return fmt.Sprintf("a wait of %s (%s)", retry.GetDelay().AsDuration(), Label(retry.GetDelaySource()))
}
