package main

import (
	"context"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"net/url"
	"os"
	"time"

	"fetchd/fetch"
)

// The exit codes of --egress-check.
const (
	exitAllowed   = 0
	exitForbidden = 1
	exitInvalid   = 2
)

// fetchConfig is how origins are reached.
func fetchConfig(f *flags) (fetch.Config, error) {
	cfg := fetch.Config{
		Egress: fetch.Egress{AllowCIDRs: f.EgressAllowCIDR, DenyCIDRs: f.EgressDenyCIDR,
			AllowPorts: f.EgressAllowPort, DenyHosts: f.EgressDenyHost},
		UserAgent:      f.UserAgent,
		HoldBackBudget: f.HoldBackBudget,
	}
	if cfg.UserAgent == "" {
		cfg.UserAgent = "fetchd/" + versionText()
	}
	if f.EgressResolver != "" {
		cfg.Resolver = fetch.Resolver(f.EgressResolver)
	}
	if f.EgressProxy != "" {
		proxy, err := url.Parse(f.EgressProxy)
		if err != nil { // the error would show its password
			return cfg, errors.New("--egress-proxy: is not a URL")
		}
		cfg.Proxy = proxy
	}
	if f.EgressCAFile != "" {
		roots, err := authorities(f.EgressCAFile)
		if err != nil {
			return cfg, fmt.Errorf("--egress-ca-file: %w", err)
		}
		cfg.RootCAs = roots
	}
	return cfg, nil
}

// authorities are the system's and those in the file.
func authorities(file string) (*x509.CertPool, error) {
	pem, err := os.ReadFile(file)
	if err != nil {
		return nil, err
	}
	roots, err := x509.SystemCertPool()
	if err != nil {
		return nil, err
	}
	if !roots.AppendCertsFromPEM(pem) {
		return nil, errors.New(file + " holds no certificate in PEM")
	}
	return roots, nil
}

// own is the service's listener, which no fetch may reach.
func own(l net.Listener) []netip.AddrPort {
	if addr, err := netip.ParseAddrPort(l.Addr().String()); err == nil {
		return []netip.AddrPort{addr}
	}
	return nil
}

// ownAt is the listener that serving would have at --grpc-addr: a host that is
// left out means all addresses.
func ownAt(address string) ([]netip.AddrPort, error) {
	at, err := net.ResolveTCPAddr("tcp", address)
	if err != nil {
		return nil, fmt.Errorf("--grpc-addr: %w", err)
	}
	if len(at.IP) == 0 {
		at.IP = net.IPv6unspecified
	}
	return []netip.AddrPort{at.AddrPort()}, nil
}

// egressCheck says what the settings make of a URL.
func egressCheck(ctx context.Context, f *flags, stdout, stderr io.Writer) int {
	u, err := fetch.ParseURL(f.EgressCheck)
	if err != nil {
		_, _ = fmt.Fprintf(stdout, "invalid: the URL %v\n", err)
		return exitInvalid
	}
	judged, err := judge(ctx, f, u)
	code := exitForbidden
	for i, j := range judged {
		if !j.Open() {
			_, _ = fmt.Fprintf(stdout, "forbidden (P1): %s: %s: %s\n", j.Target, j.Reason, j.Remedy)
			continue
		}
		if i > 0 || len(judged) == 1 {
			note := j.Note
			if note != "" {
				note = " (" + note + ")"
			}
			_, _ = fmt.Fprintf(stdout, "allowed: %s%s\n", j.Target, note)
			code = exitAllowed
		}
	}
	if err != nil {
		_, _ = fmt.Fprintf(stderr, "fetchd: %v\n", err)
		return exitForbidden
	}
	return code
}

// judge makes the client that would fetch, and asks it.
func judge(ctx context.Context, f *flags, u *url.URL) ([]fetch.Judgement, error) {
	const limit = 10 * time.Second
	cfg, err := fetchConfig(f)
	if err != nil {
		return nil, err
	}
	if cfg.Egress.Own, err = ownAt(f.GRPCAddr); err != nil {
		return nil, err
	}
	c, err := fetch.New(cfg)
	if err != nil {
		return nil, err
	}
	defer c.Close()
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	return c.CheckTarget(ctx, u)
}
