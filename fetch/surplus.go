package fetch

import (
	"log/slog"

	"fetchd/classify"
	"fetchd/fetch/fault"
	"fetchd/internal/budget"
)

// errSurplus ends an attempt whose response may be the answer to another request (spec N4).
var errSurplus = fault.New(classify.ConnectionReset, classify.PhaseTransfer, "unrequested_bytes")

// isDoubtful reports whether the response, which was read, may be the answer to another request and must
// not be used. If bytes of its body were delivered already, the summary of the body says so instead.
func (a *attempt) isDoubtful() bool {
	if a.exchange.Surplus() && a.committed {
		a.body.UnrequestedBytes = true
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

// logDistrust logs that an origin has sent bytes that were not requested; see [conns.Config].OnDistrust.
func (c *Client) logDistrust(scheme, address string) {
	origin := scheme + "://" + address
	if address == "" {
		origin = "the proxy, for http URLs"
	}
	c.logger.Warn("an origin sent bytes that were not requested: its HTTP/1.1 connections are not reused for a minute", slog.String("origin", origin))
}
