package main

import (
	"cmp"
	"context"
	"crypto/tls"
	"net"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"

	pb "fetchd/gen/fetchd/v1"
	"fetchd/internal/secure"
)

// watched is a client's connection that signals when it ends.
type watched struct {
	net.Conn
	over func()
}

// Read implements net.Conn.
func (w *watched) Read(p []byte) (int, error) {
	n, err := w.Conn.Read(p)
	if err != nil {
		w.over()
	}
	return n, err
}

// caller has an open FetchMany stream.
type caller struct {
	*testing.T
	stream pb.FetchService_FetchManyClient
	closed chan struct{} // when its connection ends
}

func (s *service) caller(cfg *tls.Config, token string) *caller {
	s.Helper()
	c := &caller{T: s.T, closed: make(chan struct{})}
	client := s.dial(cfg, grpc.WithContextDialer(func(ctx context.Context, address string) (net.Conn, error) {
		conn, err := new(net.Dialer).DialContext(ctx, "tcp", address)
		return &watched{conn, sync.OnceFunc(func() { close(c.closed) })}, err
	}))
	ctx, cancel := context.WithTimeout(s.Context(), patience)
	s.Cleanup(cancel)
	var err error
	if c.stream, err = client.FetchMany(metadata.AppendToOutgoingContext(ctx, "authorization", "Bearer "+token)); err != nil {
		s.Fatal(err)
	}
	return c
}

// works checks that a task is answered. The task needs no origin.
func (c *caller) works(who string) {
	c.Helper()
	err := c.stream.Send(&pb.FetchManyRequest{Tasks: []*pb.Task{{Tag: "a", Request: &pb.FetchRequest{Url: "http://10.0.0.1/"}}}})
	if err == nil {
		_, err = c.stream.Recv()
	}
	if err != nil {
		c.Errorf("the stream of %s: %v, want an answer", who, err)
	}
}

// TestRevoked checks that the stream of a revoked caller ends, even without a task, and
// that another caller's stream continues.
func TestRevoked(t *testing.T) {
	a, b := newAuthority(t), newAuthority(t)
	tokenA, lineA, _ := secure.NewToken("alice")
	tokenB, lineB, _ := secure.NewToken("bob")
	otherB, other, _ := secure.NewToken("bob")
	certified := b.client(&wish{dns: "b.example"})
	certified.RootCAs = a.client(nil).RootCAs
	for _, row := range []struct {
		name       string
		tls        bool
		before     string // in place of both tokens
		tokens     string // after the change
		file       string // settings after the change
		ca         []byte // after the change
		look       bool   // no signal is sent
		closed     bool   // bob's connection
		changed    string
		tokA, tokB string
	}{
		{name: "the token is removed", tokens: lineA + "\n", changed: `["token-file"]`, tokA: tokenA, tokB: tokenB},
		{name: "the token has another name", tokens: lineA + "\n" + other + "\n", changed: `["token-file"]`, tokA: tokenA, tokB: tokenB},
		{name: "one token of the same caller is removed", before: lineB + "\n" + other + "\n", tokens: other + "\n", changed: `["token-file"]`, tokA: otherB, tokB: tokenB},
		{name: "the name is not allowed", tls: true, file: "tls-allow-san: [a.example]\n", changed: `["tls-allow-san"]`, closed: true},
		{name: "the authority is replaced", tls: true, ca: a.pem, changed: `["tls-client-ca-file"]`, closed: true},
		{name: "the authority is replaced, without a signal", tls: true, ca: a.pem, look: true, changed: `["tls-client-ca-file"]`, closed: true},
	} {
		t.Run(row.name, func(t *testing.T) {
			t.Parallel()
			a := a.in(t)
			b := b.in(t)
			f := newFolder(t)
			const both = "tls-allow-san: [a.example, b.example]\n"
			var args []string
			var asA, asB *tls.Config
			if row.tls {
				args = append(f.certify(a, wish{}), "--tls-client-ca-file", f.write("ca.pem", append(append([]byte{}, a.pem...), b.pem...)), "--config", f.write("fetchd.yaml", []byte(both)))
				asA, asB = a.client(&wish{dns: "a.example"}), certified
			} else {
				args = []string{"--token-file", f.write("tokens.yaml", []byte(cmp.Or(row.before, lineA+"\n"+lineB+"\n")))}
			}
			s := start(t, args...)
			alice, bob := s.caller(asA, row.tokA), s.caller(asB, row.tokB)
			alice.works("alice")
			bob.works("bob")
			if row.tokens != "" {
				f.write("tokens.yaml", []byte(strings.Replace(row.tokens, "}", ", max-fetches: 7}", 1))) // alice's limit changes
			}
			if row.file != "" {
				f.write("fetchd.yaml", []byte(row.file))
			}
			if row.ca != nil {
				f.write("ca.pem", row.ca)
			}
			if row.look {
				s.look <- time.Time{}
			} else {
				s.hangup <- os.Interrupt // any value is one signal
			}
			if line := s.await(`"reloaded"`); !strings.Contains(line, row.changed+`,"calls_ended":1`) {
				t.Errorf("log line %s, want %s and one call in it", line, row.changed)
			}
			began := time.Now()
			_, err := bob.stream.Recv()
			if took := time.Since(began); codeOf(err) != codes.Aborted || took > 2*time.Second {
				t.Errorf("bob's stream: %v after %s, want ABORTED within 2 s", err, took)
			}
			alice.works("alice")
			if row.closed {
				select {
				case <-bob.closed:
				case <-time.After(patience):
					t.Error("bob's connection is still open, want it closed: his certificate named him")
				}
				alice.works("alice")
			}
		})
	}
}
