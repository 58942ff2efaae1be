package tlswatch_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"fetchd/internal/tlswatch"
	"fetchd/test/must"
	"fetchd/test/wait"
)

const (
	day  = 24 * time.Hour
	year = 365 * day
)

// logText is a log that can be read while it is written.
type logText struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (l *logText) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.Write(p)
}

// take returns the text since the last call.
func (l *logText) take() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	defer l.text.Reset()
	return l.text.String()
}

// logged returns what the log has, each line as "LEVEL MESSAGE NAME".
func logged(t *testing.T, log *logText) []string {
	t.Helper()
	var lines []string
	for line := range strings.Lines(log.take()) {
		var l struct {
			Level, Msg, Name string
			DaysLeft         int `json:"days_left"`
		}
		must.Succeed(t, json.Unmarshal([]byte(line), &l))
		lines = append(lines, fmt.Sprintf("%s %s %s %d", l.Level, l.Msg, l.Name, l.DaysLeft))
	}
	return lines
}

func ending(name string, in time.Duration) tlswatch.Certificate {
	now := time.Now()
	return tlswatch.Certificate{Use: tlswatch.Service, Name: name, Serial: "1", NotBefore: now.Add(-year), NotAfter: now.Add(in)}
}

// TestWatch checks which lines about certificates are logged, and when.
func TestWatch(t *testing.T) {
	repeat := func(line string, n int) []string { return slices.Repeat([]string{line}, n) }
	for _, row := range []struct {
		name string
		in   time.Duration // until the certificate ends
		run  time.Duration
		want []string
	}{
		{"far away", 60 * day, 29 * day, nil},
		{"30 days before the end", 60 * day, 30 * day, []string{"WARN certificate expires soon a 30"}},
		{"just before that", 60 * day, 30*day - time.Second, nil},
		{"near at the start", 3*day + time.Hour, 0, []string{"WARN certificate expires soon a 3"}},
		{"near, not yet the next day", 3 * day, day - time.Second, []string{"WARN certificate expires soon a 3"}},
		{"near, each day", 3 * day, 2 * day, []string{"WARN certificate expires soon a 3", "WARN certificate expires soon a 2", "WARN certificate expires soon a 1"}},
		{"it expires", time.Hour, time.Hour + time.Millisecond, []string{"WARN certificate expires soon a 0", "ERROR certificate has expired a -1"}},
		{"valid to the last instant", time.Hour, time.Hour, []string{"WARN certificate expires soon a 0"}},
		{"expired at the start, each day", -time.Second, 2 * day, []string{"ERROR certificate has expired a -1", "ERROR certificate has expired a -2", "ERROR certificate has expired a -3"}},
		{"from far away to a day after the end", 32 * day, 33 * day, slices.Concat([]string{"WARN certificate expires soon a 30"},
			slices.Collect(func(yield func(string) bool) {
				for left := 29; left >= 0; left-- {
					if !yield(fmt.Sprintf("WARN certificate expires soon a %d", left)) {
						return
					}
				}
			}), repeat("ERROR certificate has expired a -1", 1))},
	} {
		t.Run(row.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var log logText
				w := tlswatch.NewWatch(slog.New(slog.NewJSONHandler(&log, nil)))
				defer w.Stop()
				w.Set([]tlswatch.Certificate{ending("a", row.in)})
				wait.For(t.Context(), row.run)
				synctest.Wait()
				if got := logged(t, &log); !slices.Equal(got, row.want) {
					t.Errorf("a certificate that ends in %s, after %s:\ngot  %q\nwant %q", row.in, row.run, got, row.want)
				}
			})
		})
	}
}

// TestWatchShortLived checks that a certificate that is renewed each day is reported when its renewal is
// late, and not all day.
func TestWatchShortLived(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var log logText
		w := tlswatch.NewWatch(slog.New(slog.NewJSONHandler(&log, nil)))
		defer w.Stop()
		c := ending("a", day)
		c.NotBefore = time.Now()
		w.Set([]tlswatch.Certificate{c})
		wait.For(t.Context(), 16*time.Hour-time.Nanosecond)
		synctest.Wait()
		if got := logged(t, &log); got != nil {
			t.Errorf("before two thirds of its time: %q", got)
		}
		wait.For(t.Context(), time.Nanosecond)
		synctest.Wait()
		if got, want := logged(t, &log), []string{"WARN certificate expires soon a 0"}; !slices.Equal(got, want) {
			t.Errorf("got %q, want %q", got, want)
		}
	})
}

// TestWatchNotValidYet checks a certificate whose time has not begun.
func TestWatchNotValidYet(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var log logText
		w := tlswatch.NewWatch(slog.New(slog.NewJSONHandler(&log, nil)))
		defer w.Stop()
		c := ending("a", 90*day)
		c.NotBefore = time.Now().Add(time.Hour)
		w.Set([]tlswatch.Certificate{c})
		wait.For(t.Context(), 2*day)
		synctest.Wait()
		if got, want := logged(t, &log), []string{"ERROR certificate is not valid yet a 90"}; !slices.Equal(got, want) {
			t.Errorf("got %q, want %q", got, want)
		}
	})
}

// TestWatchReload checks what a reload logs.
func TestWatchReload(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var log logText
		w := tlswatch.NewWatch(slog.New(slog.NewJSONHandler(&log, nil)))
		old, other, renewed := ending("a", time.Minute), ending("b", 2*day), ending("a", 90*day)
		renewed.Serial = "2"
		for _, step := range []struct {
			name string
			set  []tlswatch.Certificate
			run  time.Duration
			want []string
		}{
			{"the start", []tlswatch.Certificate{old}, 0, []string{"WARN certificate expires soon a 0"}},
			{"a reload of the same", []tlswatch.Certificate{old}, 0, nil},
			{"one more", []tlswatch.Certificate{old, other}, 0, []string{"WARN certificate expires soon b 2"}},
			{"it is replaced before it ends", []tlswatch.Certificate{renewed, other}, time.Hour, nil},
			{"the old one comes back", []tlswatch.Certificate{old, other}, 0, []string{"ERROR certificate has expired a -1"}},
			{"none", nil, 3 * day, nil},
		} {
			w.Set(step.set)
			wait.For(t.Context(), step.run)
			synctest.Wait()
			if got := logged(t, &log); !slices.Equal(got, step.want) {
				t.Errorf("%s: got %q, want %q", step.name, got, step.want)
			}
		}
		w.Set([]tlswatch.Certificate{other})
		log.take()
		w.Stop()
		wait.For(t.Context(), 9*day)
		if text := log.take(); text != "" {
			t.Errorf("after Stop: %s", text)
		}
	})
}

// TestMetrics checks the series of certificates: their labels are bounded, and none is there twice.
func TestMetrics(t *testing.T) {
	w := tlswatch.NewWatch(slog.New(slog.DiscardHandler))
	defer w.Stop()
	a := tlswatch.Certificate{Use: tlswatch.Service, Name: "a", Serial: "1", NotAfter: time.Unix(2000, 0)}
	again := a
	again.NotAfter = time.Unix(1000, 0)
	w.Set([]tlswatch.Certificate{a, again})
	for range 2 {
		if got := series(t, w); len(got) != 1 || got[`service a 1`] != 1000 {
			t.Errorf("two certificates with the same labels: %v, want one series with the first end", got)
		}
	}
	many := make([]tlswatch.Certificate, 3000)
	for i := range many {
		many[i] = tlswatch.Certificate{Use: tlswatch.OriginAuthority, Name: "x", Serial: fmt.Sprint(i), NotAfter: time.Unix(int64(9000-i), 0)}
	}
	w.Set(many)
	got := series(t, w)
	if _, ok := got["origin_authority x 2999"]; !ok || len(got) != 1000 {
		t.Errorf("%d series of 3,000 certificates, want 1,000, and among them the one that ends first: %t", len(got), ok)
	}
}

// series returns the gauges by the values of their labels.
func series(t *testing.T, w *tlswatch.Watch) map[string]float64 {
	t.Helper()
	r := prometheus.NewPedanticRegistry()
	r.MustRegister(tlswatch.NewCollector("x", w, nil))
	families, err := r.Gather()
	must.Succeed(t, err)
	found := make(map[string]float64)
	for _, m := range families[0].GetMetric() { // not_after is the first by name
		labels := map[string]string{}
		for _, l := range m.GetLabel() {
			labels[l.GetName()] = l.GetValue()
		}
		found[labels["use"]+" "+labels["name"]+" "+labels["serial"]] = m.GetGauge().GetValue()
	}
	return found
}
