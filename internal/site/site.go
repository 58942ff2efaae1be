package site

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"strings"
	"sync"

	"fetchd/conformance/origin" //nolint:depguard // a site is for tests and demos too, and no more than the origin in a product
)

// DefaultSuffix is where hosts live when [Config] names no suffix.
const DefaultSuffix = "demo.test"

// Config says how a [Site] runs. The zero value is usable.
type Config struct {
	// Suffix is the domain of all hosts, in lower case, without dots at its
	// ends. Empty means [DefaultSuffix].
	Suffix string
	// Robots answers /robots.txt of a host, which is given as in the Host field
	// but in lower case and without port. A redirect status sends body as its
	// Location, marked as any redirect of the site; status 0 means 200; outside
	// of 200 to 599 the answer is 500. It is called from many goroutines at
	// once. Nil allows everything.
	Robots func(host string) (status int, body string)
	// Seed selects the bytes of the bodies that steps of /s/ generate. Zero is
	// a seed like any other.
	Seed uint64
}

// Site is a running site. Its methods are safe for concurrent use. The caller
// closes it with [Site.Close].
type Site struct {
	suffix  string
	robots  func(host string) (int, string)
	origin  *origin.Origin
	journal *journal
	names   *nameServer

	addr   *net.TCPAddr
	server *http.Server
	served chan struct{} // closed when the server has ended

	mu      sync.Mutex
	closed  bool
	running sync.WaitGroup // handlers
}

// Start opens the site and its name server on ports of 127.0.0.1 that the
// system chooses. An error means that a port could not be bound or the suffix
// is no domain; nothing is left open then.
func Start(cfg Config) (*Site, error) {
	suffix := cfg.Suffix
	if suffix == "" {
		suffix = DefaultSuffix
	}
	if suffix != strings.ToLower(strings.Trim(suffix, ".")) {
		return nil, fmt.Errorf("start site: suffix %q: write it in lower case and without dots at its ends", suffix)
	}
	names, err := startNames(suffix)
	if err != nil {
		return nil, fmt.Errorf("start the name server of the site: %w", err)
	}
	s := &Site{
		suffix: suffix, robots: cfg.Robots, names: names,
		origin: origin.New(origin.Config{Seed: cfg.Seed}), journal: newJournal(), served: make(chan struct{}),
	}
	if s.robots == nil {
		s.robots = allowAll
	}
	if err := s.listen(); err != nil {
		return nil, errors.Join(fmt.Errorf("start site: %w", err), names.close(), s.origin.Close())
	}
	return s, nil
}

func allowAll(string) (int, string) { return http.StatusOK, "User-agent: *\nAllow: /\n" }

func (s *Site) listen() error {
	var lc net.ListenConfig
	l, err := lc.Listen(context.Background(), "tcp4", "127.0.0.1:0")
	if err != nil {
		return err
	}
	addr, ok := l.Addr().(*net.TCPAddr)
	if !ok {
		return errors.Join(fmt.Errorf("listen: %T is no TCP address", l.Addr()), l.Close())
	}
	s.addr = addr
	s.server = &http.Server{
		Handler: http.HandlerFunc(s.serve),
		// Faults are wanted here; nobody needs to read of them.
		ErrorLog: slog.NewLogLogger(slog.DiscardHandler, slog.LevelError),
	}
	go func() {
		defer close(s.served)
		_ = s.server.Serve(l) // its end is Close
	}()
	return nil
}

// Close ends both servers, every connection and handler, and waits for them.
// The journal stays readable, and every visit in it has ended. Closing twice
// is harmless.
func (s *Site) Close() error {
	s.mu.Lock()
	closed := s.closed
	s.closed = true
	s.mu.Unlock()
	if closed {
		return nil
	}
	err := errors.Join(s.server.Close(), s.origin.Close(), s.names.close())
	s.running.Wait()
	<-s.served
	return err
}

// enter counts a handler in; it reports false once the site is closed.
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

// URL returns the URL of a path on a host. The host is given without the
// suffix, the path with its leading "/" and with its query.
func (s *Site) URL(host, path string) string {
	return fmt.Sprintf("http://%s.%s:%d%s", host, s.suffix, s.addr.Port, path)
}

// Origin returns what answers /s/ and the redirect helpers. Its log has the
// header of each such request, up to 100,000 of them.
func (s *Site) Origin() *origin.Origin { return s.origin }

// Visits returns a copy of the journal, sorted by start.
func (s *Site) Visits() []Visit { return s.journal.all() }

// Count returns how many requests have come.
func (s *Site) Count() int { return s.journal.size() }
