package origin

import (
	"context"
	"crypto/tls"
)

// The listeners that finish a handshake, or let the client refuse it.

func serveGood(o *Origin, ctx context.Context, c *connection) {
	o.serveWith(ctx, c, func(a *authority) *tls.Config { return configFor(a.good, "h2", "http/1.1") })
}

func serveGood1(o *Origin, ctx context.Context, c *connection) {
	o.serveWith(ctx, c, func(a *authority) *tls.Config { return configFor(a.good, "http/1.1") })
}

func serveExpired(o *Origin, ctx context.Context, c *connection) {
	o.serveWith(ctx, c, func(a *authority) *tls.Config { return configFor(a.expired, "h2", "http/1.1") })
}

func serveWrongName(o *Origin, ctx context.Context, c *connection) {
	o.serveWith(ctx, c, func(a *authority) *tls.Config { return configFor(a.wrongName, "h2", "http/1.1") })
}

func serveUnknownCA(o *Origin, ctx context.Context, c *connection) {
	o.serveWith(ctx, c, func(a *authority) *tls.Config { return configFor(a.unknown, "h2", "http/1.1") })
}

func serveOld(o *Origin, ctx context.Context, c *connection) {
	o.serveWith(ctx, c, func(a *authority) *tls.Config {
		cfg := configFor(a.good, "http/1.1")
		cfg.MinVersion, cfg.MaxVersion = tls.VersionTLS10, tls.VersionTLS10
		return cfg
	})
}

func serveMutual(o *Origin, ctx context.Context, c *connection) {
	o.serveWith(ctx, c, func(a *authority) *tls.Config {
		cfg := configFor(a.good, "h2", "http/1.1")
		cfg.ClientAuth, cfg.ClientCAs = tls.RequireAndVerifyClientCert, a.pool()
		return cfg
	})
}

func (o *Origin) serveWith(ctx context.Context, c *connection, config func(*authority) *tls.Config) {
	a, err := o.authority()
	if err != nil {
		o.logger.Error("make certificates", "error", err)
		return
	}
	o.serveTLS(ctx, c, config(a), func() { o.serveH2(ctx, c) })
}

// serveFrames speaks HTTP/2 frame by frame.
func serveFrames(o *Origin, ctx context.Context, c *connection) {
	a, err := o.authority()
	if err != nil {
		o.logger.Error("make certificates", "error", err)
		return
	}
	o.serveTLS(ctx, c, configFor(a.good, "h2", "http/1.1"), func() { newH2Conn(o, c).serve(ctx) })
}

func configFor(cert tls.Certificate, protocols ...string) *tls.Config {
	return &tls.Config{Certificates: []tls.Certificate{cert}, NextProtos: protocols}
}

// ClientCertificate returns the certificate that the listener mtls accepts.
// It is empty if certificates cannot be made.
func (o *Origin) ClientCertificate() tls.Certificate {
	a, err := o.authority()
	if err != nil {
		return tls.Certificate{}
	}
	return a.client
}
