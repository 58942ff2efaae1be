package classify_test

import (
	"strings"
	"testing"

	"google.golang.org/protobuf/reflect/protoreflect"

	"fetchd/classify"
	pb "fetchd/gen/fetchd/v1"
)

// enum pairs one of this package's enumerations with the contract's.
type enum struct {
	name   string
	proto  protoreflect.Enum
	prefix string
	// byName maps each name to its number, except the zero value's. The numbers
	// are listed, not counted, so that a moved value fails the test.
	byName map[string]uint8
	// text calls String of a number; nil if the type has no such method.
	text func(uint8) string
	// hereOnly is the name that the contract expresses in another way, and thereOnly that of the zero value here.
	hereOnly, thereOnly string
}

func enums() []enum {
	return []enum{
		{"Class", pb.ErrorClass(0), "ERROR_CLASS_", map[string]uint8{
			"dns_not_found": uint8(classify.DNSNotFound), "dns_failure": uint8(classify.DNSFailure),
			"connect_refused": uint8(classify.ConnectRefused), "connect_timeout": uint8(classify.ConnectTimeout),
			"connect_failure": uint8(classify.ConnectFailure), "connection_reset": uint8(classify.ConnectionReset),
			"tls_handshake": uint8(classify.TLSHandshake), "tls_certificate": uint8(classify.TLSCertificate),
			"response_timeout": uint8(classify.ResponseTimeout), "write_timeout": uint8(classify.WriteTimeout),
			"body_interrupted": uint8(classify.BodyInterrupted), "body_timeout": uint8(classify.BodyTimeout),
			"protocol": uint8(classify.Protocol), "attempt_timeout": uint8(classify.AttemptTimeout),
			"http_server_error": uint8(classify.HTTPServerError), "rate_limited": uint8(classify.RateLimited),
			"auth_required": uint8(classify.AuthRequired), "forbidden": uint8(classify.Forbidden),
			"request_timeout": uint8(classify.RequestTimeout), "http_client_error": uint8(classify.HTTPClientError),
			"unexpected_not_modified": uint8(classify.UnexpectedNotModified),
			"too_many_redirects":      uint8(classify.TooManyRedirects), "redirect_loop": uint8(classify.RedirectLoop),
			"redirect_rejected": uint8(classify.RedirectRejected), "content_type": uint8(classify.ContentType),
			"empty_body": uint8(classify.EmptyBody), "undecodable": uint8(classify.Undecodable),
			"body_too_large": uint8(classify.BodyTooLarge), "integrity": uint8(classify.Integrity),
			"target_blocked": uint8(classify.TargetBlocked), "invalid_request": uint8(classify.InvalidRequest),
			"deadline": uint8(classify.Deadline), "cancelled": uint8(classify.Cancelled),
			"shutdown": uint8(classify.Shutdown), "internal": uint8(classify.Internal),
			"out_of_memory": uint8(classify.OutOfMemory), "store_failure": uint8(classify.StoreFailure),
		}, func(n uint8) string { return classify.Class(n).String() }, "", ""},
		{"FailureType", pb.FailureType(0), "FAILURE_TYPE_", map[string]uint8{
			"transient": uint8(classify.Transient), "permanent": uint8(classify.Permanent),
			"rate_limited": uint8(classify.RateLimit), "needs_auth": uint8(classify.NeedsAuth),
		}, func(n uint8) string { return classify.FailureType(n).String() }, "", ""},
		{"Kind", pb.OutcomeKind(0), "OUTCOME_KIND_", map[string]uint8{
			"success": uint8(classify.Success), "not_modified": uint8(classify.NotModified),
			"redirect": uint8(classify.Redirect), "failed": uint8(classify.Failed),
		}, func(n uint8) string { return classify.Kind(n).String() }, "", ""},
		{"Verdict", pb.StopReason(0), "STOP_REASON_", map[string]uint8{
			"no_failure": uint8(classify.NoFailure), "retry": uint8(classify.Retry), "not_retried": uint8(classify.NotRetried),
			"attempts_exhausted": uint8(classify.AttemptsExhausted), "no_time": uint8(classify.NoTime),
			"retry_after_too_long": uint8(classify.RetryAfterTooLong), "not_idempotent": uint8(classify.NotIdempotent),
			"body_committed": uint8(classify.BodyCommitted), "auth_failed": uint8(classify.AuthFailed),
			"stopped": uint8(classify.Stopped), "deadline": uint8(classify.DeadlinePassed),
		}, func(n uint8) string { return classify.Verdict(n).String() }, "retry", ""},
		{"DelaySource", pb.DelaySource(0), "DELAY_SOURCE_", map[string]uint8{
			"backoff": uint8(classify.FromBackoff), "retry_after": uint8(classify.FromRetryAfter),
			"auth_refresh": uint8(classify.FromAuthRefresh), "new_connection": uint8(classify.FromNewConnection),
		}, func(n uint8) string { return classify.DelaySource(n).String() }, "", ""},
		{"RequestState", pb.RequestState(0), "REQUEST_STATE_", map[string]uint8{
			"not_sent": uint8(classify.NotSent), "not_processed": uint8(classify.NotProcessed), "unknown": uint8(classify.Unknown),
		}, func(n uint8) string { return classify.RequestState(n).String() }, "", ""},
		{"Phase", pb.Phase(0), "PHASE_", map[string]uint8{
			"policy": uint8(classify.PhasePolicy), "resolve": uint8(classify.PhaseResolve),
			"connect": uint8(classify.PhaseConnect), "tls": uint8(classify.PhaseTLS),
			"request": uint8(classify.PhaseRequest), "processing": uint8(classify.PhaseProcessing),
			"transfer": uint8(classify.PhaseTransfer),
		}, func(n uint8) string { return classify.Phase(n).String() }, "", ""},
		{"AuthResult", pb.AuthResult(0), "AUTH_RESULT_", map[string]uint8{
			"refreshed": uint8(classify.Refreshed), "refresh_failed": uint8(classify.RefreshFailed),
			"refused_again": uint8(classify.RefusedAgain), "not_asked": uint8(classify.NotAsked), "challenged": uint8(classify.Challenged),
		}, nil, "", "no_provider"},
		{"Start", pb.RetryStart(0), "RETRY_START_", map[string]uint8{
			"first_url": uint8(classify.FirstURL), "failed_hop": uint8(classify.FailedHop),
		}, nil, "", ""},
		{"Profile", pb.RetryProfile(0), "RETRY_PROFILE_", map[string]uint8{
			"standard": uint8(classify.Standard), "download": uint8(classify.Download),
		}, nil, "", ""},
	}
}

// TestEnums compares every number and name with the contract, in both directions.
func TestEnums(t *testing.T) {
	t.Parallel()
	for _, e := range enums() {
		t.Run(e.name, func(t *testing.T) {
			t.Parallel()
			values := e.proto.Descriptor().Values()
			for name := range e.byName {
				value := values.ByName(protoreflect.Name(e.prefix + strings.ToUpper(name)))
				if known := value != nil; known == (name == e.hereOnly) {
					t.Errorf("%s %s is in the contract: %t", e.name, name, known)
				}
			}
			for i := range values.Len() {
				number := values.Get(i).Number()
				short := strings.ToLower(strings.TrimPrefix(string(values.Get(i).Name()), e.prefix))
				if number == 0 || short == e.thereOnly {
					continue
				}
				if got, ok := e.byName[short]; !ok || protoreflect.EnumNumber(got) != number {
					t.Errorf("%s %s is %d (there: %t), want %d", e.name, short, got, ok, number)
				}
				if e.text == nil {
					continue
				}
				if got := e.text(uint8(number)); got != short {
					t.Errorf("%s(%d).String() = %q, want %q", e.name, number, got, short)
				}
			}
		})
	}
}

// TestStringOfUnknown checks that the zero value and every number that the
// contract does not name have no text.
func TestStringOfUnknown(t *testing.T) {
	t.Parallel()
	for _, e := range enums() {
		if e.text == nil {
			continue
		}
		for n := range 256 {
			known := n != 0 && e.proto.Descriptor().Values().ByNumber(protoreflect.EnumNumber(n)) != nil || e.hereOnly != "" && n == int(e.byName[e.hereOnly])
			if got := e.text(uint8(n)); (got != "") != known {
				t.Errorf("%s(%d).String() = %q, want text: %t", e.name, n, got, known)
			}
		}
	}
}

// TestClasses compares Classes with the contract's list.
func TestClasses(t *testing.T) {
	t.Parallel()
	all := classify.Classes()
	if got, want := len(all), len(pb.ErrorClass_name)-1; got != want {
		t.Fatalf("%d classes, want %d", got, want)
	}
	for i, c := range all {
		if int(c) != i+1 {
			t.Errorf("class %d of the list is %d (%s)", i+1, c, c)
		}
	}
}

// TestFaults checks every class against every set of one class.
func TestFaults(t *testing.T) {
	t.Parallel()
	for _, in := range classify.Classes() {
		set := classify.FaultsOf(in)
		for _, c := range classify.Classes() {
			if got, want := set.Has(c), c == in; got != want {
				t.Errorf("FaultsOf(%s).Has(%s) = %t, want %t", in, c, got, want)
			}
		}
	}
	if all := classify.FaultsOf(classify.Classes()...); !all.Has(classify.DNSNotFound) || !all.Has(classify.Internal) {
		t.Errorf("the set of all classes %b lacks its ends", all)
	}
	for n := range 256 {
		c := classify.Class(n)
		if c.String() == "" && classify.FaultsOf(c) != 0 {
			t.Errorf("FaultsOf(Class(%d)) = %b, want the empty set", n, classify.FaultsOf(c))
		}
	}
}
