package service

import (
	"fmt"
	"net/url"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/net/http/httpproxy"

	"fetchd/internal/cli"
)

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

// readProxies returns the proxies of --proxy, or else of the environment. flag is nil if it is not given.
func readProxies(flag *string, env func(string) string) (proxies, error) {
	byScheme := make(map[string]proxy)
	if flag != nil {
		if *flag == "" {
			return proxies{}, nil
		}
		u, err := parseProxy("--proxy", *flag)
		byScheme["http"], byScheme["https"] = proxy{u, "--proxy"}, proxy{u, "--proxy"}
		return proxies{byScheme: byScheme}, err
	}
	config := httpproxy.Config{NoProxy: exceptions(env(firstSet(env, "no_proxy", "NO_PROXY")))}
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

// exceptions returns the value of NO_PROXY as the library reads it. curl also allows blanks between names, and
// ignores a dot before and behind a name.
func exceptions(list string) string {
	names := strings.FieldsFunc(list, func(r rune) bool { return r == ',' || r == ' ' || r == '\t' })
	for i, name := range names {
		names[i] = strings.TrimSuffix(strings.TrimPrefix(name, "."), ".")
	}
	return strings.Join(names, ",")
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
	if port, err := strconv.ParseUint(u.Port(), 10, 16); err != nil || port == 0 {
		return nil, cli.UsageError(name, "is not a proxy: its port is "+u.Port()+", give one from 1 to 65535")
	}
	return &url.URL{Scheme: u.Scheme, User: u.User, Host: u.Host}, nil
}

// of returns the proxy for a URL, if there is one.
func (p proxies) of(text string) (proxy, bool) {
	u, err := url.Parse(text)
	if err != nil { // the service will say what is wrong
		return proxy{}, false
	}
	return p.ofURL(u)
}

// forHop returns the proxy for a hop, or nil.
func (p proxies) forHop(u *url.URL) *url.URL {
	used, _ := p.ofURL(u)
	return used.url
}

func (p proxies) ofURL(u *url.URL) (proxy, bool) {
	if p.except != nil {
		name := strings.TrimSuffix(u.Host, ":"+u.Port())
		host := strings.TrimSuffix(name, ".") + u.Host[len(name):] // the library takes a dot at the end for a part of the name
		if used, err := p.except(&url.URL{Scheme: u.Scheme, Host: host}); err != nil || used == nil {
			return proxy{}, false
		}
	}
	found, ok := p.byScheme[strings.ToLower(u.Scheme)]
	return found, ok
}

// told says which proxies are used, a line for each scheme. first is the only URL, or empty.
func (p proxies) told(first string) []string {
	var lines []string
	for _, scheme := range []string{"http", "https"} {
		used, ok := p.byScheme[scheme]
		if _, concerned := p.of(first); ok && (first == "" || concerned && strings.HasPrefix(strings.ToLower(first), scheme+":")) {
			lines = append(lines, fmt.Sprintf("%s URLs use the proxy %s of %s", scheme, used.url.Redacted(), used.name))
		}
	}
	return lines
}
