package get

import (
	"strings"
	"time"

	"fetchd/cmd/fetchctl/timeline"
	pb "fetchd/gen/fetchd/v1"
	"fetchd/internal/cli"
)

// recording is what --trace records of a fetch. A nil recording records nothing.
type recording struct {
	timeline.Recorder
	heard time.Time // time of the last event
}

// record returns a recording if the fetch is to be drawn.
func (c *Command) record() *recording {
	if !c.Trace {
		return nil
	}
	return new(recording)
}

// take records an event.
func (r *recording) take(m *pb.FetchEvent) {
	if r != nil {
		r.Take(m)
		r.heard = time.Now()
	}
}

// end draws what was recorded, however the fetch ended. If the service rejected the request,
// there is nothing to draw.
func (r *recording) end(p *cli.Program) {
	if r != nil && !r.heard.IsZero() {
		waterfall(p).Draw(r.Fetch(time.Since(r.heard)))
	}
}

// waterfall returns a waterfall for standard error.
func waterfall(p *cli.Program) *timeline.Waterfall {
	columns, _ := cli.TerminalSize(p.Err)
	return &timeline.Waterfall{Out: &cli.Printer{W: p.Err}, Paint: p.Painter(p.Err), Columns: columns, Plain: !isUTF8(p.Env)}
}

// isUTF8 reports whether the locale uses UTF-8, with the precedence that POSIX defines for
// LC_CTYPE. No locale means no UTF-8.
func isUTF8(env func(string) string) bool {
	for _, name := range []string{"LC_ALL", "LC_CTYPE", "LANG"} {
		if locale := env(name); locale != "" {
			locale = strings.ToLower(strings.ReplaceAll(locale, "-", ""))
			return strings.Contains(locale, "utf8")
		}
	}
	return false
}
