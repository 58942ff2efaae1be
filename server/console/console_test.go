package console

import (
	"net/http/httptest"
	"os"
	"regexp"
	"strings"
	"testing"

	"fetchd/test/must"
)

// TestHandler checks that the page and its settings are served.
func TestHandler(t *testing.T) {
	t.Parallel()
	h := Handler(Config{GRPC: "[::1]:8080", TLS: true, Token: true, Version: "v1"})
	for target, want := range map[string]string{
		"/console/": "<title>fetchd console</title>", "/console/console.css": ".attempt", "/console/base.css": ":root",
		"/console/service.json": `{"grpc":"[::1]:8080","tls":true,"token":true,"version":"v1"}`,
	} {
		rec := httptest.NewRecorder()
		h.ServeHTTP(rec, httptest.NewRequest("GET", target, nil))
		if rec.Code != 200 || !strings.Contains(rec.Body.String(), want) {
			t.Errorf("%s: %d, %.200s; want %s in it", target, rec.Code, rec.Body, want)
		}
	}
}

// TestFields checks that every field of the form is in fetch.proto and has the right data-kind.
func TestFields(t *testing.T) {
	t.Parallel()
	contract, err := os.ReadFile("../../proto/fetchd/v1/fetch.proto")
	must.Succeed(t, err)
	text, err := page.ReadFile("page/index.html")
	must.Succeed(t, err)
	form := string(text)
	messages := make(map[string]map[string]string) // type of a field, by message and name
	for _, m := range regexp.MustCompile(`(?ms)^message (\w+) \{\n(.*?)^\}`).FindAllStringSubmatch(string(contract), -1) {
		messages[m[1]] = make(map[string]string)
		for _, f := range regexp.MustCompile(`(?m)^ {2,4}((?:optional |repeated )?[\w.<>, ]+) (\w+) = \d+;`).FindAllStringSubmatch(m[2], -1) {
			messages[m[1]][f[2]] = strings.TrimPrefix(f[1], "optional ")
		}
	}
	kinds := map[string]string{"text": "string", "int": "int32", "int64": "int64", "number": "double", "duration": "google.protobuf.Duration",
		"truth": "bool", "list": "repeated string", "ints": "repeated int32", "labels": "map<string, string>", "body": "bytes"}
	fields := regexp.MustCompile(`data-path="([\w.]+)" data-kind="(\w+)"`).FindAllStringSubmatch(form, -1)
	if len(fields) < 40 {
		t.Fatalf("%d fields", len(fields))
	}
	for _, f := range fields {
		got := "FetchRequest"
		for name := range strings.SplitSeq(f[1], ".") {
			got = messages[got][name]
		}
		_, isMessage := messages[got]
		switch {
		case f[2] == "delivery" && got == "BodyPolicy":
		case got == "" || isMessage:
			t.Errorf("fetch.proto has no field %s", f[1])
		case f[2] == "choice" && (got == "string" || strings.Contains(string(contract), "enum "+got+" {")):
		case kinds[f[2]] != got && (f[2] != "int64" || got != "uint64"):
			t.Errorf("%s is %s in fetch.proto, but data-kind %s in the form", f[1], got, f[2])
		}
	}
	for _, v := range regexp.MustCompile(`<option value="([A-Z]+_[A-Z_]+)"`).FindAllStringSubmatch(form, -1) {
		if !strings.Contains(string(contract), "  "+v[1]+" = ") {
			t.Errorf("fetch.proto has no value %s", v[1])
		}
	}
}

// TestDeliveries checks that form.js has the deliveries of fetch.proto.
func TestDeliveries(t *testing.T) {
	t.Parallel()
	contract, err := os.ReadFile("../../proto/fetchd/v1/fetch.proto")
	must.Succeed(t, err)
	script, err := page.ReadFile("page/form.js")
	must.Succeed(t, err)
	_, members, _ := strings.Cut(string(contract), "  oneof delivery {")
	members, _, _ = strings.Cut(members, "\n  }")
	var deliveries []string
	for _, m := range regexp.MustCompile(`(?m)^    \w+ (\w+) = \d+;`).FindAllStringSubmatch(members, -1) {
		deliveries = append(deliveries, "'"+m[1]+"'")
	}
	if want := "const deliveries = [" + strings.Join(deliveries, ", ") + "];"; !strings.Contains(string(script), want) {
		t.Errorf("form.js does not have the deliveries of fetch.proto: %s", want)
	}
}
