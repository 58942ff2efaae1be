package daemon

import (
	"errors"
	"fmt"
	"net"
	"slices"
	"strings"

	"fetchd/internal/secure"
)

// Port is a port of a service.
type Port struct {
	Flag string // with its address
	At   *net.TCPAddr
}

// FlagError is about the value of a flag.
type FlagError struct {
	Flag   string // without hyphens before it
	Remedy string // what is wrong, and what to do
}

// Error implements error.
func (e *FlagError) Error() string { return "--" + e.Flag + ": " + e.Remedy }

// ResolvePorts returns the ports at addresses. An empty HTTP address means that there is no HTTP port.
func ResolvePorts(grpc, http string) ([]Port, error) {
	var all []Port
	for _, p := range []struct{ flag, address string }{{"grpc-addr", grpc}, {"http-addr", http}} {
		if p.flag == "http-addr" && p.address == "" {
			continue
		}
		if p.address == "" {
			return nil, &FlagError{p.flag, "is empty: give HOST:PORT"}
		}
		at, err := net.ResolveTCPAddr("tcp", p.address)
		if err != nil {
			return nil, &FlagError{p.flag, fmt.Sprintf("%v: give HOST:PORT", err)}
		}
		all = append(all, Port{p.flag, at})
	}
	return all, nil
}

// CheckPlaintext returns an error unless all ports are on loopback. Elsewhere others may read and change
// the traffic.
func CheckPlaintext(all []Port) error {
	for _, p := range all {
		if !p.At.IP.IsLoopback() {
			return &FlagError{p.Flag, "is not on loopback, and without a certificate all its traffic is plaintext: " +
				"give --tls-cert-file and --tls-key-file, or --allow-plaintext if something else encrypts and authenticates"}
		}
	}
	return nil
}

// CheckIdentity returns an error about a flag that has no effect without another one.
func CheckIdentity(f secure.IdentityFiles) error {
	switch {
	case f.Cert != "" && f.Key == "":
		return &FlagError{"tls-cert-file", "needs --tls-key-file, the private key of that certificate"}
	case f.Key != "" && f.Cert == "":
		return &FlagError{"tls-key-file", "needs --tls-cert-file, the certificate of that key"}
	case f.ClientCA != "" && f.Cert == "":
		return &FlagError{"tls-client-ca-file", "needs --tls-cert-file and --tls-key-file: callers present certificates only over TLS"}
	case len(f.SANs) > 0 && f.ClientCA == "":
		return &FlagError{"tls-allow-san", "needs --tls-client-ca-file, the authorities that sign callers' certificates"}
	}
	for _, san := range f.SANs {
		if err := secure.CheckSAN(san); err != nil {
			return &FlagError{"tls-allow-san", fmt.Sprint(err)}
		}
	}
	return nil
}

// CheckConsoleHosts returns an error about a name that no browser sends as its host.
func CheckConsoleHosts(names []string) error {
	if slices.ContainsFunc(names, func(name string) bool { return name == "" || strings.ContainsAny(name, ":/@*[] ") }) {
		return &FlagError{"console-host", "is not a host name: give one without scheme, port and path, such as console.example.com"}
	}
	return nil
}

// Listen opens the ports, and stores their addresses: port 0 is any port.
func Listen(all []Port) ([]net.Listener, error) {
	var open []net.Listener
	for i, p := range all {
		l, err := net.ListenTCP("tcp", p.At)
		if err != nil {
			return nil, errors.Join(&FlagError{p.Flag, fmt.Sprintf("%v: give an address of this machine with a free port", err)}, CloseAll(open))
		}
		open = append(open, l)
		if at, ok := l.Addr().(*net.TCPAddr); ok {
			all[i].At = at
		}
	}
	return open, nil
}

// CloseAll closes listeners.
func CloseAll(open []net.Listener) error {
	var err error
	for _, l := range open {
		err = errors.Join(err, l.Close())
	}
	return err
}
