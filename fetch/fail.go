package fetch

import (
	"cmp"
	"errors"
	"time"

	"fetchd/classify"
	"fetchd/fetch/fault"
	"fetchd/fetch/timers"
	"fetchd/internal/budget"
)

// errSurplus ends an attempt whose response may be the answer to another request (spec N4).
var errSurplus = fault.New(classify.ConnectionReset, classify.PhaseTransfer, "unrequested_data")

// fail records a failure. Only the first one keeps its phase and reason.
func (a *attempt) fail(class classify.Class, phase classify.Phase, reason string) {
	if a.faults == 0 {
		a.phase, a.reason = phase, reason
	}
	a.faults = a.faults.With(class)
	if class == classify.Protocol {
		a.exchange.Retire() // nothing that follows on the connection can be trusted
	}
}

// failWith records an error that ended the exchange in the given phase.
func (a *attempt) failWith(phase classify.Phase, err error) {
	class, reason, cause := a.classOf(phase, err)
	if class == classify.TargetBlocked {
		a.noteDenial(err)
	}
	a.noteError(class, phase, err, cause)
	if staged, ok := errors.AsType[*fault.PhaseError](err); ok {
		phase = staged.Phase
	} else if own, ok := errors.AsType[*fault.Error](err); ok {
		phase = cmp.Or(own.Phase, phase) // an address that is blocked while dialing is in the phase of the policy
	}
	a.fail(class, phase, reason)
}

// noteDenial records which policy of the fetch forbids a target.
func (a *attempt) noteDenial(err error) {
	if own, ok := errors.AsType[*fault.Error](err); ok {
		a.denial = denial{own.Policy, own.Rule, own.Permitted}
	}
}

// classOf returns the class and the reason of an error, and the cause if the exchange was
// cancelled. It checks the contexts first, because HTTP/1 and HTTP/2 report a cancelled context
// with different errors, and only its cause identifies a time limit.
func (a *attempt) classOf(phase classify.Phase, err error) (classify.Class, string, error) {
	if cause := a.exchangeCause(); cause != nil {
		class := classify.Error(classify.NoPhase, cause) // our limits know their class; other causes are the caller's
		if class == classify.ConnectTimeout && phase == classify.PhaseResolve {
			class = classify.DNSFailure // N1: not in time
		}
		return class, fault.ReasonOf(cause), cause
	}
	if staged, ok := errors.AsType[*fault.PhaseError](err); ok {
		phase = staged.Phase
	}
	return a.exchange.ClassOf(phase, err), fault.ReasonOf(err), nil
}

// exchangeCause returns why the exchange was cancelled, or nil. If several limits pass at the same
// instant, that of the hop comes first (spec §3), then that of the fetch.
func (a *attempt) exchangeCause() error {
	cause := a.exchange.Cause()
	if cause == nil {
		return nil
	}
	if _, limit := errors.AsType[*TimeoutError](cause); limit {
		if own := a.exchange.Limit.Passed(); own != nil {
			return own
		}
		if a.run.timeLeft() == 0 {
			return &timers.Error{Class: classify.Deadline, Limit: time.Since(a.run.start)}
		}
	}
	return cause
}

// outOfMemory records that a charge was refused, or why the fetch ended while it waited for that.
func (a *attempt) outOfMemory(phase classify.Phase) {
	if cause := a.exchangeCause(); cause != nil {
		a.failWith(phase, cause)
		return
	}
	a.fail(fault.OutOfMemory.Class, phase, fault.OutOfMemory.Reason)
}

// isDoubtful reports whether the response, which was read, may be the answer to another request and must
// not be used. If bytes of its body were delivered already, the summary of the body says so instead.
func (a *attempt) isDoubtful() bool {
	if a.exchange.Surplus() && a.committed {
		a.body.UnrequestedData = true
	}
	return a.exchange.Surplus() && !a.committed
}

// disown ends the attempt as N4. It drops the response, which may be the answer to another request, and
// the failures that follow from it.
func (a *attempt) disown() {
	a.run.req.Memory.Shrink(budget.Body, int64(len(a.errorBody)))
	a.resp, a.response, a.errorBody, a.body = nil, nil, nil, BodySummary{}
	if a.faults.Has(classify.OutOfMemory) || a.faults.Has(classify.StoreFailure) { // the origin is not at fault
		return
	}
	a.faults = 0
	a.noteError(errSurplus.Class, errSurplus.Phase, errSurplus, nil)
	a.fail(errSurplus.Class, errSurplus.Phase, errSurplus.Reason)
}
