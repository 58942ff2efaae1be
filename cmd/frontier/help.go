package main

import (
	_ "embed"
	"maps"

	"github.com/alecthomas/kong"

	"fetchd/internal/cli"
	"fetchd/internal/reflex"
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

// left are flags that the command does not have any more.
var left = map[string]string{
	"--follow-redirects": "redirects are followed, unless CRAWLER_FOLLOW_REDIRECTS is false",
	"--max-redirects":    "set CRAWLER_MAX_REDIRECTS",
	"--max-links":        "--max-urls limits the crawl, and --max-urls-per-host a host",
	"--follow-nofollow":  "nofollow is always obeyed",
	"--no-sitemaps":      "sitemaps that robots.txt names are read. --exclude leaves out what they list",
	"--recrawl-min":      "--recrawl sets the time. It becomes a quarter to eight times of that, as a page changes",
	"--recrawl-max":      "--recrawl sets the time. It becomes a quarter to eight times of that, as a page changes",
}

// Manual says what the flags of wget and earlier ones mean here.
func (c *crawlCmd) Manual() cli.Manual {
	answers := reflex.CrawlAnswers()
	maps.Copy(answers, left)
	answers["--sitemap"] = `"frontier add --sitemap URL" adds one to the crawl`
	return cli.Manual{Answers: answers}
}
