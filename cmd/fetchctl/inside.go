package main

import (
	"context"
	"crypto/x509"
	"fmt"
	"net/url"
	"os"
	"slices"
	"strings"
	"sync"

	"golang.org/x/net/http/httpproxy"
	"google.golang.org/grpc"

	pb "fetchd/gen/fetchd/v1"
	"fetchd/internal/cli"
	"fetchd/stores"
)

// insideFlags are the flags for the way from the service inside to origins.
type insideFlags struct {
	Proxy  *string `short:"x" group:"Service:" placeholder:"URL" help:"Send every request through this proxy: http, https or socks5://[USER:PASSWORD@]HOST:PORT. It looks names up. Not with --server. Default: http_proxy, HTTPS_PROXY, ALL_PROXY and NO_PROXY of the environment, as for curl; an empty URL means none."`
	CACert string  `name:"cacert" group:"Service:" placeholder:"FILE" help:"Trust the certificate authorities in this PEM file instead of the system's. Not with --server."`
}

// check rejects flags that do not go with --server.
func (f *insideFlags) check(server string) error {
	switch {
	case f.Proxy != nil && server != "":
		return cli.UsageError("--proxy", "is for the service inside fetchctl: the operator of the one at --server or FETCHD_SERVER sets it with --egress-proxy")
	case f.CACert != "" && server != "":
		return cli.UsageError("--cacert", "is for the service inside fetchctl: the operator of the one at --server or FETCHD_SERVER sets it with --egress-ca-file. For the connection to the service itself there is --tls-ca-file")
	}
	return nil
}

// roots returns the authorities of --cacert, or nil.
func (f *insideFlags) roots() (*x509.CertPool, error) {
	if f.CACert == "" {
		return nil, nil
	}
	pem, err := os.ReadFile(f.CACert)
	if err != nil {
		return nil, cli.UsageError("--cacert", fmt.Sprint(err))
	}
	roots := x509.NewCertPool()
	if !roots.AppendCertsFromPEM(pem) {
		return nil, cli.UsageError("--cacert", f.CACert+" has no certificate in PEM")
	}
	return roots, nil
}

// proxy is a proxy and the flag or variable that names it.
type proxy struct {
	url  *url.URL
	name string
}

// proxies are the proxies by the scheme of URLs, and the hosts without one.
type proxies struct {
	byScheme map[string]proxy
	except   func(*url.URL) (*url.URL, error) // returns nil for a URL that needs no proxy; nil: every URL has one
}

// proxies returns the proxies of --proxy, or else of the environment.
func (f *insideFlags) proxies(env func(string) string) (proxies, error) {
	byScheme := make(map[string]proxy)
	if f.Proxy != nil {
		if *f.Proxy == "" {
			return proxies{}, nil
		}
		u, err := parseProxy("--proxy", *f.Proxy)
		byScheme["http"], byScheme["https"] = proxy{u, "--proxy"}, proxy{u, "--proxy"}
		return proxies{byScheme: byScheme}, err
	}
	config := httpproxy.Config{NoProxy: env(firstSet(env, "no_proxy", "NO_PROXY"))}
	for scheme, names := range map[string][]string{
		"http":  {"http_proxy", "all_proxy", "ALL_PROXY"}, // HTTP_PROXY could be a header of a CGI request
		"https": {"https_proxy", "HTTPS_PROXY", "all_proxy", "ALL_PROXY"},
	} {
		name := firstSet(env, names...)
		if env(name) == "" {
			continue
		}
		u, err := parseProxy(name, env(name))
		if err != nil {
			return proxies{}, err
		}
		byScheme[scheme] = proxy{u, name}
		config.HTTPProxy, config.HTTPSProxy = "http://any", "http://any"
	}
	return proxies{byScheme, config.ProxyFunc()}, nil
}

// firstSet returns the first name that has a value, or the last name.
func firstSet(env func(string) string, names ...string) string {
	for _, name := range names {
		if env(name) != "" {
			return name
		}
	}
	return names[len(names)-1]
}

// parseProxy parses the URL of a proxy. The error does not contain its password.
func parseProxy(name, text string) (*url.URL, error) {
	if !strings.Contains(text, "://") {
		text = "http://" + text
	}
	u, err := url.Parse(text)
	if err == nil && u.Scheme == "socks5h" { // the proxy looks names up with either
		u.Scheme = "socks5"
	}
	if err != nil || !slices.Contains([]string{"http", "https", "socks5"}, u.Scheme) || u.Hostname() == "" || u.Port() == "" {
		return nil, cli.UsageError(name, "is not a proxy: give http://HOST:PORT, https://HOST:PORT or socks5://HOST:PORT")
	}
	return &url.URL{Scheme: u.Scheme, User: u.User, Host: u.Host}, nil
}

// of returns the proxy for a URL, if there is one.
func (p proxies) of(text string) (proxy, bool) {
	u, err := url.Parse(text)
	if err != nil { // the service will say what is wrong
		return proxy{}, false
	}
	if p.except != nil {
		if used, err := p.except(u); err != nil || used == nil {
			return proxy{}, false
		}
	}
	found, ok := p.byScheme[strings.ToLower(u.Scheme)]
	return found, ok
}

// connectOut is connect with the flags for the way to origins. It says on a terminal which proxy of
// the environment is used. first is the only URL, or empty.
func (c connection) connectOut(a *app, f insideFlags, first string, quiet bool, bodies *stores.Set, more ...grpc.DialOption) (*service, error) {
	if c.Server != "" {
		return c.connect(bodies, more...)
	}
	roots, err := f.roots()
	if err != nil {
		return nil, err
	}
	proxies, err := f.proxies(a.Env)
	if err != nil {
		return nil, err
	}
	if !quiet && f.Proxy == nil && cli.IsTerminal(a.Err) {
		for _, scheme := range []string{"http", "https"} {
			used, ok := proxies.byScheme[scheme]
			if _, concerned := proxies.of(first); ok && (first == "" || concerned && strings.HasPrefix(strings.ToLower(first), scheme+":")) {
				a.Errorf("%s URLs use the proxy %s of %s", scheme, used.url.Redacted(), used.name)
			}
		}
	}
	r := &router{proxies: proxies, started: make(map[string]*service), start: func(via *url.URL) (*service, error) {
		config := insideConfig(bodies)
		config.Fetch.RootCAs, config.Fetch.Proxy = roots, via
		return startExplained(config, more...)
	}}
	direct, err := r.service(nil)
	if err != nil {
		return nil, err
	}
	r.FetchServiceClient = direct
	return &service{r, r.close}, nil
}

// router sends a fetch to the service inside that uses the proxy of the URL. That proxy is used for
// redirects too.
type router struct {
	pb.FetchServiceClient // the one without a proxy
	proxies               proxies
	start                 func(via *url.URL) (*service, error)

	mu      sync.Mutex
	started map[string]*service // by proxy
}

// service returns the service that uses a proxy, which may be nil.
func (r *router) service(via *url.URL) (*service, error) {
	key := ""
	if via != nil {
		key = via.String()
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if svc := r.started[key]; svc != nil {
		return svc, nil
	}
	svc, err := r.start(via)
	if err == nil {
		r.started[key] = svc
	}
	return svc, err
}

// close ends all services.
func (r *router) close() {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, svc := range r.started {
		svc.close()
	}
}

// Fetch implements pb.FetchServiceClient.
func (r *router) Fetch(ctx context.Context, req *pb.FetchRequest, opts ...grpc.CallOption) (grpc.ServerStreamingClient[pb.FetchResponse], error) {
	used, ok := r.proxies.of(req.GetUrl())
	if !ok {
		return r.FetchServiceClient.Fetch(ctx, req, opts...)
	}
	svc, err := r.service(used.url)
	if err != nil {
		return nil, cli.UsageError(used.name, fmt.Sprint(err))
	}
	return svc.Fetch(ctx, req, opts...)
}
