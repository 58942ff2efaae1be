package main

// The texts of --help that are longer than a line.

const description = `Keeps the URLs of a crawl and decides when each is fetched.

All is in one database: a SQLite file, or PostgreSQL where one machine is not enough. Several of these commands may run at once on one database.

Exit status:

    0    done
    1    usage: the command line is not usable
    3    add: some of the input was bad; the rest was added
    20   the database failed, or is not there
    21   a file or standard output could not be written
    130  interrupted (SIGINT or SIGTERM)

A reader of standard output that goes away early, such as head, is no failure: the exit status is 0.`

const overviewExamples = `  frontier add https://example.org/
  frontier add -i urls.txt --sitemap sitemap.xml.gz
  frontier export --format csv -o urls.csv
`

// Help is the text after the first line of "frontier add --help". It implements
// kong.HelpProvider.
func (c *addCmd) Help() string {
	return `URLs are stored in their normal form, each once; one that is there already stays as it is. The database is made if it is not there.

A list has a URL a line. Empty lines and lines that begin with # are skipped; CRLF and a byte order mark are fine; a line of more than 64 KiB is bad. A sitemap is XML or text as sitemaps.org describes it, of at most 50 MiB. What a sitemap index lists is reported as bad: download those sitemaps and give them instead. Files may be compressed with gzip.

A line that is no URL is reported on standard error as FILE:LINE and a reason, and skipped. The first 100 are reported, then their number. Memory does not grow with the length of the input. Interrupted, it says which line was the last one put; what was put stays.

Exit status: 0 all was good; 1 usage, nothing was put; 3 some input was bad, the rest is there; 20 database failed; 21 cannot write; 130 interrupted.`
}

func (c *addCmd) examples() string {
	return `  frontier add https://example.org/ https://example.org/about
  frontier add -i urls.txt -i more.txt.gz
  frontier add --sitemap sitemap.xml
  curl -s https://example.org/sitemap.xml.gz | frontier add --sitemap -
  grep -o 'https://[^"]*' page.html | frontier add -i - --db crawl.db
`
}

// Help is the text after the first line of "frontier export --help". It
// implements kong.HelpProvider.
func (c *exportCmd) Help() string {
	return `Rows come in the order of their ids, a page at a time: changes made meanwhile may or may not be in it. Memory does not grow with their number.

Both formats have the same fields. Times are RFC 3339 in UTC; where there is none it is null in JSON and an empty cell in CSV. Durations are in milliseconds.

In CSV, a cell that begins with = + - @, a tab or a carriage return has a ' put before it, for a spreadsheet would take it for a formula. JSON lines have every value as it is.

FILE gets its name when it is whole; one that was there before is there until then.

Exit status: 0 all was written, or the reader of standard output has seen enough; 1 usage; 20 database failed; 21 cannot write; 130 interrupted.`
}

func (c *exportCmd) examples() string {
	return `  frontier export | jq -r 'select(.status == "dead") | .url'
  frontier export --what fetches --format csv -o fetches.csv
  frontier export | head -n 3
`
}
