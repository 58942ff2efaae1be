package site

import (
	"context"
	"net"
	"testing"

	"go.uber.org/goleak"
)

// TestLookupEnds checks that a lookup that is cancelled leaves nothing that waits for the name server.
func TestLookupEnds(t *testing.T) {
	silent, err := net.ListenUDP("udp4", &net.UDPAddr{IP: net.IPv4(127, 0, 0, 1)})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = silent.Close() }()
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error)
	go func() {
		_, err := resolverOf(silent.LocalAddr().String()).LookupNetIP(ctx, "ip4", "h1.demo.test")
		done <- err
	}()
	if _, _, err := silent.ReadFromUDPAddrPort(make([]byte, maxQuestion)); err != nil {
		t.Fatal(err)
	}
	cancel()
	if err := <-done; err == nil {
		t.Error("a lookup without an answer succeeded")
	}
	goleak.VerifyNone(t)
}
