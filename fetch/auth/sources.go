package auth

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/netip"
	"net/url"
	"os"
	"strings"
	"sync"
	"syscall"
	"time"

	"golang.org/x/oauth2"
	"golang.org/x/oauth2/clientcredentials"
)

// static is a token that does not change. If it is rejected there is no other.
type static Secret

// Token implements [Source].
func (s static) Token(_ context.Context, rejected Secret) (Secret, error) {
	if rejected != "" {
		return "", ErrRefused
	}
	return Secret(s), nil
}

// file is a token or a key in a file.
type file struct {
	path    string
	setting string // that names it, for errors

	mu   sync.Mutex
	seen os.FileInfo // of the file when it was last read
	next time.Time   // time of the next check for a change
}

// checkInterval is the minimum time between two checks of a file.
const checkInterval = time.Second

// maxTokenBytes is the maximum size of a file.
const maxTokenBytes = 16 << 10

func newFile(path string) (*file, error) {
	f := &file{path: path, setting: "token-file"}
	_, err := f.Token(context.Background(), "")
	return f, err
}

// Token implements [Source].
func (f *file) Token(context.Context, Secret) (Secret, error) {
	raw, err := f.read()
	if err != nil {
		return "", err
	}
	token := Secret(strings.TrimSpace(string(raw)))
	if err := checkToken(token); err != nil {
		return "", f.wrap(err)
	}
	return token, nil
}

// wrap adds the path to an error about what the file contains.
func (f *file) wrap(err error) error { return fmt.Errorf("%w (file %s)", err, f.path) }

// read returns what the file contains. It waits for no pipe, and reads no more than the maximum: some files
// of the kernel are regular, say that they are empty, and block or never end.
func (f *file) read() ([]byte, error) {
	opened, err := os.OpenFile(f.path, os.O_RDONLY|syscall.O_NONBLOCK, 0)
	if err != nil {
		return nil, fmt.Errorf("auth: %s: %w", f.setting, err)
	}
	defer func() { _ = opened.Close() }() // it was only read
	info, err := opened.Stat()
	if err != nil {
		return nil, fmt.Errorf("auth: %s: %w", f.setting, err)
	}
	if !info.Mode().IsRegular() {
		return nil, fmt.Errorf("auth: %s: %s is no regular file: give the path of a file", f.setting, f.path)
	}
	if info.Size() > maxTokenBytes {
		return nil, fmt.Errorf("auth: %s: %s has %d bytes, and the maximum is %d", f.setting, f.path, info.Size(), maxTokenBytes)
	}
	_ = opened.SetReadDeadline(time.Now().Add(checkInterval)) // files on a disk have none
	raw, err := io.ReadAll(io.LimitReader(opened, maxTokenBytes+1))
	if err != nil {
		return nil, fmt.Errorf("auth: %s: %w", f.setting, err)
	}
	if len(raw) > maxTokenBytes {
		return nil, fmt.Errorf("auth: %s: %s has more than %d bytes", f.setting, f.path, maxTokenBytes)
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.seen, f.next = info, time.Now().Add(checkInterval)
	return raw, nil
}

// Stale implements [Fresher].
func (f *file) Stale() bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	if now := time.Now(); now.Before(f.next) {
		return false
	} else {
		f.next = now.Add(checkInterval)
	}
	info, err := os.Stat(f.path)
	return err == nil && (f.seen == nil || !os.SameFile(info, f.seen) || info.ModTime() != f.seen.ModTime() || info.Size() != f.seen.Size())
}

// finals refuses a response that switches to another protocol. Its body is the connection, and no time limit
// ends a read of it.
type finals struct{ *http.Transport }

// RoundTrip implements [http.RoundTripper].
func (f finals) RoundTrip(r *http.Request) (*http.Response, error) {
	resp, err := f.Transport.RoundTrip(r)
	if err == nil && resp.StatusCode == http.StatusSwitchingProtocols {
		return nil, errors.Join(errors.New("the token endpoint switched to another protocol"), resp.Body.Close())
	}
	return resp, err
}

// client gets a token from a token endpoint when the last one expires or is rejected.
type client struct {
	config clientcredentials.Config
	http   *http.Client

	mu    sync.Mutex
	token *oauth2.Token
}

// endpointTime is the time limit of one request to a token endpoint.
const endpointTime = 10 * time.Second

func (c *ClientCredentials) source() (Source, error) {
	u, err := url.Parse(c.TokenURL)
	if err != nil || u.Host == "" || u.User != nil || u.Scheme != "https" && !(u.Scheme == "http" && isLoopback(u.Hostname())) {
		return nil, errors.New("auth: the token URL is invalid: give an https URL without userinfo, because the client's secret is sent to it")
	}
	if c.ID == "" || c.Secret == "" {
		return nil, errors.New("auth: client credentials need the client's ID and secret")
	}
	httpClient := c.HTTP
	if httpClient == nil {
		// HTTP/1.1: a few requests an hour gain nothing from HTTP/2, and that of net/http can be made to wait forever (decision 25).
		transport := &http.Transport{Proxy: nil, TLSHandshakeTimeout: endpointTime, IdleConnTimeout: time.Minute, Protocols: new(http.Protocols)}
		transport.Protocols.SetHTTP1(true)
		httpClient = &http.Client{Transport: finals{transport}, Timeout: endpointTime,
			CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }} // never send the secret elsewhere
	}
	config := clientcredentials.Config{ClientID: c.ID, ClientSecret: string(c.Secret), TokenURL: c.TokenURL, Scopes: c.Scopes,
		AuthStyle: oauth2.AuthStyleInHeader} // auto-detection would send a second request
	if c.InBody {
		config.AuthStyle = oauth2.AuthStyleInParams
	}
	if c.Audience != "" {
		config.EndpointParams = url.Values{"audience": {c.Audience}}
	}
	return &client{config: config, http: httpClient}, nil
}

func isLoopback(host string) bool {
	addr, err := netip.ParseAddr(host)
	return host == "localhost" || err == nil && addr.Unmap().IsLoopback()
}

// Token implements [Source].
func (c *client) Token(ctx context.Context, _ Secret) (Secret, error) {
	got, err := c.config.Token(context.WithValue(ctx, oauth2.HTTPClient, c.http))
	if refused := new(oauth2.RetrieveError); errors.As(err, &refused) && refused.Response != nil {
		text := fmt.Sprintf("auth: the token endpoint returns status %d", refused.Response.StatusCode) // its text is omitted: it may contain secrets
		switch refused.Response.StatusCode {
		case http.StatusBadRequest, http.StatusUnauthorized, http.StatusForbidden:
			return "", errors.New(text)
		}
		return "", passingError(text)
	} else if err != nil {
		return "", passingError("auth: the request to the token endpoint failed")
	}
	if err := checkToken(Secret(got.AccessToken)); err != nil {
		return "", err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.token = got
	return Secret(got.AccessToken), nil
}

// Stale implements [Fresher]. A token is stale a few seconds before it expires.
func (c *client) Stale() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.token != nil && !c.token.Valid()
}
