package server_test

import (
	"math"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/timestamppb"

	pb "fetchd/gen/fetchd/v1"
)

// durationFields are the fields that are refused when negative. zero reports whether 0 is refused
// too, and most is the maximum.
var durationFields = []struct {
	path string
	zero bool
	most time.Duration // 0: clamped
}{
	{"retry_policy.base_delay", false, 5 * time.Minute},
	{"retry_policy.max_delay", false, 5 * time.Minute},
	{"retry_policy.max_jitter", false, time.Minute},
	{"retry_policy.max_retry_after", false, 15 * time.Minute},
	{"timeout_policy.total_timeout", true, 0},
	{"timeout_policy.attempt_timeout", false, 0},
	{"timeout_policy.connect_timeout", true, 0},
	{"timeout_policy.header_timeout", true, 0},
	{"timeout_policy.idle_timeout", true, 0},
}

// withDuration sets a field of durationFields, and the delays so that they do not contradict it.
func withDuration(path string, d *durationpb.Duration) func(*pb.FetchRequest) {
	return func(in *pb.FetchRequest) {
		in.RetryPolicy = &pb.RetryPolicy{BaseDelay: seconds(0), MaxDelay: seconds(300)}
		in.TimeoutPolicy = new(pb.TimeoutPolicy)
		policy, name, _ := strings.Cut(path, ".")
		m := in.ProtoReflect()
		p := m.Mutable(m.Descriptor().Fields().ByName(protoreflect.Name(policy))).Message()
		p.Set(p.Descriptor().Fields().ByName(protoreflect.Name(name)), protoreflect.ValueOfMessage(d.ProtoReflect()))
	}
}

func badDurations() []refused {
	var rows []refused
	for _, f := range durationFields {
		add := func(name string, d *durationpb.Duration) {
			rows = append(rows, refused{f.path + " " + name, withDuration(f.path, d), []string{f.path}})
		}
		add("negative", durationpb.New(-1))
		add("far below zero", &durationpb.Duration{Seconds: -315_576_000_000})
		add("whose signs differ", &durationpb.Duration{Seconds: 1, Nanos: -1})
		add("whose signs differ the other way", &durationpb.Duration{Seconds: -1, Nanos: 1})
		add("with a whole second of nanos", &durationpb.Duration{Nanos: 1e9})
		add("over 10,000 years", &durationpb.Duration{Seconds: 315_576_000_001})
		add("of the largest number", &durationpb.Duration{Seconds: math.MaxInt64})
		if f.zero {
			add("zero", durationpb.New(0))
		}
		if f.most > 0 {
			add("too long", durationpb.New(f.most+1))
			add("of 10,000 years", &durationpb.Duration{Seconds: 315_576_000_000})
		}
	}
	return rows
}

// retry replaces the retry policy.
func retry(p *pb.RetryPolicy) func(*pb.FetchRequest) {
	return func(in *pb.FetchRequest) { in.RetryPolicy = p }
}

// body replaces the body policy.
func body(p *pb.BodyPolicy) func(*pb.FetchRequest) {
	return func(in *pb.FetchRequest) { in.BodyPolicy = p }
}

func badRetries() []refused {
	var rows []refused
	for _, row := range []struct {
		name, path string
		policy     *pb.RetryPolicy
	}{
		{"0 attempts", "max_attempts", &pb.RetryPolicy{MaxAttempts: new(int32(0))}},
		{"12 attempts", "max_attempts", &pb.RetryPolicy{MaxAttempts: new(int32(12))}},
		{"-1 attempts", "max_attempts", &pb.RetryPolicy{MaxAttempts: new(int32(-1))}},
		{"multiplier 0.5", "multiplier", &pb.RetryPolicy{Multiplier: new(0.5)}},
		{"multiplier just under 1", "multiplier", &pb.RetryPolicy{Multiplier: new(math.Nextafter(1, 0))}},
		{"multiplier 11", "multiplier", &pb.RetryPolicy{Multiplier: new(11.0)}},
		{"multiplier just over 10", "multiplier", &pb.RetryPolicy{Multiplier: new(math.Nextafter(10, 11))}},
		{"multiplier NaN", "multiplier", &pb.RetryPolicy{Multiplier: new(math.NaN())}},
		{"multiplier Inf", "multiplier", &pb.RetryPolicy{Multiplier: new(math.Inf(1))}},
		{"multiplier -Inf", "multiplier", &pb.RetryPolicy{Multiplier: new(math.Inf(-1))}},
		{"base over max", "base_delay", &pb.RetryPolicy{BaseDelay: seconds(2), MaxDelay: seconds(1)}},
		{"base over the profile's max", "base_delay", &pb.RetryPolicy{BaseDelay: seconds(3)}},
		{"unknown profile", "profile", &pb.RetryPolicy{Profile: 99}},
		{"negative profile", "profile", &pb.RetryPolicy{Profile: -1}},
		{"allowed without a key", "allow_non_idempotent", &pb.RetryPolicy{AllowNonIdempotent: true}},
		{"key of 257 bytes", "idempotency_key", &pb.RetryPolicy{IdempotencyKey: marker + repeat(257-len(marker))}},
		{"key with a newline", "idempotency_key", &pb.RetryPolicy{IdempotencyKey: marker + "\n"}},
		{"key with a NUL", "idempotency_key", &pb.RetryPolicy{IdempotencyKey: "\x00" + marker}},
		{"key with a space", "idempotency_key", &pb.RetryPolicy{IdempotencyKey: marker + " b"}},
		{"key that is not ASCII", "idempotency_key", &pb.RetryPolicy{IdempotencyKey: marker + "é"}},
		{"status in both lists", "additional_status_codes[1]", &pb.RetryPolicy{AdditionalStatusCodes: []int32{425, 429}, ExcludedStatusCodes: []int32{503, 429}}},
	} {
		rows = append(rows, refused{row.name, retry(row.policy), []string{"retry_policy." + row.path}})
	}
	for _, s := range []int32{-1, 0, 99, 200, 304, 399, 400, 401, 403, 404, 409, 410, 422, 451, 500, 503, 600} {
		rows = append(rows, refused{"additional status " + strconv.Itoa(int(s)), retry(&pb.RetryPolicy{AdditionalStatusCodes: []int32{425, s}}),
			[]string{"retry_policy.additional_status_codes[1]"}})
	}
	for _, s := range []int32{-1, 0, 200, 304, 400, 401, 404, 407, 409, 428, 430, 499, 600} {
		rows = append(rows, refused{"excluded status " + strconv.Itoa(int(s)), retry(&pb.RetryPolicy{ExcludedStatusCodes: []int32{429, s}}),
			[]string{"retry_policy.excluded_status_codes[1]"}})
	}
	return rows
}

// labels returns n labels with names and values of the given lengths.
func labels(n, name, value int) map[string]string {
	m := make(map[string]string)
	for i := range n {
		m[key(i)+repeat(max(name-len(key(i)), 0))] = repeat(value)
	}
	return m
}

func badRest() []refused {
	content := func(types ...string) func(*pb.FetchRequest) {
		return func(in *pb.FetchRequest) { in.ContentPolicy = &pb.ContentPolicy{AcceptedMediaTypes: types} }
	}
	none := &pb.BodyPolicy{Delivery: pb.BodyDelivery_BODY_DELIVERY_NONE}
	integrity := func(p *pb.Integrity) func(*pb.FetchRequest) {
		return func(in *pb.FetchRequest) { in.Integrity = p }
	}
	rows := []refused{
		{"-1 redirects", func(in *pb.FetchRequest) { in.RedirectPolicy = &pb.RedirectPolicy{MaxRedirects: new(int32(-1))} }, []string{"redirect_policy.max_redirects"}},
		{"21 redirects", func(in *pb.FetchRequest) { in.RedirectPolicy = &pb.RedirectPolicy{MaxRedirects: new(int32(21))} }, []string{"redirect_policy.max_redirects"}},
		{"unknown scope", func(in *pb.FetchRequest) { in.RedirectPolicy = &pb.RedirectPolicy{Scope: 99} }, []string{"redirect_policy.scope"}},
		{"unknown delivery", body(&pb.BodyPolicy{Delivery: 99}), []string{"body_policy.delivery"}},
		{"unknown oversize action", body(&pb.BodyPolicy{OversizeAction: 99}), []string{"body_policy.oversize_action"}},
		{"unknown recovery", body(&pb.BodyPolicy{Recovery: 99}), []string{"body_policy.recovery"}},
		{"negative size", body(&pb.BodyPolicy{MaxSizeBytes: new(int64(-1))}), []string{"body_policy.max_size_bytes"}},
		{"negative hold-back", body(&pb.BodyPolicy{HoldBackBytes: new(int64(-1))}), []string{"body_policy.hold_back_bytes"}},
		{"negative error body", body(&pb.BodyPolicy{ErrorBodyBytes: new(int32(-1))}), []string{"body_policy.error_body_bytes"}},
		{"error body over 64 KiB", body(&pb.BodyPolicy{ErrorBodyBytes: new(int32(64<<10 + 1))}), []string{"body_policy.error_body_bytes"}},
		{"resume point of a digest", body(&pb.BodyPolicy{Delivery: pb.BodyDelivery_BODY_DELIVERY_DIGEST, ResumePoint: &pb.ResumePoint{OffsetBytes: 1, Validator: `"a"`}}), []string{"body_policy.resume_point"}},
		{"resume point of a PUT", func(in *pb.FetchRequest) {
			in.Method, in.BodyPolicy = "PUT", &pb.BodyPolicy{ResumePoint: &pb.ResumePoint{OffsetBytes: 1, Validator: `"a"`}}
		}, []string{"body_policy.resume_point"}},
		{"resume point with a range", func(in *pb.FetchRequest) {
			in.Headers, in.BodyPolicy = []*pb.Header{{Name: "Range", Value: "bytes=0-"}}, &pb.BodyPolicy{ResumePoint: &pb.ResumePoint{OffsetBytes: 1, Validator: `"a"`}}
		}, []string{"body_policy.resume_point"}},
		{"resume point with a condition", func(in *pb.FetchRequest) {
			in.Precondition, in.BodyPolicy = &pb.Precondition{Etags: []string{`"b"`}}, &pb.BodyPolicy{ResumePoint: &pb.ResumePoint{OffsetBytes: 1, Validator: `"a"`}}
		}, []string{"body_policy.resume_point"}},
		{"resume point with a digest", func(in *pb.FetchRequest) {
			in.Integrity, in.BodyPolicy = &pb.Integrity{Sha256: strings.Repeat("a", 64)}, &pb.BodyPolicy{ResumePoint: &pb.ResumePoint{OffsetBytes: 1, Validator: `"a"`}}
		}, []string{"body_policy.resume_point"}},
		{"resume point with a charset", func(in *pb.FetchRequest) {
			in.ContentPolicy, in.BodyPolicy = &pb.ContentPolicy{RequireValidCharset: true}, &pb.BodyPolicy{ResumePoint: &pb.ResumePoint{OffsetBytes: 1, Validator: `"a"`}}
		}, []string{"body_policy.resume_point"}},
		{"unknown event level", func(in *pb.FetchRequest) { in.EventLevel = 99 }, []string{"event_level"}},
		{"unknown cookie mode", func(in *pb.FetchRequest) { in.CookieMode = 99 }, []string{"cookie_mode"}},
		{"unknown auth provider", func(in *pb.FetchRequest) { in.AuthProvider = "nobody" }, []string{"auth_provider"}},
		{"17 labels", func(in *pb.FetchRequest) { in.Labels = labels(17, 0, 0) }, []string{"labels"}},
		{"label name of 257 bytes", func(in *pb.FetchRequest) { in.Labels = labels(1, 257, 0) }, []string{"labels"}},
		{"129 excluded statuses", retry(&pb.RetryPolicy{ExcludedStatusCodes: slices.Repeat([]int32{503}, 129)}), []string{"retry_policy.excluded_status_codes"}},
		{"129 additional statuses", retry(&pb.RetryPolicy{AdditionalStatusCodes: slices.Repeat([]int32{418}, 129)}), []string{"retry_policy.additional_status_codes"}},
		{"label that clears the screen", func(in *pb.FetchRequest) { in.Labels = map[string]string{"job": "\u009b2J"} }, []string{"labels"}},
		{"label that turns the line around", func(in *pb.FetchRequest) { in.Labels = map[string]string{"\u202ejob": "a"} }, []string{"labels"}},
		{"label value of 257 bytes", func(in *pb.FetchRequest) { in.Labels = labels(1, 0, 257) }, []string{"labels"}},
		{"digest too short", integrity(&pb.Integrity{Sha256: strings.Repeat("a", 63)}), []string{"integrity.sha256"}},
		{"digest too long", integrity(&pb.Integrity{Sha256: strings.Repeat("a", 66)}), []string{"integrity.sha256"}},
		{"digest that is not hexadecimal", integrity(&pb.Integrity{Sha256: strings.Repeat("g", 64)}), []string{"integrity.sha256"}},
		{"digest with a prefix", integrity(&pb.Integrity{Sha256: "sha256:" + strings.Repeat("a", 57)}), []string{"integrity.sha256"}},
		{"negative integrity size", integrity(&pb.Integrity{SizeBytes: new(int64(-1))}), []string{"integrity.size_bytes"}},
		{"integrity of a body that is not read", func(in *pb.FetchRequest) {
			in.BodyPolicy, in.Integrity = none, &pb.Integrity{SizeBytes: new(int64(1))}
		}, []string{"integrity"}},
		{"required body that is not read", func(in *pb.FetchRequest) {
			in.BodyPolicy, in.ContentPolicy = none, &pb.ContentPolicy{RequireBody: true}
		}, []string{"content_policy"}},
		{"charset of a body that is not read", func(in *pb.FetchRequest) {
			in.BodyPolicy, in.ContentPolicy = none, &pb.ContentPolicy{RequireValidCharset: true}
		}, []string{"content_policy"}},
		{"65 media types", content(slices.Repeat([]string{"text/html"}, 65)...), []string{"content_policy.accepted_media_types"}},
	}
	for _, bad := range []string{"", "text", "text/", "/html", "text/html; charset=utf-8", "text/html,text/plain", "text html", "text/ht ml", "text/html/x", ";"} {
		rows = append(rows, refused{"media type " + bad, content("text/plain", bad), []string{"content_policy.accepted_media_types[1]"}})
	}
	return rows
}

// condition sets a precondition.
func condition(p *pb.Precondition) func(*pb.FetchRequest) {
	return func(in *pb.FetchRequest) { in.Precondition = p }
}

func badConditions() []refused {
	var rows []refused
	for _, bad := range []string{"", "abc", `"`, `"abc`, `abc"`, `W/abc`, `w/"abc"`, `"a"b"`, `"a b"`, "\"a\n\"", "\"a\x7f\"", `"a", "b"`, "*", `"` + repeat(1023) + `"`} {
		rows = append(rows, refused{"entity tag " + bad[:min(len(bad), 12)], condition(&pb.Precondition{Etags: []string{`"a"`, bad}}), []string{"precondition.etags[1]"}})
	}
	for _, name := range []string{"If-None-Match", "if-none-match", "If-Modified-Since"} {
		rows = append(rows, refused{"condition with " + name, func(in *pb.FetchRequest) {
			header(&pb.Header{Name: name, Value: `"` + marker + `"`})(in)
			in.Precondition = &pb.Precondition{Etags: []string{`"a"`}}
		}, []string{"precondition"}})
	}
	return append(rows,
		refused{"17 entity tags", condition(&pb.Precondition{Etags: slices.Repeat([]string{`"a"`}, 17)}), []string{"precondition.etags"}},
		refused{"invalid time", condition(&pb.Precondition{ModifiedSinceTime: &timestamppb.Timestamp{Nanos: -1}}), []string{"precondition.modified_since_time"}},
		refused{"time out of range", condition(&pb.Precondition{ModifiedSinceTime: &timestamppb.Timestamp{Seconds: math.MaxInt64}}), []string{"precondition.modified_since_time"}},
	)
}

// TestRefusesResumePoint sends invalid resume points of a streamed GET.
func TestRefusesResumePoint(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	for _, row := range []struct {
		name  string
		point *pb.ResumePoint
		want  []string
	}{
		{"without an offset", &pb.ResumePoint{Validator: `"a"`}, []string{"offset_bytes"}},
		{"before the begin", &pb.ResumePoint{OffsetBytes: -1, Validator: `"a"`}, []string{"offset_bytes"}},
		{"without a validator", &pb.ResumePoint{OffsetBytes: 1}, []string{"validator"}},
		{"with a weak validator", &pb.ResumePoint{OffsetBytes: 1, Validator: `W/"a"`}, []string{"validator"}},
		{"with what is no date", &pb.ResumePoint{OffsetBytes: 1, Validator: "yesterday"}, []string{"validator"}},
		{"with nothing", new(pb.ResumePoint), []string{"offset_bytes", "validator"}},
	} {
		t.Run(row.name, func(t *testing.T) {
			r := r.in(t)
			in := r.request("/s/k/200")
			in.BodyPolicy = &pb.BodyPolicy{ResumePoint: row.point}
			for i := range row.want {
				row.want[i] = "body_policy.resume_point." + row.want[i]
			}
			wantViolations(t, r.fetch(t.Context(), in).err, row.want)
		})
	}
}
