package webapi

import (
	"fmt"
	"math"
	"net/http"
	"slices"
	"strconv"
	"time"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"fetchd/internal/badrequest"
	"fetchd/internal/jsontext"
)

// webCodes maps gRPC codes to HTTP statuses, as google.rpc.Code documents them.
var webCodes = map[codes.Code]int{
	codes.Canceled: 499, codes.InvalidArgument: http.StatusBadRequest, codes.DeadlineExceeded: http.StatusGatewayTimeout,
	codes.NotFound: http.StatusNotFound, codes.PermissionDenied: http.StatusForbidden, codes.Unauthenticated: http.StatusUnauthorized,
	codes.ResourceExhausted: http.StatusTooManyRequests, codes.FailedPrecondition: http.StatusBadRequest, codes.Aborted: http.StatusConflict,
	codes.Unimplemented: http.StatusNotImplemented, codes.Unavailable: http.StatusServiceUnavailable,
}

// isTooLarge reports whether a request was refused because of its size.
func isTooLarge(st *status.Status) bool {
	return slices.ContainsFunc(badrequest.Of(st), func(v *errdetails.BadRequest_FieldViolation) bool { return v.GetReason() == badrequest.TooLarge })
}

// WriteStatus sends a google.rpc.Status as the answer, with the HTTP status of its code.
func WriteStatus(rw http.ResponseWriter, st *status.Status) {
	code, known := webCodes[st.Code()]
	switch {
	case !known:
		code = http.StatusInternalServerError
	case isTooLarge(st):
		code = http.StatusRequestEntityTooLarge
	}
	SendStatus(rw, code, st)
}

// WriteLastLine sends a google.rpc.Status as the last line of an answer that has started.
func WriteLastLine(rw http.ResponseWriter, st *status.Status) {
	text, err := jsontext.MarshalMessage(st.Proto())
	if err != nil {
		return // a detail of an unknown type: the answer ends without a status
	}
	_ = http.NewResponseController(rw).SetWriteDeadline(time.Now().Add(time.Second)) // if it is not supported, other limits apply
	_, _ = fmt.Fprintf(rw, "{\"error\":%s}\n", text)                                 // the caller may be gone
}

// retryAfter returns the seconds after which a refused call should be repeated: what its google.rpc.RetryInfo says,
// and at least 1.
func retryAfter(st *status.Status) int {
	for _, detail := range st.Details() {
		if info, ok := detail.(*errdetails.RetryInfo); ok {
			return max(int(math.Ceil(info.GetRetryDelay().AsDuration().Seconds())), 1)
		}
	}
	return 1
}

// SendStatus sends a google.rpc.Status as the answer, with an HTTP status.
func SendStatus(rw http.ResponseWriter, code int, st *status.Status) {
	header := rw.Header()
	header.Set("Content-Type", "application/json")
	header.Set("X-Content-Type-Options", "nosniff")
	switch st.Code() {
	case codes.ResourceExhausted, codes.Unavailable:
		header.Set("Retry-After", strconv.Itoa(retryAfter(st)))
	case codes.Unauthenticated:
		header.Set("WWW-Authenticate", "Bearer")
	}
	rw.WriteHeader(code)
	text, err := jsontext.MarshalMessage(st.Proto())
	if err != nil {
		text = []byte(`{"code":13,"message":"internal error"}`)
	}
	_, _ = rw.Write(append(text, '\n')) // an error means that the client is gone
}
