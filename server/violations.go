package server

import (
	"fmt"
	"strings"
	"time"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/protoadapt"
	"google.golang.org/protobuf/types/known/durationpb"
)

// maxViolationBytes bounds what is told. It goes out in the trailers nearly four
// times over, as text and in the details. Clients take as little as 8 KiB of
// trailers, and far past that grpc-go gives up the connection with all its calls.
const maxViolationBytes = 1800

// violations collects what is wrong with a request, so that all of it is told
// at once. Descriptions name the value and the remedy, and hold no header value
// and no URL.
type violations struct {
	prefix string // of every field path
	fields []*errdetails.BadRequest_FieldViolation
	bytes  int // of the fields
	more   int // left out
}

// reasonTooLarge is the reason of a violation that is about the size of the request.
// Over HTTP its status is 413.
const reasonTooLarge = "TOO_LARGE"

// add notes that a field is not usable.
func (v *violations) add(field, format string, args ...any) {
	if v.bytes >= maxViolationBytes {
		v.more++
		return
	}
	f := &errdetails.BadRequest_FieldViolation{Field: v.prefix + field, Description: fmt.Sprintf(format, args...)}
	v.fields, v.bytes = append(v.fields, f), v.bytes+len(f.Field)+len(f.Description)
}

// tooLarge notes that a field has n bytes, more than the most.
func (v *violations) tooLarge(field string, n, most int) {
	before := len(v.fields)
	v.add(field, "has %d bytes: give at most %d", n, most)
	if len(v.fields) > before {
		v.fields[before].Reason = reasonTooLarge
	}
}

// err returns INVALID_ARGUMENT with a google.rpc.BadRequest, or nil.
func (v *violations) err() error {
	if len(v.fields) == 0 {
		return nil
	}
	texts := make([]string, len(v.fields))
	for i, f := range v.fields {
		texts[i] = f.Field + " " + f.Description
	}
	if v.more > 0 {
		texts = append(texts, fmt.Sprintf("and %d more", v.more))
	}
	st := status.New(codes.InvalidArgument, "invalid request: "+strings.Join(texts, "; "))
	return withDetails(st, &errdetails.BadRequest{FieldViolations: v.fields})
}

// errorDomain is the domain of every google.rpc.ErrorInfo of this service.
const errorDomain = "fetchd.v1"

// withDetails returns a status with details as an error. Details that cannot be
// encoded are left out: the code and the text say enough.
func withDetails(st *status.Status, details ...protoadapt.MessageV1) error {
	if detailed, err := st.WithDetails(details...); err == nil {
		st = detailed
	}
	return st.Err()
}

// duration reads a field that lies from low to high. It returns the default
// where the field is unset or not usable.
func (v *violations) duration(field string, d *durationpb.Duration, otherwise, low, high time.Duration) time.Duration {
	if d == nil {
		return otherwise
	}
	if d.CheckValid() != nil {
		v.add(field, "is not a valid duration: seconds and nanos must have one sign and lie in range")
		return otherwise
	}
	if got := d.AsDuration(); got >= low && got <= high {
		return got
	}
	if high == 1<<63-1 {
		v.add(field, "is %s: give a duration that is %s", d.AsDuration(), sign(low))
		return otherwise
	}
	v.add(field, "is %s: give %s to %s", d.AsDuration(), low, high)
	return otherwise
}

// clamped reads a duration of at least low that is cut at high, and notes the
// cut.
func (v *violations) clamped(field string, d *durationpb.Duration, otherwise, low, high time.Duration, cut *[]string) time.Duration {
	got := v.duration(field, d, otherwise, low, 1<<63-1)
	if got > high {
		*cut = append(*cut, field)
		return high
	}
	return got
}

// integer reads an optional field that lies from low to high.
func integer[T int32 | int64](v *violations, field string, p *T, otherwise, low, high T) T {
	if p == nil {
		return otherwise
	}
	if *p >= low && *p <= high {
		return *p
	}
	if int64(high) >= 1<<31-1 {
		v.add(field, "is %d: give %d or more", *p, low)
		return otherwise
	}
	v.add(field, "is %d: give %d to %d", *p, low, high)
	return otherwise
}

func sign(low time.Duration) string {
	if low > 0 {
		return "positive"
	}
	return "not negative"
}

// enum reads an enum field through a table; a value that is not in it is one
// that this server does not know.
func enum[E interface {
	~int32
	fmt.Stringer
}, T comparable](v *violations, field string, value E, known table[E, T]) T {
	got, ok := known.of[value]
	if !ok {
		v.add(field, "is %s, which this server does not know", value)
	}
	return got
}
