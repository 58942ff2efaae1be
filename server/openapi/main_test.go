package main

import (
	"fmt"
	"os"
	"strings"
	"testing"
)

// TestGenerate checks what the tags of api.yaml give, and its faults.
func TestGenerate(t *testing.T) {
	t.Parallel()
	descriptor, err := os.ReadFile("../../server/descriptor.binpb")
	if err != nil {
		t.Fatal(err)
	}
	const schemas = "\ncomponents: {schemas: {}}"
	for _, row := range []struct{ name, api, want, fault string }{
		{"text of the contract", "a: !summary FetchUnary", `"a": "FetchUnary fetches one URL and returns the outcome with the attempts"`, ""},
		{"an example of a request", "a: !request/FetchRequest {url: u}", "\"a\": {\n  \"url\": \"u\"\n }", ""},
		{"an example of an answer", "a: !answer/ResumePoint {validator: v}", "\"a\": {\n  \"offset_bytes\": \"0\",\n  \"validator\": \"v\"\n }", ""},
		{"an alias of an example", "a: &x !answer/ResumePoint {}\nb: *x", "\"b\": {\n  \"offset_bytes\": \"0\"", ""},
		{"characters of HTML", "a: <&>", `"a": "<&>"`, ""},
		{"a message in two forms", "a: 1", `"HeaderOutput": {`, ""},
		{"an optional choice", "a: 1", `"title": "no delivery"`, ""},
		{"a method that there is not", "a: !summary FetchAll", "", `no method "FetchAll"`},
		{"a message that there is not", "a: !answer/Answer {}", "", `no message "Answer"`},
		{"a field that there is not", "a:\n  b: !request/FetchRequest {uri: u}", "", `line 2: proto:`},
		{"a value that does not fit", "a: !answer/FetchOutcome {kind: SUCCESS}", "", "line 1: proto:"},
		{"no mapping", "- a", "", "not a mapping"},
	} {
		api := row.api
		if row.fault == "" || strings.HasPrefix(api, "a") {
			api += schemas
		}
		text, err := generate([]byte(api), descriptor)
		switch {
		case (err != nil) != (row.fault != ""), err != nil && !strings.Contains(fmt.Sprint(err), row.fault):
			t.Errorf("%s: error %v, want %q", row.name, err, row.fault)
		case !strings.Contains(string(text), row.want):
			t.Errorf("%s: %.300s, want %q in it", row.name, text, row.want)
		}
	}
}
