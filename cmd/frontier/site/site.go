package site

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"net/netip"
	"sync"

	"fetchd/conformance/origin" //nolint:depguard // a site is for tests and demos too, and no more than the origin in a product
)

// suffix is the default of Config.Suffix.
const suffix = "demo.test"

// Config configures a [Site]. The zero value is usable.
type Config struct {
	// Robots answers /robots.txt of a host, which is the Host field in lower case and without port.
	// For a redirect status, body is the Location, which gets the mark. Status 0 means 200. A
	// status outside 200 to 599 becomes a 500. Robots is called concurrently. Nil allows
	// everything.
	Robots func(host string) (status int, body string)
	// Page answers a path that starts with /x/, with its query. Its Type is empty for a 404. It is
	// called concurrently.
	Page func(host, target string) Page
	// Suffix is the domain of all hosts, in lower case. Empty means demo.test. With test, each host is a
	// registrable domain.
	Suffix string
	// Addresses is the number of addresses that hosts have, from 127.0.0.1 on. Zero means one.
	Addresses int
}

// Page is an answer with status 200.
type Page struct {
	Type, Body string
	Header     map[string]string // more header fields; If-None-Match with its ETag gets a 304
}

// Site is a running site. Its methods are safe for concurrent use. The caller must call
// [Site.Close].
type Site struct {
	suffix  string
	robots  func(host string) (int, string)
	page    func(host, target string) Page
	origin  *origin.Origin
	journal *journal
	names   *nameServer

	addr      *net.TCPAddr // the first
	server    *http.Server
	listeners sync.WaitGroup // ends when the server has stopped

	mu      sync.Mutex
	closed  bool
	running sync.WaitGroup // handlers
}

// Start starts the site and its name server on free ports of 127.0.0.1. It fails if it cannot
// listen or the suffix is not a domain.
func Start(cfg Config) (*Site, error) {
	suffix := cmp.Or(cfg.Suffix, suffix)
	names, err := startNames(suffix, max(1, cfg.Addresses))
	if err != nil {
		return nil, fmt.Errorf("start the name server of the site: %w", err)
	}
	s := &Site{
		suffix: suffix, robots: cfg.Robots, page: cfg.Page, names: names, origin: origin.New(origin.Config{}), journal: newJournal(),
	}
	if s.robots == nil {
		s.robots = allowAll
	}
	if err := s.listen(); err != nil {
		return nil, errors.Join(fmt.Errorf("start site: %w", err), names.Close(), s.origin.Close())
	}
	return s, nil
}

func allowAll(string) (int, string) { return http.StatusOK, "User-agent: *\nAllow: /\n" }

func (s *Site) listen() error {
	listeners, err := listenAll(s.names.addresses)
	if err != nil {
		return err
	}
	s.addr, _ = listeners[0].Addr().(*net.TCPAddr)
	s.server = &http.Server{
		Handler: http.HandlerFunc(s.serve),
		// Clients and faults cause errors on purpose.
		ErrorLog: slog.NewLogLogger(slog.DiscardHandler, slog.LevelError),
	}
	for _, l := range listeners {
		s.listeners.Go(func() { _ = s.server.Serve(l) }) // returns after Close
	}
	return nil
}

// listenAll listens at one port of so many addresses. The port is free at the first of them; another program may have it at
// another one.
func listenAll(addresses int) (listeners []net.Listener, err error) {
	var lc net.ListenConfig
	for range 10 {
		port := 0
		for n := range addresses {
			l, failed := lc.Listen(context.Background(), "tcp4", netip.AddrPortFrom(addressNumber(n), uint16(port)).String())
			if err = failed; err != nil {
				break
			}
			listeners = append(listeners, l)
			if at, ok := l.Addr().(*net.TCPAddr); ok {
				port = at.Port
			}
		}
		if err == nil {
			return listeners, nil
		}
		for _, l := range listeners {
			err = errors.Join(err, l.Close())
		}
		listeners = nil
	}
	return nil, err
}

// Close stops both servers, closes every connection, and waits for all handlers. The journal stays
// readable, and every visit in it has ended. It is safe to call Close twice.
func (s *Site) Close() error {
	s.mu.Lock()
	closed := s.closed
	s.closed = true
	s.mu.Unlock()
	if closed {
		return nil
	}
	err := errors.Join(s.server.Close(), s.origin.Close(), s.names.Close())
	s.running.Wait()
	s.listeners.Wait()
	return err
}

// enter counts a handler. It returns false if the site is closed.
func (s *Site) enter() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return false
	}
	s.running.Add(1)
	return true
}

// Addr returns host:port of the HTTP listener.
func (s *Site) Addr() string { return s.addr.String() }

// Port returns the port of the HTTP listener.
func (s *Site) Port() int { return s.addr.Port }

// URL returns the URL of a path, with leading "/" and optional query, on a host without the suffix.
func (s *Site) URL(host, path string) string {
	return fmt.Sprintf("http://%s.%s:%d%s", host, s.suffix, s.addr.Port, path)
}

// Origin returns the origin behind /s/ and the redirect helpers. Its log has the header of up to
// 100,000 of their requests.
func (s *Site) Origin() *origin.Origin { return s.origin }

// Visits returns a copy of the journal, sorted by start.
func (s *Site) Visits() []Visit { return s.journal.all() }

// Count returns the number of requests so far.
func (s *Site) Count() int { return s.journal.size() }
