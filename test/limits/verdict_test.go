//go:build linux

package limits

import (
	"context"
	"fmt"
	"net/http"
	"slices"
	"sync"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	pb "fetchd/gen/fetchd/v1"
	"fetchd/test/wait"
)

// The metrics that rows read.
const (
	memoryBytes  = "fetchd_memory_bytes"
	idleBytes    = `fetchd_memory_bytes{kind="idle"}` // of connections, which are kept
	memoryBudget = "fetchd_memory_budget_bytes"
	inFlight     = "fetchd_fetches_in_flight"
	finished     = "fetchd_fetches_total"
)

const (
	rowTime    = 75 * time.Second // bounds a row
	siegeTime  = 4 * time.Second  // how long the origin is hostile
	scrapeTime = 5 * time.Second
)

// run runs a row and checks the result.
func (l *lane) run(t *testing.T, r row) {
	s := l.service(t, r.tokens)
	ctx, cancel := context.WithTimeout(t.Context(), rowTime)
	defer cancel()
	ctx, release := s.whileAlive(ctx)
	defer release()
	if err := l.measureHeads(ctx, s); err != nil {
		t.Fatalf("measure the largest head: %v", err)
	}
	wait.For(ctx, time.Second) // the page of the metrics may be a second old
	before, err := s.metrics(ctx)
	if err != nil {
		t.Fatalf("read the metrics: %v", err)
	}
	m := &meter{service: s}
	m.start(ctx)
	other, err := startBystander(ctx, s, l.config, l.origin.URL("http", "/s/page/200:size=100"))
	if err != nil {
		t.Fatal(err)
	}
	windows() // the first call takes a moment
	l.hostile.siege(siegeTime)
	began := time.Now()
	tr := &trial{ctx: ctx, service: s, hostile: l.hostile, origin: l.origin, callers: l.setting.callers(), fields: l.fields}
	for _, n := range tr.callers {
		tr.fetches += n
	}
	failed := r.attack(tr)
	took := time.Since(began)
	other.finish()
	after, settled := s.quiet(ctx)
	m.finish()
	l.origin.Reset() // its log is not needed

	v := &verdict{row: r, trial: tr, bystander: other, meter: m, before: before, after: after, limit: l.column.bytes}
	faults := v.faults()
	for _, err := range []error{failed, settled} {
		if err != nil && s.alive() {
			faults = append(faults, fmt.Sprint(err))
		}
	}
	for _, fault := range faults {
		t.Error(fault)
	}
	t.Logf("%v; peak %s, charged %s of %s; sent %d: %s; bystander %s", took.Round(100*time.Millisecond), mib(m.peak), mib(m.charged), mib(m.budget), tr.tally.sent, &tr.tally, other)
	if !s.alive() || settled != nil {
		l.drop(t, s) // the next row gets a new one
	}
}

// verdict is the result of a row.
type verdict struct {
	row           row
	trial         *trial
	bystander     *bystander
	meter         *meter
	before, after map[string]float64
	limit         int64
}

// faults returns what is wrong. If the process has ended, it returns only how.
func (v *verdict) faults() []string {
	var faults []string
	add := func(format string, args ...any) { faults = append(faults, fmt.Sprintf(format, args...)) }
	if !v.trial.service.alive() {
		return []string{v.trial.service.death()}
	}
	if v.meter.peak >= v.limit {
		add("the cgroup used %s, want less than its limit of %s", mib(v.meter.peak), mib(v.limit))
	}
	if kills, err := v.trial.service.group.Kills(); kills != 0 || err != nil {
		add("the kernel killed %d processes of the cgroup, %v", kills, err)
	}
	b := v.bystander
	if b.hung > 0 {
		add("%d of the other caller's %d fetches had no answer within %s", b.hung, b.sent, bystanderPatience)
	}
	if b.good*10 < b.sent*9 {
		add("%d of the other caller's %d fetches were answered, want nine in ten: %s", b.good, b.sent, b)
	}
	a := &v.trial.tally
	if v.trial.followed && (a.lost > 0 || a.outcomes+a.refused != a.sent) {
		add("of %d fetches %d have an outcome and %d were refused: %s", a.sent, a.outcomes, a.refused, a)
	}
	if ended := int(v.after[finished] - v.before[finished]); v.after != nil && v.trial.followed && ended-b.hung > a.outcomes+b.outcomes {
		add("the service finished %d fetches, and %d outcomes reached their callers", ended, a.outcomes+b.outcomes)
	}
	return faults
}

// quiet waits until no fetch is in flight, and then until nothing is charged. It returns the
// last metrics.
func (s *service) quiet(ctx context.Context) (last map[string]float64, err error) {
	read := func(within time.Duration, metric string, except ...string) error {
		waiting, cancel := context.WithTimeout(ctx, within)
		defer cancel()
		var failed error
		if wait.Until(waiting, 50*time.Millisecond, func() bool {
			var now map[string]float64
			if now, failed = s.metrics(ctx); failed == nil {
				last = now
			}
			left := last[metric]
			for _, other := range except {
				left -= last[other]
			}
			return failed == nil && left == 0
		}) == nil {
			return nil
		}
		if failed != nil {
			return fmt.Errorf("read the metrics: %w", failed)
		}
		return fmt.Errorf("%s is %.0f %s after the last call, want 0", metric, last[metric], within)
	}
	wait.For(ctx, time.Second) // as above
	if err := read(10*time.Second, inFlight); err != nil {
		return last, err
	}
	if _, there := last[memoryBytes]; !there {
		return last, fmt.Errorf("the service has no metric %s, so that what is charged cannot be checked", memoryBytes)
	}
	// net/http holds a closed HTTP/2 connection for five seconds, which is charged as long.
	return last, read(10*time.Second, memoryBytes, idleBytes)
}

// String formats the counts and the 99th percentile of the latency.
func (b *bystander) String() string {
	slices.Sort(b.took)
	text := fmt.Sprintf("%d of %d in %v", b.good, b.sent, b.took[(len(b.took)-1)*99/100].Round(time.Millisecond))
	if b.refused > 0 {
		text += fmt.Sprintf(", %d refused", b.refused)
	}
	if b.hung > 0 {
		text += fmt.Sprintf(", %d without an answer", b.hung)
	}
	if b.outcomes > b.good {
		text += fmt.Sprintf(", %d failed", b.outcomes-b.good)
	}
	if b.other != nil {
		text += fmt.Sprintf(", %v", b.other)
	}
	return text
}

// meter records the peak of the cgroup's usage and of the charges.
type meter struct {
	service               *service
	stop                  context.CancelFunc
	watching              sync.WaitGroup
	peak, charged, budget int64
}

func (m *meter) start(ctx context.Context) {
	ctx, m.stop = context.WithCancel(ctx)
	m.watching.Go(func() {
		_ = wait.Until(ctx, 10*time.Millisecond, func() bool {
			if used, err := m.service.group.Used(); err == nil {
				m.peak = max(m.peak, used)
			}
			return false
		})
	})
	m.watching.Go(func() {
		_ = wait.Until(ctx, 250*time.Millisecond, func() bool {
			if now, err := m.service.metrics(ctx); err == nil {
				m.charged = max(m.charged, int64(now[memoryBytes]))
				m.budget = int64(now[memoryBudget])
			}
			return false
		})
	})
}

func (m *meter) finish() {
	m.stop()
	m.watching.Wait()
}

// measureHeads determines once how many fields a head may have over each protocol.
func (l *lane) measureHeads(ctx context.Context, s *service) error {
	for _, secure := range []bool{h1, h2} {
		if l.fields[secure] > 0 || s.tokens != nil {
			continue
		}
		n, err := l.fullest(ctx, s, secure)
		if err != nil {
			return err
		}
		l.fields[secure] = n
	}
	return nil
}

// fullest returns the maximum number of fields with which a fetch succeeds.
func (l *lane) fullest(ctx context.Context, s *service, secure bool) (int, error) {
	conn, err := dialFrom(bystanderAddress, s.grpcAddr)
	if err != nil {
		return 0, err
	}
	defer conn.Close()
	client := pb.NewFetchServiceClient(conn)
	low, high := 0, 16<<10 // accepted, refused
	for high-low > 1 {
		n := (low + high) / 2
		req := request(l.hostile.url(secure, "/head?"+head{status: http.StatusOK, fields: n}.query()), 1)
		answer, err := client.FetchUnary(ctx, req)
		if status.Code(err) == codes.ResourceExhausted {
			wait.For(ctx, 100*time.Millisecond)
			continue
		}
		if err != nil {
			return 0, err
		}
		taken := answer.GetOutcome().GetKind() == pb.OutcomeKind_OUTCOME_KIND_SUCCESS
		// More fields than fit are left out, so larger numbers show nothing.
		if sent := len(answer.GetOutcome().GetResponse().GetHeaders()); taken && sent < n {
			taken, low = false, max(low, sent-4)
		}
		if taken {
			low = n
		} else {
			high = n
		}
	}
	if low == 0 {
		return 0, fmt.Errorf("no head of %d bytes is accepted", headBytes)
	}
	return low, nil
}
