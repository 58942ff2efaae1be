package conns

import (
	"bufio"
	"bytes"
	"encoding/base64"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"regexp"
	"slices"
	"strings"
	"syscall"

	"golang.org/x/net/proxy"

	"fetchd/classify"
	"fetchd/fetch/fault"
	"fetchd/internal/budget"
)

// ProxyError is the answer of a proxy that did not connect to the origin.
type ProxyError struct {
	Status int    // of the answer to CONNECT
	Text   string // what the proxy says next to the status; not for callers
}

// Error returns the whole answer.
func (e *ProxyError) Error() string {
	return strings.TrimSpace(fmt.Sprintf("the proxy answers CONNECT with status %d %s", e.Status, e.Text))
}

// Unwrap returns what a 4xx means: the proxy will not connect, now or later (P1). Those that may pass are N3, as
// is any other status.
func (e *ProxyError) Unwrap() error {
	switch {
	case e.Status == http.StatusProxyAuthRequired:
		return errProxyCredentials
	case e.Status < 400 || e.Status > 499 || e.Status == http.StatusRequestTimeout || e.Status == http.StatusTooEarly || e.Status == http.StatusTooManyRequests:
		return nil
	}
	return errProxyRefused
}

// The errors for answers to CONNECT that are too large, and for bytes behind them: the origin does not
// speak before TLS.
var (
	errProxyHead  = fault.New(classify.ConnectFailure, classify.PhaseConnect, "proxy_answer_too_large")
	errProxyBytes = fault.New(classify.ConnectFailure, classify.PhaseConnect, "proxy_bytes")
)

// The errors of a proxy that will not connect to the origin.
var (
	errProxyRefused     = fault.New(classify.TargetBlocked, classify.PhaseConnect, "proxy_refused")
	errProxyCredentials = fault.New(classify.TargetBlocked, classify.PhaseConnect, "proxy_credentials")
)

var errNoHost = fault.New(classify.Internal, classify.PhaseRequest, "no_host")

// httpProxy is a proxy that forwards requests for http URLs.
type httpProxy struct {
	authorization string // of Proxy-Authorization; empty: none
}

// write sends the first bytes of a request, with at least its first line, in the form for a proxy: with
// the whole URL (RFC 9112 §3.2.2) and the authorization.
func (h *httpProxy) write(to net.Conn, p []byte) (n int, err error) {
	line, rest, _ := bytes.Cut(p, []byte("\r\n"))
	method, target, _ := bytes.Cut(line, []byte(" "))
	field, _, _ := bytes.Cut(rest, []byte("\r\n")) // Host is the first field of http.Request.Write
	host, ok := bytes.CutPrefix(field, []byte("Host: "))
	if !ok {
		return 0, errNoHost
	}
	buf := fmt.Appendf(make([]byte, 0, len(p)+512), "%s http://%s%s\r\n", method, host, target)
	if h.authorization != "" {
		buf = fmt.Appendf(buf, "Proxy-Authorization: %s\r\n", h.authorization)
	}
	n, err = to.Write(append(buf, rest...))
	return min(n, len(p)), err
}

// ownFields are fields in which proxies name themselves, next to those that begin with Proxy-.
var ownFields = []string{"Via", "Cache-Status", "X-Cache", "X-Cache-Lookup", "X-Squid-Error"}

// basic is a field or a value with Basic credentials (RFC 7617). That of a proxy is not compared with them:
// an origin could then try millions of passwords, and see which one is removed.
var basic = regexp.MustCompile(`(?i)(?:proxy-authorization["']?(?:[:=]|%3a)(?:["' \t+]|%20)*)?(?:\b|%20)basic(?:[ \t+]|%20)+((?:[a-z0-9+/=]|%2[bf]|%3d)+)`)

// hide replaces Basic credentials in what the proxy has sent. It cannot be told from what an origin sent.
func (h *httpProxy) hide(p []byte) []byte {
	if h == nil || h.authorization == "" {
		return p
	}
	return basic.ReplaceAllFunc(p, func(found []byte) []byte {
		token := bytes.TrimRight(basic.FindSubmatch(found)[1], "=")
		plain, _ := base64.RawStdEncoding.AppendDecode(nil, token) // what there is of one that is truncated
		if !bytes.Contains(plain, []byte(":")) {                   // a word behind "basic"
			return found
		}
		return []byte("[hidden]")
	})
}

// clean removes what the proxy says about itself from the head of a response, and returns the names of the fields.
func (h *httpProxy) clean(head http.Header) (names []string) {
	for name, values := range head {
		if strings.HasPrefix(name, "Proxy-") || slices.Contains(ownFields, name) {
			delete(head, name)
			names = append(names, name)
			continue
		}
		for i, value := range values {
			if hidden := string(h.hide([]byte(value))); hidden != value {
				values[i] = hidden
				names = append(names, name)
			}
		}
	}
	return names
}

// proxyAuthorization is the value of Proxy-Authorization for the userinfo of a proxy's URL (RFC 7617).
func proxyAuthorization(user *url.Userinfo) string {
	if user == nil {
		return ""
	}
	password, _ := user.Password()
	return "Basic " + base64.StdEncoding.EncodeToString([]byte(user.Username()+":"+password))
}

// socks asks a SOCKS5 proxy to connect (RFC 1928).
func socks(to net.Conn, at *url.URL, address string) error {
	var auth *proxy.Auth
	if at.User != nil {
		password, _ := at.User.Password()
		auth = &proxy.Auth{User: at.User.Username(), Password: password}
	}
	dialer, err := proxy.SOCKS5("tcp", at.Host, auth, made{to})
	if err == nil {
		_, err = dialer.Dial("tcp", address)
	}
	if op, ok := errors.AsType[*net.OpError](err); ok {
		if meaning := socksErrors[fmt.Sprint(op.Err)]; meaning != nil {
			return fmt.Errorf("%w: %w", err, meaning)
		}
	}
	return err
}

// socksErrors are what errors of the library mean, which have a text and no type. The other replies are N3.
var socksErrors = map[string]error{
	"unknown error connection not allowed by ruleset": errProxyRefused,
	"unknown error network unreachable":               syscall.ENETUNREACH,
	"unknown error host unreachable":                  syscall.EHOSTUNREACH,
	"unknown error connection refused":                syscall.ECONNREFUSED,
	"no acceptable authentication methods":            errProxyCredentials,
	"username/password authentication failed":         errProxyCredentials,
}

// made is a dialer that returns a connection which is made already.
type made struct{ net.Conn }

// Dial implements proxy.Dialer.
func (m made) Dial(string, string) (net.Conn, error) { return m.Conn, nil }

// tunnel asks an HTTP proxy to connect (RFC 9110 §9.3.6).
func tunnel(nc net.Conn, at *url.URL, address string, memory *budget.Lease) error {
	req := &http.Request{Method: http.MethodConnect, URL: &url.URL{Opaque: address}, Host: address,
		Header: http.Header{"User-Agent": nil}}
	if authorization := proxyAuthorization(at.User); authorization != "" {
		req.Header["Proxy-Authorization"] = []string{authorization}
	}
	var buf bytes.Buffer
	if err := req.Write(&buf); err != nil {
		return err
	}
	if _, err := nc.Write(buf.Bytes()); err != nil {
		return err
	}
	answer := &tunnelAnswer{Conn: nc, head: partialHead{memory: memory}}
	defer answer.head.drop()
	in := bufio.NewReaderSize(answer, readBytes)
	resp, err := http.ReadResponse(in, req) //nolint:bodyclose // the body is the connection
	switch {
	case answer.err != nil && classify.Error(classify.PhaseConnect, answer.err) == classify.Protocol:
		return errProxyHead
	case answer.err != nil:
		return answer.err
	case err != nil:
		return err
	case resp.StatusCode < 200 || resp.StatusCode > 299:
		_, text, _ := strings.Cut(resp.Status, " ")
		return &ProxyError{resp.StatusCode, text}
	case in.Buffered() > 0:
		return errProxyBytes
	}
	return nil
}

// tunnelAnswer reads the answer to CONNECT, with the limits of a head.
type tunnelAnswer struct {
	net.Conn
	head partialHead
	err  error // of the head
}

// Read implements io.Reader.
func (t *tunnelAnswer) Read(p []byte) (int, error) {
	n, err := t.Conn.Read(p)
	if n > 0 && t.err == nil {
		t.err = t.head.read(p[:n])
	}
	if t.err != nil {
		return 0, t.err
	}
	return n, err
}
