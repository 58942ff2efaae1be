package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"strings"
	"time"
	"unicode/utf8"

	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"

	pb "fetchd/gen/fetchd/v1"
	"fetchd/internal/cli"
	"fetchd/internal/plainjson"
)

// outcome tells how a fetch ended, such as
//
//	success  200  https://…  12.3 KiB  sha256 …  2 attempts  340 ms
func (r *reporter) outcome(o *pb.FetchOutcome) {
	spent := took(o.GetTotalDuration().AsDuration())
	made := cli.Count(int(o.GetAttempts()), "attempt")
	if o.GetKind() == pb.OutcomeKind_OUTCOME_KIND_FAILED {
		r.failed(o, made, spent)
		return
	}
	r.line(r.paint.Paint(cli.Green, label(o.GetKind())), outcomeCode(o), r.url(o.GetFinalUrl()),
		r.body(o), location(o), made, spent)
}

func outcomeCode(o *pb.FetchOutcome) string {
	if o.GetResponse() == nil {
		return ""
	}
	return fmt.Sprint(o.GetResponse().GetStatusCode())
}

func (r *reporter) url(u string) string {
	if r.brief {
		return ""
	}
	return cli.Escape(u)
}

func (r *reporter) body(o *pb.FetchOutcome) string {
	if o.GetKind() != pb.OutcomeKind_OUTCOME_KIND_SUCCESS {
		return ""
	}
	b := o.GetBodySummary()
	text := size(b.GetSizeBytes())
	if b.GetTruncated() {
		text += " (cut at the limit)"
	}
	if sum := b.GetSha256(); sum != "" && !r.brief {
		text += "  sha256 " + cli.Escape(sum)
	}
	return text
}

// location is where a redirect that was not followed leads.
func location(o *pb.FetchOutcome) string {
	hops := o.GetHops()
	if o.GetKind() != pb.OutcomeKind_OUTCOME_KIND_REDIRECT || len(hops) == 0 || hops[len(hops)-1].GetLocationUrl() == "" {
		return ""
	}
	return "→ " + cli.Escape(hops[len(hops)-1].GetLocationUrl())
}

// failed tells what failed, why it was given up, and what the origin said.
func (r *reporter) failed(o *pb.FetchOutcome, made, spent string) {
	e := o.GetError()
	code := outcomeCode(o)
	if o.GetResponseAttempt() != o.GetAttempts() && code != "" {
		code += fmt.Sprintf(" (of attempt %d)", o.GetResponseAttempt())
	}
	r.line(r.paint.Paint(cli.Red, "failed"), code, r.url(o.GetFinalUrl()), r.failure(e),
		words(e.GetFailureType())+", "+retryable(e.GetRetryable()), made, spent)
	r.line("  "+cli.Escape(e.GetMessage())+"; "+r.stop(e), askedFor(e))
	r.detail(e)
	for _, text := range firstLines(o.GetErrorBody()) {
		r.line("  " + r.paint.Paint(cli.Dim, "| "+text))
	}
	if rule := e.GetRule(); rule != "" && !r.brief {
		r.line("  " + r.paint.Paint(cli.Dim, "what "+cli.Escape(rule)+" means: fetchctl explain --rule "+cli.Escape(rule)))
	}
}

// detail says what happened, on a line below.
func (r *reporter) detail(e *pb.FetchError) {
	if e.GetDetail() != "" {
		r.line("  " + r.paint.Paint(cli.Dim, cli.Escape(e.GetDetail())))
	}
}

func retryable(yes bool) string {
	if yes {
		return "retryable"
	}
	return "not retryable"
}

// stop says why no further attempt was made.
func (r *reporter) stop(e *pb.FetchError) string {
	text := "stopped: " + words(e.GetStopReason())
	if r.stopped != "" && r.stopped != e.GetRule() {
		text += " (" + cli.Escape(r.stopped) + ")"
	}
	return text
}

func askedFor(e *pb.FetchError) string {
	if e.GetRetryAfter() == nil {
		return ""
	}
	return fmt.Sprintf("the origin asked for %s", e.GetRetryAfter().AsDuration())
}

// firstLines are the first lines of an error page, escaped and cut.
func firstLines(body []byte) []string {
	const most, width = 3, 160
	if len(body) == 0 {
		return nil
	}
	if bytes.IndexByte(body, 0) >= 0 || !utf8.Valid(body[:wholeRunes(body)]) {
		return []string{fmt.Sprintf("%s that are no text", size(int64(len(body))))}
	}
	var lines []string
	for line := range strings.Lines(string(body)) {
		line = strings.TrimSpace(line)
		if line == "" {
			continue
		}
		if len(lines) == most {
			return append(lines, "…")
		}
		lines = append(lines, cut(cli.Escape(line), width))
	}
	return lines
}

// cut shortens s to so many characters.
func cut(s string, width int) string {
	if utf8.RuneCountInString(s) <= width {
		return s
	}
	return string([]rune(s)[:max(width-1, 0)]) + "…"
}

// jsonLines writes every event as one line of JSON, without the data of body
// chunks.
func jsonLines(w io.Writer) func(*pb.FetchResponse) error {
	return func(m *pb.FetchResponse) error {
		if c := m.GetBodyChunk(); c != nil {
			m = &pb.FetchResponse{Sequence: m.GetSequence(), ElapsedOffset: m.GetElapsedOffset(),
				Event: &pb.FetchResponse_BodyChunk{BodyChunk: &pb.BodyChunk{Attempt: c.GetAttempt(), OffsetBytes: c.GetOffsetBytes()}}}
		}
		return writeJSON(w, m)
	}
}

// writeJSON writes a message as one line, always the same for the same message.
func writeJSON(w io.Writer, m proto.Message) error {
	text, err := protojson.MarshalOptions{UseProtoNames: true}.Marshal(m)
	if err != nil {
		return fmt.Errorf("%w: %w", errContract, err)
	}
	var line bytes.Buffer
	if err := json.Compact(&line, text); err != nil { // protojson varies its spaces on purpose
		return fmt.Errorf("%w: %w", errContract, err)
	}
	line.WriteByte('\n')
	if _, err := w.Write(plainjson.Escape(line.Bytes())); err != nil {
		return cli.OutputError(err)
	}
	return nil
}

// policyText is a retry policy for people.
func policyText(p *pb.RetryPolicy) string {
	text := fmt.Sprintf("%s: %s, backoff from %s by %g to %s", label(p.GetProfile()), cli.Count(int(p.GetMaxAttempts()), "attempt"),
		p.GetBaseDelay().AsDuration(), p.GetMultiplier(), p.GetMaxDelay().AsDuration())
	if jitter := p.GetMaxJitter().AsDuration(); jitter > 0 {
		text += fmt.Sprintf(" plus jitter to %s", jitter)
	}
	return text + fmt.Sprintf(", Retry-After to %s", p.GetMaxRetryAfter().AsDuration().Round(time.Millisecond))
}
