package toxic

import (
	"context"
	"flag"
	"fmt"
	"os"
	"runtime"
	"testing"
	"time"

	"fetchd/test/wait"

	"github.com/rs/zerolog"
	"go.uber.org/goleak"
)

// spareDescriptors is how many descriptors the runtime may keep, for example for its poller.
const spareDescriptors = 8

// Toxiproxy leaks goroutines of a link if its toxic closed it, or was added and removed,
// while data arrived: they wait for a reader that is gone. Only these are ignored. Their
// sockets are closed, which the check of the descriptors shows.
func TestMain(m *testing.M) {
	flag.Parse()
	if err := flag.Set("test.parallel", "8"); err != nil { // the rows mostly wait
		panic(err)
	}
	zerolog.SetGlobalLevel(zerolog.Disabled) // some toxics log to the global logger
	goleak.VerifyTestMain(descriptors{m},
		goleak.IgnoreAnyFunction("github.com/Shopify/toxiproxy/v2.(*ToxicLink).read"),
		goleak.IgnoreAnyFunction("github.com/Shopify/toxiproxy/v2.(*ToxicLink).write"),
		goleak.IgnoreAnyFunction("github.com/Shopify/toxiproxy/v2/toxics.(*ToxicStub).Run"))
}

// descriptors runs the tests and fails if they leave file descriptors open.
type descriptors struct{ *testing.M }

func (d descriptors) Run() int {
	before := openDescriptors()
	code := d.M.Run()
	if code != 0 || before < 0 {
		return code
	}
	ctx, cancel := context.WithTimeout(context.Background(), 15*time.Second)
	defer cancel()
	after := 0
	if wait.Until(ctx, 50*time.Millisecond, func() bool {
		after = openDescriptors()
		return after <= before+spareDescriptors
	}) == nil {
		return 0
	}
	fmt.Fprintf(os.Stderr, "open file descriptors: %d after the tests, want at most %d more than the %d before\n",
		after, spareDescriptors, before)
	return 1
}

// openDescriptors returns the number of open file descriptors, or -1 if it is not known.
func openDescriptors() int {
	if runtime.GOOS != "linux" {
		return -1
	}
	all, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		return -1
	}
	return len(all)
}
