package get

import (
	"context"
	"fmt"
	"io"
	"maps"
	"net"
	"regexp"
	"slices"
	"strings"
	"time"

	"google.golang.org/protobuf/types/known/durationpb"

	"fetchd/cmd/fetchctl/show"
	pb "fetchd/gen/fetchd/v1"
	"fetchd/internal/cli"
)

// written is what --write-out is about.
type written struct {
	*pb.FetchOutcome
	url, file string
}

// hop returns the last hop.
func (w *written) hop() *pb.Hop {
	if n := len(w.GetHops()); n > 0 {
		return w.GetHops()[n-1]
	}
	return nil
}

// remote returns the address of the last hop.
func (w *written) remote() (host, port string) {
	host, port, _ = net.SplitHostPort(w.hop().GetExchange().GetRemoteAddress()) // empty if there was none
	return host, port
}

// size returns how many bytes the body or its text has, or what --fail-with-body has of that of a failed response.
func (w *written) size() int64 {
	if text := w.GetTextSummary(); text != nil {
		return text.GetSizeBytes()
	}
	return max(w.GetBodySummary().GetSizeBytes(), int64(len(w.GetErrorBody())))
}

// after returns the time from the start of the fetch to the end of these phases of the last hop.
func (w *written) after(phases ...*durationpb.Duration) string {
	sum := w.hop().GetStartOffset().AsDuration()
	for _, d := range phases {
		sum += d.AsDuration()
	}
	return secondsText(sum)
}

// writeOutVariables are the variables of --write-out. Times are from the start of the fetch: unlike in curl, they
// include earlier attempts and the waits between them.
var writeOutVariables = map[string]func(*written) string{
	"content_type":       func(w *written) string { return show.HeadersOf(w.GetResponse()).Get("Content-Type") },
	"errormsg":           func(w *written) string { return w.GetError().GetMessage() },
	"exitcode":           func(w *written) string { return fmt.Sprint(show.ExitCode(w.FetchOutcome)) },
	"filename_effective": func(w *written) string { return w.file },
	"http_code":          statusOf,
	"http_version": func(w *written) string {
		return strings.TrimSuffix(strings.TrimPrefix(w.GetResponse().GetProtocol(), "HTTP/"), ".0")
	},
	"method":         func(w *written) string { return w.hop().GetMethod() },
	"num_headers":    func(w *written) string { return fmt.Sprint(len(w.GetResponse().GetHeaders())) },
	"num_redirects":  func(w *written) string { return fmt.Sprint(max(len(w.GetHops())-1, 0)) },
	"num_retries":    func(w *written) string { return fmt.Sprint(max(w.GetAttemptCount()-1, 0)) },
	"redirect_url":   func(w *written) string { return w.hop().GetLocationUrl() },
	"remote_ip":      func(w *written) string { host, _ := w.remote(); return host },
	"remote_port":    func(w *written) string { _, port := w.remote(); return port },
	"response_code":  statusOf,
	"scheme":         func(w *written) string { return strings.Split(w.GetFinalUrl(), ":")[0] },
	"size_download":  func(w *written) string { return fmt.Sprint(w.size()) },
	"speed_download": speedOf,
	"time_appconnect": func(w *written) string {
		x := w.hop().GetExchange()
		if x.GetTlsDuration() == nil {
			return secondsText(0)
		}
		return w.after(x.GetResolveDuration(), x.GetConnectDuration(), x.GetTlsDuration())
	},
	"time_connect": func(w *written) string {
		x := w.hop().GetExchange()
		return w.after(x.GetResolveDuration(), x.GetConnectDuration())
	},
	"time_namelookup": func(w *written) string { return w.after(w.hop().GetExchange().GetResolveDuration()) },
	"time_pretransfer": func(w *written) string {
		x := w.hop().GetExchange()
		return w.after(x.GetResolveDuration(), x.GetConnectDuration(), x.GetTlsDuration())
	},
	"time_redirect": func(w *written) string {
		if len(w.GetHops()) < 2 {
			return secondsText(0)
		}
		return w.after()
	},
	"time_starttransfer": func(w *written) string {
		x := w.hop().GetExchange()
		return w.after(x.GetResolveDuration(), x.GetConnectDuration(), x.GetTlsDuration(), x.GetProcessingDuration())
	},
	"time_total":    func(w *written) string { return secondsText(w.GetTotalDuration().AsDuration()) },
	"url":           func(w *written) string { return w.url },
	"url_effective": func(w *written) string { return w.GetFinalUrl() },
}

func statusOf(w *written) string { return fmt.Sprintf("%03d", w.GetResponse().GetStatusCode()) }

func speedOf(w *written) string {
	if spent := w.GetTotalDuration().AsDuration().Seconds(); spent > 0 {
		return fmt.Sprintf("%.0f", float64(w.size())/spent)
	}
	return "0"
}

func secondsText(d time.Duration) string { return fmt.Sprintf("%.6f", d.Seconds()) }

// writeOutMark matches what has a meaning in the format of --write-out.
var writeOutMark = regexp.MustCompile(`%%|%\{[^}]*\}|%header\{[^}]*\}|\\[nrt]`)

// readWriteOut reads the format of --write-out if it is in a file, and checks its variables.
func (c *Command) readWriteOut(ctx context.Context, stdin io.Reader) error {
	if c.WriteOut == nil {
		return nil
	}
	if name, isFile := strings.CutPrefix(*c.WriteOut, "@"); isFile {
		text, err := inputs{ctx, stdin}.file("--write-out", name)
		if err != nil {
			return err
		}
		*c.WriteOut = strings.NewReplacer("\r", "", "\n", "").Replace(string(text)) // as curl: \n is a line end there too
	}
	for _, mark := range writeOutMark.FindAllString(*c.WriteOut, -1) {
		name, isVariable := strings.CutPrefix(mark, "%{")
		if name = strings.TrimSuffix(name, "}"); isVariable && writeOutVariables[name] == nil {
			return cli.UsageError("--write-out", fmt.Sprintf("has no variable %.40q: give %%header{NAME}, or one of %s", name, strings.Join(slices.Sorted(maps.Keys(writeOutVariables)), ", ")))
		}
	}
	return nil
}

// writeOut writes the text of --write-out.
func (c *Command) writeOut(p *cli.Program, w *written) error {
	if c.WriteOut == nil {
		return nil
	}
	clean := func(s string) string { return s }
	if cli.IsTerminal(p.Out) {
		clean = cli.Escape
	}
	headers := show.HeadersOf(w.GetResponse())
	text := writeOutMark.ReplaceAllStringFunc(*c.WriteOut, func(mark string) string {
		switch mark {
		case "%%":
			return "%"
		case `\n`:
			return "\n"
		case `\r`:
			return "\r"
		case `\t`:
			return "\t"
		}
		kind, name, _ := strings.Cut(strings.TrimSuffix(mark, "}"), "{")
		if kind == "%header" {
			return clean(headers.Get(name))
		}
		return clean(writeOutVariables[name](w))
	})
	if _, err := io.WriteString(p.Out, text); err != nil {
		return cli.OutputError(err)
	}
	return nil
}
