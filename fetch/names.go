package fetch

import (
	"context"
	"errors"
	"net"
	"net/netip"
	"slices"
	"strings"
)

// insideSuffixes end names that only mean something inside a network: reserved
// for it (RFC 6761, RFC 6762, RFC 8375, ICANN's .internal), or used for it so
// widely that they will never be public (RFC 6762 appendix G), or a cluster's.
var insideSuffixes = []string{"localhost", "local", "localdomain", "internal", "intranet", "private", "corp", "home", "lan",
	"home.arpa", "svc", "cluster", "consul", "onion"}

// metadataNames are those of the services that hand out a machine's credentials
// to whoever asks from inside. Nothing opens them.
var metadataNames = []string{"metadata", "metadata.google.internal", "metadata.goog", "instance-data",
	"instance-data.ec2.internal", "metadata.tencentyun.com", "metadata.azure.internal", "metadata.packet.net",
	"metadata.platformequinix.com", "metadata.oraclecloud.com"}

// checkName judges a host name, in lower case and ASCII. A name proves nothing,
// for it can resolve to any address, which is judged when it is dialled; this
// keeps questions about the inside away from the resolver.
func (g *guard) checkName(host string) error {
	name := strings.TrimSuffix(host, ".")
	switch {
	case g.isDenied(name):
		return blocked("name_denied")
	case g.open:
		return nil
	case slices.Contains(metadataNames, name):
		return blocked("metadata_name")
	case !g.inside && isInside(name):
		return blocked("name_not_allowed")
	}
	return nil
}

// isInside tells a name that only means something inside: a single label, or one
// under such a suffix.
func isInside(name string) bool {
	return !strings.Contains(name, ".") ||
		slices.ContainsFunc(insideSuffixes, func(suffix string) bool { return under(name, suffix) })
}

// isDenied tells a name that the operator has closed.
func (g *guard) isDenied(name string) bool {
	return slices.ContainsFunc(g.denyHosts, func(closed string) bool {
		if suffix := trimWildcard(closed); suffix != closed {
			return under(name, suffix)
		}
		return name == closed
	})
}

// under reports whether a name ends in a suffix, at a dot.
func under(name, suffix string) bool {
	head, ok := strings.CutSuffix(name, suffix)
	return ok && strings.HasSuffix(head, ".")
}

func trimWildcard(name string) string { return strings.TrimPrefix(name, "*.") }

// hostsFile finds what stands in the system's file of hosts, and asks no one.
var hostsFile = &net.Resolver{PreferGo: true, Dial: func(context.Context, string, string) (net.Conn, error) {
	return nil, errors.ErrUnsupported
}}

// rooted is a host as it is looked up: the whole name, as it was judged, to
// which no search list of the system may add.
func rooted(host string) string {
	if _, err := netip.ParseAddr(host); err == nil || strings.HasSuffix(host, ".") {
		return host
	}
	if !strings.Contains(host, ".") { // Go finds a single label in that file without its dot alone
		if addrs, err := hostsFile.LookupHost(context.Background(), host); err == nil && len(addrs) > 0 {
			return host
		}
	}
	return host + "."
}
