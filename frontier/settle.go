package frontier

import (
	"context"
	"fmt"
	"log/slog"

	"fetchd/frontier/store"
)

// settle does what the ending of a visit requires. It blocks hosts and defers origins first, so that
// none of their URLs is claimed before that is stored.
func (w *Worker) settle(v *visit, e ending) {
	if e.block != "" {
		w.block(e.block, e.blockFor)
	}
	if e.deferred != "" {
		w.deferOrigin(e.deferred, e.deferFor)
	}
	switch e.how {
	case record:
		w.settleRecord(v, e)
	case giveBack:
		w.giveBack([]store.Claim{v.claim})
	case giveBackDelayed:
		if w.delayHosts([]string{v.claim.Host}) { // otherwise the lease expires, which delays the host too
			w.giveBack([]store.Claim{v.claim})
		}
	case abandon:
		w.stats.lost.Add(1)
		w.metrics.lost.Inc()
		w.persist("give a lost fetch back", func(ctx context.Context) error {
			_, err := w.store.Abandon(ctx, []store.Lease{v.claim.Lease})
			return err
		})
	case forget:
		w.leaseLost()
	}
}

func (w *Worker) settleRecord(v *visit, e ending) {
	if e.queue != "" {
		ok := w.persist("add a redirect's target", func(ctx context.Context) error {
			if v.needed() {
				return v.queueRequisite(ctx, e.queue)
			}
			_, err := w.store.Put(ctx, []store.Entry{v.entry(e.queue, v.claim.Kind, v.claim.Depth)}, store.Limits{}) // an invalid URL is ignored
			return err
		})
		if !ok {
			return // the lease expires, and the URL is fetched again
		}
	}
	switch e.action {
	case AbortHost:
		class, text := ClassHostAborted, "aborted after "+e.fetch.ErrorClass
		if e.fetch.ErrorClass == ClassOverBudget {
			class, text = ClassOverBudget, e.fetch.LastError
		}
		w.persist("give a host up", func(ctx context.Context) error {
			n, err := w.store.AbortHost(ctx, e.host, class, text)
			if class == ClassOverBudget {
				w.found.add(func(f *Found) { f.OverBudget += n + 1 })
			}
			w.logger.WarnContext(ctx, "host aborted", slog.String("host", e.host), slog.Int64("urls", n), slog.String("error_class", e.fetch.ErrorClass))
			return err
		})
	case AbortCrawl:
		w.logger.ErrorContext(v.ctx, "crawl aborted", slog.String("url", v.claim.URL), slog.String("error_class", e.fetch.ErrorClass))
		w.persist("pause the crawl", func(ctx context.Context) error { return w.store.Pause(ctx, "") })
		w.drain(fmt.Errorf("%w: %s: %s", ErrCrawlAborted, v.claim.URL, e.fetch.LastError))
	}
	<-w.submit(v, e).done
}

// submit has an outcome recorded.
func (w *Worker) submit(v *visit, e ending) *pending {
	if e.fetch.Status == store.Fetched {
		e.fetch.RecrawlIn = w.config.Recrawl.next(v.claim, e.fetch)
	}
	e.fetch.Kind = v.claim.Kind
	e.fetch.Unneeded = !v.needed() && e.fetch.Status == store.Dead && store.IsNarrow(e.fetch.ErrorClass)
	return w.recorder.submit(v.claim, e.fetch)
}

// report counts a recorded outcome and passes it to Config.Recorded.
func (w *Worker) report(ctx context.Context, c store.Claim, f store.Fetch) {
	r := w.count(c, f)
	w.countPattern(ctx, c, f)
	w.checkSpent()
	if f.ErrorClass == reasonTooManyRedirects || f.ErrorClass == reasonRedirectLoop {
		w.logger.WarnContext(ctx, "redirects lead nowhere", slog.String("url", c.URL), slog.Int64("id", c.ID), slog.String("reason", f.ErrorClass))
	}
	if w.config.Recorded == nil {
		return
	}
	if err := w.config.Recorded(r); err != nil {
		w.countError("report an outcome")
		w.logger.ErrorContext(ctx, "cannot report an outcome", slog.Any("error", err))
		w.drain(err)
	}
}

// checkSpent ends the worker if the crawl has used its bytes.
func (w *Worker) checkSpent() {
	if b := w.config.Budget.Bytes; b > 0 && w.othersBytes.Load()+w.stats.bytes.Load() >= b {
		w.drain(fmt.Errorf("%w: %d bytes", ErrBudget, b))
	}
}
