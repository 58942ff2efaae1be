package service

import (
	"fmt"
	"io"
	"strings"
	"unicode/utf8"

	"google.golang.org/protobuf/proto"

	"fetchd/client"
	pb "fetchd/gen/fetchd/v1"
	"fetchd/internal/cli"
	"fetchd/internal/jsontext"
)

// MaxRequestBody is the limit of the API. The transport would reject a longer body with a
// worse message.
const MaxRequestBody = 1 << 20

// maxRetries is the API's maximum of max_attempts, without the first attempt.
const maxRetries = 10

// Headers parses lines of the form "Name: value". Values that are not UTF-8 are kept
// unchanged.
func Headers(flag string, lines []string) ([]*pb.Header, error) {
	headers := make([]*pb.Header, 0, len(lines))
	for _, line := range lines {
		name, value, ok := strings.Cut(line, ":")
		if !ok || !utf8.ValidString(name) || strings.HasPrefix(value, "//") { // a URL: wget's -H takes no value
			return nil, cli.UsageError(flag, fmt.Sprintf("is %.60q: give Name: value", line))
		}
		h := &pb.Header{Name: strings.TrimSpace(name), Value: strings.TrimSpace(value)}
		if !utf8.ValidString(h.GetValue()) {
			h.RawValue, h.Value = []byte(h.GetValue()), ""
		}
		headers = append(headers, h)
	}
	return headers, nil
}

// Policies has the flags for the retries and redirects of a fetch.
type Policies struct {
	MaxRetries     *int32 `short:"r" group:"Retries:" placeholder:"N" help:"Attempts after the first, 0 to 10. Default: 2, with --profile download 3."`
	Profile        string `enum:"standard,download" default:"standard" group:"Retries:" help:"Retry rules and waits: standard (short waits) or download (longer waits with jitter, retries 408, no time limit). Default: ${default}."`
	IdempotencyKey string `group:"Retries:" placeholder:"KEY" help:"Send this Idempotency-Key on every attempt, and retry POST and PATCH: the origin must know keys, because a request may arrive twice. Default: such a request is sent once."`

	MaxRedirects *int32 `group:"Redirects:" placeholder:"N" help:"Maximum number of redirects in one attempt, 0 to 20. Default: 5, with --profile download 20."`
	NoFollow     bool   `group:"Redirects:" help:"Do not follow redirects: a redirect is then the result, with exit code 0."`
}

// Retry returns the policy of the retries. Errors are usage errors: the message of the service would not name the flag.
func (p *Policies) Retry() (*pb.RetryPolicy, error) {
	policy := &pb.RetryPolicy{IdempotencyKey: p.IdempotencyKey, AllowNonIdempotent: p.IdempotencyKey != "",
		Profile: pb.RetryProfile(pb.RetryProfile_value["RETRY_PROFILE_"+strings.ToUpper(p.Profile)])}
	if p.MaxRetries != nil {
		if *p.MaxRetries < 0 || *p.MaxRetries > maxRetries {
			return nil, cli.UsageError("--max-retries", fmt.Sprintf("is %d: give 0 to %d", *p.MaxRetries, maxRetries))
		}
		policy.MaxAttempts = proto.Int32(*p.MaxRetries + 1)
	}
	return policy, cli.CheckUTF8(map[string]string{"--idempotency-key": p.IdempotencyKey})
}

// Redirect returns the policy of the redirects.
func (p *Policies) Redirect() *pb.RedirectPolicy {
	return &pb.RedirectPolicy{MaxRedirects: p.MaxRedirects, Follow: proto.Bool(!p.NoFollow)}
}

// WriteJSON writes a message as one line. The same message always gives the same line.
func WriteJSON(w io.Writer, m proto.Message) error {
	text, err := jsontext.MarshalMessage(m)
	if err != nil {
		return fmt.Errorf("%w: %w", client.ErrContract, err)
	}
	if _, err := w.Write(jsontext.Escape(append(text, '\n'))); err != nil {
		return cli.OutputError(err)
	}
	return nil
}
