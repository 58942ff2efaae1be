package fetch_test

import (
	"bytes"
	"crypto/tls"
	"crypto/x509"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"

	"fetchd/classify"
	"fetchd/fetch"
	"fetchd/test/wait"
)

// moody is an origin that speaks HTTP/2. Behind its first response on a connection it writes frames.
type moody struct {
	net.Listener
	frames func(*http2.Framer) error
	acked  chan struct{} // the client has read the frames of a connection, or has closed it
	first  bool          // only the first connection gets the frames
}

func newMoody(t *testing.T, frames func(*http2.Framer) error) (*moody, *fetch.Client) {
	t.Helper()
	certified := httptest.NewTLSServer(http.NotFoundHandler())
	certified.Close()
	plain, err := net.Listen("tcp", "127.0.0.1:0")
	must(t, err)
	m := &moody{tls.NewListener(plain, &tls.Config{Certificates: certified.TLS.Certificates, NextProtos: []string{"h2"}}), frames, make(chan struct{}, 100), true}
	t.Cleanup(func() { _ = m.Close() })
	go func() {
		for {
			c, err := m.Accept()
			if err != nil {
				return
			}
			go m.serve(c, m.first)
			m.first = false
		}
	}()
	roots := x509.NewCertPool()
	roots.AddCert(certified.Certificate())
	return m, newClient(t, fetch.Config{Egress: unrestricted, RootCAs: roots})
}

func (m *moody) serve(c net.Conn, moody bool) {
	defer func() {
		_ = c.Close()
		m.acked <- struct{}{} // after GOAWAY the client may close it before it reads the PING
	}()
	if _, err := io.ReadFull(c, make([]byte, len(http2.ClientPreface))); err != nil {
		return
	}
	var head bytes.Buffer
	_ = hpack.NewEncoder(&head).WriteField(hpack.HeaderField{Name: ":status", Value: "204"}) // into memory
	f := http2.NewFramer(c, c)
	for err := f.WriteSettings(); err == nil; {
		var in http2.Frame
		if in, err = f.ReadFrame(); err != nil {
			return
		}
		switch in := in.(type) {
		case *http2.SettingsFrame:
			if !in.IsAck() {
				err = f.WriteSettingsAck()
			}
		case *http2.PingFrame:
			m.acked <- struct{}{}
		case *http2.HeadersFrame, *http2.DataFrame:
			if !in.Header().Flags.Has(http2.FlagHeadersEndStream) { // of both kinds
				continue
			}
			err = f.WriteHeaders(http2.HeadersFrameParam{StreamID: in.Header().StreamID, BlockFragment: head.Bytes(), EndStream: true, EndHeaders: true})
			if err == nil && moody {
				moody, err = false, m.frames(f)
				_ = f.WritePing(false, [8]byte{}) // the connection may be closed already
			}
		}
	}
}

func set(id http2.SettingID, value uint32) func(*http2.Framer) error {
	return func(f *http2.Framer) error { return f.WriteSettings(http2.Setting{ID: id, Val: value}) }
}

// TestOddSettings checks that an HTTP/2 origin cannot make later fetches fail on a connection that is kept,
// whatever it says there: a new connection is used, and nothing that was not sent is an attempt (spec §11).
func TestOddSettings(t *testing.T) {
	t.Parallel()
	for _, row := range []struct {
		name     string
		frames   func(*http2.Framer) error
		breaks   bool // the frames break the connection, so nothing acknowledges them
		attempts int  // of a PUT; a GET needs one
	}{
		{"no header list", set(http2.SettingMaxHeaderListSize, 0), false, 1},
		{"a header list of one byte", set(http2.SettingMaxHeaderListSize, 1), false, 1},
		{"no stream", set(http2.SettingMaxConcurrentStreams, 0), false, 1},
		{"no window", set(http2.SettingInitialWindowSize, 0), false, 2}, // its head was sent
		{"no header table", set(http2.SettingHeaderTableSize, 0), false, 1},
		{"the largest header table", set(http2.SettingHeaderTableSize, 1<<32-1), false, 1},
		{"the largest frames", set(http2.SettingMaxFrameSize, 1<<24-1), false, 1},
		{"frames of one byte", set(http2.SettingMaxFrameSize, 1), true, 1},
		{"a window that is too large", set(http2.SettingInitialWindowSize, 1<<32-1), true, 1},
		{"extended CONNECT", set(http2.SettingEnableConnectProtocol, 1), false, 1},
		{"extended CONNECT of two", set(http2.SettingEnableConnectProtocol, 2), true, 1},
		{"push", set(http2.SettingEnablePush, 1), false, 1},
		{"a setting that is not known", set(0xbeef, 7), false, 1},
		{"GOAWAY", func(f *http2.Framer) error { return f.WriteGoAway(1<<31-1, http2.ErrCodeNo, nil) }, false, 1},
		{"GOAWAY for all", func(f *http2.Framer) error { return f.WriteGoAway(0, http2.ErrCodeNo, nil) }, false, 1},
		{"GOAWAY with an error", func(f *http2.Framer) error { return f.WriteGoAway(1, http2.ErrCodeEnhanceYourCalm, []byte("calm")) }, false, 1},
	} {
		for _, method := range []string{http.MethodGet, http.MethodPut} {
			t.Run(row.name+", "+method, func(t *testing.T) {
				t.Parallel()
				m, c := newMoody(t, row.frames)
				ask := func(method string) *fetch.Outcome {
					r := get(t, "https://"+m.Addr().String()+"/")
					r.Method, r.HeaderTimeout, r.Policy.BaseDelay = method, 2*time.Second, time.Millisecond
					if method == http.MethodPut {
						r.Body = []byte("body")
					}
					return c.Fetch(t.Context(), r, nil)
				}
				if out := ask(http.MethodGet); out.Kind != classify.Success {
					t.Fatalf("the first fetch: %+v", out.Failure)
				}
				if row.breaks {
					must(t, wait.Until(t.Context(), time.Millisecond, func() bool { return c.Connections().Open == 0 }))
				} else {
					<-m.acked
				}
				want := 1
				if method == http.MethodPut {
					want = row.attempts
				}
				for range 3 {
					if out := ask(method); out.Kind != classify.Success || out.Attempts != want || out.Exchanges != want {
						t.Errorf("%s after %d attempts and %d exchanges, %+v; want success after %d", out.Kind, out.Attempts, out.Exchanges, out.Failure, want)
					}
					want = 1
				}
			})
		}
	}
}
