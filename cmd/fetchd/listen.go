package main

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
)

// face is a port of the service.
type face struct {
	flag string
	at   *net.TCPAddr
}

// faces returns the ports in the settings. The error is about an invalid address.
func (s *settings) faces() ([]face, error) {
	var all []face
	for _, f := range []struct{ flag, address string }{{"grpc-addr", s.GRPCAddr}, {"http-addr", s.HTTPAddr}} {
		if f.flag == "http-addr" && f.address == "" {
			continue
		}
		at, err := net.ResolveTCPAddr("tcp", f.address)
		if err != nil {
			return nil, s.wrong(f.flag, fmt.Sprintf("%v: give HOST:PORT", err))
		}
		all = append(all, face{f.flag, at})
	}
	return all, nil
}

// checkPlaintext rejects plaintext ports that are not on loopback, where others may read and
// change the traffic.
func (s *settings) checkPlaintext(faces []face) error {
	if s.TLSCertFile != "" || s.AllowPlaintext {
		return nil
	}
	for _, f := range faces {
		if !f.at.IP.IsLoopback() {
			return s.wrong(f.flag, "is not on loopback, and without a certificate all its traffic is plaintext: "+
				"give --tls-cert-file and --tls-key-file, or --allow-plaintext if something else encrypts and authenticates")
		}
	}
	return nil
}

// own returns the addresses of the ports, which no fetch may reach. An address without a host
// means all addresses.
func own(faces []face) []netip.AddrPort {
	var all []netip.AddrPort
	for _, f := range faces {
		at := *f.at
		if len(at.IP) == 0 {
			at.IP = net.IPv6unspecified
		}
		all = append(all, at.AddrPort())
	}
	return all
}

// listen opens the ports, and stores the addresses in faces: port 0 is any port.
func listen(faces []face) ([]net.Listener, error) {
	var open []net.Listener
	for i, f := range faces {
		l, err := net.ListenTCP("tcp", f.at)
		if err != nil {
			return nil, errors.Join(fmt.Errorf("--%s: %w", f.flag, err), closeAll(open))
		}
		open = append(open, l)
		if at, ok := l.Addr().(*net.TCPAddr); ok {
			faces[i].at = at
		}
	}
	return open, nil
}

func closeAll(open []net.Listener) error {
	var err error
	for _, l := range open {
		err = errors.Join(err, l.Close())
	}
	return err
}
