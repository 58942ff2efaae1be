package main

import (
	"context"
	"fmt"
	"net/netip"
	"strings"

	"fetchd/frontier/normal"
	"fetchd/frontier/store"
	"fetchd/internal/cli"
)

// hostKey is the host that an argument names, by itself or with a URL of it, as
// the frontier knows it. https is the scheme where none is given; port 80 is
// then that of http, so that it goes as well.
func hostKey(arg string) (string, error) {
	raw := arg
	if !strings.Contains(arg, "://") {
		if strings.Contains(arg, "@") {
			return "", cli.UsageError("HOST", "it has user information (not repeated here): give the host alone")
		}
		if strings.ContainsAny(arg, "/\\?#") || arg == "" {
			return "", cli.UsageError("HOST", fmt.Sprintf("%.80q is no host: give one such as example.org or example.org:8080, or a whole URL", arg))
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
		return "", cli.UsageError("HOST", fmt.Sprintf("%v: give a host such as example.org or example.org:8080, or a URL", err))
	}
	host, err := normal.ExtractHost(url)
	if err != nil {
		return "", cli.UsageError("HOST", fmt.Sprint(err))
	}
	return host, nil
}

// strange is a line that tells of a host nobody has named to the frontier before, which
// may be misspelt; empty for another. It is asked before anything is done to the host.
func strange(ctx context.Context, s store.Store, host string) (string, error) {
	known, err := s.Knows(ctx, host)
	if known || err != nil {
		return "", err
	}
	return fmt.Sprintf("The frontier holds no URL of %s.\n", host), nil
}
