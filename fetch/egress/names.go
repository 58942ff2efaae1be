package egress

import (
	"context"
	"errors"
	"net"
	"net/netip"
	"slices"
	"strings"
)

// insideSuffixes are the ends of names that have a meaning only inside a network. They are
// reserved for it (RFC 6761, RFC 6762, RFC 8375, ICANN's .internal), or so widely used for it
// that they will never be public (RFC 6762 appendix G), or used by clusters.
var insideSuffixes = []string{"localhost", "local", "localdomain", "internal", "intranet", "private", "corp", "home", "lan",
	"home.arpa", "svc", "cluster", "consul", "onion"}

// metadataNames are the names of services that provide a machine's credentials to all its
// programs. No setting except Unrestricted allows them.
var metadataNames = []string{"metadata", "metadata.google.internal", "metadata.goog", "instance-data",
	"instance-data.ec2.internal", "metadata.tencentyun.com", "metadata.azure.internal", "metadata.packet.net",
	"metadata.platformequinix.com", "metadata.oraclecloud.com"}

// checkName checks a host name in lower case and ASCII. A name can resolve to any address,
// so the address is checked too when it is dialed. checkName keeps lookups of internal names
// away from the resolver.
func (g *Guard) checkName(host string) error {
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

// isInside reports whether a name has a meaning only inside a network: it is a single label,
// or has one of the suffixes.
func isInside(name string) bool {
	return !strings.Contains(name, ".") ||
		slices.ContainsFunc(insideSuffixes, func(suffix string) bool { return under(name, suffix) })
}

// isDenied reports whether the operator has blocked the name.
func (g *Guard) isDenied(name string) bool {
	return slices.ContainsFunc(g.denyHosts, func(denied string) bool {
		if suffix := trimWildcard(denied); suffix != denied {
			return under(name, suffix)
		}
		return name == denied
	})
}

// under reports whether a name ends in a suffix, at a dot.
func under(name, suffix string) bool {
	head, ok := strings.CutSuffix(name, suffix)
	return ok && strings.HasSuffix(head, ".")
}

func trimWildcard(name string) string { return strings.TrimPrefix(name, "*.") }

// hostsFile looks names up in the system's hosts file alone.
var hostsFile = &net.Resolver{PreferGo: true, Dial: func(context.Context, string, string) (net.Conn, error) {
	return nil, errors.ErrUnsupported
}}

// Rooted returns the host as it is looked up. Its trailing dot keeps the system's search list
// from changing the name that was checked.
func Rooted(host string) string {
	if _, err := netip.ParseAddr(host); err == nil || strings.HasSuffix(host, ".") {
		return host
	}
	if !strings.Contains(host, ".") { // Go finds a single label in the hosts file only without the dot
		if addrs, err := hostsFile.LookupHost(context.Background(), host); err == nil && len(addrs) > 0 {
			return host
		}
	}
	return host + "."
}
