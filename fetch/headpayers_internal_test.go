package fetch

import (
	"context"
	"runtime"
	"testing"

	"fetchd/internal/budget"
)

// http2HeadBytes is what package conns charges for a head over HTTP/2.
const http2HeadBytes = 192 << 10

// TestHeadIsPaidOn checks that an HTTP/2 connection's head stays charged while any
// fetch waits for one, even when the fetch that was charged has ended.
func TestHeadIsPaidOn(t *testing.T) {
	t.Parallel()
	r := newMemoryRig(t)
	r.client.Fetch(t.Context(), r.request("https", "/s/first/200"), nil) // fetches share its connection
	begin := func(key string) (lease *budget.Lease, end func()) {
		ctx, cancel := context.WithCancel(t.Context())
		req, ended := r.request("https", "/s/"+key+"/silent"), make(chan *Outcome, 1)
		lease = leaseOf(t, 1<<20)
		req.Memory = lease
		go func() { ended <- r.client.Fetch(ctx, req, nil) }()
		if _, err := r.origin.Await(t.Context(), key, 1); err != nil {
			t.Fatal(err)
		}
		return lease, func() { cancel(); <-ended }
	}
	first, endFirst := begin("a")
	second, endSecond := begin("b")
	defer endSecond()
	if n := r.origin.Connections("https"); n != 1 {
		t.Fatalf("%d connections, want one", n)
	}
	if got := first.Total() + second.Total(); got != http2HeadBytes {
		t.Errorf("%d bytes are charged for a head of two, want %d", got, http2HeadBytes)
	}
	endFirst()
	runtime.Gosched()
	if got := second.Total(); got != http2HeadBytes {
		t.Errorf("%d bytes are charged once the first has ended, want %d", got, http2HeadBytes)
	}
}
