package egress

import (
	"context"
	"errors"
	"net"
	"net/netip"
	"slices"
	"strings"

	"fetchd/fetch/urls"
)

// insideDomains are the last labels of names that have a meaning only inside a network, and so is home.arpa. They are
// reserved for it (RFC 6761, RFC 6762, RFC 8375, ICANN's .internal), or so widely used for it
// that they will never be public (RFC 6762 appendix G), or used by clusters.
var insideDomains = map[string]bool{"localhost": true, "local": true, "localdomain": true, "internal": true, "intranet": true, "private": true,
	"corp": true, "home": true, "lan": true, "svc": true, "cluster": true, "consul": true, "onion": true}

// metadataNames are the names of services that provide a machine's credentials to all its
// programs. No setting except Unrestricted allows them.
var metadataNames = []string{"metadata", "metadata.google.internal", "metadata.goog", "instance-data",
	"instance-data.ec2.internal", "metadata.tencentyun.com", "metadata.azure.internal", "metadata.packet.net",
	"metadata.platformequinix.com", "metadata.oraclecloud.com", "api.metadata.cloud.ibm.com", "global.cloudinit.sdns.ksyun.com",
	"rancher-metadata"}

// checkName checks a host name in lower case and ASCII. A name can resolve to any address,
// so the address is checked too when it is dialed. checkName keeps lookups of internal names
// away from the resolver. outside reports whether names that are not in AllowHosts are blocked.
func (g *Guard) checkName(host string, outside bool) error {
	name := strings.TrimSuffix(host, ".")
	if entry, ok := g.denyHosts.match(name); ok {
		return g.blocked("name_denied", entry)
	}
	if !g.open && slices.Contains(metadataNames, name) {
		return g.blocked("metadata_name", "")
	}
	if outside {
		if _, ok := g.allowHosts.match(name); !ok {
			return g.blocked("name_not_allowed", "")
		}
	}
	if !g.open && !g.inside && IsInside(name) {
		return g.blocked("name_not_allowed", "")
	}
	return nil
}

// IsInside reports whether a name has a meaning only inside a network: it is a single label, or ends in such a domain.
func IsInside(name string) bool {
	dot := strings.LastIndexByte(name, '.')
	return dot < 0 || insideDomains[name[dot+1:]] || strings.HasSuffix(name, ".home.arpa")
}

// NameForms says what an entry of DenyHosts and AllowHosts may be.
const NameForms = "give a name in lower case, *.name for the names below it, or domain:name for both"

// domainPrefix begins an entry for a name and all names below it.
const domainPrefix = "domain:"

// names is a set of names and of names below others. The values are the entries. A lookup costs a step for
// each label, however many entries there are.
type names struct{ exact, below map[string]string }

func namesOf(entries []string) names {
	n := names{make(map[string]string), make(map[string]string)}
	for _, entry := range entries {
		name, both := strings.CutPrefix(strings.TrimSuffix(entry, "."), domainPrefix) // checkName removes the dot too
		name, below := strings.CutPrefix(name, "*.")
		if below || both {
			n.below[name] = entry
		}
		if !below || both {
			n.exact[name] = entry
		}
	}
	return n
}

// invalid returns an entry that is not usable, if there is one.
func invalid(entries []string) (entry string, ok bool) {
	for _, entry := range entries {
		name, both := strings.CutPrefix(entry, domainPrefix)
		if !both {
			name = strings.TrimPrefix(name, "*.")
		}
		if !urls.IsHostName(name) {
			return entry, true
		}
	}
	return "", false
}

// some reports whether there are entries.
func (n *names) some() bool { return len(n.exact)+len(n.below) > 0 }

// match returns the entry that matches a name.
func (n *names) match(name string) (entry string, ok bool) {
	if entry, ok := n.exact[name]; ok || len(n.below) == 0 {
		return entry, ok
	}
	for {
		_, rest, more := strings.Cut(name, ".")
		if !more {
			return "", false
		}
		if entry, ok := n.below[rest]; ok {
			return entry, true
		}
		name = rest
	}
}

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
