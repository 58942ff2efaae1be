package rig

import (
	"strings"

	"fetchd/conformance/origin"
	"fetchd/test/signatures"
)

// Received returns a request for the verifier, from the fields that the origin read.
func Received(q *origin.Request, body []byte) *signatures.Message {
	m := &signatures.Message{Method: q.Method, Scheme: "http", Authority: q.Host, Target: q.Path, Body: body}
	if q.Query != "" {
		m.Target += "?" + q.Query
	}
	if strings.HasPrefix(q.Listener, "https") || q.Listener == "h2fault" {
		m.Scheme = "https"
	}
	for _, f := range q.Fields {
		m.Lines = append(m.Lines, [2]string{f.Name, f.Value})
	}
	return m
}
