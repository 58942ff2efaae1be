package web

import (
	"encoding/json"
	"fmt"
	"math"
	"mime"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"fetchd/classify"
	"fetchd/fetch"
	pb "fetchd/gen/fetchd/v1"
	"fetchd/internal/badrequest"
	"fetchd/internal/budget"
	"fetchd/internal/jsontext"
	"fetchd/internal/secure"
	"fetchd/server/internal/calls"
	"fetchd/server/internal/conversion"
	"fetchd/server/internal/wire"
)

const (
	// rawPath is the path of calls whose answer is the body as bytes.
	rawPath = "/v1/raw"
	// requestHeader is the header of such a call that has a FetchRequest in JSON.
	requestHeader = "Fetchd-Request"
	// maxURLHeader is the maximum length of a URL in a header. Many clients reject an answer
	// whose headers exceed 8 KiB.
	maxURLHeader = 4 << 10
	// maxTypeHeader is the maximum length of a header of the origin that is passed on.
	maxTypeHeader = 256
	// anyType is the type of a body whose origin gave none, or none that can be passed on.
	anyType = "application/octet-stream"
)

// rawMode is for bodies as bytes: a chunk is written as it is. The JSON of a failure is charged
// when it is made.
var rawMode = calls.Mode{Unblocked: math.MaxInt, Copies: 1}

// readRaw reads a call of /v1/raw: the URL from the query, the rest of the request from a header,
// and the body.
func (a *answer) readRaw(r *http.Request, memory *budget.Lease) (*pb.FetchRequest, error) {
	a.raw = true
	if !r.ProtoAtLeast(1, 1) {
		a.http10 = wire.ConnOf(r.Context())
	}
	sent := r.Header.Values(requestHeader)
	if len(sent) == 0 && secure.Bearer(r.Header.Values("Authorization")) == "" {
		return nil, status.Errorf(codes.PermissionDenied, "the call has neither Authorization: Bearer TOKEN nor %[1]s: send the header %[1]s: {}, which a page of another site cannot set", requestHeader)
	}
	in := new(pb.FetchRequest)
	a.quotes = true
	if len(sent) > 1 {
		return nil, status.Errorf(codes.InvalidArgument, "the header %s is given %d times: give it once", requestHeader, len(sent))
	}
	if len(sent) == 1 {
		if !memory.Grow(budget.Receiving, int64(badrequest.JSONElements([]byte(sent[0])))*elementBytes) {
			return nil, a.noMemory("requests")
		}
		if err := badrequest.ReadJSON([]byte(sent[0]), in, "the header "+requestHeader); err != nil {
			return nil, err
		}
	}
	var v badrequest.Violations
	readRawURL(&v, r.URL.RawQuery, in)
	checkRaw(&v, r, in)
	if err := v.Err(); err != nil {
		return nil, err
	}
	if r.Method == http.MethodPost {
		body, err := a.readBody(r, memory, fetch.MaxRequestBodyBytes, errLongBody)
		if err != nil {
			return nil, err
		}
		in.Body = body
		addContentHeaders(in, r.Header)
	}
	if in.EventLevel != pb.EventLevel_EVENT_LEVEL_ATTEMPTS {
		in.EventLevel = pb.EventLevel_EVENT_LEVEL_OUTCOME
	}
	if in.TextPolicy == nil && wantsMarkdown(r.Header) && in.GetMethod() != http.MethodHead && !hasHeader(in, "Range") {
		in.TextPolicy = new(pb.TextPolicy)
	}
	if in.BodyPolicy == nil {
		in.BodyPolicy = new(pb.BodyPolicy)
	}
	if in.BodyPolicy.Delivery == nil && in.TextPolicy == nil {
		in.BodyPolicy.Delivery = &pb.BodyPolicy_Auto{Auto: new(pb.StreamDelivery)}
	}
	a.quotes = false
	return in, nil
}

// readRawURL reads the query. Its only parameter is the URL of the fetch.
func readRawURL(v *badrequest.Violations, query string, in *pb.FetchRequest) {
	const remedy = "percent-encode the URL, as in: curl -G --data-urlencode url=https://example.com/?q=1"
	given, err := url.ParseQuery(query)
	for name := range given {
		if name != "url" {
			v.Add("url", "is followed by the parameter %.40q: %s", name, remedy)
			return
		}
	}
	switch urls := given["url"]; {
	case err != nil:
		v.Add("url", "cannot be decoded: %s", remedy)
	case len(urls) != 1:
		v.Add("url", "is given %d times: give the query parameter url once, and %s", len(urls), remedy)
	case in.GetUrl() != "":
		v.Add("url", "is set in %s: give it as the query parameter url", requestHeader)
	default:
		in.Url = urls[0]
	}
}

// checkPartial refuses headers of the call without which the answer would be another one, unless the request has its own.
// A browser sends "bytes=0-" for the whole of a file.
func checkPartial(v *badrequest.Violations, r *http.Request, in *pb.FetchRequest) {
	for _, name := range []string{"Range", "If-None-Match", "If-Modified-Since"} {
		sent := r.Header.Get(name)
		if sent == "" || sent == "bytes=0-" || hasHeader(in, name) || name != "Range" && in.GetPrecondition() != nil {
			continue
		}
		v.Add("headers", "lacks %[1]s, and the %[1]s of the call does not reach the origin: put it into %[2]s", name, requestHeader)
	}
}

// checkRaw checks what the call cannot express, and sets the method.
func checkRaw(v *badrequest.Violations, r *http.Request, in *pb.FetchRequest) {
	switch {
	case in.GetMethod() == "":
		in.Method = r.Method
	case r.Method != http.MethodPost && in.GetMethod() != r.Method:
		v.Add("method", "is %.10q in %s, but the call is a %s: call with POST", in.GetMethod(), requestHeader, r.Method)
	case in.GetMethod() == http.MethodHead && r.Method != http.MethodHead:
		v.Add("method", "is HEAD in %s, whose length would be that of a body: call with HEAD", requestHeader)
	}
	checkPartial(v, r, in)
	if len(in.GetBody()) > 0 {
		v.Add("body", "is set in %s: send it as the body of a POST", requestHeader)
	}
	if r.Method != http.MethodPost && r.ContentLength != 0 {
		v.Add("body", "is sent with %s: call with POST", r.Method)
	}
	if l := in.GetEventLevel(); l != pb.EventLevel_EVENT_LEVEL_UNSPECIFIED && l != pb.EventLevel_EVENT_LEVEL_OUTCOME && l != pb.EventLevel_EVENT_LEVEL_ATTEMPTS {
		v.Add("event_level", "is %s, but this path sends no events: use EVENT_LEVEL_ATTEMPTS for the header Fetchd-Attempts, or call /v1/fetch", l)
	}
	if name, stream := conversion.Delivery(in.GetBodyPolicy()); name != "" && stream == nil {
		v.Add("body_policy."+name, "is set, but this path sends the body: leave it out, or call /v1/fetch:unary")
	} else if stream.GetRecovery() == pb.BodyRecovery_BODY_RECOVERY_RESTART {
		v.Add("body_policy."+name+".recovery", "is BODY_RECOVERY_RESTART, but bytes that were sent cannot be taken back: use BODY_RECOVERY_RESUME, or call /v1/fetch")
	}
	if in.GetBodyPolicy().GetOversizeAction() == pb.OversizeAction_OVERSIZE_ACTION_TRUNCATE {
		v.Add("body_policy.oversize_action", "is OVERSIZE_ACTION_TRUNCATE, but the answer could not show that it is a part: leave it out, or call /v1/fetch")
	}
}

// errLongBody returns the error of a body that is too long. It is not read to its end.
func errLongBody() error {
	return badrequest.Single(&errdetails.BadRequest_FieldViolation{Field: "body", Reason: badrequest.TooLarge,
		Description: fmt.Sprintf("has more than %d bytes: send at most that", fetch.MaxRequestBodyBytes)})
}

// addContentHeaders adds the headers of the call that describe its body, unless the request has
// them.
func addContentHeaders(in *pb.FetchRequest, sent http.Header) {
	for _, name := range []string{"Content-Type", "Content-Encoding"} {
		if value := sent.Get(name); value != "" && len(in.GetBody()) > 0 && !hasHeader(in, name) {
			in.Headers = append(in.Headers, &pb.Header{Name: name, Value: value})
		}
	}
}

// wantsMarkdown reports whether the call names Markdown as a type that it accepts.
func wantsMarkdown(sent http.Header) bool {
	for item := range strings.SplitSeq(strings.Join(sent.Values("Accept"), ","), ",") {
		media, params, err := mime.ParseMediaType(item)
		if weight, wrong := strconv.ParseFloat(params["q"], 64); err == nil && media == "text/markdown" && (wrong != nil || weight > 0) {
			return true
		}
	}
	return false
}

func hasHeader(in *pb.FetchRequest, name string) bool {
	for _, h := range in.GetHeaders() {
		if strings.EqualFold(h.GetName(), name) {
			return true
		}
	}
	return false
}

// newRaw returns the answer to a request.
func newRaw(in *pb.FetchRequest, out *answer) *rawAnswer {
	policy := in.GetBodyPolicy()
	_, stream := conversion.Delivery(policy)
	return &rawAnswer{answer: out, history: in.GetEventLevel() == pb.EventLevel_EVENT_LEVEL_ATTEMPTS, coded: policy.GetKeepEncoding() || hasHeader(in, "Accept-Encoding"), head: in.GetMethod() == http.MethodHead,
		digest: stream.GetResumePoint() == nil && (!policy.GetOmitDigest() || in.GetIntegrity().GetSha256() != "")}
}

// rawAnswer writes the body of a fetch as the body of an answer. The status of the answer is that of
// the outcome, or 206 for a part. The status of the origin is only in a header.
type rawAnswer struct {
	*answer
	id     string // of the fetch
	coded  bool   // the body is in the content coding of the origin
	head   bool   // the fetch is a HEAD
	digest bool   // the outcome of a success has a digest
	latest *pb.ResponseStarted

	history  bool     // the answer has the header Fetchd-Attempts
	attempts []string // its items
}

// send writes the events of a message.
func (a *rawAnswer) send(o *wire.Outgoing) error {
	defer o.Release()
	m, ok := o.Message.(*pb.FetchResponse)
	if !ok {
		return status.Error(codes.Internal, "internal error")
	}
	for _, event := range m.GetEvents() {
		if err := a.sendEvent(o, event); err != nil {
			return err
		}
	}
	return nil
}

func (a *rawAnswer) sendEvent(o *wire.Outgoing, event *pb.FetchEvent) error {
	switch e := event.GetEvent().(type) {
	case *pb.FetchEvent_ResponseStarted:
		a.latest = &pb.ResponseStarted{Url: e.ResponseStarted.GetUrl(), Response: bodyHead(e.ResponseStarted.GetResponse())}
	case *pb.FetchEvent_AttemptFinished:
		a.attempts = append(a.attempts, attemptItem(e.AttemptFinished))
	case *pb.FetchEvent_BodyChunk:
		if !a.started {
			a.startBody()
		}
		return a.writeBytes(e.BodyChunk.GetData(), true)
	case *pb.FetchEvent_Outcome:
		return a.finish(o, e.Outcome)
	}
	return nil
}

// attemptItem returns an attempt as an item of Fetchd-Attempts, which is a list (RFC 9651): the status of
// the origin or 0, the class of the failure, the rule of the decision, and the seconds until the next attempt.
func attemptItem(e *pb.AttemptFinished) string {
	item := strconv.Itoa(int(e.GetResponse().GetStatusCode()))
	if f := e.GetError(); f != nil {
		item += ";class=" + classify.Class(f.GetErrorClass()).String()
	}
	item += ";rule=" + e.GetRetryDecision().GetRule()
	if retry := e.GetRetryDecision().GetRetry(); retry != nil {
		item += fmt.Sprintf(";delay=%.3f", retry.GetDelay().AsDuration().Seconds())
	}
	return item
}

// bodyHead returns the part of a response that the answer needs. The charge of the message ends
// when it is sent.
func bodyHead(r *pb.HttpResponse) *pb.HttpResponse {
	short := conversion.ShortResponse(r)
	for _, h := range r.GetHeaders() {
		switch http.CanonicalHeaderKey(h.GetName()) {
		case "Content-Type", "Content-Encoding", "Content-Range":
			if len(h.GetValue()) <= maxTypeHeader {
				short.Headers = append(short.Headers, &pb.Header{Name: h.GetName(), Value: strings.Clone(h.GetValue())})
			}
		}
	}
	return short
}

// startBody starts an answer whose body is streamed. What is not known yet follows in trailers.
func (a *rawAnswer) startBody() {
	header := a.rw.Header()
	header.Set(buffering, "no")
	trailers := "Fetchd-Outcome, Fetchd-Attempt-Count, Fetchd-Decision-Rule"
	if a.history {
		trailers += ", Fetchd-Attempts"
	}
	if a.digest {
		trailers += ", Fetchd-Sha256"
	}
	if a.http10 != nil { // it has neither chunks nor trailers
		a.http10.ResetsOnClose(true)
	} else {
		header.Set("Trailer", trailers)
	}
	header.Set("Fetchd-Id", a.id)
	a.setResponse(a.latest.GetUrl(), a.latest.GetResponse())
	a.start(a.okStatus(a.latest.GetResponse(), nil))
}

// okStatus returns the status of the answer to a success, and sets Content-Range. It is 206 if the
// body is only a part (spec B5), and if it begins at a resume point. body is nil while it is streamed.
func (a *rawAnswer) okStatus(r *pb.HttpResponse, body *pb.BodySummary) int {
	if r.GetStatusCode() != http.StatusPartialContent || a.head {
		return http.StatusOK
	}
	received := make(http.Header)
	for _, h := range r.GetHeaders() {
		received.Add(h.GetName(), h.GetValue())
	}
	part, _ := fetch.IsPart(http.StatusPartialContent, received)
	if !part && !body.GetPartialContent() {
		return http.StatusOK
	}
	decoded := !a.coded && len(received["Content-Encoding"]) > 0 // the range is of coded bytes
	if value := passed(r, "Content-Range"); part && !decoded && len(received["Content-Range"]) == 1 && value != "" {
		a.rw.Header().Set("Content-Range", value)
	}
	return http.StatusPartialContent
}

// setResponse sets the headers that describe the response of the origin.
func (a *rawAnswer) setResponse(url string, r *pb.HttpResponse) {
	header := a.rw.Header()
	setURL(header, "Fetchd-Final-Url", url)
	if code := r.GetStatusCode(); code != 0 {
		header.Set("Fetchd-Status-Code", strconv.Itoa(int(code)))
	}
	a.contentType, a.filename = passed(r, "Content-Type"), "body.bin"
	if a.contentType == "" {
		a.contentType = anyType
	}
	if coding := passed(r, "Content-Encoding"); a.coded && coding != "" {
		header.Set("Content-Encoding", coding)
	}
}

// passed returns the value of a response header if it can be passed on: it is short, and a client
// cannot misread it.
func passed(r *pb.HttpResponse, name string) string {
	for _, h := range r.GetHeaders() {
		if value := h.GetValue(); http.CanonicalHeaderKey(h.GetName()) == name {
			if len(value) > maxTypeHeader || strings.ContainsFunc(value, func(c rune) bool { return c < ' ' || c > '~' }) {
				return ""
			}
			return value
		}
	}
	return ""
}

// setURL sets a header to a URL from an origin. It leaves out a URL that is too long for many
// clients: a part of it would be another URL.
func setURL(header http.Header, name, text string) {
	var escaped strings.Builder
	for i := range len(text) {
		if c := text[i]; c > ' ' && c <= '~' {
			_ = escaped.WriteByte(c) // the error is always nil
		} else {
			fmt.Fprintf(&escaped, "%%%02X", c)
		}
	}
	if value := escaped.String(); value != "" && len(value) <= maxURLHeader {
		header.Set(name, value)
	}
}

// finish ends the answer with the outcome.
func (a *rawAnswer) finish(o *wire.Outgoing, out *pb.FetchOutcome) error {
	header := a.rw.Header()
	success := out.GetKind() == pb.OutcomeKind_OUTCOME_KIND_SUCCESS
	if a.started && !success {
		a.broken = true // trailers would say that the answer is complete
		return nil
	}
	header.Set("Fetchd-Outcome", classify.Kind(out.GetKind()).String())
	header.Set("Fetchd-Attempt-Count", strconv.Itoa(int(out.GetAttemptCount())))
	header.Set("Fetchd-Decision-Rule", out.GetDecisionRule())
	if a.history {
		header.Set("Fetchd-Attempts", strings.Join(a.attempts, ", "))
	}
	if sum := out.GetBodySummary().GetSha256(); sum != "" && success && out.GetTextSummary() == nil { // that of the bytes of the origin
		header.Set("Fetchd-Sha256", sum)
	}
	if a.started { // these are trailers
		if a.http10 != nil {
			a.http10.ResetsOnClose(false)
		}
		return nil
	}
	header.Set("Fetchd-Id", out.GetFetchId())
	a.setResponse(out.GetFinalUrl(), out.GetResponse())
	switch out.GetKind() {
	case pb.OutcomeKind_OUTCOME_KIND_SUCCESS:
		return a.whole(out)
	case pb.OutcomeKind_OUTCOME_KIND_FAILED:
		return a.problem(o, out)
	default: // NOT_MODIFIED and REDIRECT
		if hops := out.GetHops(); len(hops) > 0 {
			setURL(header, "Fetchd-Location-Url", hops[len(hops)-1].GetLocationUrl())
		}
		header.Del("Content-Encoding")
		a.started = true
		a.rw.WriteHeader(http.StatusNoContent)
		return nil
	}
}

// whole sends a body that is in the outcome.
func (a *rawAnswer) whole(out *pb.FetchOutcome) error {
	length, known := int64(len(out.GetInlineBody())), true
	if text := out.GetTextSummary(); text != nil && len(text.GetMediaType()) <= maxTypeHeader { // the origin chooses that of other text
		a.contentType = text.GetMediaType() + "; charset=utf-8"
	}
	if r := out.GetResponse(); a.head { // the length of the body that a GET would get
		length, known = r.GetContentLength(), r.ContentLength != nil && (a.coded || passed(r, "Content-Encoding") == "")
	}
	if known {
		a.rw.Header().Set("Content-Length", strconv.FormatInt(length, 10))
	}
	a.start(a.okStatus(out.GetResponse(), out.GetBodySummary()))
	return a.writeBytes(out.GetInlineBody(), known)
}

// problem sends a failure as problem details (RFC 9457).
func (a *rawAnswer) problem(o *wire.Outgoing, out *pb.FetchOutcome) error {
	header, failed := a.rw.Header(), out.GetError()
	code := http.StatusBadGateway // a program such as curl --retry sends the request again
	if !failed.GetRetryable() {
		code = http.StatusFailedDependency
	}
	header.Del("Content-Encoding")
	a.contentType, a.filename = "application/problem+json", ""
	if failed.GetRetryable() && failed.GetRetryAfter() != nil {
		wait := failed.GetRetryAfter().AsDuration()
		header.Set("Retry-After", strconv.FormatInt(int64((wait+time.Second-1)/time.Second), 10))
	}
	a.ran = true
	outcome, err := jsontext.MarshalMessage(out)
	if err != nil {
		return err
	}
	if err := a.chargeText(2*len(outcome), o.Lease()); err != nil {
		return err
	}
	class, detail := classify.Class(failed.GetErrorClass()).String(), failed.GetMessage()
	if failed.GetDetail() != "" {
		detail += ": " + failed.GetDetail()
	}
	head, err := json.Marshal(struct {
		Type   string `json:"type"`
		Title  string `json:"title"`
		Status int    `json:"status"`
		Detail string `json:"detail"`
	}{"urn:fetchd:error:" + class, strings.ReplaceAll(class, "_", " "), code, detail})
	if err != nil {
		return err
	}
	text := append(append(head[:len(head)-1], `,"outcome":`...), outcome...)
	text = append(text, "}\n"...)
	header.Set("Content-Length", strconv.Itoa(len(text)))
	a.start(code)
	return a.writeBytes(text, true)
}
