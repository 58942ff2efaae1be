package main

import (
	"fmt"
	"net/netip"
	"strings"

	"fetchd/frontier/normal"
)

// hostKey is the host that an argument names, by itself or with a URL of it, as
// the frontier knows it. https is the scheme where none is given; port 80 is
// then that of http, so that it goes as well.
func hostKey(arg string) (string, error) {
	raw := arg
	if !strings.Contains(arg, "://") {
		if strings.Contains(arg, "@") {
			return "", &usageError{"HOST", "it has user information (not repeated here): give the host alone"}
		}
		if strings.ContainsAny(arg, "/\\?#") || arg == "" {
			return "", &usageError{"HOST", fmt.Sprintf("%.80q is no host: give one such as example.org or example.org:8080, or a whole URL", arg)}
		}
		if addr, err := netip.ParseAddr(arg); err == nil && addr.Is6() {
			raw = "[" + arg + "]"
		}
		scheme := "https://"
		if strings.HasSuffix(raw, ":80") {
			scheme = "http://"
		}
		raw = scheme + raw + "/"
	}
	url, err := normal.NormalizeURL(raw)
	if err != nil {
		return "", &usageError{"HOST", fmt.Sprintf("%v: give a host such as example.org or example.org:8080, or a URL", err)}
	}
	host, err := normal.ExtractHost(url)
	if err != nil {
		return "", &usageError{"HOST", fmt.Sprint(err)}
	}
	return host, nil
}
