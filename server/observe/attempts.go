package observe

import (
	"cmp"
	"sync/atomic"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"

	"fetchd/classify"
)

// attempts counts attempts by class and verdict. Most of the 468 pairs cannot occur,
// so only the usual ones get their series in advance. The others get it when they
// first occur.
type attempts struct {
	vec               *prometheus.CounterVec
	classes, verdicts []string
	counters          []atomic.Pointer[prometheus.Counter] // by class, then verdict
}

func newAttempts(series promauto.Factory) attempts {
	a := attempts{classes: names[classify.Class](), verdicts: names[classify.Verdict](),
		vec: series.NewCounterVec(prometheus.CounterOpts{Name: "fetchd_attempts_total",
			Help: "Attempts that ended, by what went wrong and by what followed."}, []string{"error_class", "decision"})}
	a.counters = make([]atomic.Pointer[prometheus.Counter], len(a.classes)*len(a.verdicts))
	for class := range a.classes {
		for _, verdict := range usual(classify.Class(class)) {
			a.counter(classify.Class(class), verdict)
		}
	}
	return a
}

// usual returns the verdicts of the default policy for a class, at the first and at
// the last attempt.
func usual(class classify.Class) []classify.Verdict {
	policy := classify.Standard.Policy()
	o := classify.Observation{Faults: classify.FaultsOf(class), Attempt: 1, TimeLeft: classify.Unbounded}
	if class == classify.NoClass {
		o.Status = 200
	}
	first := classify.Decide(&policy, &o)
	o.Attempt = policy.MaxAttempts
	last := classify.Decide(&policy, &o)
	return []classify.Verdict{first.Verdict, last.Verdict}
}

// counter returns the counter of a pair. An unknown class or verdict is counted as
// none.
func (a *attempts) counter(class classify.Class, verdict classify.Verdict) prometheus.Counter {
	if int(class) >= len(a.classes) {
		class = classify.NoClass
	}
	if int(verdict) >= len(a.verdicts) {
		verdict = classify.NoVerdict
	}
	at := &a.counters[int(class)*len(a.verdicts)+int(verdict)]
	if known := at.Load(); known != nil {
		return *known
	}
	c := a.vec.WithLabelValues(cmp.Or(a.classes[class], none), cmp.Or(a.verdicts[verdict], none))
	at.Store(&c) // a concurrent call stores the same counter
	return c
}
