package words

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protodesc"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/types/descriptorpb"
)

// descriptors are the contracts, with their comments.
var descriptors = []string{"server/descriptor.binpb", "frontier/api/descriptor.binpb"}

var (
	// notLimits have digits that are no limit: citations, names and versions.
	notLimits = regexp.MustCompile(`RFC \d+|section [\d.]+|spec [A-Z]\d+|HTTP/[\d.]+|SHA-?256|UTF-8`)
	saysUnset = regexp.MustCompile(`(?i)\b(required|unset|unspecified|empty|zero|ignored)\b`)
	saysRange = regexp.MustCompile(`\d|\b(any|Any|Ignored)\b`)
	saysTime  = regexp.MustCompile(`\d ?(ms|s|min|h)\b|\bdays?\b|\b[Aa]ny\b`)
	saysSize  = regexp.MustCompile(`\b([Bb]ytes|KiB|MiB)\b`)
	saysCount = regexp.MustCompile(`\b([Aa]t most|up to|longer than)\b[^.]*\d|\d to [\d,]+|\d (hexadecimal )?digits|\bany number\b|\bIgnored\b` +
		`|operator has configured|this server does not know|(as in|see) [A-Z]\w+\.\w+|[A-Z]{3,}, [A-Z]{3,}`)
	sizes   = regexp.MustCompile(`(^|_)(size|length|bytes|offset)(_|$)`)
	saysSet = regexp.MustCompile(`(?i)\b(unset|empty|absent|always set|exactly one|at least one|set (if|in|only))\b`)
)

// TestFieldComments checks that the comment of each field of a request says what unset means, its limits and its unit, and
// that the comment of a field of a response says when it is unset.
func TestFieldComments(t *testing.T) {
	t.Parallel()
	for _, path := range descriptors {
		for _, fault := range fieldFaults(t, read(t, path)) {
			t.Error(fault)
		}
	}
}

// TestIncompleteComments checks what is missed in comments of real fields.
func TestIncompleteComments(t *testing.T) {
	t.Parallel()
	files, err := protodesc.NewFiles(read(t, descriptors[0]))
	if err != nil {
		t.Fatal(err)
	}
	const unset, set = "what unset means, or Required", "when it is unset or empty, or Always set"
	for _, row := range []struct {
		check          func(protoreflect.FieldDescriptor, string) []string
		field, comment string
		want           []string
	}{
		{missingInRequest, "FetchRequest.body", "Request body.", []string{unset, "the maximum length"}},
		{missingInRequest, "FetchRequest.body", "Request body (RFC 9110). Empty means none.", []string{"the maximum length"}},
		{missingInRequest, "FetchRequest.body", "Request body, at most 1 MiB. Empty means none.", nil},
		{missingInRequest, "FetchRequest.auth_provider", "Name of a provider. Empty means none.", []string{"the maximum length"}},
		{missingInRequest, "FetchRequest.auth_provider", "Name of a provider that the operator has configured. Empty means none.", nil},
		{missingInRequest, "FetchRequest.headers", "Headers. Empty means none.", []string{"the maximum number"}},
		{missingInRequest, "FetchRequest.headers", "At most 64 headers. Empty means none.", nil},
		{missingInRequest, "RedirectPolicy.follow", "Whether redirects are followed.", []string{unset}},
		{missingInRequest, "RetryPolicy.max_attempts", "Maximum number of attempts. Unset means the profile's.", []string{"the range"}},
		{missingInRequest, "RetryPolicy.jitter_seed", "Any number. Unset means a new one.", nil},
		{missingInRequest, "RetryPolicy.max_delay", "Maximum backoff, 0 to 5. Unset means 2 s.", nil},
		{missingInRequest, "RetryPolicy.max_delay", "Maximum backoff, 0 to 5. Unset means the profile's.", []string{"the range, with its unit"}},
		{missingInRequest, "BodyPolicy.inline", "Complete, in the outcome.", nil}, // the comment of the oneof says what unset means
		{missingInRequest, "HttpResponse.content_length", "Value of Content-Length, 0 or more. Unset if it is absent.", []string{"the unit"}},
		{missingInResponse, "HttpResponse.content_length", "Value of Content-Length. Unset if it is absent.", []string{"the unit"}},
		{missingInResponse, "FetchOutcome.response", "Last response.", []string{set}},
		{missingInResponse, "FetchOutcome.response", "Last response. Unset if there was none.", nil},
		{missingInResponse, "FetchOutcome.fetch_id", "Identifies the fetch.", []string{set}},
		{missingInResponse, "FetchOutcome.hops", "All hops.", []string{set}},
		{missingInResponse, "FetchOutcome.attempt_count", "Number of attempts.", nil},
	} {
		d, err := files.FindDescriptorByName(protoreflect.FullName("fetchd.v1." + row.field))
		if err != nil {
			t.Fatal(err)
		}
		f, _ := d.(protoreflect.FieldDescriptor)
		if got := row.check(f, row.comment); !slices.Equal(got, row.want) {
			t.Errorf("%s with %q: %q is missing, want %q", row.field, row.comment, got, row.want)
		}
	}
}

func read(t *testing.T, path string) *descriptorpb.FileDescriptorSet {
	t.Helper()
	raw, err := os.ReadFile(filepath.Join("..", "..", path))
	if err != nil {
		t.Fatal(err)
	}
	set := new(descriptorpb.FileDescriptorSet)
	if err := proto.Unmarshal(raw, set); err != nil {
		t.Fatal(err)
	}
	return set
}

// fieldFaults returns what the comments of a contract do not say.
func fieldFaults(t *testing.T, set *descriptorpb.FileDescriptorSet) (faults []string) {
	t.Helper()
	files, err := protodesc.NewFiles(set)
	if err != nil {
		t.Fatal(err)
	}
	files.RangeFiles(func(file protoreflect.FileDescriptor) bool {
		if strings.HasPrefix(string(file.Package()), "google.") {
			return true
		}
		comment := func(d protoreflect.Descriptor) string {
			return strings.Join(strings.Fields(file.SourceLocations().ByDescriptor(d).LeadingComments), " ")
		}
		requests := make(map[protoreflect.FullName]bool)
		for service := range file.Services().Len() {
			for i := range file.Services().Get(service).Methods().Len() {
				reach(requests, file.Services().Get(service).Methods().Get(i).Input())
			}
		}
		for m := range file.Messages().Len() {
			message := file.Messages().Get(m)
			for i := range message.Fields().Len() {
				f := message.Fields().Get(i)
				missing := missingInResponse(f, comment(f))
				if requests[message.FullName()] {
					missing = missingInRequest(f, comment(f))
				}
				for _, what := range missing {
					faults = append(faults, fmt.Sprintf("%s: the comment does not say %s", f.FullName(), what))
				}
			}
			for i := range message.Oneofs().Len() {
				if o := message.Oneofs().Get(i); !o.IsSynthetic() && !saysSet.MatchString(comment(o)) && !saysUnset.MatchString(comment(o)) {
					faults = append(faults, fmt.Sprintf("%s: the comment does not say what unset means", o.FullName()))
				}
			}
		}
		return true
	})
	slices.Sort(faults)
	return faults
}

// reach adds a message and those of its fields.
func reach(found map[protoreflect.FullName]bool, m protoreflect.MessageDescriptor) {
	if found[m.FullName()] {
		return
	}
	found[m.FullName()] = true
	for i := range m.Fields().Len() {
		if child := m.Fields().Get(i).Message(); child != nil {
			reach(found, child)
		}
	}
}

func missingInRequest(f protoreflect.FieldDescriptor, comment string) (missing []string) {
	limits := notLimits.ReplaceAllString(comment, "")
	need := func(pattern *regexp.Regexp, text, what string) {
		if !pattern.MatchString(text) {
			missing = append(missing, what)
		}
	}
	if o := f.ContainingOneof(); o == nil || o.IsSynthetic() {
		need(saysUnset, comment, "what unset means, or Required")
	}
	switch {
	case f.IsList(), f.IsMap():
		need(saysCount, limits, "the maximum number")
	case isDuration(f):
		need(saysTime, limits, "the range, with its unit")
	case f.Kind() == protoreflect.StringKind, f.Kind() == protoreflect.BytesKind:
		need(saysCount, limits, "the maximum length")
	case isNumber(f):
		need(saysRange, limits, "the range")
	}
	return append(missing, missingUnit(f, comment)...)
}

func missingInResponse(f protoreflect.FieldDescriptor, comment string) []string {
	scalar := isNumber(f) || f.Kind() == protoreflect.BoolKind || f.Kind() == protoreflect.EnumKind // zero is a value like any other
	o := f.ContainingOneof()
	if (o == nil || o.IsSynthetic()) && (f.IsList() || !scalar || f.HasOptionalKeyword()) && !saysSet.MatchString(comment) {
		return append(missingUnit(f, comment), "when it is unset or empty, or Always set")
	}
	return missingUnit(f, comment)
}

// missingUnit returns a fault if a number is a size without a unit. The unit of a time is that of Duration or Timestamp.
func missingUnit(f protoreflect.FieldDescriptor, comment string) []string {
	if isNumber(f) && sizes.MatchString(string(f.Name())) && !strings.HasSuffix(string(f.Name()), "_bytes") && !saysSize.MatchString(comment) {
		return []string{"the unit"}
	}
	return nil
}

func isDuration(f protoreflect.FieldDescriptor) bool {
	return f.Message() != nil && f.Message().FullName() == "google.protobuf.Duration"
}

func isNumber(f protoreflect.FieldDescriptor) bool {
	switch f.Kind() {
	case protoreflect.BoolKind, protoreflect.EnumKind, protoreflect.StringKind, protoreflect.BytesKind, protoreflect.MessageKind, protoreflect.GroupKind:
		return false
	}
	return true
}
