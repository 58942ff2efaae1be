package guardrun

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"os/exec"
	"regexp"
	"strings"
	"time"

	whatwg "github.com/nlnwa/whatwg-url/url"

	"fetchd/conformance"
	"fetchd/conformance/kit"
)

const (
	// maxHops is the maximum number of requests for a URL, as that of browsers is 20.
	maxHops = 20
	// maxBody is the maximum number of bytes that are read of a body.
	maxBody = 1 << 20
	// poll is the time between two attempts to reach a proxy that starts.
	poll = 20 * time.Millisecond
)

// askProxy starts a proxy and gets the URL through it twice: in absolute form, and through tunnels. https is only asked
// for through tunnels.
func (n *network) askProxy(ctx context.Context, cmd *kit.Command, address string, row *conformance.GuardRow) (*answers, error) {
	within, cancel := context.WithTimeout(ctx, cmd.TimeLimit())
	defer cancel()
	p, err := start(within, cmd, func(*exec.Cmd) error { return nil })
	if err != nil {
		return nil, err
	}
	defer p.stop()
	got := new(answers)
	if err := p.accepts(within, address, got); err != nil {
		return nil, err
	}
	c := &proxied{address: address, answers: got}
	if !strings.HasPrefix(strings.ToLower(row.URL), "https:") {
		got.bodies = append(got.bodies, c.get(within, row.URL))
		n.publish(row)
	}
	c.tunnel = true
	got.bodies = append(got.bodies, c.get(within, row.URL))
	return got, ctx.Err()
}

// accepts waits until the program accepts connections.
func (p *program) accepts(ctx context.Context, address string, got *answers) error {
	tick := time.NewTicker(poll)
	defer tick.Stop()
	var d net.Dialer
	for {
		got.opened++
		conn, err := d.DialContext(ctx, "tcp", address)
		if err == nil {
			return conn.Close()
		}
		select {
		case <-tick.C:
			continue
		case <-ctx.Done():
			p.stop()
		case <-p.ended:
		}
		if ctx.Err() != nil { // it ends the program, too
			return p.failure("the proxy accepts no connection on %s", address)
		}
		return p.failure("the proxy ended before it accepted a connection on %s", address)
	}
}

// proxied is a plain client behind a proxy. It sends URLs as they are written, so that the proxy judges every spelling.
type proxied struct {
	address string
	tunnel  bool // use CONNECT for every scheme
	*answers
}

// absolute matches a URL with a scheme.
var absolute = regexp.MustCompile(`^[A-Za-z][A-Za-z0-9+.-]*:`)

// get follows redirects and returns the last body, or nil if there is none.
func (c *proxied) get(ctx context.Context, raw string) []byte {
	for range maxHops {
		body, location, err := c.request(ctx, raw)
		if err != nil || location == "" {
			return body
		}
		if !absolute.MatchString(location) {
			next, err := whatwg.ParseRef(raw, location)
			if err != nil {
				return nil
			}
			location = next.Href(false)
		}
		raw = location
	}
	return nil
}

// request sends one request. It returns the Location of a redirect, or else the body of a 200.
func (c *proxied) request(ctx context.Context, raw string) (body []byte, location string, err error) {
	c.opened++
	var d net.Dialer
	conn, err := d.DialContext(ctx, "tcp", c.address)
	if err != nil {
		return nil, "", err
	}
	defer func() { _ = conn.Close() }() // the response is read or of no use
	stop := context.AfterFunc(ctx, func() { _ = conn.SetDeadline(time.Unix(1, 0)) })
	defer stop()
	from := bufio.NewReader(io.LimitReader(conn, maxBody))
	raw, _, _ = strings.Cut(raw, "#")
	authority, path := split(raw)
	target := raw
	if c.tunnel {
		host := authority[strings.LastIndex(authority, "@")+1:]
		if !port.MatchString(host) {
			host += ":443"
		}
		if _, err := fmt.Fprintf(conn, "CONNECT %s HTTP/1.1\r\nHost: %s\r\n\r\n", host, host); err != nil {
			return nil, "", err
		}
		opened, err := http.ReadResponse(from, &http.Request{Method: http.MethodConnect})
		if err != nil {
			return nil, "", err
		}
		_ = opened.Body.Close() // what follows is the tunnel
		if opened.StatusCode != http.StatusOK {
			return nil, "", nil
		}
		target = path
	}
	if _, err := fmt.Fprintf(conn, "GET %s HTTP/1.1\r\nHost: %s\r\nConnection: close\r\n\r\n", target, authority[strings.LastIndex(authority, "@")+1:]); err != nil {
		return nil, "", err
	}
	resp, err := http.ReadResponse(from, nil)
	if err != nil {
		return nil, "", err
	}
	defer func() { _ = resp.Body.Close() }() // it was only read
	switch {
	case resp.StatusCode/100 == 3:
		return nil, resp.Header.Get("Location"), nil
	case resp.StatusCode != http.StatusOK:
		return nil, "", nil
	}
	body, err = io.ReadAll(resp.Body)
	return body, "", err
}

// port matches a host with a port.
var port = regexp.MustCompile(`:[0-9]+$`)

// split returns the authority of a URL as it is written, and the path and the query. Slashes may be backslashes, as in
// browsers.
func split(raw string) (authority, path string) {
	_, rest, _ := strings.Cut(raw, ":")
	rest = strings.TrimLeft(rest, `/\`)
	end := strings.IndexAny(rest, `/\?`)
	if end < 0 {
		return rest, "/"
	}
	authority, path = rest[:end], strings.ReplaceAll(rest[end:], `\`, "/")
	if strings.HasPrefix(path, "?") {
		path = "/" + path
	}
	return authority, path
}
