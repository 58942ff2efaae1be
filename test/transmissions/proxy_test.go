package transmissions

import (
	"bufio"
	"io"
	"net"
	"net/http"
	"net/url"
	"sync"
	"testing"
)

// startProxy starts an HTTP proxy that makes tunnels. It ends a connection as the origin did.
func startProxy(t testing.TB) *url.URL {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	var ended sync.WaitGroup
	t.Cleanup(func() { _ = l.Close(); ended.Wait() })
	ended.Go(func() {
		for {
			client, err := l.Accept()
			if err != nil {
				return
			}
			ended.Go(func() { tunnel(client) })
		}
	})
	return &url.URL{Scheme: "http", Host: l.Addr().String()}
}

// tunnel answers a CONNECT, and copies until either side ends the connection.
func tunnel(client net.Conn) {
	defer client.Close()
	req, err := http.ReadRequest(bufio.NewReader(client))
	if err != nil {
		return
	}
	origin, err := net.Dial("tcp", req.Host)
	if err != nil {
		return
	}
	defer origin.Close()
	if !say(client, "HTTP/1.1 200 OK\r\n\r\n") {
		return
	}
	back := make(chan struct{})
	go func() {
		defer close(back)
		if _, err := io.Copy(client, origin); err != nil {
			reset(client)
		}
		closeWrite(client)
	}()
	_, _ = io.Copy(origin, client)
	closeWrite(origin)
	<-back
}
