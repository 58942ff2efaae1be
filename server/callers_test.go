package server_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc/codes"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/metadata"
	reflectv1 "google.golang.org/grpc/reflection/grpc_reflection_v1"

	pb "fetchd/gen/fetchd/v1"
	"fetchd/server"
)

// TestConnectionsOfOneCaller checks that connections over the limit of an address are closed if the
// others have made calls, and that other addresses are served meanwhile.
func TestConnectionsOfOneCaller(t *testing.T) {
	t.Parallel()
	r := newRig(t, func(c *server.Config) { c.MaxConnections, c.MaxConnectionsPerCaller = 4, 2 })
	call := func() net.Conn {
		conn := r.dialFrom(2)
		c := r.raw(conn)
		c.open(1, healthpb.Health_Check_FullMethodName)
		if _, _, _, err := c.read(1); err != nil {
			t.Fatal(err)
		}
		return conn
	}
	first, _ := call(), call()
	another := func() bool {
		d := net.Dialer{LocalAddr: &net.TCPAddr{IP: net.IPv4(127, 0, 0, 2)}}
		conn, err := d.DialContext(t.Context(), "tcp", r.Addr)
		if err != nil {
			return false // it is reset at once
		}
		defer conn.Close()
		return served(conn)
	}
	for range 2 {
		if another() {
			t.Error("a connection over the limit is served")
		}
	}
	r.mustUnary(r.request("/s/k/200"))
	_ = first.Close()
	for began := time.Now(); !another(); {
		if time.Since(began) > 10*time.Second {
			t.Fatal("no connection is accepted after one was closed")
		}
	}
}

// TestStreamsOfOneCaller checks the separate limit on streams that are not a fetch.
func TestStreamsOfOneCaller(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	reflection := reflectv1.NewServerReflectionClient(r.Conn)
	ask := func() error {
		stream, err := reflection.ServerReflectionInfo(t.Context())
		if err == nil {
			_ = stream.Send(&reflectv1.ServerReflectionRequest{MessageRequest: &reflectv1.ServerReflectionRequest_ListServices{}}) // Recv returns the error
			_, err = stream.Recv()
		}
		return err
	}
	for i := range 64 {
		if err := ask(); err != nil {
			t.Fatalf("stream %d: %v", i+1, err)
		}
	}
	wantCode(t, "the 65th stream", ask(), codes.ResourceExhausted)
	r.mustUnary(r.request("/s/k/200"))
}

// TestReflectionThatIsHeldOpen checks that a reflection stream ends after a minute, even while it
// is used.
func TestReflectionThatIsHeldOpen(t *testing.T) {
	t.Parallel()
	bubble(t, func(r *rig) {
		began := time.Now()
		ctx, cancel := context.WithCancel(r.Context())
		defer cancel()
		stream, err := reflectv1.NewServerReflectionClient(r.Conn).ServerReflectionInfo(ctx)
		for err == nil {
			err = stream.Send(&reflectv1.ServerReflectionRequest{MessageRequest: &reflectv1.ServerReflectionRequest_ListServices{}})
			if err == nil {
				_, err = stream.Recv()
			}
			<-time.After(7 * time.Second)
		}
		if took := time.Since(began); took < time.Minute || took > time.Minute+14*time.Second { // it looks every 7 s
			r.Errorf("ended after %s with %v, want a minute", took, err)
		}
	})
}

// roster is an authenticator whose callers can change.
type roster struct {
	mu    sync.Mutex
	names map[string]string // by token
}

func (r *roster) change(c *server.Config) {
	c.Authenticate = func(shown server.Credentials) (string, error) {
		r.mu.Lock()
		defer r.mu.Unlock()
		if name, ok := r.names[shown.Token]; ok {
			return name, nil
		}
		return "", errors.New("no")
	}
}

func (r *roster) set(token, name string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.names, token)
	if name != "" {
		r.names[token] = name
	}
}

func newRoster() *roster {
	return &roster{names: map[string]string{"a": "alice", "b": "bob"}}
}

func as(ctx context.Context, token string) context.Context {
	return metadata.AppendToOutgoingContext(ctx, "authorization", "Bearer "+token)
}

// calls holds one call of each kind of one caller.
type calls struct {
	busy, idle         *manyStream
	unary, stream, web chan error
}

// callAll starts the calls of a caller.
func (r *rig) callAll(token string) *calls {
	ctx := as(r.Context(), token)
	c := &calls{busy: r.many(ctx), idle: r.many(ctx), unary: make(chan error, 1), stream: make(chan error, 1), web: make(chan error, 1)}
	c.idle.start(r.task("0", "/s/"+token+"idle/200"))
	c.idle.until(1)
	const path = "/200:delay=10s"
	c.busy.start(r.task("1", "/s/"+token+"many1"+path), r.task("2", "/s/"+token+"many2"+path))
	go func() {
		_, err := r.Client.FetchUnary(ctx, r.request("/s/"+token+"unary"+path))
		c.unary <- err
	}()
	go func() { c.stream <- r.fetch(ctx, r.request("/s/"+token+"stream"+path)).err }()
	go func() {
		resp := r.post(r.Context(), "/v1/fetch:unary", `{"url": "`+r.Origin.URL("http", "/s/"+token+"web"+path)+`"}`,
			func(req *http.Request) { req.Header.Set("Authorization", "Bearer "+token) })
		_, _ = io.Copy(io.Discard, resp.Body) // the status is enough
		if resp.StatusCode != http.StatusOK {
			c.web <- errors.New(resp.Status)
			return
		}
		c.web <- nil
	}()
	synctest.Wait()
	return c
}

// TestReauthenticate checks that the calls of a revoked caller end, and that no other
// call does.
func TestReauthenticate(t *testing.T) {
	t.Parallel()
	for _, row := range []struct {
		name, becomes string
	}{
		{"the token is removed", ""},
		{"the token has another owner", "eve"},
	} {
		t.Run(row.name, func(t *testing.T) {
			t.Parallel()
			known := newRoster()
			bubble(t, func(r *rig) {
				alice, bob := r.callAll("a"), r.callAll("b")
				if n := r.Service.Reauthenticate(); n != 0 {
					r.Errorf("%d calls ended though nothing has changed", n)
				}
				began := time.Now()
				known.set("b", row.becomes)
				if n := r.Service.Reauthenticate(); n != 5 {
					r.Errorf("%d calls ended, want the 5 of bob", n)
				}
				bob.busy.until(2)
				bob.busy.wantClass("1", pb.ErrorClass_ERROR_CLASS_CANCELLED)
				bob.busy.wantClass("2", pb.ErrorClass_ERROR_CLASS_CANCELLED)
				wantCode(r.T, "FetchMany with tasks", bob.busy.next(), codes.Aborted)
				wantCode(r.T, "FetchMany without tasks", bob.idle.next(), codes.Aborted)
				wantCode(r.T, "FetchUnary", <-bob.unary, codes.Aborted)
				wantCode(r.T, "Fetch", <-bob.stream, codes.Aborted)
				if err := <-bob.web; err == nil || !strings.Contains(fmt.Sprint(err), "409") {
					r.Errorf("the HTTP endpoint: %v, want 409", err)
				}
				if took := time.Since(began); took > 0 {
					r.Errorf("took %s, want no time", took)
				}
				alice.busy.until(2)
				alice.busy.wantClass("1", ok)
				alice.busy.wantClass("2", ok)
				alice.idle.start(r.task("3", "/s/late/200"))
				alice.idle.finish("0", "3")
				alice.busy.finish("1", "2")
				for _, ended := range []chan error{alice.unary, alice.stream, alice.web} {
					if err := <-ended; err != nil {
						r.Errorf("a call of alice: %v, want OK", err)
					}
				}
				if n := r.Service.Reauthenticate(); n != 0 {
					r.Errorf("%d calls ended though none is in flight", n)
				}
			}, known.change)
		})
	}
}

// TestReauthenticateWhoDoesNotRead checks that the stream of a revoked caller that does
// not read ends after two seconds.
func TestReauthenticateWhoDoesNotRead(t *testing.T) {
	t.Parallel()
	known := newRoster()
	bubble(t, func(r *rig) {
		m := r.many(as(r.Context(), "b"))
		for i := range 8 { // far more than can be sent without a reader
			m.start(r.task(key(i), "/s/"+key(i)+"/200:size=100000"))
		}
		synctest.Wait()
		known.set("b", "")
		r.Service.Reauthenticate()
		<-time.After(2 * time.Second)
		synctest.Wait()
		if lines := r.logs.lines(r.T, "finished call"); len(lines) != 1 || lines[0]["grpc.code"] != "Aborted" {
			r.Errorf("finished after 2 s: %v, want FetchMany with UNAUTHENTICATED", lines)
		}
	}, known.change)
}

// TestRevokedWhileItsRequestComes checks that a call is not run if its caller is revoked
// between its headers and its request.
func TestRevokedWhileItsRequestComes(t *testing.T) {
	t.Parallel()
	known := newRoster()
	bubble(t, func(r *rig) {
		stream, err := r.Conn.NewStream(as(r.Context(), "b"), &pb.FetchService_ServiceDesc.Streams[0], pb.FetchService_Fetch_FullMethodName)
		must(r, err)
		synctest.Wait()
		known.set("b", "")
		r.Service.Reauthenticate()
		must(r, stream.SendMsg(r.request("/s/k/200")))
		_ = stream.CloseSend() // RecvMsg returns the error
		wantCode(r.T, "Fetch", stream.RecvMsg(new(pb.FetchEvent)), codes.Unauthenticated)
		r.wantRequests("k", 0)
	}, known.change)
}
