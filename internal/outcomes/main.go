// Command outcomes generates what the code knows about outcomes and rules:
// docs/outcomes.md, or with the argument "rules.js" the sentences for the console.
package main

import (
	"fmt"
	"os"
	"strings"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/descriptorpb"

	"fetchd/classify"
	"fetchd/internal/rules"
)

// statuses stand for the classes that come from one.
var statuses = map[classify.Class]int{
	classify.HTTPServerError: 503, classify.RateLimited: 429, classify.AuthRequired: 401, classify.Forbidden: 403,
	classify.RequestTimeout: 408, classify.HTTPClientError: 404, classify.UnexpectedNotModified: 304,
}

const head = `# Every way for a fetch to end

Written by ` + "`.ci/generate`" + ` from ` + "`classify`" + ` and the contract; do not edit. The rules are those of [spec.md](spec.md).

A gRPC status other than OK speaks of the request or of fetchd. What happened at the origin is a ` + "`FetchOutcome`" + `, and its ` + "`kind`" + ` is one of four:

| kind | when | ` + "`error`" + ` |
|---|---|---|
| SUCCESS | 2xx, whole and as the policies want it (H0) | unset |
| NOT_MODIFIED | 304 to a condition (H7) | unset |
| REDIRECT | 3xx that was not to be followed (H9) | unset |
| FAILED | anything else | set: the class below |

"Tried again" is within the fetch, for a request that may be repeated, while attempts and time are left. "Retryable" is ` + "`error.retryable`" + `: a later fetch of the same request may succeed. The failure type is what a scheduler
does with it: TRANSIENT later, RATE_LIMITED later and slower, NEEDS_AUTH with other credentials, PERMANENT not at all.

| class | rule | what happened | failure type | tried again | retryable |
|---|---|---|---|---|---|
`

const tail = `
The class is for programs. For people ` + "`error.detail`" + ` says what happened, in the words of the transport:

` + "```" + `
CONNECT_REFUSED    example.com (192.0.2.7:443): dial tcp: connect: connection refused
DNS_NOT_FOUND      no-such.example: lookup: no such host
TLS_CERTIFICATE    example.com (192.0.2.7:443): tls: failed to verify certificate: x509: certificate is valid for example.net, not example.com
HTTP_SERVER_ERROR  example.com (192.0.2.7:443): status 503 Service Unavailable
BODY_INTERRUPTED   example.com (192.0.2.7:443): status 200 OK: read tcp: read: connection reset by peer
` + "```" + `

It may change with any version, and may quote the origin: do not parse it. The log of the service has the original error.

## The rules

Every outcome and every decision names the rule that it follows. ` + "`fetchctl explain --rule H6`" + ` prints one of them.

| rule | |
|---|---|
`

func main() {
	if err := run(); err != nil {
		fmt.Fprintln(os.Stderr, "outcomes:", err)
		os.Exit(1)
	}
}

func run() error {
	if len(os.Args) > 1 && os.Args[1] == "rules.js" {
		return writeRulesScript()
	}
	comments, err := comments("server/descriptor.binpb")
	if err != nil {
		return err
	}
	var out strings.Builder
	out.WriteString(head)
	for _, class := range classify.Classes() {
		name := strings.ToUpper(class.String())
		comment, found := comments["ERROR_CLASS_"+name]
		if !found {
			return fmt.Errorf("the contract has no class %s", name)
		}
		standard, download := decide(class, classify.Standard), decide(class, classify.Download)
		rule := string(standard.ClassRule)
		text := strings.TrimSuffix(strings.TrimPrefix(comment, rule+". "), ".")
		fmt.Fprintf(&out, "| %s | %s | %s | %s | %s | %s |\n", name, rule, text,
			both(strings.ToUpper(standard.FailureType.String()), strings.ToUpper(download.FailureType.String())),
			both(yes(standard.Verdict == classify.Retry), yes(download.Verdict == classify.Retry)),
			both(yes(standard.Retryable), yes(download.Retryable)))
	}
	out.WriteString(tail)
	for _, r := range rules.All {
		fmt.Fprintf(&out, "| %s | %s |\n", r.ID, r.Sentence)
	}
	_, err = os.Stdout.WriteString(out.String())
	return err
}

// writeRulesScript writes server/console/page/rules.js.
func writeRulesScript() error {
	var out strings.Builder
	out.WriteString("// The rules of the specification. Written by .ci/generate from internal/rules; do not edit.\n\nconst rules = {\n")
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

// decide asks about the first attempt of a GET that ended so.
func decide(class classify.Class, profile classify.Profile) classify.Decision {
	policy := profile.Policy()
	o := classify.Observation{Attempt: 1, TimeLeft: classify.Unbounded, Status: statuses[class]}
	if o.Status == 0 {
		o.Faults = classify.FaultsOf(class)
	}
	return classify.Decide(&policy, &o)
}

// both tells what two profiles say, once where they agree.
func both(standard, download string) string {
	if standard == download {
		return standard
	}
	return standard + "; in DOWNLOAD " + download
}

func yes(b bool) string {
	if b {
		return "yes"
	}
	return "no"
}

// comments are those of the contract's enum values.
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
