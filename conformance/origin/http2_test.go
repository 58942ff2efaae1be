package origin_test

import (
	"bytes"
	"crypto/sha256"
	"crypto/tls"
	"encoding/hex"
	"errors"
	"io"
	"net/http"
	"testing"
	"testing/synctest"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"
	"google.golang.org/grpc/test/bufconn"

	"fetchd/conformance/origin"
)

func TestH2Faults(t *testing.T) {
	t.Parallel()
	o := start(t)
	isStream := func(code http2.ErrCode) func(error) bool {
		return func(err error) bool {
			e, ok := errors.AsType[http2.StreamError](err)
			return ok && e.Code == code
		}
	}
	anyError := func(err error) bool { return err != nil }
	for _, tc := range []struct {
		listener, step string
		head           func(error) bool // expected error of the head; nil: none
		body           func(error) bool // expected error of the body; nil: none
		size           int
	}{
		{"h2fault", "h2-rst:code=11", isStream(http2.ErrCodeEnhanceYourCalm), nil, 0},
		{"h2fault", "h2-rst:code=2,at=in-body,after=7", nil, isStream(http2.ErrCodeInternal), 7},
		{"h2fault", "h2-goaway:code=11,last=1", nil, nil, 7},
		{"h2fault", "h2-goaway:code=11,last=this", nil, nil, 7},
		{"h2fault", "h2-bad-frame", anyError, nil, 0},
		{"h2fault", "h2-bad-frame:fault=settings", anyError, nil, 0},
		{"h2fault", "h2-bad-frame:fault=oversize", anyError, nil, 0},
		{"h2fault", "h2-bad-frame:fault=hpack", anyError, nil, 0},
		{"h2fault", "200:size=100,cut=40", nil, isStream(http2.ErrCodeInternal), 40},
		{"h2fault", "200:size=300000", nil, nil, 300000},
		{"h2fault", "200:size=20,trailers", nil, nil, 20},
		{"h2fault", "200:size=20,head-drip=1us", nil, nil, 20},
		{"h2fault", "200:size=20,head-size=40000", nil, nil, 20},
		{"h2fault", "200:size=20,early=103,early-count=3", nil, nil, 20},
		{"h2fault", "200:size=100,length=200", nil, anyError, 100},
		{"h2fault", "200:size=100,cut=40,how=fin", nil, anyError, 40},
		{"h2fault", "fin", anyError, nil, 0},
		{"h2fault", "reset", anyError, nil, 0},
		{"h2fault", "garbage", anyError, nil, 0},
		{"h2fault", "103", anyError, nil, 0},
		{"h2fault", "099", nil, nil, 4},
		{"https", "200:size=300000", nil, nil, 300000},
		{"https", "200:size=100,cut=40", nil, isStream(http2.ErrCodeInternal), 40},
		{"h2fault", "200:size=100,cut=40,how=rst", nil, anyError, 40},
		{"https", "200:size=20,trailers", nil, nil, 20},
		{"https", "200:size=20,early=103", nil, nil, 20},
		{"https", "fin", anyError, nil, 0},
		{"https", "garbage", anyError, nil, 0},
	} {
		t.Run(tc.listener+"/"+tc.step, func(t *testing.T) {
			t.Parallel()
			g, err := get(t, newClient(t, o), o.URL(tc.listener, "/s/"+tc.listener+tc.step+"/"+tc.step))
			if tc.head != nil {
				if !tc.head(err) {
					t.Fatalf("%s: head error %v (%T)", tc.step, err, err)
				}
				return
			}
			if err != nil {
				t.Fatalf("%s: head error %v (%T), want none", tc.step, err, err)
			}
			if (tc.body == nil) != (g.err == nil) || tc.body != nil && !tc.body(g.err) || len(g.body) != tc.size {
				t.Errorf("%s: body of %d bytes, error %v (%T); want %d", tc.step, len(g.body), g.err, g.err, tc.size)
			}
		})
	}
}

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

func TestH2RequestBody(t *testing.T) {
	t.Parallel()
	o := start(t)
	body := o.Body(300_000)
	sum := sha256.Sum256(body)
	for _, listener := range []string{"https", "h2fault"} {
		resp, err := newClient(t, o).Post(o.URL(listener, "/s/"+listener+"/200:echo"), "text/plain", bytes.NewReader(body))
		if err != nil {
			t.Fatalf("%s: %v", listener, err)
		}
		answer, err := io.ReadAll(resp.Body)
		_ = resp.Body.Close()
		if err != nil || !bytes.Contains(answer, []byte(hex.EncodeToString(sum[:]))) {
			t.Errorf("%s: echo %s, %v; want digest %x", listener, answer, err, sum)
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

// TestHTTPSInBubble checks that both HTTP/2 servers work in memory, with TLS and in fake time.
func TestHTTPSInBubble(t *testing.T) {
	for _, name := range []string{"https", "h2fault"} {
		synctest.Test(t, func(t *testing.T) {
			o := origin.New(origin.Config{Seed: 1})
			l := bufconn.Listen(64 << 10)
			served := make(chan error, 1)
			go func() { served <- o.ServeAs(name, l) }()
			transport := &http.Transport{
				DialContext:       dialer(l),
				TLSClientConfig:   &tls.Config{RootCAs: o.CA()},
				ForceAttemptHTTP2: true,
			}
			step := "200:size=100000,drip=10000@1s"
			if name == "h2fault" {
				step += ",head-drip=1s"
			}
			g := mustGet(t, &http.Client{Transport: transport}, o.URL(name, "/s/k/"+step))
			if g.Proto != "HTTP/2.0" || !bytes.Equal(g.body, o.Body(100000)) {
				t.Errorf("%s: %s, body of %d bytes; want HTTP/2.0 and the seeded 100000", name, g.Proto, len(g.body))
			}
			transport.CloseIdleConnections()
			_ = o.Close()
			if err := <-served; err != nil {
				t.Errorf("%s: ServeAs = %v, want nil", name, err)
			}
		})
	}
}

// TestH2PriorKnowledgeInBubble checks HTTP/2 without TLS in memory.
func TestH2PriorKnowledgeInBubble(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o := origin.New(origin.Config{Seed: 1})
		l := bufconn.Listen(64 << 10)
		served := make(chan error, 1)
		go func() { served <- o.Serve(l) }()
		protocols := new(http.Protocols)
		protocols.SetUnencryptedHTTP2(true)
		transport := &http.Transport{DialContext: dialer(l), Protocols: protocols}
		g := mustGet(t, &http.Client{Transport: transport}, o.URL("http", "/s/k/200:size=100000,drip=10000@1s"))
		if g.Proto != "HTTP/2.0" || !bytes.Equal(g.body, o.Body(100000)) {
			t.Errorf("%s, body of %d bytes; want HTTP/2.0 and the seeded 100000", g.Proto, len(g.body))
		}
		transport.CloseIdleConnections()
		_ = o.Close()
		if err := <-served; err != nil {
			t.Errorf("Serve = %v, want nil", err)
		}
	})
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
	if err := framer.WriteSettings(); err != nil {
		t.Fatal(err)
	}
	err := framer.WriteHeaders(http2.HeadersFrameParam{StreamID: 1, BlockFragment: block.Bytes(), EndHeaders: true, EndStream: true})
	if err != nil {
		t.Fatal(err)
	}
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
