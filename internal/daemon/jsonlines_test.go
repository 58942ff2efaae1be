package daemon

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"math"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

// checkLine compares the line of a logger with that of slog's handler, in a bubble.
func checkLine(t *testing.T, format string, level slog.Level, text string, attrs ...slog.Attr) {
	t.Helper()
	p, want := reading(), new(bytes.Buffer)
	q := NewLogQueue(p)
	h, _ := q.Logger(format, slog.LevelDebug).Handler().(*logHandler)
	options := &slog.HandlerOptions{Level: slog.LevelDebug}
	var standard slog.Handler = slog.NewJSONHandler(want, options)
	if format == "text" {
		standard = slog.NewTextHandler(want, options)
	}
	record := slog.NewRecord(time.Now(), level, text, 0)
	record.AddAttrs(attrs...)
	if err := standard.Handle(t.Context(), record); err != nil {
		t.Error(err)
	}
	want.Write(want.Bytes())
	h.Line(level, text, attrs, false)
	synctest.Wait()
	if got := p.String(); got != "" {
		t.Errorf("written at once: %q", got)
	}
	h.Line(level, text, attrs, true)
	synctest.Wait()
	if got := p.String(); got != want.String() {
		t.Errorf("lines\n%s\nwant\n%s", got, want)
	}
	q.Close(time.Second)
}

type hostile struct{ answer any }

func (h hostile) LogValue() slog.Value         { return slog.AnyValue(h.answer) }
func (h hostile) MarshalJSON() ([]byte, error) { return nil, errors.New("no \"JSON\"\n") }

// TestLineKinds checks that a line has the bytes of slog's, whatever its values are.
func TestLineKinds(t *testing.T) {
	t.Parallel()
	var none *slog.LevelVar
	for name, value := range map[string]slog.Value{
		"string": slog.StringValue("https://example.org/a?b=c&d=<e>"), "empty": slog.StringValue(""), "long": slog.StringValue(strings.Repeat("x", 100_000)),
		"int": slog.Int64Value(math.MinInt64), "uint": slog.Uint64Value(math.MaxUint64), "bool": slog.BoolValue(true), "time": slog.TimeValue(time.Unix(1<<40, 1)),
		"duration": slog.DurationValue(-time.Nanosecond), "nil": slog.AnyValue(nil), "nil pointer": slog.AnyValue(none), "zero": {},
		"error": slog.AnyValue(errors.New("a \"b\"\xff\u2028")), "bytes": slog.AnyValue([]byte("a\xff")), "map": slog.AnyValue(map[string]string{"z": "<&>\u2028", "a": "\xff\x00"}),
		"channel": slog.AnyValue(make(chan int)), "group": slog.GroupValue(slog.Int("a", 1), slog.Any("b", hostile{slog.GroupValue()})), "empty group": slog.GroupValue(),
		"group of empty groups": slog.GroupValue(slog.Group("a"), slog.Group("")), "value": slog.AnyValue(hostile{"a\tb"}), "value of a value": slog.AnyValue(hostile{hostile{hostile{nil}}}),
		"no JSON": slog.AnyValue([]any{hostile{}}), "source": slog.AnyValue(&slog.Source{File: "a"}), "empty source": slog.AnyValue(&slog.Source{}), "level": slog.AnyValue(slog.LevelWarn),
	} {
		for _, format := range []string{"json", "text"} {
			synctest.Test(t, func(t *testing.T) {
				t.Log(name)
				checkLine(t, format, slog.LevelInfo, name, slog.Attr{Key: "a", Value: value})
				checkLine(t, format, slog.LevelInfo, name, slog.Attr{Value: value}, slog.Int("b", 1))
				checkLine(t, format, slog.LevelInfo, name, slog.String("b", "c"), slog.Attr{Key: "a", Value: value}, slog.Float64("d", 0.25), slog.Bool("e", false))
			})
		}
	}
}

// FuzzLine checks that a line has the bytes of slog's, whatever its texts and numbers are.
func FuzzLine(f *testing.F) {
	for _, text := range []string{"", "fetch finished", `"`, `\`, "\n\r\t\b\f\x00\x1f\x7f", "<>&'", "\u2028\u2029", "\xff", "a\xc3", "\xed\xa0\x80", "ä€😀", "\ufffd", `\u0041`, strings.Repeat("x", 1023), strings.Repeat("\"", 5000)} {
		f.Add(text, "key", "value", 0, int64(0), 0.0)
		f.Add("msg", text, "value", 0, int64(0), 0.0)
		f.Add("msg", "key", text, 0, int64(0), 0.0)
	}
	for _, n := range []float64{0.001, -0.25, 1e-6, 9.9e-7, 1e20, 1e21, math.Copysign(0, -1), math.NaN(), math.Inf(1), math.Inf(-1), math.MaxFloat64, math.SmallestNonzeroFloat64, 1.0 / 3} {
		f.Add("msg", "key", "value", int(n), int64(n), n)
	}
	f.Fuzz(func(t *testing.T, msg, key, text string, level int, n int64, x float64) {
		synctest.Test(t, func(t *testing.T) {
			checkLine(t, "json", slog.Level(level), msg, slog.String(key, text), slog.Int64("n", n), slog.Float64("b", x), slog.Bool("c", true))
		})
	})
}

// TestLoggerAtOnce checks that lines of the logger itself, and of those derived from it, are written at once, and that
// the line about dropped lines has the logger's format and level.
func TestLoggerAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := reading()
		q := NewLogQueue(p)
		level := new(slog.LevelVar)
		logger := q.Logger("text", level)
		logger.Warn("a")
		logger.With("k", "v").WithGroup("g").Info("b", "c", 1)
		logger.Debug("not enabled")
		synctest.Wait()
		_, _ = q.Write(make([]byte, logLimit+1)) // never fails
		synctest.Wait()
		level.Set(slog.LevelError)
		_, _ = q.Write(make([]byte, logLimit+1))
		q.Close(time.Second)
		at := "time=" + time.Now().Format("2006-01-02T15:04:05.000Z07:00")
		want := at + " level=WARN msg=a\n" + at + " level=INFO msg=b k=v g.c=1\n" + at + " level=WARN msg=\"log lines were dropped: standard error was not read\" lines=1\n"
		if got := p.String(); got != want || q.Dropped() != 2 || logger.Enabled(context.Background(), slog.LevelWarn) {
			t.Errorf("%d dropped, and written:\n%s\nwant\n%s", q.Dropped(), got, want)
		}
	})
}
