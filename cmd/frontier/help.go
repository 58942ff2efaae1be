package main

import "fetchd/internal/cli"

// The texts of --help that are longer than a line.

const description = `Keeps the URLs of a crawl and decides when each is fetched.

All is in one database: a SQLite file, or PostgreSQL where one machine is not enough. Several of these commands may run at once on one database.

If the reader of standard output goes away early, as head does, the exit code is 0.`

const overviewExamples = `  frontier add https://example.org/
  frontier add -i urls.txt --sitemap sitemap.xml.gz
  frontier run --user-agent 'mybot/1.0 (+https://example.org/bot)'
  frontier status
  frontier why https://example.org/page
  frontier pause example.org
  frontier export --format csv -o urls.csv
  frontier status --db postgres://crawler@db.internal/frontier
`

// Help is the text after the first line of "frontier add --help". It implements
// kong.HelpProvider.
func (c *addCmd) Help() string {
	return `URLs are stored in their normal form, each once; one that is there already stays as it is. The database is made if it is not there.

A list has a URL a line. Empty lines and lines that begin with # are skipped; CRLF and a byte order mark are fine; a line of more than 64 KiB is bad. A sitemap is XML or text as sitemaps.org describes it, of at most 50 MiB. What a sitemap index lists is reported as bad: download those sitemaps and give them instead. Files may be compressed with gzip.

A line that is no URL is reported on standard error as FILE:LINE and a reason, and skipped. The first 100 are reported, then their number. Memory does not grow with the length of the input. Interrupted, it says which line was the last one put; what was put stays.`
}

// Manual lists the exit codes and examples of the command.
func (c *addCmd) Manual() cli.Manual {
	return cli.Manual{Exits: map[int]string{
		cli.ExitUsage:       "usage; nothing was added",
		cli.ExitBadInput:    "",
		cli.ExitDatabase:    "",
		cli.ExitOutput:      "",
		cli.ExitInterrupted: "",
	}, Examples: `
  frontier add https://example.org/ https://example.org/about
  frontier add -i urls.txt -i more.txt.gz
  frontier add --sitemap sitemap.xml
  curl -s https://example.org/sitemap.xml.gz | frontier add --sitemap -
  grep -o 'https://[^"]*' page.html | frontier add -i - --db crawl.db
`}
}

// Help is the text after the first line of "frontier run --help". It implements
// kong.HelpProvider.
func (c *runCmd) Help() string {
	return `Fetches what is to be fetched, each URL when its host's turn has come, until nothing is left; with --endless it then waits for more. "frontier add" makes the database. Any number of runs may work on one database, on one machine or on many.

The service. Fetches are made by a fetchd inside this process, which reaches public addresses on ports 80 and 443 and nothing else, whatever a name or a redirect leads to. For a site of your own on another address or port, open just that: --egress-allow-cidr 10.1.2.0/24 --egress-allow-port 8080. With --server, fetches go through a fetchd elsewhere, whose own settings say what it reaches; given several times, each fetch goes to the one with the fewest. A service that ends or comes back is noticed, and its fetches are made again.

Politeness. A host has one fetch at a time, and opens again --delay after the fetch has ended; "frontier set" gives a host other numbers, and a longer Crawl-delay of its robots.txt counts, up to --max-crawl-delay. robots.txt is obeyed, and kept for a day. A redirect to another host waits for that host's turn. A host that answers 429 or 503 is left alone for as long as it asks, or for a minute that doubles each time.

Redirects. CRAWLER_FOLLOW_REDIRECTS (true or false) and CRAWLER_MAX_REDIRECTS (0 to 20) in the environment stand for --follow-redirects and --max-redirects where those are not given.

Results. Each outcome is a row in the database, which "frontier export" writes out. --outcomes appends the same as a line of JSON as it happens. --bodies keeps each body as sha256/XX/DIGEST, XX being the digest's first two digits; the field body_sha256 of an outcome is the digest. A body that several URLs have is kept once; the empty one is kept at the start, to see that the place can be written.

The last line on standard error counts URLs that were completed and that failed for good, and retries: the attempts after the first of a fetch. Put off is how many times a URL failed in a way that may pass, to be tried again later. Before it comes a line for each error class, with what to do about it. Off a terminal, each line of progress names the error class that came most often since the line before.

SIGTERM and SIGINT: nothing more is begun, fetches under way may end within --drain-time, and what has not ended then is given back for the next run. A second signal ends at once; then URLs that were being fetched are free when their --lease ends.

--demo needs no database and no network, takes some seconds, and says of each check whether it holds.`
}

// Manual lists the exit codes and examples of the command.
func (c *runCmd) Manual() cli.Manual {
	return cli.Manual{Exits: map[int]string{
		cli.ExitOK:          "nothing is left to fetch, or the reader of the outcomes has gone away",
		cli.ExitFailed:      "a check of --demo failed",
		cli.ExitNothing:     "nothing is left to fetch, URLs failed for good and none was completed",
		cli.ExitAborted:     "an outcome aborted the crawl, which is now paused",
		cli.ExitService:     "no fetch service answers",
		cli.ExitOutput:      "the outcomes or the bodies cannot be written",
		cli.ExitDatabase:    "",
		cli.ExitInterrupted: "interrupted, after fetches in flight could end",
	}, Examples: `
  frontier run --demo
  frontier run --user-agent 'mybot/1.0 (+https://example.org/bot)' --bodies pages
  frontier run --delay 5s --outcomes - --quiet | jq -r 'select(.status == "dead") | .url'
  frontier run --server fetch-1:8080 --server fetch-2:8080 --token-file token --tls
  frontier run --on forbidden=abort-host --on dns_not_found=retry --max-url-retries 5
  frontier run --accept any --bodies 's3://crawl?region=eu-central-1' --endless --metrics-addr :9100
  frontier run --db postgres://crawler@db.internal/frontier --egress-allow-cidr 10.0.0.0/8
`}
}

// Help is the text after the first line of "frontier status --help". It
// implements kong.HelpProvider.
func (c *statusCmd) Help() string {
	return `Beside the counts of URLs stand the names that other documents give them: Pending, InProgress (fetching), Completed (fetched) and Failed (dead).

A host can be counted in several lines: one that is blocked is waiting, too.

Each reading counts the rows of the whole table. --classes reads them one by one, which takes longer: some seconds for a million URLs.`
}

// Manual lists the exit codes and examples of the command.
func (c *statusCmd) Manual() cli.Manual {
	return cli.Manual{Exits: map[int]string{
		cli.ExitDatabase:    "",
		cli.ExitOutput:      "",
		cli.ExitInterrupted: "interrupted, as --watch always ends",
	}, Examples: `
  frontier status
  frontier status --watch
  frontier status --classes
  frontier status --json | jq .urls.pending
  frontier status --watch >> crawl.log
`}
}

// Help is the text after the first line of "frontier why --help". It implements
// kong.HelpProvider.
func (c *whyCmd) Help() string {
	return `The first line is the reason; what decides follows. Where several things hold a URL back, the first line names what a person can change, then what holds longest. Times are those of the database's clock.

What robots.txt says is taken from the database, as the last worker read it, and counts for a "frontier run" without --ignore-robots. Give --user-agent as it was given there.

With --json the field reason is one of fetched, dead, fetching, lease_expired, crawl_paused, host_paused, robots_disallowed, robots_unreachable, host_blocked, backing_off, host_in_flight, host_delay and its_turn.`
}

// Manual lists the exit codes and examples of the command.
func (c *whyCmd) Manual() cli.Manual {
	return cli.Manual{Exits: map[int]string{
		cli.ExitNothing:     "the frontier does not hold the URL",
		cli.ExitDatabase:    "",
		cli.ExitOutput:      "",
		cli.ExitInterrupted: "",
	}, Examples: `
  frontier why https://example.org/page
  frontier why --json https://example.org/page | jq -r .reason
`}
}

// Help is the text after the first line of "frontier retry --help". It
// implements kong.HelpProvider.
func (c *retryCmd) Help() string {
	return `Makes URLs pending again whose last fetch failed, those that are dead too. Their failures are forgotten, and what robots.txt said where that ended them: it is asked for again. "frontier status --classes" says how many there are of each class.

With --fetched-before, URLs are made pending that were fetched well, so that the next run fetches them again. Where the origin gave an ETag or a Last-Modified, it is asked whether they have changed.`
}

// Manual lists the exit codes and examples of the command.
func (c *retryCmd) Manual() cli.Manual {
	return cli.Manual{Exits: map[int]string{
		cli.ExitOK:          "done, even if no URL was affected",
		cli.ExitDatabase:    "",
		cli.ExitOutput:      "",
		cli.ExitInterrupted: "",
	}, Examples: `
  frontier retry
  frontier retry --class http_server_error
  frontier retry --class robots_unreachable --db crawl.db
  frontier retry --fetched-before 168h
`}
}

// Help is the text after the first line of "frontier export --help". It
// implements kong.HelpProvider.
func (c *exportCmd) Help() string {
	return `Rows come in the order of their ids, a page at a time: changes made meanwhile may or may not be in it. Memory does not grow with their number.

Both formats have the same fields. Times are RFC 3339 in UTC; where there is none it is null in JSON and an empty cell in CSV. Durations are in milliseconds.

In CSV, control characters, line ends and what turns the direction of writing are written as in a Go string, such as \x1b, \n and \u202e, for a terminal would obey them; and a cell that begins with = + - or @ has a ' put before it, for a spreadsheet would take it for a formula. JSON lines have every value unchanged: they have such characters as \u001b or \u202e, which JSON decodes to the same.

FILE gets its name when it is whole; one that was there before is there until then.`
}

// Manual lists the exit codes and examples of the command.
func (c *exportCmd) Manual() cli.Manual {
	return cli.Manual{Exits: map[int]string{
		cli.ExitOK:          "all was written, or the reader of standard output has gone away",
		cli.ExitDatabase:    "",
		cli.ExitOutput:      "",
		cli.ExitInterrupted: "",
	}, Examples: `
  frontier export | jq -r 'select(.status == "dead") | .url'
  frontier export --what fetches --format csv -o fetches.csv
  frontier export | head -n 3
`}
}

// Help is the text after the first line of "frontier pause --help". It
// implements kong.HelpProvider.
func (c *pauseCmd) Help() string {
	return `Fetches that are under way go on to their end. A pause lasts until "frontier resume" with the same host, or without one; programs that end and start again do not change it.`
}

// Manual lists the exit codes and examples of the command.
func (c *pauseCmd) Manual() cli.Manual {
	return cli.Manual{Exits: map[int]string{
		cli.ExitDatabase:    "",
		cli.ExitOutput:      "",
		cli.ExitInterrupted: "",
	}, Examples: `
  frontier pause
  frontier pause example.org
  frontier pause https://example.org:8443/page
`}
}

// Help is the text after the first line of "frontier resume --help". It
// implements kong.HelpProvider.
func (c *resumeCmd) Help() string {
	return `Takes back the pause of the crawl or of a host, and not the other one.`
}

// Manual lists the exit codes and examples of the command.
func (c *resumeCmd) Manual() cli.Manual {
	return cli.Manual{Exits: map[int]string{
		cli.ExitOK:          "resumed, or it was not paused",
		cli.ExitDatabase:    "",
		cli.ExitOutput:      "",
		cli.ExitInterrupted: "",
	}, Examples: `
  frontier resume
  frontier resume example.org
`}
}

// Help is the text after the first line of "frontier set --help". It implements
// kong.HelpProvider.
func (c *setCmd) Help() string {
	return `What is set holds from the next fetch of the host on, and stays until it is set again. The host need not be known yet; of one that was never heard of, the output says so.`
}

// Manual lists the exit codes and examples of the command.
func (c *setCmd) Manual() cli.Manual {
	return cli.Manual{Exits: map[int]string{
		cli.ExitDatabase:    "",
		cli.ExitOutput:      "",
		cli.ExitInterrupted: "",
	}, Examples: `
  frontier set example.org --delay 5s
  frontier set example.org --delay default
  frontier set cdn.example.org --delay 0s --max-in-flight 4
`}
}
