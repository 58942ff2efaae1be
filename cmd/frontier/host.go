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

// hostKey returns the host of an argument, which is a host or a URL, as the frontier stores it.
// Without a scheme it assumes https, or http if the port is 80, so that the default port is
// removed.
func hostKey(arg string) (string, error) {
	raw := arg
	if !strings.Contains(arg, "://") {
		if strings.Contains(arg, "@") {
			return "", cli.UsageError("HOST", "it contains user information (not repeated here): give only the host")
		}
		if strings.ContainsAny(arg, "/\\?#") || arg == "" {
			return "", cli.UsageError("HOST", fmt.Sprintf("%.80q is not a host: give one such as example.org or example.org:8080, or a whole URL", arg))
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

// unknownHost returns a note if host was never named to the frontier, because it may be misspelt.
// Otherwise, and for an empty host, it returns an empty text. Call it before you change the host.
func unknownHost(ctx context.Context, s store.Store, host string) (string, error) {
	if host == "" {
		return "", nil
	}
	known, err := s.Knows(ctx, host)
	if known || err != nil {
		return "", err
	}
	return fmt.Sprintf("The frontier has no URL of %s.\n", host), nil
}
