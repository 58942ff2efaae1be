// Package reflex answers those who know curl or wget. "fetchctl get" speaks curl, "fetchctl download" speaks wget, and
// "frontier crawl" does what "wget -r" does.
// For each of their flags that a command does not have, and for each form that it does not understand, there is a
// sentence that says what to use instead.
package reflex

import (
	_ "embed"
	"fmt"
	"strings"
)

// curlText and wgetText are the tables: whether the command that speaks the language has the flags, the flags, what they
// mean in download, what they mean in get, and in wget's, what they mean in crawl.
var (
	//go:embed curl.tsv
	curlText string
	//go:embed wget.tsv
	wgetText string
)

// row is a row of the tables.
type row struct {
	flags    string
	get      string // what they mean in "fetchctl get", or what to use instead
	download string // the same for "fetchctl download"; of curl only for flags that have a meaning there
	crawl    string // the same for "frontier crawl", or empty
	has      bool   // the command that speaks the language has the flags
	site     bool   // only "frontier crawl" has something like the flags
}

// curl says what the flags of curl mean in get. They are those of "curl --help", and those that its manual
// and the book "Everything curl" show for HTTP. A flag that get does not have is answered with its row.
var curl = rows(curlText)

// wget does the same for flags of wget and download.
var wget = rows(wgetText)

func rows(text string) (all []row) {
	for line := range strings.Lines(text) {
		cells := strings.Split(strings.TrimSuffix(line, "\n"), "\t")
		r := row{flags: cells[1], get: cells[3], download: cells[2], has: cells[0] == "has", site: cells[0] == "crawl"}
		if len(cells) > 4 {
			r.crawl = cells[4]
		}
		all = append(all, r)
	}
	return all
}

// GetHelp returns the table of curl's flags.
func GetHelp() string {
	return help("curl", "fetchctl get", curl, func(r row) string { return r.get })
}

// DownloadHelp returns the table of wget's flags.
func DownloadHelp() string {
	return help("wget", "fetchctl download", wget, func(r row) string { return r.download })
}

func help(guest, command string, table []row, says func(row) string) string {
	var b strings.Builder
	fmt.Fprintf(&b, "Equivalents:\n  %-26s %s\n", guest, command)
	for _, r := range table {
		if !r.site {
			fmt.Fprintf(&b, "  %-26s %s\n", r.flags, says(r))
		}
	}
	return b.String()
}

// GetAnswers returns what to use instead of flags that get does not have.
func GetAnswers() map[string]string {
	all := make(map[string]string)
	add(all, curl, "", func(r row) string { return r.get })
	add(all, wget, "; as a flag of wget: ", func(r row) string { return r.get })
	return all
}

// CrawlAnswers returns what to use instead of flags of wget that "frontier crawl" does not have.
func CrawlAnswers() map[string]string {
	all := make(map[string]string)
	add(all, wget, "", func(r row) string { return r.crawl })
	return all
}

// DownloadAnswers returns what to use instead of flags that download does not have.
func DownloadAnswers() map[string]string {
	all := make(map[string]string)
	add(all, wget, "", func(r row) string { return r.download })
	add(all, curl, "; as a flag of curl: ", func(r row) string { return r.download })
	add(all, curl, "", func(row) string { return `"fetchctl get" has the flags of curl, for one URL` })
	return all
}

// add adds the answers of a table. A flag that has one already gets the new one behind a separator, unless that is
// empty.
func add(all map[string]string, table []row, separator string, says func(row) string) {
	for _, r := range table {
		for flag := range strings.SplitSeq(r.flags, ", ") {
			answer, earlier := says(r), all[flag]
			if strings.HasPrefix(answer, "the default") {
				answer = "leave it out: it is " + answer
			}
			switch {
			case answer == "" || answer == earlier:
			case earlier == "":
				all[flag] = answer
			case separator != "":
				all[flag] = earlier + separator + answer
			}
		}
	}
}

const site = `"frontier crawl --bodies DIR URL" crawls a site`

// GetWrong and DownloadWrong say what to use instead of values that a flag cannot have.
var (
	GetWrong      = map[string]string{"--max-retries": "-r takes a number of retries; a range is --range 0-99, and " + site}
	DownloadWrong = map[string]string{"--max-retries": "-r takes a number of retries; " + site}
)

// GetStray returns what to use instead of stray, the first argument that get does not take, or "".
func GetStray(args []string, stray string) string {
	for i, arg := range args {
		if i+1 == len(args) || isURL(args[i+1]) || !strings.HasPrefix(arg, "-") || strings.HasPrefix(arg, "--") {
			continue
		}
		switch next := args[i+1]; {
		case next != "-" && strings.HasPrefix(next, "-"):
		case strings.HasSuffix(arg, "O") && next == "-":
			return "-O takes no name, as in curl: leave it out, and the body goes to standard output"
		case strings.HasSuffix(arg, "O"):
			return "-O takes no name, as in curl: give -o FILE"
		case strings.HasSuffix(arg, "i"):
			return `-i writes the headers, as in curl: "fetchctl download -i FILE" reads a list`
		}
	}
	if isURL(stray) {
		return `get takes one URL: "fetchctl download" fetches several`
	}
	return ""
}

func isURL(arg string) bool {
	return strings.HasPrefix(arg, "http://") || strings.HasPrefix(arg, "https://")
}
