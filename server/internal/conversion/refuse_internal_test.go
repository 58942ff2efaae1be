package conversion

import (
	"math"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/timestamppb"

	pb "fetchd/gen/fetchd/v1"
	"fetchd/stores"
)

// marker is in every header value, URL and body of the refused requests, and must not come back.
const marker = "s3cr3t-m4rk3r"

func seconds(s float64) *durationpb.Duration {
	return durationpb.New(time.Duration(s * float64(time.Second)))
}

func repeated(n int) string { return strings.Repeat("x", n) }

// convertDefault converts a request within the default limits of a service.
func convertDefault(in *pb.FetchRequest, prefix string, mode Mode) (Prepared, error) {
	return Convert(in, prefix, mode, &Limits{MaxTotalTimeout: 15 * time.Minute, MaxBodyBytes: 1 << 40}, &Configured{Stores: new(stores.Set)})
}

// wantViolations checks that an error is INVALID_ARGUMENT with exactly these field paths and
// without the marker.
func wantViolations(t *testing.T, err error, prefix string, want []string) {
	t.Helper()
	st := status.Convert(err)
	if st.Code() != codes.InvalidArgument {
		t.Fatalf("status %s (%v), want InvalidArgument for %q", st.Code(), err, want)
	}
	var got []string
	for _, d := range st.Details() {
		bad, ok := d.(*errdetails.BadRequest)
		if !ok {
			t.Errorf("detail %T, want only a BadRequest", d)
			continue
		}
		for _, v := range bad.GetFieldViolations() {
			got = append(got, strings.TrimPrefix(v.GetField(), prefix))
			if v.GetDescription() == "" || !strings.HasPrefix(v.GetField(), prefix) {
				t.Errorf("field %s: %q, want a description and the prefix %q", v.GetField(), v.GetDescription(), prefix)
			}
		}
	}
	slices.Sort(got)
	if diff := cmp.Diff(slices.Sorted(slices.Values(want)), got); diff != "" {
		t.Errorf("fields of %v (-want +got)\n%s", err, diff)
	}
	if strings.Contains(st.Proto().String(), marker) {
		t.Errorf("the status contains %q: %v", marker, st)
	}
}

// TestRefuses converts a request with every fault, and checks that each is named.
func TestRefuses(t *testing.T) {
	for _, row := range slices.Concat(badURLs(), badMethods(), badHeaders(), badDurations(), badRetries(), badConditions(), badRest()) {
		t.Run(row.name, func(t *testing.T) {
			in := &pb.FetchRequest{Url: "http://origin.example/?" + marker, Headers: []*pb.Header{{Name: "Authorization", Value: marker}}}
			row.change(in)
			_, err := convertDefault(in, "", FetchMode)
			wantViolations(t, err, "", row.want)
			_, err = convertDefault(in, "request.", ManyMode)
			wantViolations(t, err, "request.", row.want)
		})
	}
}

// TestRefusesResumePoint converts invalid resume points of a streamed GET.
func TestRefusesResumePoint(t *testing.T) {
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
			_, err := convertDefault(&pb.FetchRequest{Url: "http://origin.example/", BodyPolicy: streamed(&pb.StreamDelivery{ResumePoint: row.point})}, "", FetchMode)
			wantViolations(t, err, "body_policy.stream.resume_point.", row.want)
		})
	}
}

// TestAcceptsLimits converts the largest value that each limit allows.
func TestAcceptsLimits(t *testing.T) {
	padded := func(in *pb.FetchRequest, n int) { in.Url += "?" + repeated(n-len(in.Url)-1) }
	rows := []refused{
		{"URL of 8 KiB", func(in *pb.FetchRequest) { padded(in, 8<<10) }, nil},
		{"64 headers", func(in *pb.FetchRequest) { in.Headers = slices.Repeat([]*pb.Header{{Name: "X-A"}}, 64) }, nil},
		{"headers of 32 KiB", header(&pb.Header{Name: "X-A", Value: repeated(32<<10 - 3)}), nil},
		{"raw value", header(&pb.Header{Name: "X-A", RawValue: []byte("caf\xe9\t")}), nil},
		{"body of 1 MiB", func(in *pb.FetchRequest) { in.Method, in.Body = "PUT", make([]byte, 1<<20) }, nil},
		{"body with DELETE", func(in *pb.FetchRequest) { in.Method, in.Body = "DELETE", []byte("x") }, nil},
		{"1 attempt", retry(&pb.RetryPolicy{MaxAttempts: new(int32(1))}), nil},
		{"11 attempts", retry(&pb.RetryPolicy{MaxAttempts: new(int32(11))}), nil},
		{"multiplier 1", retry(&pb.RetryPolicy{Multiplier: new(1.0)}), nil},
		{"multiplier 10", retry(&pb.RetryPolicy{Multiplier: new(10.0)}), nil},
		{"base equal to max", retry(&pb.RetryPolicy{BaseDelay: seconds(300), MaxDelay: seconds(300)}), nil},
		{"no delays", retry(&pb.RetryPolicy{BaseDelay: seconds(0), MaxDelay: seconds(0), MaxJitter: seconds(0), MaxRetryAfter: seconds(0)}), nil},
		{"key of 256 bytes", retry(&pb.RetryPolicy{IdempotencyKey: repeated(256), AllowNonIdempotent: true}), nil},
		{"key of the first and the last character", retry(&pb.RetryPolicy{IdempotencyKey: "!~"}), nil},
		{"additional statuses", retry(&pb.RetryPolicy{AdditionalStatusCodes: []int32{402, 405, 408, 425, 429, 499}}), nil},
		{"excluded statuses", retry(&pb.RetryPolicy{ExcludedStatusCodes: []int32{408, 429, 500, 599}}), nil},
		{"0 redirects", func(in *pb.FetchRequest) { in.RedirectPolicy = &pb.RedirectPolicy{MaxRedirects: new(int32(0))} }, nil},
		{"20 redirects", func(in *pb.FetchRequest) { in.RedirectPolicy = &pb.RedirectPolicy{MaxRedirects: new(int32(20))} }, nil},
		{"16 labels of 256 bytes", func(in *pb.FetchRequest) { in.Labels = labels(16, 256, 256) }, nil},
		{"16 entity tags of 1 KiB", condition(&pb.Precondition{Etags: slices.Repeat([]string{`W/"` + repeated(1022) + `"`}, 16)}), nil},
		{"empty entity tag", condition(&pb.Precondition{Etags: []string{`""`}}), nil},
		{"first time", condition(&pb.Precondition{LastModifiedTime: &timestamppb.Timestamp{Seconds: -62135596800}}), nil},
		{"64 media types", func(in *pb.FetchRequest) {
			in.ContentPolicy = &pb.ContentPolicy{AcceptedMediaTypes: slices.Repeat([]string{"TEXT/*", "*/*"}, 32)}
		}, nil},
		{"sizes of 0", func(in *pb.FetchRequest) {
			in.BodyPolicy = streamed(&pb.StreamDelivery{MaxHoldBackBytes: new(int64(0))})
			in.BodyPolicy.MaxSizeBytes, in.BodyPolicy.MaxErrorBodyBytes = new(int64(0)), new(int32(0))
		}, nil},
		{"largest sizes", func(in *pb.FetchRequest) {
			in.BodyPolicy = streamed(&pb.StreamDelivery{MaxHoldBackBytes: new(int64(16 << 20))})
			in.BodyPolicy.MaxSizeBytes, in.BodyPolicy.MaxErrorBodyBytes = new(int64(1<<40)), new(int32(64<<10))
		}, nil},
		{"empty body known", func(in *pb.FetchRequest) {
			in.Integrity = &pb.Integrity{SizeBytes: new(int64(0)), Sha256: "E3B0C44298FC1C149AFBF4C8996FB92427AE41E4649B934CA495991B7852B855"}
		}, nil},
		{"empty policies", func(in *pb.FetchRequest) {
			in.RedirectPolicy, in.RetryPolicy, in.TimeoutPolicy, in.BodyPolicy = new(pb.RedirectPolicy), new(pb.RetryPolicy), new(pb.TimeoutPolicy), new(pb.BodyPolicy)
			in.Precondition, in.Integrity, in.ContentPolicy = new(pb.Precondition), new(pb.Integrity), new(pb.ContentPolicy)
		}, nil},
	}
	for _, f := range durationFields {
		most := f.most
		if most == 0 {
			most = 15 * time.Minute
		}
		rows = append(rows,
			refused{f.path + " of the longest", withDuration(f.path, durationpb.New(most)), nil},
			refused{f.path + " of the shortest", withDuration(f.path, durationpb.New(1)), nil})
	}
	for _, row := range rows {
		t.Run(row.name, func(t *testing.T) {
			in := &pb.FetchRequest{Url: "http://origin.example/"}
			row.change(in)
			for _, mode := range []Mode{FetchMode, ManyMode} {
				out, err := convertDefault(in, "", mode)
				if err != nil {
					t.Fatalf("Convert = %v, want OK", err)
				}
				if mode == FetchMode && len(out.Clamped) != 0 {
					t.Errorf("clamped %q, want none", out.Clamped)
				}
			}
		})
	}
}

// refused is a request with one fault, and the field paths that must be reported.
type refused struct {
	name   string
	change func(*pb.FetchRequest)
	want   []string
}

func badURLs() []refused {
	var rows []refused
	for _, row := range []struct{ name, url string }{
		{"missing", ""},
		{"ftp", "ftp://origin.example/" + marker},
		{"over 8 KiB once encoded", "http://origin.example/?" + marker + strings.Repeat("é", 4000)},
		{"zone", "http://[fe80::1%25" + marker + "]/"},
		{"user and password", "http://user:" + marker + "@origin.example/"},
		{"newline", "http://origin.example/\n" + marker},
	} {
		rows = append(rows, refused{"URL " + row.name, func(in *pb.FetchRequest) { in.Url = row.url }, []string{"url"}})
	}
	return rows
}

func badMethods() []refused {
	var rows []refused
	for _, method := range []string{"get", "Get", "TRACE", "CONNECT", "PROPFIND", "GET ", " GET", "GET\r\nX: y", "\x00"} {
		rows = append(rows, refused{"method " + method, func(in *pb.FetchRequest) { in.Method = method }, []string{"method"}})
	}
	for _, method := range []string{"", "GET", "HEAD", "OPTIONS"} {
		rows = append(rows, refused{"body with method " + method, func(in *pb.FetchRequest) {
			in.Method, in.Body = method, []byte(marker)
		}, []string{"body"}})
	}
	for _, method := range []string{"POST", "PUT", "PATCH", "DELETE"} {
		rows = append(rows, refused{"body over 1 MiB with " + method, func(in *pb.FetchRequest) {
			in.Method, in.Body = method, append(make([]byte, 1<<20), marker...)
		}, []string{"body"}})
	}
	return rows
}

// header adds a line after the header line that every request has.
func header(h *pb.Header) func(*pb.FetchRequest) {
	return func(in *pb.FetchRequest) { in.Headers = append(in.Headers, h) }
}

func badHeaders() []refused {
	var rows []refused
	for _, name := range []string{"Connection", "content-length", "Expect", "Forwarded", "host", "HTTP2-Settings", "Idempotency-Key",
		"idempotency-key", "Keep-Alive", "Te", "Trailer", "transfer-encoding", "Upgrade", "Via",
		"Proxy-Authorization", "proxy-connection", "Sec-Fetch-Site", "X-Forwarded-For", "Metadata", "metadata-flavor",
		"X-aws-ec2-metadata-token", "X-aws-ec2-metadata-token-ttl-seconds", "X-Google-Metadata-Request", "X-aliyun-ecs-metadata-token", "metadata-token"} {
		rows = append(rows, refused{"header " + name, header(&pb.Header{Name: name, Value: marker}), []string{"headers[1].name"}})
	}
	for _, row := range []struct{ name, header string }{
		{"without a name", ""},
		{"name that is a whole line", "Authorization: Bearer " + marker},
		{"name that is not ASCII", "X-É"},
		{"name with an underscore", "X_Forwarded_For"},
	} {
		rows = append(rows, refused{"header " + row.name, header(&pb.Header{Name: row.header, Value: marker}), []string{"headers[1].name"}})
	}
	for _, row := range []struct{ name, value string }{{"CR", "\r"}, {"LF", "\n"}, {"NUL", "\x00"}, {"DEL", "\x7f"}, {"a second line", "\r\nX: y"}} {
		rows = append(rows,
			refused{"value with " + row.name, header(&pb.Header{Name: "X-A", Value: marker + row.value}), []string{"headers[1].value"}},
			refused{"raw value with " + row.name, header(&pb.Header{Name: "X-A", RawValue: []byte(marker + "\xff" + row.value)}), []string{"headers[1].raw_value"}})
	}
	many := func(n, size int) func(*pb.FetchRequest) {
		return func(in *pb.FetchRequest) {
			for len(in.Headers) < n {
				in.Headers = append(in.Headers, &pb.Header{Name: "X-A", Value: marker + repeated(size)})
			}
		}
	}
	return append(rows,
		refused{"value and raw value", header(&pb.Header{Name: "X-A", Value: marker, RawValue: []byte(marker)}), []string{"headers[1]"}},
		refused{"65 headers", many(65, 0), []string{"headers"}},
		refused{"65 headers and a condition", func(in *pb.FetchRequest) {
			many(65, 0)(in)
			in.Precondition = &pb.Precondition{Etags: []string{`"a"`}, LastModifiedTime: new(timestamppb.Timestamp)}
		}, []string{"headers"}},
		refused{"headers over 32 KiB", many(4, 11<<10), []string{"headers"}},
		refused{"raw values over 32 KiB", header(&pb.Header{Name: "X-A", RawValue: []byte(marker + repeated(32<<10))}), []string{"headers"}},
	)
}

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
		add("whose signs differ", &durationpb.Duration{Seconds: 1, Nanos: -1})
		add("with a whole second of nanos", &durationpb.Duration{Nanos: 1e9})
		add("over 10,000 years", &durationpb.Duration{Seconds: 315_576_000_001})
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
		{"multiplier just under 1", "multiplier", &pb.RetryPolicy{Multiplier: new(math.Nextafter(1, 0))}},
		{"multiplier just over 10", "multiplier", &pb.RetryPolicy{Multiplier: new(math.Nextafter(10, 11))}},
		{"multiplier NaN", "multiplier", &pb.RetryPolicy{Multiplier: new(math.NaN())}},
		{"base over max", "base_delay", &pb.RetryPolicy{BaseDelay: seconds(2), MaxDelay: seconds(1)}},
		{"base over the profile's max", "base_delay", &pb.RetryPolicy{BaseDelay: seconds(3)}},
		{"unknown profile", "profile", &pb.RetryPolicy{Profile: 99}},
		{"negative profile", "profile", &pb.RetryPolicy{Profile: -1}},
		{"allowed without a key", "allow_non_idempotent", &pb.RetryPolicy{AllowNonIdempotent: true}},
		{"key of 257 bytes", "idempotency_key", &pb.RetryPolicy{IdempotencyKey: marker + repeated(257-len(marker))}},
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
		m[strconv.Itoa(i)+repeated(max(name-len(strconv.Itoa(i)), 0))] = repeated(value)
	}
	return m
}

func badRest() []refused {
	content := func(types ...string) func(*pb.FetchRequest) {
		return func(in *pb.FetchRequest) { in.ContentPolicy = &pb.ContentPolicy{AcceptedMediaTypes: types} }
	}
	none := &pb.BodyPolicy{Delivery: &pb.BodyPolicy_None{}}
	text := func(body *pb.BodyPolicy, p *pb.TextPolicy) func(*pb.FetchRequest) {
		return func(in *pb.FetchRequest) { in.BodyPolicy, in.TextPolicy = body, p }
	}
	integrity := func(p *pb.Integrity) func(*pb.FetchRequest) {
		return func(in *pb.FetchRequest) { in.Integrity = p }
	}
	rows := []refused{
		{"unknown text content", text(&pb.BodyPolicy{}, &pb.TextPolicy{Content: 99}), []string{"text_policy.content"}},
		{"text streamed", text(streamed(new(pb.StreamDelivery)), new(pb.TextPolicy)), []string{"text_policy"}},
		{"text stored", text(&pb.BodyPolicy{Delivery: &pb.BodyPolicy_Store{Store: &pb.StoreDelivery{Store: "x"}}}, new(pb.TextPolicy)), []string{"text_policy"}},
		{"text digested", text(&pb.BodyPolicy{Delivery: &pb.BodyPolicy_Digest{}}, new(pb.TextPolicy)), []string{"text_policy"}},
		{"text of no body", text(none, new(pb.TextPolicy)), []string{"text_policy"}},
		{"text of the rest of a body", text(&pb.BodyPolicy{Delivery: &pb.BodyPolicy_Auto{Auto: &pb.StreamDelivery{ResumePoint: &pb.ResumePoint{OffsetBytes: 1, Validator: `"a"`}}}}, new(pb.TextPolicy)), []string{"text_policy"}},
		{"text as sent", text(&pb.BodyPolicy{KeepEncoding: true}, new(pb.TextPolicy)), []string{"text_policy"}},
		{"text in a coding", func(in *pb.FetchRequest) {
			in.TextPolicy, in.Headers = new(pb.TextPolicy), []*pb.Header{{Name: "Accept-Encoding", Value: "gzip"}}
		}, []string{"text_policy"}},
		{"text of a range", func(in *pb.FetchRequest) {
			in.TextPolicy, in.Headers = new(pb.TextPolicy), []*pb.Header{{Name: "Range", Value: "bytes=0-9"}}
		}, []string{"text_policy"}},
		{"text of HEAD", func(in *pb.FetchRequest) { in.TextPolicy, in.Method = new(pb.TextPolicy), "HEAD" }, []string{"text_policy"}},
		{"-1 redirects", func(in *pb.FetchRequest) { in.RedirectPolicy = &pb.RedirectPolicy{MaxRedirects: new(int32(-1))} }, []string{"redirect_policy.max_redirects"}},
		{"21 redirects", func(in *pb.FetchRequest) { in.RedirectPolicy = &pb.RedirectPolicy{MaxRedirects: new(int32(21))} }, []string{"redirect_policy.max_redirects"}},
		{"unknown scope", func(in *pb.FetchRequest) { in.RedirectPolicy = &pb.RedirectPolicy{Scope: 99} }, []string{"redirect_policy.scope"}},
		{"unknown oversize action", body(&pb.BodyPolicy{OversizeAction: 99}), []string{"body_policy.oversize_action"}},
		{"unknown recovery", body(streamed(&pb.StreamDelivery{Recovery: 99})), []string{"body_policy.stream.recovery"}},
		{"negative size", body(&pb.BodyPolicy{MaxSizeBytes: new(int64(-1))}), []string{"body_policy.max_size_bytes"}},
		{"negative hold-back", body(streamed(&pb.StreamDelivery{MaxHoldBackBytes: new(int64(-1))})), []string{"body_policy.stream.max_hold_back_bytes"}},
		{"negative error body", body(&pb.BodyPolicy{MaxErrorBodyBytes: new(int32(-1))}), []string{"body_policy.max_error_body_bytes"}},
		{"error body over 64 KiB", body(&pb.BodyPolicy{MaxErrorBodyBytes: new(int32(64<<10 + 1))}), []string{"body_policy.max_error_body_bytes"}},
		{"resume point of a PUT", func(in *pb.FetchRequest) {
			in.Method, in.BodyPolicy = "PUT", streamed(&pb.StreamDelivery{ResumePoint: &pb.ResumePoint{OffsetBytes: 1, Validator: `"a"`}})
		}, []string{"body_policy.stream.resume_point"}},
		{"resume point with a range", func(in *pb.FetchRequest) {
			in.Headers, in.BodyPolicy = []*pb.Header{{Name: "Range", Value: "bytes=0-"}}, streamed(&pb.StreamDelivery{ResumePoint: &pb.ResumePoint{OffsetBytes: 1, Validator: `"a"`}})
		}, []string{"body_policy.stream.resume_point"}},
		{"resume point with a condition", func(in *pb.FetchRequest) {
			in.Precondition, in.BodyPolicy = &pb.Precondition{Etags: []string{`"b"`}}, streamed(&pb.StreamDelivery{ResumePoint: &pb.ResumePoint{OffsetBytes: 1, Validator: `"a"`}})
		}, []string{"body_policy.stream.resume_point"}},
		{"resume point with a digest", func(in *pb.FetchRequest) {
			in.Integrity, in.BodyPolicy = &pb.Integrity{Sha256: strings.Repeat("a", 64)}, streamed(&pb.StreamDelivery{ResumePoint: &pb.ResumePoint{OffsetBytes: 1, Validator: `"a"`}})
		}, []string{"body_policy.stream.resume_point"}},
		{"resume point with a charset", func(in *pb.FetchRequest) {
			in.ContentPolicy, in.BodyPolicy = &pb.ContentPolicy{RequireValidCharset: true}, streamed(&pb.StreamDelivery{ResumePoint: &pb.ResumePoint{OffsetBytes: 1, Validator: `"a"`}})
		}, []string{"body_policy.stream.resume_point"}},
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

// streamed is the delivery stream.
func streamed(d *pb.StreamDelivery) *pb.BodyPolicy {
	return &pb.BodyPolicy{Delivery: &pb.BodyPolicy_Stream{Stream: d}}
}

// condition sets a precondition.
func condition(p *pb.Precondition) func(*pb.FetchRequest) {
	return func(in *pb.FetchRequest) { in.Precondition = p }
}

func badConditions() []refused {
	var rows []refused
	for _, bad := range []string{"", "abc", `"`, `"abc`, `abc"`, `W/abc`, `w/"abc"`, `"a"b"`, `"a b"`, "\"a\n\"", "\"a\x7f\"", `"a", "b"`, "*", `"` + repeated(1023) + `"`} {
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
		refused{"invalid time", condition(&pb.Precondition{LastModifiedTime: &timestamppb.Timestamp{Nanos: -1}}), []string{"precondition.last_modified_time"}},
		refused{"time out of range", condition(&pb.Precondition{LastModifiedTime: &timestamppb.Timestamp{Seconds: math.MaxInt64}}), []string{"precondition.last_modified_time"}},
	)
}
