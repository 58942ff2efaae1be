package tools

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	"fetchd/cmd/fetchctl/show"
	"fetchd/fetch/markdown"
	pb "fetchd/gen/fetchd/v1"
	"fetchd/internal/badrequest"
	"fetchd/internal/jsontext"
	"fetchd/internal/rules"
	"fetchd/internal/sniff"

	sdk "github.com/modelcontextprotocol/go-sdk/mcp"
)

// shownHeaders are the headers of a response that the model sees. They describe the body. Any other
// header may carry a credential, whatever its name.
var shownHeaders = []string{"Accept-Ranges", "Age", "Allow", "Cache-Control", "Content-Disposition", "Content-Encoding",
	"Content-Language", "Content-Length", "Content-Location", "Content-Range", "Content-Type", "Date", "Etag", "Expires",
	"Last-Modified", "Location", "Retry-After", "Server", "Vary"}

func isShown(h *pb.Header) bool {
	return slices.Contains(shownHeaders, http.CanonicalHeaderKey(h.GetName()))
}

// An origin chooses its redirects and headers. shownChars and shownHops limit how much of them the
// model must read.
const (
	shownChars = 500 // of a URL or a value
	shownHops  = 6   // the last ones
)

// outcomeJSON returns an outcome as the model sees it: without the body, without headers that may
// carry a credential, and shortened. It changes o.
func outcomeJSON(o *pb.FetchOutcome) (json.RawMessage, error) {
	o.Body, o.ErrorBody = nil, nil
	if r := o.GetResponse(); r != nil {
		r.Headers = slices.DeleteFunc(r.Headers, func(h *pb.Header) bool { return !isShown(h) })
		for _, h := range r.GetHeaders() {
			h.Value, h.RawValue = glimpse(h.GetValue()), nil
		}
	}
	o.FinalUrl = glimpse(o.GetFinalUrl())
	if o.GetError() != nil {
		o.Error.Url = glimpse(o.Error.GetUrl())
	}
	if o.GetTextSummary() != nil {
		o.TextSummary.Title = glimpse(o.TextSummary.GetTitle())
	}
	o.Hops = o.GetHops()[max(0, len(o.GetHops())-shownHops):]
	for _, h := range o.GetHops() {
		h.Url, h.LocationUrl = glimpse(h.GetUrl()), glimpse(h.GetLocationUrl())
	}
	return messageJSON(o)
}

// glimpse cuts a text that is too long for the model.
func glimpse(text string) string {
	if n := offset(text, shownChars); n < len(text) {
		return text[:n] + "…"
	}
	return text
}

func messageJSON(m proto.Message) (json.RawMessage, error) {
	text, err := jsontext.MarshalMessage(m)
	if err != nil {
		return nil, fmt.Errorf("the service broke its contract: %w", err)
	}
	return text, nil
}

// errorBytes is how much of the body of a failed response the service keeps, which may be HTML, and errorChars how
// much of its text the model sees.
const (
	errorBytes = 64 << 10
	errorChars = 1000
)

// failed returns the result of a fetch that failed at its origin. subject begins the first sentence.
func failed(subject string, o *pb.FetchOutcome) *sdk.CallToolResult {
	e := o.GetError()
	text := fmt.Sprintf("%s could not be fetched: %s, %s", subject, show.Label(e.GetErrorClass()), e.GetMessage())
	if code := o.GetResponse().GetStatusCode(); code != 0 {
		text += fmt.Sprintf(" (status %s)", show.StatusLine(code))
	}
	if e.GetErrorClass() == pb.ErrorClass_ERROR_CLASS_TARGET_BLOCKED && e.GetRequestState() == pb.RequestState_REQUEST_STATE_NOT_SENT {
		text += "\nNo request was sent. " + later(e)
	} else {
		text += fmt.Sprintf("\nAttempts: %d. ", o.GetAttemptCount()) + later(e)
	}
	if sentence := rules.Sentence(e.GetClassRule()); sentence != "" {
		text += fmt.Sprintf("\nRule %s: %s", e.GetClassRule(), sentence)
	}
	var detail, target string // may quote the origin
	if e.GetDetail() != "" {
		detail = fmt.Sprintf("detail %q", e.GetDetail())
	}
	if to := show.RedirectTarget(o); to != "" {
		target = fmt.Sprintf("The redirect leads to %.200q.", to)
	}
	body := errorText(o)
	structured, err := outcomeJSON(o)
	if err != nil {
		return failuref("%v", err)
	}
	return failure(structured, text, detail, target, body)
}

// later says whether a later fetch may succeed.
func later(e *pb.FetchError) string {
	if !e.GetRetryable() {
		return "A later fetch of the same URL is not expected to succeed."
	}
	if e.GetRetryAfter() != nil {
		return fmt.Sprintf("A later fetch may succeed. The origin asks to wait %s.", e.GetRetryAfter().AsDuration())
	}
	return "A later fetch may succeed."
}

// errorText returns the start of the body of a failed response, if it is text.
func errorText(o *pb.FetchOutcome) string {
	body, contentType := o.GetErrorBody(), show.HeadersOf(o.GetResponse()).Get("Content-Type")
	text, _, ok := sniff.Text(contentType, body, errorBytes)
	if !ok || len(body) == 0 {
		return ""
	}
	if sniff.IsHTML(sniff.Media(contentType, body), text) {
		if converted, err := markdown.From(text, o.GetFinalUrl(), markdown.Marked); err == nil {
			text = converted.Text
		}
	}
	return "The response begins with:\n" + text[:offset(text, errorChars)]
}

// refused returns the result of a call that the service refused, or that did not reach it. If the
// client of the tools has cancelled the call, refused returns an error.
func refused(ctx context.Context, err error) (*sdk.CallToolResult, error) {
	if cause := context.Cause(ctx); cause != nil && !errors.Is(cause, context.DeadlineExceeded) {
		return nil, cause
	}
	st := status.Convert(err)
	if st.Code() == codes.PermissionDenied {
		return failuref("Not fetched: %s. The same call is not expected to succeed later.", st.Message()), nil
	}
	if st.Code() != codes.InvalidArgument {
		return failuref("The service failed, not the origin: %s: %s", st.Code(), st.Message()), nil
	}
	var violations []string
	for _, v := range badrequest.Of(st) {
		violations = append(violations, fmt.Sprintf("%s %s.", v.GetField(), v.GetDescription()))
	}
	if violations == nil {
		violations = []string{st.Message()}
	}
	return failuref("%s", strings.Join(violations, "\n")), nil
}
