package fetch

import (
	"fmt"
	"runtime/debug"

	"fetchd/fetch/workers"
)

// maxInline fetches at once carry their attempts out on the goroutines of their
// callers, which costs less. The stacks of so few are no matter. Of ten thousand
// that wait for their next attempt each must not hold a deep one: their attempts run
// on others' goroutines.
const maxInline = 128

// call runs f on a worker and waits for it. It panics as f does.
func call(pool *workers.Pool, f func()) {
	done := make(chan any, 1)
	pool.Go(func() {
		defer func() {
			p := recover()
			if p != nil {
				p = fmt.Sprintf("%v\n%s", p, debug.Stack()) // the stack ends here
			}
			done <- p
		}()
		f()
	})
	if p := <-done; p != nil {
		panic(p) //nolint:forbidigo // it is the caller's own
	}
}
