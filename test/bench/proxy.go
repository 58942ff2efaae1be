package main

import (
	"context"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"time"

	"fetchd/test/bench/process"
	"fetchd/test/wait"
)

// proxies are the configurations of reverse proxies in front of the origin, by the names of their programs. Each is one
// process that keeps connections and stores nothing. The arguments are its address, the origin's host and port, and a
// folder that it may write to.
var proxies = map[string]struct {
	args   []string // before the file
	config string
}{
	"nginx": {[]string{"-c"}, `daemon off;
master_process off;
pid %[4]s/nginx.pid;
error_log /dev/null;
events { worker_connections 1024; }
http {
  access_log off;
  client_body_temp_path %[4]s/nginx-body;
  proxy_temp_path %[4]s/nginx-proxy;
  upstream origin { server %[2]s:%[3]s; keepalive 128; }
  server {
    listen %[1]s;
    keepalive_requests 1000000000;
    location / { proxy_pass http://origin; proxy_http_version 1.1; proxy_set_header Connection ""; }
  }
}
`},
	"squid": {[]string{"-N", "-f"}, `http_port %[1]s accel defaultsite=%[2]s
cache_peer %[2]s parent %[3]s 0 no-query originserver
http_access allow all
cache deny all
access_log none
cache_log /dev/null
pid_filename %[4]s/squid.pid
coredump_dir %[4]s
shutdown_lifetime 1 second
`},
}

// proxyPath returns where Debian has the program, which is on the PATH of root alone.
func proxyPath(name string) string { return "/usr/sbin/" + name }

// startProxy starts a reverse proxy in front of the origin.
func (r *rig) startProxy(ctx context.Context, name string) (*service, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	address := l.Addr().String()
	if err := l.Close(); err != nil {
		return nil, err
	}
	host, port, err := net.SplitHostPort(r.addrs["http"])
	if err != nil {
		return nil, err
	}
	p, file := proxies[name], filepath.Join(r.work, name+".conf")
	if err := os.WriteFile(file, fmt.Appendf(nil, p.config, address, host, port, r.work), 0o600); err != nil {
		return nil, err
	}
	child, err := process.Start(ctx, process.Spec{Path: proxyPath(name), Args: append(p.args[:len(p.args):len(p.args)], file), Env: r.few()})
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	return &service{Child: child, Proxy: address}, wait.Until(ctx, 5*time.Millisecond, func() bool {
		c, err := net.Dial("tcp", address)
		if err == nil {
			_ = c.Close()
		}
		return err == nil
	})
}
