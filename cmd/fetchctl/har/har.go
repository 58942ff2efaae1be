package har

import (
	"bytes"
	"errors"
	"fmt"
	"net/http"
	"strings"

	"fetchd/cmd/fetchctl/show"
	"fetchd/cmd/fetchctl/timeline"
	pb "fetchd/gen/fetchd/v1"
	"fetchd/internal/jsontext"
)

// Options select the content of an archive. The zero value leaves out bodies and secrets.
type Options struct {
	// Version of the program that writes the archive; "unknown" if empty.
	Version string
	// Request is the request to the service. It has the headers and the body of the first
	// HTTP request. It may be nil.
	Request *pb.FetchRequest
	// Bodies includes the bodies that the timeline stored, and that of the request.
	Bodies bool
	// Secrets includes secrets, which are otherwise replaced by [Redacted].
	Secrets bool
}

// ErrNoStart reports that the start of the fetch is unknown, so that no entry can have a date.
// That is the case at event level OUTCOME.
var ErrNoStart = errors.New("the fetch has not told when it began: ask for event level ATTEMPTS or ALL")

// Marshal returns a fetch as an archive, in indented JSON with a line end. The error is
// [ErrNoStart].
func Marshal(f *timeline.Fetch, o Options) ([]byte, error) {
	if f.Start.IsZero() {
		return nil, ErrNoStart
	}
	w := &writer{fetch: f, options: o}
	var out bytes.Buffer
	enc := jsontext.NewEncoder(&out)
	enc.SetIndent("", "  ")
	if err := enc.Encode(file{w.log()}); err != nil {
		return nil, fmt.Errorf("write the archive: %w", err)
	}
	return out.Bytes(), nil
}

// writer builds the archive of one fetch.
type writer struct {
	fetch   *timeline.Fetch
	options Options
}

func (w *writer) log() archive {
	l := archive{Version: "1.2", Creator: creator{Name: "fetchd", Version: w.options.Version}, Pages: []page{}, Entries: []entry{},
		FetchID: w.fetch.ID}
	if l.Creator.Version == "" {
		l.Creator.Version = "unknown"
	}
	if o := w.fetch.Outcome; o != nil {
		l.Outcome = &outcome{Kind: show.Label(o.GetKind()), DecisionRule: o.GetDecisionRule(), AttemptCount: o.GetAttemptCount(), ExchangeCount: o.GetExchangeCount(),
			FinalURL: o.GetFinalUrl(), Time: msOf(o.GetTotalDuration().AsDuration())}
	} else {
		l.Comment = "the record ends before the outcome"
	}
	for i := range w.fetch.Attempts {
		a := &w.fetch.Attempts[i]
		l.Pages = append(l.Pages, w.page(a))
		for j := range a.Hops {
			l.Entries = append(l.Entries, w.entry(a, j))
		}
	}
	return l
}

func pageID(a *timeline.Attempt) string { return fmt.Sprintf("attempt_%d", a.Number) }

func (w *writer) page(a *timeline.Attempt) page {
	return page{Started: moment(w.fetch.Start.Add(a.Start)), ID: pageID(a), Title: w.title(a),
		Timings: pageTimings{OnContentLoad: none, OnLoad: msOf(a.End - a.Start)}, Comment: a.Next()}
}

func (w *writer) title(a *timeline.Attempt) string {
	text := fmt.Sprintf("Attempt %d", a.Number)
	if s := a.Status(); s != 0 {
		text += strings.TrimRight(fmt.Sprintf(": %d %s", s, http.StatusText(s)), " ")
	} else if a.Error != nil {
		text += ": " + show.Label(a.Error.GetErrorClass())
	}
	return text
}
