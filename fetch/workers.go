package fetch

import (
	"fmt"
	"runtime/debug"

	"fetchd/fetch/workers"
)

// maxOnCaller is the number of fetches in flight up to which attempts run on the goroutines of
// their callers, which costs less. Of more fetches, each would keep a large stack while it waits
// for its next attempt, so their attempts run on workers.
const maxOnCaller = 128

// call runs f on a worker and waits for it. It panics as f does.
func call(pool *workers.Pool, f func()) {
	done := make(chan any, 1)
	pool.Go(func() {
		defer func() {
			p := recover()
			if p != nil {
				p = fmt.Sprintf("%v\n%s", p, debug.Stack()) // the panic loses this stack
			}
			done <- p
		}()
		f()
	})
	if p := <-done; p != nil {
		panic(p) //nolint:forbidigo // the panic of f belongs to the caller
	}
}
