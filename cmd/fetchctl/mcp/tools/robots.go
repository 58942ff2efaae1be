package tools

import (
	"context"
	"fmt"
	"net/http"
	"net/url"

	sdk "github.com/modelcontextprotocol/go-sdk/mcp"

	"fetchd/cmd/fetchctl/show"
	"fetchd/frontier/robots"
	pb "fetchd/gen/fetchd/v1"
)

// robotsAnswer is a robots.txt, as far as it concerns this crawler.
type robotsAnswer struct {
	policy robots.Policy
	status int32
}

// refuses returns why a page may not be fetched, or an empty text, and the line that forbids it. A robots.txt that needs
// credentials forbids everything: whoever hides the rules wants no visitors that must obey them.
func (a robotsAnswer) refuses(page *url.URL, userAgent string) (reason, line string) {
	if a.status == http.StatusUnauthorized || a.status == http.StatusForbidden {
		return fmt.Sprintf("its robots.txt is not public (status %s)", show.StatusLine(a.status)), ""
	}
	if d := a.policy.Decide(page.RequestURI()); !d.Allowed {
		return fmt.Sprintf("its robots.txt forbids it to %.100q", userAgent), fmt.Sprintf("line %d, %q", d.Line.Number, d.Line.Text)
	}
	return "", ""
}

// bytes returns the memory of an answer.
func (a robotsAnswer) bytes() int64 {
	if a.policy.Rules == nil {
		return 0
	}
	return int64(a.policy.Rules.Size())
}

// robotsRefusal returns the result of a call whose page may not be fetched by robots.txt. It
// returns nil if the page may be fetched.
func (t *tools) robotsRefusal(ctx context.Context, page *url.URL, limit timeLimit) (*sdk.CallToolResult, error) {
	if t.IgnoreRobots {
		return nil, nil
	}
	origin := Origin(page)
	answer, ok := t.robots.get(origin)
	if !ok {
		var refusal *sdk.CallToolResult
		var err error
		if answer, refusal, err = t.fetchRobots(ctx, origin, limit); refusal != nil || err != nil {
			return refusal, err
		}
	}
	if reason, line := answer.refuses(page, t.UserAgent); reason != "" {
		return failure(nil, "The page was not fetched: "+reason+". Tell the user, who can open the page in a browser.", line), nil
	}
	return nil, nil
}

// Origin returns the origin of a URL that package urls has parsed.
func Origin(u *url.URL) string { return u.Scheme + "://" + u.Host }

// fetchRobots fetches the robots.txt of an origin. It returns a result if there is no answer.
func (t *tools) fetchRobots(ctx context.Context, origin string, limit timeLimit) (robotsAnswer, *sdk.CallToolResult, error) {
	o, exchanges, err := t.askRobots(ctx, origin, limit)
	if err != nil {
		failure, err := refused(ctx, err)
		return robotsAnswer{}, failure, err
	}
	if exchanges == 0 && o.GetError().GetErrorClass() == pb.ErrorClass_ERROR_CLASS_TARGET_BLOCKED {
		// The policy forbids the page too, and its own outcome says so.
		return robotsAnswer{policy: robots.Policy{Unavailable: true}}, nil, nil
	}
	if o.GetBodySummary().GetPartialContent() { // a rule that forbids the page may be missing
		return robotsAnswer{}, failuref("The page was not fetched, because its robots.txt is unknown: the origin sent only a part of it."), nil
	}
	answer := robots.Answer{Status: int(o.GetResponse().GetStatusCode()), Body: o.GetInlineBody()}
	if o.GetError() != nil {
		answer.ErrorClass = show.Label(o.GetError().GetErrorClass())
	}
	a := robotsAnswer{robots.Judge(answer, t.UserAgent), o.GetResponse().GetStatusCode()}
	if a.policy.Deferred() {
		return a, failed("The page was not fetched, because its robots.txt is unknown. It", t.inOwnWords(o, limit)), nil
	}
	t.robots.put(origin, a, a.bytes())
	return a, nil, nil
}

// askRobots fetches the robots.txt of an origin, with the origin's credential, and returns the outcome and the
// number of exchanges. A redirect to another origin is followed without the credential, also if the provider
// covers that origin too.
func (t *tools) askRobots(ctx context.Context, origin string, limit timeLimit) (o *pb.FetchOutcome, exchanges int32, err error) {
	target, left, provider := origin+"/robots.txt", robots.MaxRedirects, t.AuthProviders[origin]
	for {
		req := t.request(target, robots.MaxBytes+1, limit)
		if t.maxBytes > 0 && t.maxBytes <= robots.MaxBytes { // a part of a file is not enough, so a longer one fails
			req.BodyPolicy.MaxSizeBytes, req.BodyPolicy.OversizeAction = &t.maxBytes, pb.OversizeAction_OVERSIZE_ACTION_UNSPECIFIED
		}
		req.RedirectPolicy = &pb.RedirectPolicy{MaxRedirects: new(int32(left))} //nolint:gosec // 0 to 5
		if req.AuthProvider = provider; provider != "" {
			req.RedirectPolicy.Scope = pb.RedirectScope_REDIRECT_SCOPE_SAME_ORIGIN
		}
		resp, err := t.Service.FetchUnary(ctx, req)
		if err != nil {
			return nil, 0, err
		}
		o = resp.GetOutcome()
		exchanges += o.GetExchangeCount()
		left -= len(o.GetHops()) // the redirects that were followed, and this one
		target = ""
		for _, hop := range o.GetHops() {
			target = hop.GetLocationUrl()
		}
		if provider == "" || o.GetKind() != pb.OutcomeKind_OUTCOME_KIND_REDIRECT || left < 0 || target == "" {
			return o, exchanges, nil
		}
		provider = ""
	}
}
