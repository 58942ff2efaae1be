package main

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
)

// face is a port that the service has.
type face struct {
	flag string
	at   *net.TCPAddr
}

// faces are the ports that the settings ask for. The error is that of an address
// which is none.
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

// checkPlaintext refuses to serve strangers what anybody between may read and
// change.
func (s *settings) checkPlaintext(faces []face) error {
	if s.TLSCertFile != "" || s.AllowPlaintext {
		return nil
	}
	for _, f := range faces {
		if !f.at.IP.IsLoopback() {
			return s.wrong(f.flag, "is not loopback, and without certificates everything there is plaintext: "+
				"give --tls-cert-file and --tls-key-file, or --allow-plaintext where something else encrypts and knows the callers")
		}
	}
	return nil
}

// own are the addresses of the ports, which no fetch may reach. A host that is
// left out means all addresses.
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

// listen opens the ports, and tells in faces which they are: port 0 is any.
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
