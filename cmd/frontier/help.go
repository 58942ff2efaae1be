package main

import "fetchd/internal/cli"

// The long texts of --help.

const description = `Stores the URLs of a crawl and decides when each one is fetched.

Everything is in one database: a SQLite file, or PostgreSQL if one machine is not enough. Several of these commands may run at once on one database.

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

// Help implements kong.HelpProvider.
func (c *addCmd) Help() string {
	return `URLs are stored in their normal form, each once. A URL that is already stored is not changed. The database is created if it does not exist.

A list has one URL per line. Empty lines and lines that begin with # are skipped. CRLF and a byte order mark are allowed. A line of more than 64 KiB is an error. A sitemap is XML or text as sitemaps.org describes it, of at most 50 MiB. The entries of a sitemap index are reported as errors: download those sitemaps and add them. Files may be compressed with gzip.

A line that is not a URL is reported on standard error as FILE:LINE with a reason, and skipped. The first 100 of them are reported, then only their number. Memory does not grow with the length of the input. If the command is interrupted, it prints the last line that was added; what was added stays.`
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

// Help implements kong.HelpProvider.
func (c *runCmd) Help() string {
	return `Fetches the URLs that are due, each when it is its host's turn, until none is left. With --endless it then waits for more. "frontier add" creates the database. Any number of runs may work on one database, on one machine or on many.

The service. By default the fetches are made by a fetchd inside this process. It reaches public addresses on ports 80 and 443 and nothing else, wherever a name or a redirect leads. For your own site on another address or port, allow exactly that: --egress-allow-cidr 10.1.2.0/24 --egress-allow-port 8080. With --server, fetches go through another fetchd, and its settings apply. If --server is given several times, each fetch goes to the service with the fewest fetches. If a service ends or comes back, this is noticed, and its fetches are made again.

Politeness. A host has one fetch at a time. The next one starts --delay after the end of the last. "frontier set" changes these numbers for one host. A longer Crawl-delay in its robots.txt counts, up to --max-crawl-delay. robots.txt is obeyed, and cached for a day. A redirect to another host waits for that host's turn. A host that answers 429 or 503 is not asked again for as long as it says, or for one minute, which doubles each time.

Redirects. The environment variables CRAWLER_FOLLOW_REDIRECTS (true or false) and CRAWLER_MAX_REDIRECTS (0 to 20) set --follow-redirects and --max-redirects if these are not given.

Results. Each outcome is a row in the database; "frontier export" writes them. --outcomes also appends each outcome as a line of JSON when it happens. --bodies stores each body as sha256/XX/DIGEST, where XX is the first two digits of the digest. The field body_sha256 of an outcome has the digest. A body that several URLs share is stored once. The empty body is stored at the start, to check that the place is writable.

The last line on standard error counts the URLs that were completed, the URLs that failed for good, and the retries: all attempts except the first one of each fetch. "Put off" is how many times a URL failed temporarily and was scheduled for later. The lines before it have each error class and what to do about it. If standard error is not a terminal, each line of progress names the most frequent error class since the line before.

SIGTERM and SIGINT: no fetch is started any more, and fetches in flight may end within --drain-time. The other URLs are released for the next run. A second signal ends the program at once; URLs that were being fetched are then released when their --lease ends.

--demo needs neither a database nor a network. It takes some seconds, and prints for each check whether it holds.`
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

// Help implements kong.HelpProvider.
func (c *statusCmd) Help() string {
	return `Next to the counts of URLs are the names that other documents give them: Pending, InProgress (fetching), Completed (fetched) and Failed (dead).

A host can be counted in several lines: a blocked host is waiting too.

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

// Help implements kong.HelpProvider.
func (c *whyCmd) Help() string {
	return `The first line is the reason; the lines after it are the facts that decide. If there are several reasons, the first line names the one that a person can change, then the one that lasts longest. Times are those of the database's clock.

The rules of robots.txt come from the database, as the last worker read them. They apply to a "frontier run" without --ignore-robots. Give the same --user-agent as there.

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

// Help implements kong.HelpProvider.
func (c *retryCmd) Help() string {
	return `Makes URLs pending again whose last fetch failed, including dead ones. Their failures are deleted. If robots.txt was the reason, it is deleted as well, and fetched again. "frontier status --classes" counts the URLs of each class.

--fetched-before makes URLs pending again that were fetched successfully, so that the next run fetches them again. If the origin sent an ETag or a Last-Modified, that fetch is conditional.`
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

// Help implements kong.HelpProvider.
func (c *exportCmd) Help() string {
	return `Rows are in the order of their ids, and are read a page at a time: concurrent changes may or may not be included. Memory does not grow with the number of rows.

Both formats have the same fields. Times are RFC 3339 in UTC; a missing time is null in JSON and an empty cell in CSV. Durations are in milliseconds.

CSV is safe for terminals and spreadsheets. Control characters, line ends and characters that change the writing direction are written as in a Go string, such as \x1b, \n and \u202e. A cell that begins with = + - or @ gets a ' before it. JSON lines have every value unchanged: such characters are escaped as \u001b or \u202e, which JSON decodes to the same.

FILE gets its name when it is complete. An existing file stays until then.`
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

// Help implements kong.HelpProvider.
func (c *pauseCmd) Help() string {
	return `Fetches in flight continue to their end. A pause lasts until "frontier resume" with the same host, or without one. It survives restarts of every program.`
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

// Help implements kong.HelpProvider.
func (c *resumeCmd) Help() string {
	return `Ends the pause of the crawl or of one host. These two pauses are independent.`
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

// Help implements kong.HelpProvider.
func (c *setCmd) Help() string {
	return `A setting applies from the next fetch of the host on, and stays until it is set again. The host may be unknown so far; the output then says so.`
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
