package origin_test

import (
	"bytes"
	"crypto/tls"
	"io"
	"net/http"
	"testing"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"

	"fetchd/conformance/origin"
	"fetchd/test/must"
)

func TestH2HugeHead(t *testing.T) {
	t.Parallel()
	o := start(t)
	for _, tc := range []struct {
		limit int64
		ok    bool
	}{{1 << 20, true}, {100_000, false}} {
		transport := &http.Transport{
			TLSClientConfig:        &tls.Config{RootCAs: o.CA()},
			ForceAttemptHTTP2:      true,
			MaxResponseHeaderBytes: tc.limit,
		}
		t.Cleanup(transport.CloseIdleConnections)
		_, err := get(t, &http.Client{Transport: transport}, o.URL("h2fault", "/s/k/h2-huge-head:size=200000"))
		if (err == nil) != tc.ok {
			t.Errorf("with a limit of %d: error %v, want ok %v", tc.limit, err, tc.ok)
		}
	}
}

// TestUnsupported checks that faults which a protocol cannot express are refused with 501.
func TestUnsupported(t *testing.T) {
	t.Parallel()
	o := start(t)
	for _, tc := range []struct{ listener, step string }{
		{"http", "h2-rst"}, {"https", "h2-goaway"}, {"https1", "h2-bad-frame"}, {"https", "h2-huge-head"},
		{"https", "half-head"}, {"h2fault", "bad-header"}, {"h2fault", "bad-status-line"}, {"https", "switch"},
		{"https", "200:chunk-fault=huge"}, {"https", "200:version=1.0"}, {"https", "099"}, {"https", "200:head-drip=1ms"},
		{"h2fault", "reset:at=in-head"}, {"https", "101"},
	} {
		key := tc.listener + tc.step
		g := mustGet(t, newClient(t, o), o.URL(tc.listener, "/s/"+key+"/"+tc.step))
		if g.StatusCode != http.StatusNotImplemented || g.Header.Get("Origin-Error") == "" {
			t.Errorf("%s on %s: status %d, header %v; want 501", tc.step, tc.listener, g.StatusCode, g.Header)
		}
		waitDone(t, o, key, origin.EndRefused)
	}
}

// TestH2ClientGone checks that both HTTP/2 servers notice a client that cancels.
func TestH2ClientGone(t *testing.T) {
	t.Parallel()
	o := start(t)
	for _, listener := range []string{"https", "h2fault"} {
		resp, err := newClient(t, o).Get(o.URL(listener, "/s/"+listener+"/200:size=10,stall=5"))
		if err != nil {
			t.Fatalf("%s: %v", listener, err)
		}
		_ = resp.Body.Close()
		waitDone(t, o, listener, origin.EndClientGone)
	}
}

// frames requests path from h2fault. It returns the types of the frames that arrive, up to the first
// of the given type, without the initial SETTINGS.
func frames(t *testing.T, addr string, cfg *tls.Config, path string, until http2.FrameType) (kinds []string, payload []byte) {
	t.Helper()
	cfg.NextProtos = []string{"h2"}
	conn := tls.Client(dial(t, addr), cfg)
	var out, block bytes.Buffer
	encoder := hpack.NewEncoder(&block)
	for _, f := range [][2]string{{":method", "GET"}, {":scheme", "https"}, {":path", path}, {":authority", "h"}} {
		if err := encoder.WriteField(hpack.HeaderField{Name: f[0], Value: f[1]}); err != nil {
			t.Fatal(err)
		}
	}
	out.WriteString(http2.ClientPreface)
	framer := http2.NewFramer(&out, conn)
	must.Succeed(t, framer.WriteSettings())
	err := framer.WriteHeaders(http2.HeadersFrameParam{StreamID: 1, BlockFragment: block.Bytes(), EndHeaders: true, EndStream: true})
	must.Succeed(t, err)
	if _, err := conn.Write(out.Bytes()); err != nil {
		t.Fatalf("write: %v", err)
	}
	for n := 0; ; n++ {
		header, err := http2.ReadFrameHeader(conn)
		if err != nil {
			t.Fatalf("read frame after %v: %v", kinds, err)
		}
		if header.Length == 1<<24-1 {
			return append(kinds, "oversize"), nil
		}
		payload = make([]byte, header.Length)
		if _, err := io.ReadFull(conn, payload); err != nil {
			t.Fatalf("read %v: %v", header, err)
		}
		if n < 2 && header.Type == http2.FrameSettings {
			continue // the server's SETTINGS and its acknowledgement
		}
		kinds = append(kinds, header.Type.String())
		if header.Type == until {
			return kinds, payload
		}
	}
}

func TestFramesOnTheWire(t *testing.T) {
	t.Parallel()
	o := start(t)
	for _, tc := range []struct {
		step    string
		until   http2.FrameType
		kinds   []string
		payload []byte
	}{
		{"h2-rst:code=8", http2.FrameRSTStream, []string{"RST_STREAM"}, []byte{0, 0, 0, 8}},
		{"h2-rst:code=0x2,at=in-body,after=3", http2.FrameRSTStream, []string{"HEADERS", "DATA", "RST_STREAM"}, []byte{0, 0, 0, 2}},
		{"h2-goaway:code=11", http2.FrameGoAway, []string{"GOAWAY"}, []byte{0, 0, 0, 0, 0, 0, 0, 11}},
		{"h2-goaway:last=this", http2.FrameGoAway, []string{"GOAWAY"}, []byte{0, 0, 0, 1, 0, 0, 0, 0}},
		{"h2-goaway-forever", http2.FrameGoAway, []string{"GOAWAY"}, make([]byte, 8)},
		{"h2-bad-frame", http2.FrameData, []string{"DATA"}, []byte("x")},
		{"h2-bad-frame:fault=settings", http2.FrameSettings, []string{"SETTINGS"}, make([]byte, 5)},
		{"h2-bad-frame:fault=oversize", http2.FrameData, []string{"oversize"}, nil},
		{"h2-bad-frame:fault=hpack", http2.FrameHeaders, []string{"HEADERS"}, []byte{0x80}},
		{"h2-huge-head:size=20000", http2.FrameData, []string{"HEADERS", "DATA"}, []byte{}},
	} {
		t.Run(tc.step, func(t *testing.T) {
			t.Parallel()
			cfg := &tls.Config{RootCAs: o.CA(), ServerName: "localhost"}
			kinds, payload := frames(t, o.Addr("h2fault"), cfg, "/s/"+tc.step+"/"+tc.step, tc.until)
			if diff := cmp.Diff(tc.kinds, kinds); diff != "" || !bytes.Equal(payload, tc.payload) {
				t.Errorf("%s: payload %x, want %x; frames (-want +got):\n%s", tc.step, payload, tc.payload, diff)
			}
		})
	}
}
