package fetch_test

import (
	"context"
	"errors"
	"io"
	"net"
	"strings"
	"testing"
	"time"

	"fetchd/classify"
	"fetchd/conformance/origin"
	"fetchd/fetch"
	"fetchd/fetch/urls"
	"fetchd/test/wait"
)

// TestCancelledSockets cancels fetches that wait on real sockets. The other end sees that the fetch has
// ended, and no connection stays open but one of HTTP/2, which others may use. TestEnds has the phases
// in exact time.
func TestCancelledSockets(t *testing.T) {
	t.Parallel()
	for _, row := range []struct {
		name, listener, path string
		phase                classify.Phase // zero: any
		open                 int            // connections afterwards, at most
	}{
		{"resolve", "", "http://silent.test/", classify.PhaseResolve, 0},
		{"TLS", "", "https://SILENT/", classify.PhaseTLS, 0},
		{"head", "http", "/s/k/silent", 0, 0},
		{"head over HTTP/2", "https", "/s/k/silent", 0, 1},
		{"body", "http", "/s/k/200:size=100000,stall=100", classify.PhaseTransfer, 0},
		{"body over HTTP/2", "https", "/s/k/200:size=100000,stall=100", classify.PhaseTransfer, 1},
		{"between hops", "http", "/s/k/302:to=%2Fs%2Fnext%2F200,size=100,stall=0", 0, 0},
	} {
		t.Run(row.name, func(t *testing.T) {
			t.Parallel()
			w := newWire(t)
			names, silent := silentServers(t)
			client, err := fetch.New(fetch.Config{RootCAs: w.origin.CA(), Egress: fetch.Egress{Unrestricted: true}, Resolver: fetch.Resolver(names.LocalAddr().String())})
			must(t, err)
			defer client.Close()
			r := fetch.NewRequest(classify.Standard)
			address := strings.Replace(row.path, "SILENT", silent.Addr().String(), 1)
			if row.listener != "" {
				address = w.origin.URL(row.listener, row.path)
			}
			if r.URL, err = urls.Parse(address); err != nil {
				t.Fatal(err)
			}
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			started, ended := make(chan struct{}, 1), make(chan *fetch.Outcome, 1)
			go func() {
				ended <- client.Fetch(ctx, r, func(e fetch.Event) error {
					if _, ok := e.(fetch.ResponseStarted); ok {
						started <- struct{}{}
					}
					return nil
				})
			}()
			var seen origin.Request
			var peer net.Conn
			switch {
			case row.name == "resolve":
				_, _, err = names.ReadFrom(make([]byte, 1))
			case row.name == "TLS":
				if peer, err = silent.Accept(); err == nil {
					_, err = peer.Read(make([]byte, 1))
				}
			case row.phase == classify.PhaseTransfer:
				<-started
				fallthrough
			default:
				seen, err = w.origin.Await(ctx, "k", 1)
			}
			must(t, err)
			cancel()
			out := <-ended
			if f := out.Failure; f == nil || f.Class != classify.Cancelled || row.phase != 0 && f.Phase != row.phase {
				t.Errorf("%s, %+v, want CANCELLED in phase %s", out.Kind, f, row.phase)
			}
			_ = wait.Until(t.Context(), time.Millisecond, func() bool { return client.Connections().Open <= row.open })
			if seen.Done != nil {
				<-seen.Done
				if all := w.origin.AllRequests(); len(all) != 1 || all[0].End != origin.EndClientGone {
					t.Errorf("the origin saw %+v, want one request whose client is gone", all)
				}
			}
			if peer != nil {
				_, _ = io.Copy(io.Discard, peer) // it ends
				_ = peer.Close()
			}
		})
	}
}

// silentServers returns a name server, and a listener. They do not answer.
func silentServers(t *testing.T) (net.PacketConn, net.Listener) {
	t.Helper()
	names, err := net.ListenPacket("udp", "127.0.0.1:0")
	listener, failed := net.Listen("tcp", "127.0.0.1:0")
	if err = errors.Join(err, failed); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _, _ = names.Close(), listener.Close() })
	return names, listener
}
