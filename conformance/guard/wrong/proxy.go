package main

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"io"
	"net"
	"strings"
)

// serve is a proxy that judges each request.
func (c *client) serve(ctx context.Context, address string) error {
	var listen net.ListenConfig
	l, err := listen.Listen(ctx, "tcp", address)
	if err != nil {
		return err
	}
	for {
		conn, err := l.Accept()
		if err != nil {
			return err
		}
		go func() {
			defer func() { _ = conn.Close() }() // the client may have closed it
			if err := c.proxied(ctx, conn); err != nil {
				_, _ = fmt.Fprintf(conn, "HTTP/1.1 403 Forbidden\r\nConnection: close\r\n\r\n%v\n", err)
			}
		}()
	}
}

// proxied serves one request. It reads it itself, because net/http refuses the spellings that a guard must judge.
func (c *client) proxied(ctx context.Context, conn net.Conn) error {
	from := bufio.NewReader(conn)
	line, err := from.ReadString('\n')
	if err != nil {
		return err
	}
	for header := line; strings.TrimSpace(header) != ""; {
		if header, err = from.ReadString('\n'); err != nil {
			return err
		}
	}
	method, target, _ := strings.Cut(strings.TrimSpace(line), " ")
	target = strings.TrimSuffix(target, " HTTP/1.1")
	if method == "CONNECT" {
		return c.tunnel(ctx, target, from, conn)
	}
	u, err := parse(nil, target)
	if err != nil {
		return err
	}
	var body bytes.Buffer
	location, err := c.request(ctx, u, target, 0, &body)
	switch {
	case err != nil:
		return err
	case location != "":
		_, err = fmt.Fprintf(conn, "HTTP/1.1 302 Found\r\nLocation: %s\r\nContent-Length: 0\r\nConnection: close\r\n\r\n", location)
	default:
		_, err = fmt.Fprintf(conn, "HTTP/1.1 200 OK\r\nContent-Length: %d\r\nConnection: close\r\n\r\n%s", body.Len(), body.Bytes())
	}
	return err
}

// tunnel serves a CONNECT.
func (c *client) tunnel(ctx context.Context, target string, from io.Reader, conn net.Conn) error {
	raw := "https://" + target + "/"
	u, err := parse(nil, raw)
	if err != nil {
		return err
	}
	addrs, err := c.addresses(ctx, u, raw, c.fault == "everything" || c.fault == "tunnels")
	if err != nil {
		return err
	}
	to := port(u)
	if proxy := c.proxy(u); proxy != nil {
		if addrs, err = lookUp(ctx, proxy.Hostname()); err != nil {
			return err
		}
		to = proxy.Port()
	}
	up, err := dial(ctx, addrs, to)
	if err != nil {
		return err
	}
	defer func() { _ = up.Close() }() // the client has what it asked for
	if _, err := io.WriteString(conn, "HTTP/1.1 200 OK\r\n\r\n"); err != nil {
		return err
	}
	go func() { _, _ = io.Copy(up, from) }() // it ends with the connection
	_, _ = io.Copy(conn, up)                 // the client may have closed the connection
	return nil
}
