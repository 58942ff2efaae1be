package kit

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os/exec"

	"fetchd/conformance"
)

// maxAnswers is how many bytes a program may write for a vector, on average.
const maxAnswers = 16 << 10

// question and answer are the lines of a program that decides.
type question struct {
	Name        string                   `json:"name"`
	Observation *conformance.Observation `json:"observation"`
}

type answer struct {
	Name    string               `json:"name"`
	Verdict *conformance.Verdict `json:"verdict"`
}

// Decide runs the program once. It writes a line of JSON for each vector to its standard input, with the name and the
// observation, and reads a line with the name and the verdict for each. It returns the results in the order of the
// vectors, and an error if the program cannot be run, fails, or writes something else. {url} and {out} mean nothing.
func (c *Command) Decide(ctx context.Context, vectors []conformance.Vector) ([]Result, error) {
	var questions bytes.Buffer
	lines := json.NewEncoder(&questions)
	for i := range vectors {
		if err := lines.Encode(question{vectors[i].Name, &vectors[i].Observation}); err != nil {
			return nil, err
		}
	}
	within, cancel := context.WithTimeout(ctx, c.TimeLimit())
	defer cancel()
	cmd := exec.CommandContext(within, c.Args[0], c.Args[1:]...)
	answers, complaints := &limited{left: len(vectors) * maxAnswers}, &limited{left: maxAnswers}
	cmd.Env, cmd.WaitDelay, cmd.Stdin, cmd.Stdout, cmd.Stderr = c.Env, grace, &questions, answers, complaints
	err := runGroup(cmd)
	switch {
	case ctx.Err() != nil:
		return nil, ctx.Err()
	case within.Err() != nil:
		return nil, fmt.Errorf("%s: still running after %s", c.Args[0], c.TimeLimit())
	case answers.left < 0:
		return nil, fmt.Errorf("%s: writes more than %d bytes for each vector", c.Args[0], maxAnswers)
	case err != nil:
		return nil, fmt.Errorf("run %s: %w: %s", c.Args[0], err, lastLine(complaints.kept.Bytes()))
	}
	return judgeAnswers(vectors, bufio.NewReader(&answers.kept))
}

// judgeAnswers compares the answers with the vectors. The lines have the order of the vectors.
func judgeAnswers(vectors []conformance.Vector, from *bufio.Reader) ([]Result, error) {
	results := make([]Result, len(vectors))
	for i := range vectors {
		v := &vectors[i]
		line, err := from.ReadBytes('\n')
		if err != nil && len(line) == 0 {
			return nil, fmt.Errorf("line %d is missing: it must answer %s", i+1, v.Name)
		}
		j := new(judgement)
		var got answer
		if err := readAnswer(line, &got); err != nil {
			j.same("the line", "a name and a verdict as schema/vectors.json describes it", err)
		} else if got.Name != v.Name {
			return nil, fmt.Errorf("line %d answers %.80q, want %s: one line for each, in order", i+1, got.Name, v.Name)
		} else {
			j.verdict(&v.Verdict, got.Verdict)
		}
		results[i] = Result{Name: v.Name, Vector: true, Rules: []string{v.Rule}, Verdict: verdict(j.wrong), Wrong: j.wrong}
	}
	if rest, _ := from.ReadBytes('\n'); len(bytes.TrimSpace(rest)) > 0 {
		return nil, fmt.Errorf("line %d answers nothing", len(vectors)+1)
	}
	return results, nil
}

func readAnswer(line []byte, into *answer) error {
	decoder := json.NewDecoder(bytes.NewReader(line))
	decoder.DisallowUnknownFields()
	if err := decoder.Decode(into); err != nil {
		return err
	}
	if into.Verdict == nil {
		return errors.New("there is no verdict")
	}
	if _, err := decoder.Token(); !errors.Is(err, io.EOF) {
		return errors.New("there is more after it")
	}
	return nil
}

// verdict compares verdicts. A reason is compared only if the vector has one.
func (j *judgement) verdict(want, got *conformance.Verdict) {
	if got.Failure != nil && (want.Failure == nil || want.Failure.Reason == "") {
		got.Failure.Reason = ""
	}
	j.same("outcome", want.Outcome, got.Outcome)
	j.same("failure", dataText(want.Failure), dataText(got.Failure))
	j.same("redirect", dataText(want.Redirect), dataText(got.Redirect))
	j.same("decision", dataText(want.Decision), dataText(got.Decision))
}

// dataText returns a part of a verdict in JSON, or "none".
func dataText[T any](part *T) string {
	if part == nil {
		return "none"
	}
	text, err := json.Marshal(part)
	if err != nil {
		return fmt.Sprint(err)
	}
	return string(text)
}

// limited keeps the first bytes that are written. left is negative if there were more.
type limited struct {
	kept bytes.Buffer // not embedded: its ReadFrom knows no limit
	left int
}

// Write implements io.Writer. It keeps reading, so that the program does not block.
func (l *limited) Write(p []byte) (int, error) {
	if keep := min(len(p), l.left); keep > 0 {
		_, _ = l.kept.Write(p[:keep]) // never fails
	}
	l.left -= len(p)
	return len(p), nil
}

// lastLine returns the last line of what a program said.
func lastLine(said []byte) string {
	said = bytes.TrimSpace(said)
	if at := bytes.LastIndexByte(said, '\n'); at >= 0 {
		said = said[at+1:]
	}
	return fmt.Sprintf("%.200q", said)
}
