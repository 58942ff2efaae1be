package hostile

import (
	"context"
	"encoding/binary"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httputil"
	"net/netip"
	"strconv"
	"strings"
	"syscall"

	"golang.org/x/net/dns/dnsmessage"
)

// proxySources are the addresses from which the proxies connect, IPv4 and IPv6.
const proxySources = "198.51.100.53 2001:db8::53"

const proxyUser, proxyPassword = "team", "tr0ub4dor"

// reachByProxy connects to an address, or to the last address of a name. It forbids nothing.
func (n *network) reachByProxy(ctx context.Context, network, address string) (net.Conn, error) {
	name, port, err := net.SplitHostPort(address)
	if err != nil {
		return nil, err
	}
	at, err := netip.ParseAddr(name)
	if err != nil {
		_, all := n.dns.Lookup(strings.ToLower(strings.TrimSuffix(name, ".")), dnsmessage.TypeA)
		if len(all) == 0 {
			return nil, fmt.Errorf("no address of %s", name)
		}
		at = all[len(all)-1]
	}
	dialer := net.Dialer{Control: func(network, _ string, raw syscall.RawConn) error {
		v4, v6, _ := strings.Cut(proxySources, " ")
		var from syscall.Sockaddr = &syscall.SockaddrInet4{Addr: netip.MustParseAddr(v4).As4()}
		if network == "tcp6" {
			from = &syscall.SockaddrInet6{Addr: netip.MustParseAddr(v6).As16()}
		}
		var err error
		if failed := raw.Control(func(fd uintptr) {
			// No interface has the address.
			if err = syscall.SetsockoptInt(int(fd), syscall.IPPROTO_IP, syscall.IP_FREEBIND, 1); err == nil {
				err = syscall.Bind(int(fd), from)
			}
		}); failed != nil {
			return failed
		}
		return err
	}}
	return dialer.DialContext(ctx, network, net.JoinHostPort(at.Unmap().String(), port))
}

// tunnel connects a client of a proxy to an address, after an answer.
func (n *network) tunnel(here net.Conn, address, answer string) {
	defer func() { _ = here.Close() }()
	there, err := n.reachByProxy(context.Background(), "tcp", address)
	if err != nil {
		return
	}
	defer func() { _ = there.Close() }()
	_, _ = io.WriteString(here, answer)
	go func() {
		_, _ = io.Copy(there, here)
		_ = there.Close()
	}()
	_, _ = io.Copy(here, there)
}

// proxy is an HTTP proxy.
func (n *network) proxy(w http.ResponseWriter, q *http.Request) {
	shown := http.Request{Header: http.Header{"Authorization": q.Header["Proxy-Authorization"]}}
	if user, password, _ := shown.BasicAuth(); user != proxyUser || password != proxyPassword {
		w.WriteHeader(http.StatusProxyAuthRequired)
		return
	}
	if q.Method != http.MethodConnect {
		forward := httputil.ReverseProxy{
			Rewrite:   func(*httputil.ProxyRequest) {},
			Transport: &http.Transport{DialContext: n.reachByProxy, DisableKeepAlives: true},
		}
		forward.ServeHTTP(w, q)
		return
	}
	if here, _, err := http.NewResponseController(w).Hijack(); err == nil {
		n.tunnel(here, q.Host, "HTTP/1.1 200 OK\r\n\r\n")
	}
}

// serveSocks serves a SOCKS5 proxy (RFC 1928) that needs a password (RFC 1929).
func (n *network) serveSocks(l net.Listener) error {
	for {
		here, err := l.Accept()
		if err != nil {
			return err
		}
		go n.socks(here)
	}
}

func (n *network) socks(here net.Conn) {
	read := func(size byte) []byte {
		b := make([]byte, size)
		_, _ = io.ReadFull(here, b)
		return b
	}
	read(read(2)[1])
	_, _ = here.Write([]byte{5, 2})
	user := string(read(read(2)[1]))
	if password := string(read(read(1)[0])); user != proxyUser || password != proxyPassword {
		_ = here.Close()
		return
	}
	_, _ = here.Write([]byte{1, 0})
	var name string
	switch read(4)[3] {
	case 1:
		name = net.IP(read(net.IPv4len)).String()
	case 4:
		name = net.IP(read(net.IPv6len)).String()
	default:
		name = string(read(read(1)[0]))
	}
	port := binary.BigEndian.Uint16(read(2))
	n.tunnel(here, net.JoinHostPort(name, strconv.Itoa(int(port))), "\x05\x00\x00\x01\x00\x00\x00\x00\x00\x00")
}
