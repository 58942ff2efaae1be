package webapi

import (
	"net"
	"net/http"
	"net/netip"
	"slices"
	"strings"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// Guard refuses requests that pages of other origins make browsers send. Otherwise any page could
// reach the network of the service.
type Guard struct {
	Hosts []string // names of the service, without ports; localhost and addresses are always allowed
	Flag  string   // that adds a name, for the text of an error
}

var foreign = http.NewCrossOriginProtection()

// Check returns PERMISSION_DENIED for a call of a page of another origin.
func (g *Guard) Check(r *http.Request) error {
	unsafe := *r
	unsafe.Method = http.MethodPost // Check lets each GET pass, but a GET has effects too
	if err := foreign.Check(&unsafe); err != nil {
		return status.Error(codes.PermissionDenied, "a page of another origin may not call this service")
	}
	if !g.hostIsOurs(r, fromBrowser(r)) {
		return g.foreignHost(r).Err()
	}
	return nil
}

// Page serves pages only under hosts of the service. Under another host, the page and what a user
// types there would belong to the owner of that host.
func (g *Guard) Page(page http.Handler) http.HandlerFunc {
	return func(rw http.ResponseWriter, r *http.Request) {
		if !g.hostIsOurs(r, true) {
			WriteStatus(rw, g.foreignHost(r))
			return
		}
		page.ServeHTTP(rw, r)
	}
}

// fromBrowser reports whether a page may have sent a request. A page cannot leave these headers out.
// Without TLS, a GET of a page to its own host has only Accept-Language. Node's fetch sends that too,
// but with Sec-Fetch-Mode, which a browser never sends without Sec-Fetch-Site.
func fromBrowser(r *http.Request) bool {
	if r.Header.Get("Origin") != "" || r.Header.Get("Sec-Fetch-Site") != "" {
		return true
	}
	_, language := r.Header["Accept-Language"]
	return language && r.Method != http.MethodPost && r.Header.Get("Sec-Fetch-Mode") == ""
}

func (g *Guard) foreignHost(r *http.Request) *status.Status {
	return status.Newf(codes.PermissionDenied, "the host %.60q is not a name of this service: use localhost, its address or a name of %s, or let your proxy send the Host localhost", r.Host, g.Flag)
}

// hostIsOurs reports whether the Host of a request may be a name of the service. It prevents DNS
// rebinding: a browser treats a foreign name that resolves to this server as the server's own
// origin. It is checked on loopback, and for browsers in plaintext. Over TLS the certificate
// protects the service.
func (g *Guard) hostIsOurs(r *http.Request, browser bool) bool {
	local, ok := r.Context().Value(http.LocalAddrContextKey).(net.Addr)
	if !ok {
		return true
	}
	at, err := netip.ParseAddrPort(local.String())
	if err != nil || !at.Addr().Unmap().IsLoopback() && (!browser || r.TLS != nil) {
		return true
	}
	host := r.Host
	if name, _, err := net.SplitHostPort(host); err == nil {
		host = name
	}
	_, err = netip.ParseAddr(strings.Trim(host, "[]"))
	return err == nil || strings.EqualFold(host, "localhost") || slices.ContainsFunc(g.Hosts, func(h string) bool { return strings.EqualFold(h, host) })
}
