package toxic

import (
	"flag"
	"fmt"
	"os"
	"runtime"
	"testing"
	"time"

	"github.com/rs/zerolog"
	"go.uber.org/goleak"
)

// spareDescriptors are those that the runtime keeps, such as that of its poller.
const spareDescriptors = 8

// Toxiproxy leaves goroutines of a link behind whose toxic closed it while more
// data came, or came and went meanwhile: nobody takes what they hand on. Only
// they are let pass; their sockets are closed, which the descriptors show.
func TestMain(m *testing.M) {
	flag.Parse()
	if err := flag.Set("test.parallel", "8"); err != nil { // the rows wait more than they work
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
	end := time.NewTimer(15 * time.Second)
	defer end.Stop()
	again := time.NewTicker(50 * time.Millisecond)
	defer again.Stop()
	for {
		after := openDescriptors()
		if after <= before+spareDescriptors {
			return 0
		}
		select {
		case <-again.C:
		case <-end.C:
			fmt.Fprintf(os.Stderr, "open file descriptors: %d after the tests, want at most %d more than the %d before\n",
				after, spareDescriptors, before)
			return 1
		}
	}
}

// openDescriptors counts them; -1 where that is not known.
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
