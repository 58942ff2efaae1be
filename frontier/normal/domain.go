package normal

import (
	"net/netip"
	"strings"

	"golang.org/x/net/publicsuffix"
)

// Domain returns the registrable domain of a host in its normal form, without its port, by the public suffix list. An
// address, as in [Address], and a name that has no such domain, stay whole.
func Domain(host string) string {
	name := Name(host)
	if a, err := netip.ParseAddr(strings.Trim(name, "[]")); err == nil {
		return Address(a)
	}
	domain, err := publicsuffix.EffectiveTLDPlusOne(name)
	if err != nil {
		return name
	}
	return domain
}

// Name returns a host without its port. An IPv6 address keeps its brackets.
func Name(host string) string {
	if at := strings.LastIndexByte(host, ':'); at >= 0 && !strings.HasSuffix(host, "]") {
		return host[:at]
	}
	return host
}

// IsAddress reports whether the name of a host is an IP address.
func IsAddress(name string) bool {
	_, err := netip.ParseAddr(strings.Trim(name, "[]"))
	return err == nil
}

// Address returns an address as it is in a host. One of IPv4 in IPv6 is of IPv4.
func Address(a netip.Addr) string {
	if a = a.Unmap().WithZone(""); a.Is6() {
		return "[" + a.String() + "]"
	}
	return a.String()
}
