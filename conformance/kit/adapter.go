package kit

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"time"
)

// Adapter is an HTTP server that fetches a URL with the client under test. README.md in the folder of the scenarios
// describes what it is asked and what it answers. It is not trusted: its answers are limited in bytes and in time.
type Adapter struct {
	// Name is the name in the report.
	Name string
	// URL is the address of the adapter.
	URL string
	// Limit is how long a fetch may take. Zero means 30 s.
	Limit time.Duration

	authority []byte
}

// adapterTask is what an adapter is asked for.
type adapterTask struct {
	URL string `json:"url"`
	CA  string `json:"ca"`
}

// The limits of an answer, except that of a body. The text is a version or that of an error.
const (
	maxAdapterHeader = 64 << 10
	maxAdapterText   = 200
)

// adapters sends requests to adapters: without a proxy, one per connection, and only to the URL that was given.
var adapters = http.Client{
	Transport:     &http.Transport{DisableKeepAlives: true, DisableCompression: true, MaxResponseHeaderBytes: maxAdapterHeader},
	CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
}

func (a *Adapter) limit() time.Duration { return cmp.Or(max(a.Limit, 0), defaultLimit) }

// Describe implements [Client]. It returns an error if the adapter does not answer.
func (a *Adapter) Describe(ctx context.Context) (*Report, error) {
	ctx, cancel := context.WithTimeout(ctx, a.limit())
	defer cancel()
	resp, err := a.send(ctx, http.MethodGet, nil)
	if err != nil {
		return nil, err
	}
	defer func() { _ = resp.Body.Close() }()
	text, err := io.ReadAll(io.LimitReader(resp.Body, maxAdapterText))
	if err != nil {
		return nil, fmt.Errorf("the adapter's answer to GET: %w", err)
	}
	if line := firstLine(text); resp.StatusCode == http.StatusOK && line != "" {
		return &Report{Subject: a.Name, Command: "--adapter URL", Version: line}, nil
	}
	return nil, fmt.Errorf("the adapter must answer GET with 200 and a line that names the client and its version, not with %d and %q", resp.StatusCode, text)
}

// Trust implements [Client].
func (a *Adapter) Trust(authority []byte, _ string) error {
	a.authority = authority
	return nil
}

// Run implements [Client].
func (a *Adapter) Run(ctx context.Context, url, _ string) (body []byte, exit int, err error) {
	task, err := json.Marshal(adapterTask{url, string(a.authority)})
	if err != nil {
		return nil, 0, err
	}
	within, cancel := context.WithTimeout(ctx, a.limit())
	defer cancel()
	resp, err := a.send(within, http.MethodPost, task)
	if err != nil {
		if ctx.Err() == nil && within.Err() != nil {
			return nil, -1, nil
		}
		return nil, 0, err
	}
	defer func() { _ = resp.Body.Close() }()
	switch resp.StatusCode {
	case http.StatusOK:
		body, err = io.ReadAll(io.LimitReader(resp.Body, maxBody))
	case http.StatusBadGateway:
		return nil, 1, nil
	default:
		text, _ := io.ReadAll(io.LimitReader(resp.Body, maxAdapterText)) // for the error
		return nil, 0, fmt.Errorf("the adapter must answer POST with 200 and the body, or with 502 if the fetch failed, not with %d and %q", resp.StatusCode, text)
	}
	switch {
	case ctx.Err() != nil:
		return nil, 0, ctx.Err()
	case within.Err() != nil:
		return body, -1, nil
	case err != nil: // the fetch failed when the answer had begun
		return body, 1, nil
	}
	return body, 0, nil
}

// send sends a request to the adapter.
func (a *Adapter) send(ctx context.Context, method string, task []byte) (*http.Response, error) {
	req, err := http.NewRequestWithContext(ctx, method, a.URL, bytes.NewReader(task))
	if err != nil {
		return nil, err
	}
	if task != nil {
		req.Header.Set("Content-Type", "application/json")
	}
	resp, err := adapters.Do(req)
	if err != nil {
		return nil, fmt.Errorf("the adapter does not answer: %w", err)
	}
	return resp, nil
}
