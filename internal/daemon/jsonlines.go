package daemon

import (
	"bytes"
	"context"
	"io"
	"log/slog"
	"math"
	"strconv"
	"time"
	"unicode/utf8"
)

// logHandler is a [slog.Handler] whose lines are written at once, with a method for lines that may wait.
type logHandler struct {
	slog.Handler

	queue *LogQueue
	later slog.Handler // adds lines that wait
	json  bool
}

// Logger returns a logger for the format text or json. Its handler also formats the line about dropped lines.
func (q *LogQueue) Logger(format string, level slog.Leveler) *slog.Logger {
	handler := func(w io.Writer) slog.Handler {
		options := &slog.HandlerOptions{Level: level}
		if format == "text" {
			return slog.NewTextHandler(w, options)
		}
		return slog.NewJSONHandler(w, options)
	}
	var line bytes.Buffer
	notices := slog.New(handler(&line))
	q.mu.Lock()
	defer q.mu.Unlock()
	q.notice = func(dropped uint64) []byte { // only the goroutine of the queue calls it
		line.Reset()
		notices.Warn("log lines were dropped: standard error was not read", slog.Uint64("lines", dropped))
		return line.Bytes()
	}
	return slog.New(&logHandler{handler(q), q, handler(laterWriter{q}), format != "text"})
}

// laterWriter adds lines that wait.
type laterWriter struct{ queue *LogQueue }

func (w laterWriter) Write(line []byte) (int, error) {
	w.queue.add(line, false)
	return len(line), nil
}

// Line writes the line of a record with these attributes, in the same bytes as Handle, for less. It does
// not keep attrs. The line may wait for others, unless atOnce is set.
func (h *logHandler) Line(level slog.Level, text string, attrs []slog.Attr, atOnce bool) {
	now := time.Now()
	if h.json {
		var room [1024]byte
		if line, ok := appendLine(room[:0], now, level, text, attrs); ok {
			h.queue.add(line, atOnce)
			return
		}
	}
	line := slog.NewRecord(now, level, text, 0)
	line.AddAttrs(attrs...)
	to := h.later
	if atOnce {
		to = h.Handler
	}
	_ = to.Handle(context.Background(), line) // a queue never fails
}

// appendLine appends the line that [slog.JSONHandler] writes. It reports false if that needs more than
// copying texts and formatting numbers.
func appendLine(b []byte, at time.Time, level slog.Level, text string, attrs []slog.Attr) ([]byte, bool) {
	b = append(b, `{"time":"`...)
	b = at.AppendFormat(b, time.RFC3339Nano)
	b = append(b, `","level":"`...)
	b = append(b, level.String()...)
	b = append(b, `","msg":`...)
	b, ok := appendPlain(b, text)
	for i := 0; ok && i < len(attrs); i++ {
		b = append(b, ',')
		if b, ok = appendPlain(b, attrs[i].Key); !ok {
			break
		}
		b = append(b, ':')
		switch v := attrs[i].Value; v.Kind() {
		case slog.KindString:
			b, ok = appendPlain(b, v.String())
		case slog.KindInt64:
			b = strconv.AppendInt(b, v.Int64(), 10)
		case slog.KindBool:
			b = strconv.AppendBool(b, v.Bool())
		case slog.KindFloat64:
			f := v.Float64()
			abs := math.Abs(f)
			ok = f == 0 || abs >= 1e-6 && abs < 1e21 // others have an exponent, or are no numbers
			b = strconv.AppendFloat(b, f, 'f', -1, 64)
		default:
			ok = false
		}
	}
	return append(b, '}', '\n'), ok
}

// appendPlain appends a quoted text. It reports false if the text needs an escape, or may need one.
func appendPlain(b []byte, text string) ([]byte, bool) {
	for i := range len(text) {
		if c := text[i]; c < ' ' || c >= utf8.RuneSelf || c == '"' || c == '\\' {
			return b, false
		}
	}
	b = append(b, '"')
	b = append(b, text...)
	return append(b, '"'), true
}
