package main

import (
	_ "embed"
	"maps"

	"github.com/alecthomas/kong"

	"fetchd/internal/cli"
)

// texts are the long texts of --help; see [cli.Program].
//
//go:embed help.txt
var texts string

// groups are the groups of flags, with a word on when one needs them.
var groups = []kong.Group{
	{Key: "Discovery:", Title: "Discovery:", Description: "To follow other links than all those to the hosts of the URLs."},
	{Key: "Budgets:", Title: "Budgets:", Description: "To end a crawl before nothing is left."},
	{Key: "Service:", Title: "Service:", Description: "To fetch through another fetchd, to reach your own network, or to sign requests."},
	{Key: "Pace:", Title: "Pace:", Description: "To be slower, or faster on hosts that bear it."},
	{Key: "Fetches:", Title: "Fetches:", Description: "To say whose crawler it is, and to fetch other things than pages, or again."},
	{Key: "Failures:", Title: "Failures:", Description: "To try more or less often than the defaults."},
	{Key: "Results:", Title: "Results:", Description: "To keep more than a row of the database for each fetch."},
	{Key: "Work:", Title: "Work:", Description: "To run as a service."},
	{Key: "Callers:", Title: "Callers:", Description: "To let callers of other machines in."},
}

// manual returns the manual of a command that works on a database and prints something. exits are
// its exit codes that differ from those of every such command.
func manual(exits map[int]string) cli.Manual {
	all := map[int]string{cli.ExitDatabase: "", cli.ExitOutput: "", cli.ExitInterrupted: ""}
	maps.Copy(all, exits)
	return cli.Manual{Exits: all}
}

// Manual lists the exit codes of a command that has no others.
func (*database) Manual() cli.Manual { return manual(nil) }

// Manual lists the exit codes of the command.
func (c *addCmd) Manual() cli.Manual {
	return manual(map[int]string{cli.ExitUsage: "usage; nothing was added", cli.ExitBadInput: ""})
}

// Manual lists the exit codes of the command.
func (c *crawlCmd) Manual() cli.Manual {
	m := manual(map[int]string{
		cli.ExitOK:          "nothing is left to fetch, a budget is used up, or the reader of the outcomes has gone away",
		cli.ExitNothing:     "nothing is left to fetch, URLs failed for good or were disallowed, and none was completed",
		cli.ExitAborted:     "an outcome aborted the crawl, which is now paused",
		cli.ExitService:     "no fetch service answers",
		cli.ExitOutput:      "the outcomes, the bodies or the records cannot be written",
		cli.ExitInterrupted: "interrupted, after fetches in flight could end",
	})
	m.Answers = map[string]string{"--sitemap": `"frontier add --sitemap URL" adds one to the crawl`}
	return m
}

// Manual lists the exit codes of the command.
func (c *serveCmd) Manual() cli.Manual {
	return cli.Manual{Exits: map[int]string{cli.ExitOK: "stopped by SIGTERM or SIGINT; healthcheck: serving", cli.ExitFailed: "a port failed, or calls outlasted --drain-time; healthcheck: not serving, or with an expired certificate", cli.ExitUsage: "", cli.ExitDatabase: ""}}
}

// Manual lists the exit codes of the command.
func (c *statusCmd) Manual() cli.Manual {
	return manual(map[int]string{cli.ExitInterrupted: "interrupted, as --watch always ends"})
}

// Manual lists the exit codes of the command.
func (c *whyCmd) Manual() cli.Manual {
	return manual(map[int]string{cli.ExitNothing: "the frontier does not have the URL"})
}

// Manual lists the exit codes of the command.
func (c *retryCmd) Manual() cli.Manual {
	return manual(map[int]string{cli.ExitOK: "done, even if no URL was affected"})
}

// Manual lists the exit codes of the command.
func (c *pruneCmd) Manual() cli.Manual {
	return manual(map[int]string{cli.ExitOK: "done, even if no row was deleted"})
}

// Manual lists the exit codes of the command.
func (c *exportCmd) Manual() cli.Manual {
	return manual(map[int]string{cli.ExitOK: "all was written, or the reader of standard output has gone away"})
}

// Manual lists the exit codes of the command.
func (c *resumeCmd) Manual() cli.Manual {
	return manual(map[int]string{cli.ExitOK: "resumed, or it was not paused"})
}

// Manual lists the exit codes of the command.
func (c *robotsCmd) Manual() cli.Manual {
	return manual(map[int]string{cli.ExitNothing: "no robots.txt of the host was read yet"})
}
