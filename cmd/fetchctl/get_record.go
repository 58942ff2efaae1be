package main

import (
	"errors"
	"strings"
	"time"

	"fetchd/client"
	"fetchd/cmd/fetchctl/har"
	"fetchd/cmd/fetchctl/timeline"
	"fetchd/internal/cli"

	pb "fetchd/gen/fetchd/v1"
	"fetchd/internal/version"
)

// archivedBody is the maximum size of all bodies in an archive.
const archivedBody = 16 << 20

// recording is what --har and --trace record of a fetch. A nil recording records nothing.
type recording struct {
	timeline.Recorder
	options har.Options
	archive *cli.Output // nil without --har
	traced  bool
	heard   time.Time // time of the last event
}

// checkRecord rejects an archive that would go to the same place as other output.
func (c *getCmd) checkRecord() error {
	switch {
	case c.Trace && c.JSON.events:
		return cli.UsageError("--trace", "draws on standard error, and --json replaces what is printed there: leave out one of them")
	case c.HAR == "" && len(c.HARWith) > 0:
		return cli.UsageError("--har-with", "needs --har FILE")
	case c.HAR == "":
		return nil
	case c.HAR == "-" && !c.toFile():
		return cli.UsageError("--har", "is standard output, where the body goes: give -o FILE too")
	case c.HAR == "-" && c.JSON.events:
		return cli.UsageError("--har", "is standard output, where the lines of --json go: give a file")
	case c.HAR == c.Output:
		return cli.UsageError("--har", "is the FILE of -o: give another")
	}
	return nil
}

// record opens the archive before anything is requested. The caller discards the recording.
func (c *getCmd) record(a *app, req *pb.FetchRequest) (*recording, error) {
	if c.HAR == "" && !c.Trace {
		return nil, nil
	}
	r := &recording{traced: c.Trace, options: har.Options{Version: version.String(), Request: req}}
	for _, with := range c.HARWith {
		switch with {
		case "body":
			r.options.Bodies, r.BodyLimit = true, archivedBody
		case "secrets":
			r.options.Secrets = true
		}
	}
	if c.HAR == "" {
		return r, nil
	}
	var err error
	r.archive, err = cli.OpenOutput(c.HAR, a.Out)
	return r, err
}

// take records an event.
func (r *recording) take(m *pb.FetchEvent) {
	if r != nil {
		r.Take(m)
		r.heard = time.Now()
	}
}

// end writes what was recorded, however the fetch ended. If the service rejected the request,
// there is nothing to write.
func (r *recording) end(a *app) error {
	if r == nil || r.heard.IsZero() {
		return nil
	}
	f := r.Fetch(time.Since(r.heard))
	if r.traced {
		a.waterfall().Draw(f)
	}
	if r.archive == nil {
		return nil
	}
	data, err := har.Marshal(f, r.options)
	if err != nil {
		return errors.Join(client.ErrContract, err)
	}
	if _, err := r.archive.Write(data); err != nil {
		return err
	}
	return r.archive.Keep()
}

// discard removes an unfinished archive.
func (r *recording) discard() {
	if r != nil && r.archive != nil {
		r.archive.Discard()
	}
}

// waterfall returns a waterfall for standard error.
func (a *app) waterfall() *timeline.Waterfall {
	columns, _ := cli.TerminalSize(a.Err)
	return &timeline.Waterfall{Out: &cli.Printer{W: a.Err}, Paint: a.Painter(a.Err), Columns: columns, Plain: !a.isUTF8()}
}

// isUTF8 reports whether the locale uses UTF-8, with the precedence that POSIX defines for
// LC_CTYPE. No locale means no UTF-8.
func (a *app) isUTF8() bool {
	for _, name := range []string{"LC_ALL", "LC_CTYPE", "LANG"} {
		if locale := a.Env(name); locale != "" {
			locale = strings.ToLower(strings.ReplaceAll(locale, "-", ""))
			return strings.Contains(locale, "utf8")
		}
	}
	return false
}
