package main

import (
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"io"
	"net"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"

	collector "go.opentelemetry.io/proto/otlp/collector/trace/v1"
	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"
	"google.golang.org/grpc"

	"fetchd/conformance/origin"
	pb "fetchd/gen/fetchd/v1"
	"fetchd/test/selfsigned"
	"fetchd/test/signatures"
)

// tap is a listener that keeps the bytes of each connection, above TLS.
type tap struct {
	net.Listener
	scheme string
	config *tls.Config // for https

	mu    sync.Mutex
	conns []*bytes.Buffer
}

// Accept implements net.Listener.
func (l *tap) Accept() (net.Conn, error) {
	conn, err := l.Listener.Accept()
	if err != nil {
		return nil, err
	}
	if l.config != nil {
		conn = tls.Server(conn, l.config)
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.conns = append(l.conns, new(bytes.Buffer))
	return &tapped{conn, l, l.conns[len(l.conns)-1]}, nil
}

// tapped is a connection of a tap.
type tapped struct {
	net.Conn
	tap  *tap
	read *bytes.Buffer
}

// Read implements net.Conn.
func (c *tapped) Read(p []byte) (int, error) {
	n, err := c.Conn.Read(p)
	c.tap.mu.Lock()
	defer c.tap.mu.Unlock()
	c.read.Write(p[:n])
	return n, err
}

// requests returns the requests whose target contains a key, as their bytes say.
func (l *tap) requests(t *testing.T, key string) []*signatures.Message {
	t.Helper()
	l.mu.Lock()
	defer l.mu.Unlock()
	var all []*signatures.Message
	for _, conn := range l.conns {
		raw := conn.Bytes()
		if frames, ok := bytes.CutPrefix(raw, []byte(http2.ClientPreface)); ok {
			all = append(all, framed(t, frames)...)
			continue
		}
		for len(raw) > 0 {
			m, err := signatures.Parse(raw, l.scheme)
			must(t, err)
			length, _ := strconv.Atoi(strings.Join(m.Values("content-length"), ""))
			raw, m.Body = m.Body[length:], m.Body[:length]
			all = append(all, m)
		}
	}
	return slices.DeleteFunc(all, func(m *signatures.Message) bool { return !strings.Contains(m.Target, "/"+key+"/") })
}

// framed returns the requests of a connection of HTTP/2.
func framed(t *testing.T, frames []byte) []*signatures.Message {
	t.Helper()
	r := http2.NewFramer(io.Discard, bytes.NewReader(frames))
	r.ReadMetaHeaders = hpack.NewDecoder(4096, nil)
	streams := make(map[uint32]*signatures.Message)
	var all []*signatures.Message
	for {
		frame, err := r.ReadFrame()
		if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
			return all
		}
		must(t, err)
		switch f := frame.(type) {
		case *http2.MetaHeadersFrame:
			m := &signatures.Message{Method: f.PseudoValue("method"), Scheme: f.PseudoValue("scheme"), Authority: f.PseudoValue("authority"), Target: f.PseudoValue("path")}
			var cookies []string // may be in several fields (RFC 9113 section 8.2.3)
			for _, field := range f.RegularFields() {
				if field.Name == "cookie" {
					cookies = append(cookies, field.Value)
					continue
				}
				m.Lines = append(m.Lines, [2]string{field.Name, field.Value})
			}
			if cookies != nil {
				m.Lines = append(m.Lines, [2]string{"cookie", strings.Join(cookies, "; ")})
			}
			streams[f.StreamID] = m
			all = append(all, m)
		case *http2.DataFrame:
			streams[f.StreamID].Body = append(streams[f.StreamID].Body, f.Data()...)
		}
	}
}

// spans is a collector of traces that keeps what it gets.
type spans struct {
	collector.UnimplementedTraceServiceServer
	text output
}

// Export implements the collector's service.
func (s *spans) Export(_ context.Context, in *collector.ExportTraceServiceRequest) (*collector.ExportTraceServiceResponse, error) {
	_, err := io.WriteString(&s.text, in.String())
	return new(collector.ExportTraceServiceResponse), err
}

// startCollector starts a collector of traces, and returns its address.
func startCollector(t *testing.T) (address string, s *spans) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	must(t, err)
	server := grpc.NewServer()
	s = new(spans)
	collector.RegisterTraceServiceServer(server, s)
	served := make(chan error, 1)
	go func() { served <- server.Serve(l) }()
	t.Cleanup(func() {
		server.Stop()
		must(t, <-served)
	})
	return l.Addr().String(), s
}

// everyField covers every field that the service or a caller of TestSignedIsFinal sends.
const everyField = `
providers:
  all:
    origins: [ORIGINS]
    http-signature:
      key-files: [KEY]
      components: ["@method", "@target-uri", "@request-target", "@authority", fetchd-hops, traceparent, accept-encoding, user-agent, content-digest]
      optional: [accept, content-type, content-length, cookie, idempotency-key, if-range, range, x-two]
`

// TestSignedIsFinal covers every field of requests, and compares that with the bytes that the origin reads. No field is
// added or changed after the signature was made.
func TestSignedIsFinal(t *testing.T) {
	t.Parallel()
	keys, err := signatures.Keys()
	must(t, err)
	pair, authority, _, err := selfsigned.New()
	must(t, err)
	o := origin.New(origin.Config{Seed: 1})
	t.Cleanup(func() { must(t, o.Close()) })
	traces, _ := startCollector(t)
	f := newFolder(t)
	args := []string{"--egress-allow-cidr", "127.0.0.0/8", "--egress-ca-file", f.write("ca.pem", authority), "--trace-endpoint", traces, "--trace-origins"}
	taps, origins := make(map[string]*tap), []string{}
	for name, config := range map[string]*tls.Config{"HTTP/1.1 in plaintext": nil, "HTTP/1.1": {NextProtos: []string{"http/1.1"}}, "HTTP/2": {NextProtos: []string{"h2"}}} {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		must(t, err)
		watched := &tap{Listener: l, scheme: "http", config: config}
		if config != nil {
			watched.scheme, config.Certificates, config.MinVersion = "https", []tls.Certificate{pair}, tls.VersionTLS12
		}
		taps[name] = watched
		go func() { _ = o.Serve(watched) }() // until the origin is closed
		_, port, err := net.SplitHostPort(l.Addr().String())
		must(t, err)
		origins, args = append(origins, watched.scheme+"://"+l.Addr().String()), append(args, "--egress-allow-port", port)
	}
	text := strings.NewReplacer("ORIGINS", strings.Join(origins, ", "), "KEY", f.write("key", []byte(signatures.PEMEd25519))).Replace(everyField)
	call := start(t, append(args, "--origins-file", f.write("origins.yaml", []byte(text)))...).dial(nil)
	const resumable = ":size=1000000,etag=%22v1%22,range"
	for name, l := range taps {
		for _, row := range []struct {
			name, script string
			in           *pb.FetchRequest
			want         [][]string // fields that each request has
		}{
			{"a GET", "200?a=1", new(pb.FetchRequest), [][]string{{"fetchd-hops", "traceparent", "user-agent", "accept-encoding"}}},
			{"fields of the caller", "200", &pb.FetchRequest{Headers: []*pb.Header{{Name: "X-Two", Value: " a "}, {Name: "X-Two", Value: "b"}, {Name: "Cookie", Value: "c=1"}, {Name: "Cookie", Value: "d=2"}}}, [][]string{{"x-two", "cookie"}}},
			{"a PUT", "200", &pb.FetchRequest{Method: http.MethodPut, Body: []byte("body"), Headers: []*pb.Header{{Name: "Content-Type", Value: "text/plain"}}}, [][]string{{"content-length", "content-type", "content-digest"}}},
			{"a POST with a key", "200", &pb.FetchRequest{Method: http.MethodPost, Body: []byte("body"), RetryPolicy: &pb.RetryPolicy{IdempotencyKey: "k", AllowNonIdempotent: true}}, [][]string{{"content-length", "idempotency-key"}}},
			{"cookies within the fetch", "302:set-cookie=a%3D1%3BPath%3D%2F,to=%2Fs%2FKEY%2F503/503/200", &pb.FetchRequest{CookieMode: pb.CookieMode_COOKIE_MODE_WITHIN_FETCH}, [][]string{{}, {"cookie"}, {"cookie"}}},
			{"a resumed body", "200" + resumable + ",cut=300000/200" + resumable, &pb.FetchRequest{BodyPolicy: streamed()}, [][]string{{}, {"range", "if-range"}}},
		} {
			t.Run(row.name+" over "+name, func(t *testing.T) {
				t.Parallel()
				key := keyOf(t)
				row.in.Url, row.in.AuthProvider = l.scheme+"://"+l.Addr().String()+"/s/"+key+"/"+strings.ReplaceAll(row.script, "KEY", key), "all"
				out, err := fetchOf(t, call, row.in)
				got := l.requests(t, key)
				for n, q := range o.Requests(key) { // got is by connection
					at := slices.IndexFunc(got, func(m *signatures.Message) bool {
						return slices.Equal(m.Values("signature"), q.Header.Values("Signature"))
					})
					if at >= n {
						got[n], got[at] = got[at], got[n]
					}
				}
				if err != nil || out.GetError() != nil || len(got) != len(row.want) {
					t.Fatalf("%v %v after %d requests, want %d", err, out.GetError(), len(got), len(row.want))
				}
				for n, m := range got {
					if err := m.Verify("sig1", keys["test-key-ed25519"]); err != nil || m.Authority != l.Addr().String() {
						t.Errorf("request %d to %s: %v: %q", n+1, m.Authority, err, m.Lines)
					}
					input := m.Members("signature-input")["sig1"]
					for _, line := range m.Lines {
						switch name := strings.ToLower(line[0]); name {
						case "signature", "signature-input", "host", "connection":
						default:
							if !strings.Contains(input, `"`+name+`"`) {
								t.Errorf("request %d: %s is not covered by %s", n+1, name, input)
							}
						}
					}
					for _, name := range row.want[n] {
						if !strings.Contains(input, `"`+name+`"`) || len(m.Values(name)) == 0 {
							t.Errorf("request %d: no %s in %s %q", n+1, name, input, m.Lines)
						}
					}
				}
			})
		}
	}
}
