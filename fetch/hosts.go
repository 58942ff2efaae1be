package fetch

import (
	"errors"
	"net"
	"net/url"
	"strconv"
	"strings"

	"fetchd/fetch/urls"
)

// hostSet is a set of hosts. Its keys are "*", names and addresses as in URLs, and the same with a port.
type hostSet map[string]bool

// newHostSet returns the set of hosts in a list like [Config].NeverReuse. The error quotes the one that
// is invalid.
func newHostSet(list []string) (hostSet, error) {
	set := make(hostSet, len(list))
	for _, host := range list {
		if host == "*" {
			set[host] = true
			continue
		}
		u, err := urls.Parse("http://" + host)
		if err != nil || u.Path+u.RawQuery+u.Fragment != "" || strings.ContainsAny(host, "/?#") {
			return nil, errors.New(strconv.Quote(host) + " is not a host: give *, NAME, NAME:PORT, or an IP address, in brackets if it is IPv6")
		}
		set[hostKey(u.Hostname(), u.Port())] = true
	}
	return set, nil
}

// CheckNeverReuse returns what is wrong with a value of [Config].NeverReuse. The error quotes the host and
// says what to give instead.
func CheckNeverReuse(hosts []string) error {
	_, err := newHostSet(hosts)
	return err
}

// has reports whether the host of a URL is in the set, with any port or with the URL's.
func (s hostSet) has(u *url.URL) bool {
	return s["*"] || s[hostKey(u.Hostname(), "")] || s[hostKey(u.Hostname(), urls.Port(u))]
}

// hostKey returns a key of a hostSet. The dot at the end of a name is omitted. An empty port means any.
func hostKey(name, port string) string {
	name = strings.TrimSuffix(name, ".")
	if port == "" {
		return name
	}
	return net.JoinHostPort(name, port)
}
