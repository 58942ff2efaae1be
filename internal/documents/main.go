// Command documents writes what the code knows about outcomes and rules: docs/outcomes.md, or with the argument
// "rules.js" the sentences for the console. With "surface" it lists the public names that only the code has, for docs/surface.txt,
// and with "man PROGRAM DATE" it writes a man page.
package main

import (
	"fmt"
	"os"
	"regexp"
	"strings"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/descriptorpb"

	"fetchd/classify"
	"fetchd/internal/rules"
)

// statuses has a status for each class that is decided by the status alone.
var statuses = map[classify.Class]int{
	classify.HTTPServerError: 503, classify.RateLimited: 429, classify.AuthRequired: 401, classify.Forbidden: 403,
	classify.RequestTimeout: 408, classify.HTTPClientError: 404, classify.UnexpectedNotModified: 304,
}

const head = `# Every way for a fetch to end

To handle an outcome in your program, look at these fields in this order:

1. The gRPC status. If it is not OK, your request or fetchd itself failed, and there is no outcome.
2. ` + "`kind`" + `. It is one of four; only ` + "`failed`" + ` has an ` + "`error`" + `.
3. ` + "`error.retryable`" + `: whether a later fetch of the same request may succeed. If it is false, never put the request back into a queue: a POST could take effect twice. ` + "`error.request_state`" + ` says whether an origin may have processed a request of the fetch.
4. ` + "`error.failure_type`" + `, which says what to do.

| kind | when | rule |
|---|---|---|
| success | a 2xx response, complete and as the request's policies want it | H0 |
| not_modified | a 304 response to a conditional request | H7 |
| redirect | a 3xx response that is not to be followed | H9 |
| failed | anything else | that of the error class |

The packages and fetchctl do both steps for you:

| retryable | failure type | what to do | Python | Go | fetchctl |
|---|---|---|---|---|---|
| yes | transient | fetch again later | TransientError | ErrTransient | 10 |
| yes | rate_limited | fetch again later and more slowly; ` + "`retry_after`" + ` says when, if the origin did | RateLimitedError | ErrRateLimited | 12 |
| yes or no | needs_auth | give other credentials. If a POST was redirected, it may have taken effect | NeedsAuthError | ErrNeedsAuth | 13 |
| no | permanent | do not fetch again | PermanentError | ErrPermanent | 11 |
| no | transient, with class internal, but for the reason too_many_open_files | the same: the server has a defect | PermanentError | ErrPermanent | 11 |
| no | any other transient or rate_limited | a POST or PATCH was not sent again, because it may have taken effect. Find out whether it did | NotIdempotentError | ErrNotIdempotent | 14 |

In Node, ` + "`failureType`" + ` of a FetchError is ` + "`not_idempotent`" + ` in the last row and ` + "`permanent`" + ` in the row before.

` + "`fetchctl get`" + ` also exits with 14 if it loses fetchd before the outcome of a POST or PATCH without allow_non_idempotent: the request may have taken effect. For any other request it then exits with 20.

For example, ` + "`fetchctl explain --status 503`" + ` prints the class, the failure type and the decision for a 503.

[Stop reasons](quickstart.md#find-out-why-a-fetch-failed) say why no other attempt was made.

## Names

A value of the contract, such as an error class, has two spellings:

| where | for example |
|---|---|
| JSON and generated stubs: the full name in fetch.proto | ` + "`ERROR_CLASS_HTTP_SERVER_ERROR`" + `, ` + "`FAILURE_TYPE_TRANSIENT`" + `, ` + "`OUTCOME_KIND_FAILED`" + ` |
| everywhere else, also in the Python and Node packages: without its prefix, in lower case | ` + "`http_server_error`" + `, ` + "`transient`" + `, ` + "`failed`" + ` |

Fields have the names of fetch.proto, such as ` + "`retry_after`" + `, in every JSON that fetchd writes, also if they have default values. It reads camelCase (` + "`retryAfter`" + `) too. A gRPC code is written as gRPC does, such as ` + "`INVALID_ARGUMENT`" + `.

## Error classes

"Retried" means within the fetch: while attempts and time are left, and if the request may be repeated. "Retryable" is ` + "`error.retryable`" + `. If the profile ` + "`download`" + ` differs
from ` + "`standard`" + `, both are shown.

| class | rule | what happened | failure type | retried | retryable |
|---|---|---|---|---|---|
`

const tail = `
An error of class internal with the reason too_many_open_files is retryable: the server had no file descriptor left, and the target is not at fault.
Classes may be added. If you do not know one, use ` + "`retryable`" + ` and the failure type.

## Messages for people

` + "`error.detail`" + ` says what happened: the host, its address, the status if there was a response, and the error of the connection. For example:

` + "```" + `
connect_refused    example.com (192.0.2.7:443): dial tcp: connect: connection refused
dns_not_found      no-such.example: lookup: no such host
tls_certificate    example.com (192.0.2.7:443): tls: failed to verify certificate: x509: certificate is valid for example.net, not example.com
http_server_error  example.com (192.0.2.7:443): status 503 Service Unavailable
` + "```" + `

Do not parse it: it may change with any version, and may quote the origin.

If a certificate was rejected, ` + "`exchange.certificate`" + ` of the last hop describes it. With ` + "`EVENT_LEVEL_ALL`" + ` every hop describes the certificate of its origin, and has the cipher suite and the protocol of ALPN.

## The rules

Every outcome and every decision names the rule behind it. ` + "`fetchctl explain --rule H6`" + ` prints one; the [specification](spec.md) has them in full. Rules of error classes are in [their table](#error-classes). This page is generated by
` + "`.ci/generated`" + `: do not edit it.

| rule | |
|---|---|
`

func main() {
	if err := run(); err != nil {
		fmt.Fprintln(os.Stderr, "documents:", err)
		os.Exit(1)
	}
}

// write writes a text to standard output, unless there is an error.
func write(text string, err error) error {
	if err == nil {
		_, err = os.Stdout.WriteString(text)
	}
	return err
}

func run() error {
	if len(os.Args) == 4 && os.Args[1] == "man" {
		return write(man(os.Args[2], os.Args[3]))
	}
	switch strings.Join(os.Args[1:], " ") {
	case "rules.js":
		return writeRulesScript()
	case "departures.tsv":
		return writeDepartures()
	case "surface":
		return write(surface(os.Getenv("TEST_PROGRAMS")))
	}
	comments, err := comments("server/descriptor.binpb")
	if err != nil {
		return err
	}
	var out strings.Builder
	out.WriteString(head)
	shown := make(map[string]bool) // rules of the classes
	for _, class := range classify.Classes() {
		name := class.String()
		comment, found := comments["ERROR_CLASS_"+strings.ToUpper(name)]
		if !found {
			return fmt.Errorf("fetch.proto has no error class %s", name)
		}
		standard, download := decide(class, classify.Standard), decide(class, classify.Download)
		rule := string(standard.ClassRule)
		shown[rule] = true
		text := strings.TrimSuffix(strings.TrimPrefix(comment, rule+". "), ".")
		fmt.Fprintf(&out, "| %s | %s | %s | %s | %s | %s |\n", name, rule, text,
			both(standard.FailureType.String(), download.FailureType.String()),
			both(yes(standard.Verdict == classify.Retry), yes(download.Verdict == classify.Retry)),
			both(yes(standard.Retryable), yes(download.Retryable)))
	}
	out.WriteString(tail)
	for _, r := range rules.All {
		if !shown[r.ID] {
			fmt.Fprintf(&out, "| %s | %s |\n", r.ID, r.Sentence)
		}
	}
	_, err = os.Stdout.WriteString(out.String())
	return err
}

// departure matches a row of the table of docs/spec.md §14.
var departure = regexp.MustCompile(`(?m)^\| (X\d+) \| (.+) \| (.+) \| (.+) \| (.+) \|$`)

// writeDepartures writes internal/rules/departures.tsv.
func writeDepartures() error {
	spec, err := os.ReadFile("docs/spec.md")
	if err != nil {
		return err
	}
	for _, row := range departure.FindAllStringSubmatch(string(spec), -1) {
		if _, err := fmt.Println(strings.ReplaceAll(strings.Join(row[1:], "\t"), "`", "")); err != nil {
			return err
		}
	}
	return nil
}

// writeRulesScript writes server/console/page/rules.js.
func writeRulesScript() error {
	var out strings.Builder
	out.WriteString("// The rules of the specification. Written by .ci/generated from internal/rules; do not edit.\n\nconst rules = {\n")
	for _, r := range rules.All {
		fmt.Fprintf(&out, "  %s: %s,\n", r.ID, "'"+strings.ReplaceAll(r.Sentence, "'", `\'`)+"'")
	}
	out.WriteString(`};

// meaning returns what a rule says, or '' for an unknown rule.
export function meaning(rule) {
  return Object.hasOwn(rules, rule) ? rules[rule] : '';
}
`)
	_, err := os.Stdout.WriteString(out.String())
	return err
}

// decide returns the decision after the first attempt of a GET that ended with class.
func decide(class classify.Class, profile classify.Profile) classify.Decision {
	policy := profile.Policy()
	o := classify.Observation{Attempt: 1, TimeLeft: classify.Unbounded, Status: statuses[class]}
	if o.Status == 0 {
		o.Faults = classify.FaultsOf(class)
	}
	return classify.Decide(&policy, &o)
}

// both joins the values of the two profiles, or returns one of them if they are equal.
func both(standard, download string) string {
	if standard == download {
		return standard
	}
	return standard + "; in download " + download
}

func yes(b bool) string {
	if b {
		return "yes"
	}
	return "no"
}

// comments returns the comments of all enum values of fetchd.v1, by name, from a descriptor set.
func comments(path string) (map[string]string, error) {
	raw, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	var set descriptorpb.FileDescriptorSet
	if err := proto.Unmarshal(raw, &set); err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	found := make(map[string]string)
	for _, file := range set.GetFile() {
		for _, at := range file.GetSourceCodeInfo().GetLocation() {
			// 5 is enum_type of a file and 2 value of an enum: descriptor.proto.
			if p := at.GetPath(); len(p) == 4 && p[0] == 5 && p[2] == 2 && file.GetPackage() == "fetchd.v1" {
				value := file.GetEnumType()[p[1]].GetValue()[p[3]]
				found[value.GetName()] = strings.Join(strings.Fields(at.GetLeadingComments()), " ")
			}
		}
	}
	return found, nil
}
