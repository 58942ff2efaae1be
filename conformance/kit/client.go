package kit

import (
	"bytes"
	"context"
	"fmt"
	"slices"
	"time"

	"fetchd/conformance/origin"
)

// Client is an HTTP client under test: a [Command] or an [Adapter].
type Client interface {
	// Describe returns a report without results, for the names and the version of the client.
	Describe(ctx context.Context) (*Report, error)
	// Trust makes the client accept certificates of an authority, in PEM. The folder is there until the last Run.
	Trust(authority []byte, folder string) error
	// Run fetches a URL. The caller creates an empty folder for it and removes it. Run returns the body and the exit
	// status, which is -1 if the client exceeded its time limit. It returns an error if the client cannot be run or ctx
	// ends.
	Run(ctx context.Context, url, folder string) (body []byte, exit int, err error)
}

// maxBody is how many bytes of a body are kept. That is more than any scenario has, so a longer one is wrong.
const maxBody = 16 << 20

// early is how much earlier than asked a client's timer may fire. Some count whole milliseconds from a time that they
// read before, such as those of Node. Without it a client that waits exactly as long as it must would hold in most runs.
const early = 2 * time.Millisecond

// A client that does not wait can be so slow on a busy machine that it seems to. So a scenario in which a wait was
// longer than it must be by less than nearby is run again, until it fails or was run maxRuns times.
const (
	nearby  = 500 * time.Millisecond
	maxRuns = 8
)

// close reports whether a wait is longer than it must be by less than nearby.
func (s *Scenario) close(requests []origin.Request) bool {
	for i, gap := range gapsOf(requests) {
		if i < len(s.gaps) && s.gaps[i] > 0 && gap < s.gaps[i]+nearby {
			return true
		}
	}
	return false
}

// ClientRecord is the result of a client.
type ClientRecord struct {
	// Exit is the exit status, or -1 if the client exceeded its time limit.
	Exit int
	// Body is what it wrote, even if it failed.
	Body []byte
	// Requests are the requests that the origin received.
	Requests []origin.Request
}

// PerformClient runs a client with the scenario's URL in an empty folder, which the caller creates and removes. It
// returns an error if the client cannot be run or ctx ends.
func (s *Scenario) PerformClient(ctx context.Context, c Client, o Origin, folder string) (*ClientRecord, error) {
	body, exit, err := c.Run(ctx, s.URL(o), folder)
	if err != nil {
		return nil, err
	}
	return &ClientRecord{Exit: exit, Body: body, Requests: ended(ctx, s, o)}, nil
}

// ended waits until the origin has recorded the end of each request, and returns the requests. A client behind an
// adapter may keep a connection to an origin that does not answer: it gets [grace] to close it.
func ended(ctx context.Context, s *Scenario, o Origin) []origin.Request {
	ctx, cancel := context.WithTimeout(ctx, grace)
	defer cancel()
	for _, r := range o.Requests(s.Key()) {
		select {
		case <-r.Done:
		case <-ctx.Done():
		}
	}
	return o.Requests(s.Key())
}

// refused reports whether the origin could not run the scenario because the client does not
// support HTTP/2.
func (r *ClientRecord) refused() bool {
	return slices.ContainsFunc(r.Requests, func(r origin.Request) bool { return r.End == origin.EndRefused })
}

// JudgeClient compares the result of a client with what the scenario expects of a client that
// only knows the URL. The scenario must have a Client.
func (s *Scenario) JudgeClient(o Origin, rec *ClientRecord) []Mismatch {
	j := new(judgement)
	failed, want := s.outcome.GetError() != nil, o.Body(s.Want.Body)
	if r := s.Client.MaySucceedWith; len(r) == 2 && rec.Exit == 0 {
		failed, want = false, o.Body(r[1])[r[0]:]
	}
	switch {
	case rec.Exit < 0:
		j.same("end", "an exit status", "still running at the time limit")
	case failed && rec.Exit == 0:
		j.same("exit status", "a failure", "0")
	case !failed && rec.Exit != 0:
		j.same("exit status", 0, rec.Exit)
	}
	least, most := s.Want.Requests, s.Want.Requests
	if r := s.Client.Requests; len(r) == 2 {
		least, most = r[0], r[1]
	}
	if n := len(rec.Requests); n < least || n > most {
		j.same("requests", rangeText(least, most), n)
	}
	for i, gap := range gapsOf(rec.Requests) {
		if i < len(s.gaps) && gap < s.gaps[i]-early {
			j.same(fmt.Sprintf("gap %d", i+1), fmt.Sprintf("at least %s", s.gaps[i]), gap.Round(time.Millisecond))
		}
	}
	if !failed && rec.Exit == 0 && !bytes.Equal(want, rec.Body) {
		j.same("body", bodyText(want), bodyText(rec.Body))
	}
	if !s.Client.SeenAny {
		j.clientSights(s, rec.Requests)
	}
	return j.wrong
}

// clientSights compares the requests of a client.
func (j *judgement) clientSights(s *Scenario, got []origin.Request) {
	for i := range min(len(got), len(s.Want.Seen)) {
		if s.Client.MayStartAgain && got[i].Header.Get("Range") == "" {
			continue
		}
		j.sight(fmt.Sprintf(" of request %d", i+1), &s.Want.Seen[i], &got[i])
	}
}

func rangeText(least, most int) string {
	if least == most {
		return fmt.Sprint(least)
	}
	return fmt.Sprintf("%d to %d", least, most)
}

// ClientScenarios runs a client with each scenario, jobs at a time, and returns the results in their order. A client that was
// still running at its time limit gets a second run, alone. folder
// creates a folder for each run. ClientScenarios returns an error if the client cannot be run or ctx ends.
func ClientScenarios(ctx context.Context, c Client, scenarios []*Scenario, o Origin, jobs int, folder func() (string, error)) ([]Result, error) {
	results, slow := make([]Result, len(scenarios)), make([]bool, len(scenarios))
	judge := func(ctx context.Context, i, run int) (err error) {
		s := *scenarios[i]
		s.run = run
		results[i] = Result{Name: s.Name, Rules: slices.Clone(s.Rules), Verdict: NotApplicable}
		if s.Client != nil {
			slow[i], err = s.judgeClient(ctx, c, o, folder, &results[i])
		}
		return err
	}
	err := each(ctx, jobs, len(scenarios), func(ctx context.Context, i int) error { return judge(ctx, i, 0) })
	for i := range scenarios { // alone, because a busy machine may have been the reason
		if err == nil && slow[i] {
			err = judge(ctx, i, maxRuns)
		}
	}
	return results, err
}

// judgeClient runs a scenario with a client, and again while its waits are close. slow reports whether the client was
// still running at its time limit.
func (s *Scenario) judgeClient(ctx context.Context, c Client, o Origin, folder func() (string, error), r *Result) (slow bool, err error) {
	for end := s.run + maxRuns; s.run < end; s.run++ {
		dir, err := folder()
		if err != nil {
			return false, err
		}
		rec, err := s.PerformClient(ctx, c, o, dir)
		if err != nil {
			return false, err
		}
		if rec.refused() {
			return false, nil
		}
		r.judged(s.JudgeClient(o, rec), rec.Requests)
		if r.Verdict == Failed || !s.close(rec.Requests) {
			return rec.Exit < 0, nil
		}
	}
	return false, nil
}
