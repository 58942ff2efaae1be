package client

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"math"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
	"unicode/utf8"

	"google.golang.org/protobuf/proto"

	pb "fetchd/gen/fetchd/v1"
)

const (
	maxRequestBody = 1 << 20  // of a request that the service accepts
	maxErrorBody   = 64 << 10 // of what the service keeps of a failed response
)

// Transport is an [http.RoundTripper] that makes requests through fetchd, so that any
// [http.Client] can use the service:
//
//	web := &http.Client{Transport: &client.Transport{Client: c}}
//	resp, err := web.Get("https://example.com/")
//
// The service has made all retries when RoundTrip returns. Do not put a retry loop around it.
//
// A failed status, such as 404 or the 503 of the last attempt, is a response, as it is with
// [http.Transport]; whether a later fetch may succeed is in the outcome of [FromHTTP]. Its body is only the start of what the origin sent: at most 64 KiB, or
// body_policy.max_error_body_bytes of Request, and what arrives within 2 s. ContentLength is -1 unless
// that body is known to be complete. Any other failure is an [*Error], also if it follows
// a response: a redirect loop, a body that is too large. A body that breaks returns it from Read.
//
// With text_policy in Request, Content-Type and Content-Length are those of the text.
//
// The service follows redirects. The Request of a response is then a copy with the final URL, and
// Set-Cookie is removed if that URL has another host or lost TLS, because a Jar would keep the cookies for the
// first one. To let the http.Client follow them, set redirect_policy.follow to false in Request.
// A Jar and CheckRedirect see every redirect only then.
//
// There are other differences from http.Transport:
//
//   - A request body has at most 1 MiB, and is read before anything is sent. GET, HEAD and OPTIONS
//     have none. An error that matches [*http.MaxBytesError] reports a longer one.
//   - A response body may have any size that the service allows, and is a stream. Set
//     body_policy.max_size_bytes in Request for a limit.
//   - Headers that frame the message or belong to the connection are not sent: Connection,
//     Keep-Alive, Content-Length, Transfer-Encoding and Expect. An Upgrade, a Host that is not
//     the host of the URL, a Trailer, and the other headers that [pb.FetchRequest] lists are
//     errors. Idempotency-Key becomes retry_policy.idempotency_key.
//   - A response has no trailers and no TLS state. Its first bytes arrive when the service has
//     buffered 512 KiB or the whole body. Set body_policy.auto.max_hold_back_bytes to 0 in
//     Request for a body that trickles.
//
// The deadline of the request's context is the deadline of the fetch. The error of a fetch that
// runs out of time matches [context.DeadlineExceeded].
//
// A Transport is safe for concurrent use.
type Transport struct {
	// Client makes the fetches. It is required.
	Client *Client
	// Request holds the policies of every fetch, and headers for requests that do not have them.
	// Its url, method and body must be empty, its delivery unset or auto, and its recovery not
	// RESTART. allow_non_idempotent applies to requests with an Idempotency-Key. Nil means the
	// defaults of the service. It must not change while requests are made.
	Request *pb.FetchRequest
}

var _ http.RoundTripper = (*Transport)(nil)

// RoundTrip implements [http.RoundTripper].
func (t *Transport) RoundTrip(req *http.Request) (*http.Response, error) {
	data, err := readBody(req)
	if err != nil {
		return nil, err
	}
	in, err := t.request(req, data)
	if err != nil {
		return nil, err
	}
	resp, err := t.Client.Do(req.Context(), in)
	if failed, ok := errors.AsType[*Error](err); ok && failed.isStatus() {
		resp, err = undelivered(failed.Outcome), nil
	}
	if err != nil {
		return nil, err
	}
	if o := resp.Outcome(); o.GetKind() == pb.OutcomeKind_OUTCOME_KIND_REDIRECT {
		resp = undelivered(o)
	}
	return httpResponse(req, in, resp)
}

// FromHTTP returns what the service reported about a response of a [Transport], such as the number
// of attempts. After the end of the body it has the outcome. It returns nil for other responses.
func FromHTTP(resp *http.Response) *Response {
	if resp.Request == nil {
		return nil
	}
	r, _ := resp.Request.Context().Value(responseKey{}).(*Response)
	return r
}

// responseKey is the key of the [Response] in the context of a response's request. It is found
// there even after an http.Client has wrapped the body.
type responseKey struct{}

// readBody reads the body of req and closes it. If the context ends first, it closes the body
// without waiting for the read, as net/http does.
func readBody(req *http.Request) ([]byte, error) {
	if req.Body == nil || req.Body == http.NoBody {
		return nil, nil
	}
	closeBody := sync.OnceValue(req.Body.Close)
	if req.ContentLength > maxRequestBody {
		_ = closeBody()
		return nil, errBodyTooLarge
	}
	type result struct {
		data []byte
		err  error
	}
	done := make(chan result, 1)
	go func() {
		data, err := io.ReadAll(io.LimitReader(req.Body, maxRequestBody+1))
		if closed := closeBody(); err == nil {
			err = closed
		}
		done <- result{data, err}
	}()
	select {
	case r := <-done:
		switch n := int64(len(r.data)); {
		case r.err != nil:
			return nil, fmt.Errorf("read of the request body: %w", r.err)
		case n > maxRequestBody:
			return nil, errBodyTooLarge
		case req.ContentLength > 0 && n != req.ContentLength:
			return nil, fmt.Errorf("the request has ContentLength %d and a body of %d bytes", req.ContentLength, n)
		}
		return r.data, nil
	case <-req.Context().Done():
		_ = closeBody()
		return nil, context.Cause(req.Context())
	}
}

var errBodyTooLarge = fmt.Errorf("the request body exceeds %d bytes, the limit of fetchd: %w", maxRequestBody, &http.MaxBytesError{Limit: maxRequestBody})

// request returns the fetch of req.
func (t *Transport) request(req *http.Request, data []byte) (*pb.FetchRequest, error) {
	in := new(pb.FetchRequest)
	if t.Request != nil {
		proto.Merge(in, t.Request)
	}
	switch body := in.GetBodyPolicy(); {
	case req.URL == nil:
		return nil, errors.New("the request has no URL")
	case in.GetUrl() != "" || in.GetMethod() != "" || len(in.GetBody()) > 0:
		return nil, errors.New("Transport.Request has a url, method or body: leave them out, they come from the http.Request")
	case body.GetDelivery() != nil && body.GetAuto() == nil:
		return nil, errors.New("Transport.Request has a delivery other than auto in body_policy: leave it out")
	case body.GetAuto().GetRecovery() == pb.BodyRecovery_BODY_RECOVERY_RESTART:
		return nil, errors.New("Transport.Request has body_policy.auto.recovery RESTART: a reader of an http.Response cannot drop bytes")
	case req.Host != "" && !strings.EqualFold(req.Host, req.URL.Host):
		return nil, fmt.Errorf("the request has Host %q and the URL has host %q: fetchd sends the host of the URL", req.Host, req.URL.Host)
	case len(req.Trailer) > 0:
		return nil, errors.New("the request has a Trailer: fetchd sends none")
	}
	target := *req.URL
	target.User = nil // http.Client has made a header of it
	in.Url, in.Method, in.Body = target.String(), req.Method, data

	in.Headers = slices.DeleteFunc(in.Headers, func(h *pb.Header) bool {
		_, found := req.Header[http.CanonicalHeaderKey(h.GetName())]
		return found
	})
	for _, name := range slices.Sorted(maps.Keys(req.Header)) {
		if err := addHeader(in, name, req.Header[name]); err != nil {
			return nil, err
		}
	}
	if p := in.GetRetryPolicy(); p.GetAllowNonIdempotent() {
		p.AllowNonIdempotent = p.GetIdempotencyKey() != ""
	}
	if in.GetEventLevel() == pb.EventLevel_EVENT_LEVEL_UNSPECIFIED {
		in.EventLevel = pb.EventLevel_EVENT_LEVEL_OUTCOME
	}
	if in.BodyPolicy == nil {
		in.BodyPolicy = new(pb.BodyPolicy)
	}
	if in.BodyPolicy.Delivery == nil { // with a text policy it is the same as inline
		in.BodyPolicy.Delivery = &pb.BodyPolicy_Auto{Auto: new(pb.StreamDelivery)} // a small response is one message
	}
	if in.BodyPolicy.MaxSizeBytes == nil {
		in.BodyPolicy.MaxSizeBytes = new(int64(math.MaxInt64)) // the service lowers it to its maximum
	}
	if in.BodyPolicy.MaxErrorBodyBytes == nil {
		in.BodyPolicy.MaxErrorBodyBytes = new(int32(maxErrorBody))
	}
	return in, nil
}

// addHeader adds a field of an [http.Request] to in. The service rejects the fields that it does
// not send, and says why.
func addHeader(in *pb.FetchRequest, name string, values []string) error {
	switch http.CanonicalHeaderKey(name) {
	case "Host", "Content-Length", "Transfer-Encoding", "Trailer": // net/http ignores them too
		return nil
	case "Expect", "Keep-Alive", "Proxy-Connection":
		return nil
	case "Connection":
		if len(values) == 1 && (strings.EqualFold(values[0], "close") || strings.EqualFold(values[0], "keep-alive")) {
			return nil
		}
	case "Idempotency-Key":
		if len(values) != 1 {
			return fmt.Errorf("the request has %d values of Idempotency-Key: give one", len(values))
		}
		if in.RetryPolicy == nil {
			in.RetryPolicy = new(pb.RetryPolicy)
		}
		in.RetryPolicy.IdempotencyKey = values[0]
		return nil
	}
	for _, value := range values {
		h := &pb.Header{Name: name, Value: value}
		if !utf8.ValidString(value) {
			h.Value, h.RawValue = "", []byte(value)
		}
		in.Headers = append(in.Headers, h)
	}
	return nil
}

// undelivered returns the response of a fetch that delivers no body. Its body is the error_body
// of the outcome.
func undelivered(o *pb.FetchOutcome) *Response {
	b := &body{reader: reader{cancel: func() {}}}
	b.finish(o)
	b.rest, b.err = o.GetErrorBody(), io.EOF
	b.response.Body = b
	return &b.response
}

// httpResponse converts resp, which answers in.
func httpResponse(req *http.Request, in *pb.FetchRequest, resp *Response) (*http.Response, error) {
	sent := *req.URL
	final := &sent
	if resp.FinalURL != "" {
		var err error
		if final, err = sent.Parse(resp.FinalURL); err != nil {
			_ = resp.Body.Close()
			return nil, fmt.Errorf("%w: final URL: %w", ErrContract, err)
		}
	}
	copied := req.WithContext(context.WithValue(req.Context(), responseKey{}, resp))
	copied.URL, copied.Body = final, nil
	out := &http.Response{
		StatusCode: resp.StatusCode, Status: strings.TrimSpace(fmt.Sprint(resp.StatusCode, " ", http.StatusText(resp.StatusCode))),
		Proto: resp.protocol, Header: resp.Header.Clone(), Body: resp.Body, ContentLength: resp.ContentLength, Request: copied,
	}
	out.ProtoMajor, out.ProtoMinor, _ = http.ParseHTTPVersion(out.Proto)
	if !strings.EqualFold(final.Hostname(), req.URL.Hostname()) || req.URL.Scheme == "https" && final.Scheme != "https" {
		out.Header.Del("Set-Cookie")
	}
	coding := out.Header.Get("Content-Encoding")
	switch text := resp.Outcome().GetTextSummary(); {
	case text != nil:
		out.Header.Del("Content-Encoding")
		out.Header.Set("Content-Type", text.GetMediaType()+"; charset=utf-8")
		out.Header.Set("Content-Length", strconv.FormatInt(text.GetSizeBytes(), 10))
		out.ContentLength, out.Uncompressed = text.GetSizeBytes(), true
	case req.Method == http.MethodHead, out.StatusCode == http.StatusNoContent, out.StatusCode == http.StatusNotModified:
	case coding != "" && !strings.EqualFold(coding, "identity") && !in.GetBodyPolicy().GetKeepEncoding() && !slices.ContainsFunc(in.GetHeaders(), isAcceptEncoding):
		out.Header.Del("Content-Encoding")
		out.Header.Del("Content-Length")
		out.ContentLength, out.Uncompressed = -1, true
	case resp.Outcome().GetKind() != pb.OutcomeKind_OUTCOME_KIND_SUCCESS && resp.Outcome() != nil:
		if out.ContentLength != int64(len(resp.Outcome().GetErrorBody())) {
			out.ContentLength = -1
		}
	case in.GetBodyPolicy().GetOversizeAction() == pb.OversizeAction_OVERSIZE_ACTION_TRUNCATE:
		out.ContentLength = -1
	}
	return out, nil
}

func isAcceptEncoding(h *pb.Header) bool { return strings.EqualFold(h.GetName(), "Accept-Encoding") }

// isStatus reports whether the status of a response is the failure. Then [Transport] returns that
// response.
func (e *Error) isStatus() bool {
	if checkResponse("the outcome", e.Outcome.GetResponse()) != nil {
		return false // it would be a response without a status
	}
	switch e.Class() {
	case pb.ErrorClass_ERROR_CLASS_HTTP_SERVER_ERROR, pb.ErrorClass_ERROR_CLASS_HTTP_CLIENT_ERROR,
		pb.ErrorClass_ERROR_CLASS_RATE_LIMITED, pb.ErrorClass_ERROR_CLASS_AUTH_REQUIRED,
		pb.ErrorClass_ERROR_CLASS_FORBIDDEN, pb.ErrorClass_ERROR_CLASS_REQUEST_TIMEOUT,
		pb.ErrorClass_ERROR_CLASS_UNEXPECTED_NOT_MODIFIED:
		return true
	}
	return false
}
