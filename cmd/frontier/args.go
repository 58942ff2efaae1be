package main

import (
	"fmt"
	"net/netip"
	"regexp"
	"strings"

	"fetchd/frontier/normal"
	"fetchd/internal/cli"
)

// secrets matches the parts of an address that may contain a password. For an address of a database
// it prefers to match too much.
var secrets = regexp.MustCompile(`(?i)(postgres(?:ql)?://)\S*@|(://)[^\s/?#]*@|(password\s*=\s*)(?:'[^']*'|[^\s&]+)`)

// safe makes text safe for one line of output: no control characters, no passwords.
func safe(s string) string {
	return cli.Escape(secrets.ReplaceAllStringFunc(strings.Join(strings.Fields(s), " "), func(match string) string {
		if strings.HasSuffix(match, "@") {
			return match[:strings.Index(match, "://")+3] + "xxxxx@"
		}
		name, _, _ := strings.Cut(match, "=")
		return name + "=xxxxx"
	}))
}

// normalURL returns the normal form of a URL of the command line, or a usage error. A text with an @ may
// contain a password, so it is not repeated.
func normalURL(field, text string) (string, error) {
	u, err := normal.NormalizeURL(text)
	if err == nil {
		return u, nil
	}
	if err := cli.CheckScheme(field, text); err != nil {
		return "", err
	}
	shown := "it"
	if !strings.Contains(text, "@") {
		shown = fmt.Sprintf("%.80q", text)
	}
	return "", cli.UsageError(field, fmt.Sprintf("%s is not usable: %v: give a complete URL, such as https://example.org/", shown, err))
}

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
