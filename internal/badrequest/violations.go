// Package badrequest reports all faults of a request at once, as a google.rpc.BadRequest: each with its
// field, its value and the remedy.
package badrequest

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

// MaxBytes limits the violations. The trailers hold them nearly four times, as text and in
// the details. Some clients accept only 8 KiB of trailers, and grpc-go closes the connection with
// all its calls if they are far longer.
const MaxBytes = 1800

// Violations collects all faults of a request, to report them at once. A description gives the value
// and the remedy. It never contains a header value or a URL.
type Violations struct {
	Prefix string // of each field path
	fields []*errdetails.BadRequest_FieldViolation
	bytes  int // length of fields
	more   int // number of violations left out
}

// TooLarge is the reason of a violation if the request is too large. Over HTTP its status is
// 413.
const TooLarge = "TOO_LARGE"

// Add adds a violation.
func (v *Violations) Add(field, format string, args ...any) {
	if v.bytes >= MaxBytes {
		v.more++
		return
	}
	f := &errdetails.BadRequest_FieldViolation{Field: v.Prefix + field, Description: fmt.Sprintf(format, args...)}
	v.fields, v.bytes = append(v.fields, f), v.bytes+len(f.Field)+len(f.Description)
}

// AddTooLarge adds the violation of a field with n bytes, over its limit.
func (v *Violations) AddTooLarge(field string, n, limit int) {
	v.AddReason(field, TooLarge, "has %d bytes: give at most %d", n, limit)
}

// AddReason adds a violation with a reason for programs.
func (v *Violations) AddReason(field, reason, format string, args ...any) {
	before := len(v.fields)
	v.Add(field, format, args...)
	if len(v.fields) > before {
		v.fields[before].Reason = reason
	}
}

// Of returns the violations that the status of a call has.
func Of(st *status.Status) (all []*errdetails.BadRequest_FieldViolation) {
	for _, d := range st.Details() {
		bad, _ := d.(*errdetails.BadRequest)
		all = append(all, bad.GetFieldViolations()...)
	}
	return all
}

// Reason returns the reason of the first violation of a field, or an empty string.
func Reason(err error, field string) string {
	for _, f := range Of(status.Convert(err)) {
		if f.GetField() == field {
			return f.GetReason()
		}
	}
	return ""
}

// Single returns INVALID_ARGUMENT with one violation.
func Single(f *errdetails.BadRequest_FieldViolation) error {
	v := Violations{fields: []*errdetails.BadRequest_FieldViolation{f}}
	return v.Err()
}

// Indexed returns the path of an entry of a list.
func Indexed(field string, i int) string { return fmt.Sprintf("%s[%d]", field, i) }

// Err returns INVALID_ARGUMENT with a google.rpc.BadRequest, or nil.
func (v *Violations) Err() error { return v.As(codes.InvalidArgument, "invalid request") }

// As returns an error of a code with a text, a google.rpc.BadRequest and other details, or nil if there are no
// violations.
func (v *Violations) As(code codes.Code, text string, details ...protoadapt.MessageV1) error {
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
	st := status.New(code, text+": "+strings.Join(texts, "; "))
	return WithDetails(st, append(details, &errdetails.BadRequest{FieldViolations: v.fields})...)
}

// WithDetails returns a status with details as an error. Details that cannot be encoded are left
// out, because the code and the text are sufficient.
func WithDetails(st *status.Status, details ...protoadapt.MessageV1) error {
	if detailed, err := st.WithDetails(details...); err == nil {
		st = detailed
	}
	return st.Err()
}

// Duration reads a field between low and high. It returns fallback if the field is unset or invalid.
func (v *Violations) Duration(field string, d *durationpb.Duration, fallback, low, high time.Duration) time.Duration {
	if d == nil {
		return fallback
	}
	if d.CheckValid() != nil {
		v.Add(field, "is not a valid duration: seconds and nanos must have the same sign and be in range")
		return fallback
	}
	if got := d.AsDuration(); got >= low && got <= high {
		return got
	}
	if high == 1<<63-1 {
		v.Add(field, "is %s: give a duration that is %s", d.AsDuration(), sign(low))
		return fallback
	}
	v.Add(field, "is %s: give %s to %s", d.AsDuration(), low, high)
	return fallback
}

// Integer reads an optional field between low and high.
func Integer[T int32 | int64](v *Violations, field string, p *T, fallback, low, high T) T {
	if p == nil {
		return fallback
	}
	if *p >= low && *p <= high {
		return *p
	}
	if int64(high) >= 1<<31-1 {
		v.Add(field, "is %d: give %d or more", *p, low)
		return fallback
	}
	v.Add(field, "is %d: give %d to %d", *p, low, high)
	return fallback
}

func sign(low time.Duration) string {
	if low > 0 {
		return "positive"
	}
	return "not negative"
}
