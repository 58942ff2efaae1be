package observe

import (
	"sync/atomic"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"

	"fetchd/classify"
)

// attempts counts them by class and verdict. Of the 468 pairs most cannot be, so
// that all but the usual ones get their series when they come first.
type attempts struct {
	vec               *prometheus.CounterVec
	classes, verdicts []string
	counters          []atomic.Pointer[prometheus.Counter] // by class, then verdict
}

func newAttempts(series promauto.Factory) attempts {
	a := attempts{classes: names[classify.Class](), verdicts: names[classify.Verdict](),
		vec: series.NewCounterVec(prometheus.CounterOpts{Name: "fetchd_attempts_total",
			Help: "Attempts that ended, by what went wrong and by what followed from it."}, []string{"error_class", "verdict"})}
	a.counters = make([]atomic.Pointer[prometheus.Counter], len(a.classes)*len(a.verdicts))
	for class := range a.classes {
		for _, verdict := range usual(classify.Class(class)) {
			a.of(classify.Class(class), verdict)
		}
	}
	return a
}

// usual are the verdicts that the default policy comes to, at the first attempt
// and at the last.
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

// of returns the counter of a pair. Numbers that mean nothing are counted as
// nothing.
func (a *attempts) of(class classify.Class, verdict classify.Verdict) prometheus.Counter {
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
	c := a.vec.WithLabelValues(orDefault(a.classes[class], none), orDefault(a.verdicts[verdict], none))
	at.Store(&c) // whoever comes at the same time stores the same
	return c
}
