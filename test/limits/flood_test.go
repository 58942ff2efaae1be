//go:build linux

package limits

import (
	"bytes"
	"context"
	"encoding/binary"
	"fmt"
	"io"
	"net"
	"os"
	"slices"
	"sync"
	"testing"
	"time"

	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"

	"fetchd/test/need"
	"fetchd/test/rig"
	"fetchd/test/wait"
)

// callFlood is what a crowd sends on each connection to a gRPC port, again and again.
type callFlood struct {
	name     string
	gate     []string // the programs that the gate floods with it
	programs []string
	method   map[string]string // by program
	stranger bool              // without a token
	data     []byte            // after the headers; nil: none
	end      bool              // the headers or the data end the request
	reset    bool              // the call is cancelled at once
	reads    bool              // a connection sends once, and is read until it is closed
	split    bool              // the headers do not end
}

const (
	floodBatch = 100                   // calls that are sent at once
	floodConns = 300                   // connections
	floodPause = 20 * time.Millisecond // after a connection was refused
)

var (
	onlyFetchd   = []string{"fetchd"}
	bothPrograms = []string{"fetchd", "frontier"}
	fetchMethod  = map[string]string{"fetchd": "/fetchd.v1.FetchService/Fetch", "frontier": "/frontier.v1.FrontierService/Claim"}
	watchMethod  = map[string]string{"fetchd": "/grpc.health.v1.Health/Watch", "frontier": "/grpc.health.v1.Health/Watch"}
	checkMethod  = map[string]string{"fetchd": healthMethod, "frontier": healthMethod}
	infoMethod   = map[string]string{"fetchd": "/grpc.reflection.v1.ServerReflection/ServerReflectionInfo", "frontier": "/grpc.reflection.v1.ServerReflection/ServerReflectionInfo"}
	noMethod     = map[string]string{"fetchd": "/fetchd.v1.FetchService/Nothing", "frontier": "/nothing"}
)

// announced returns the start of a message of size bytes, of which n are sent.
func announced(size uint32, n int) []byte {
	return append(binary.BigEndian.AppendUint32([]byte{0}, size), make([]byte, n)...)
}

// floods are all kinds. What a call costs before its request has been read, and after it was cancelled, must have an
// owner: each of those for the gate ended a service that had none. Both programs share internal/door, so the gate runs
// two of them on frontier serve.
var floods = []callFlood{
	{name: "watches-cancelled", gate: bothPrograms, programs: bothPrograms, method: watchMethod, stranger: true, data: announced(0, 0), end: true, reset: true, reads: true},
	{name: "headers-only", gate: onlyFetchd, programs: bothPrograms, method: fetchMethod},
	{name: "calls-cancelled", gate: onlyFetchd, programs: bothPrograms, method: fetchMethod, data: announced(0, 0), end: true, reset: true},
	{name: "announced-only", gate: onlyFetchd, programs: onlyFetchd, method: fetchMethod, data: announced(1<<20, 0)},
	{name: "half-arrived", programs: bothPrograms, method: fetchMethod, data: announced(60<<10, 8<<10)},
	{name: "checks-cancelled", programs: bothPrograms, method: checkMethod, stranger: true, data: announced(0, 0), end: true, reset: true},
	{name: "checks-filled", programs: bothPrograms, method: watchMethod, stranger: true, data: announced(1<<20, 8<<10)},
	{name: "reflection-cancelled", programs: bothPrograms, method: infoMethod, reset: true},
	{name: "reflection-only", programs: bothPrograms, method: infoMethod},
	{name: "many-cancelled", programs: onlyFetchd, method: map[string]string{"fetchd": manyMethod}, reset: true},
	{name: "no-method-cancelled", programs: bothPrograms, method: noMethod, reset: true},
	{name: "no-token", programs: bothPrograms, method: fetchMethod, stranger: true},
	{name: "no-request", gate: bothPrograms, programs: bothPrograms, method: fetchMethod, end: true},
	{name: "no-request-cancelled", programs: bothPrograms, method: fetchMethod, end: true, reset: true},
	{name: "headers-split", programs: bothPrograms, method: fetchMethod, split: true},
}

// calls returns the frames of n calls.
func (f *callFlood) calls(program, token string, first uint32, n int) []byte {
	var out, block bytes.Buffer
	framer, encoder := http2.NewFramer(&out, nil), hpack.NewEncoder(&block)
	for i := range n {
		id := first + 2*uint32(i) //nolint:gosec // a small number
		block.Reset()
		fields := []hpack.HeaderField{{Name: ":method", Value: "POST"}, {Name: ":scheme", Value: "http"}, {Name: ":path", Value: f.method[program]},
			{Name: ":authority", Value: "x"}, {Name: "content-type", Value: "application/grpc"}, {Name: "te", Value: "trailers"}}
		if !f.stranger {
			fields = append(fields, hpack.HeaderField{Name: "authorization", Value: "Bearer " + token, Sensitive: true})
		}
		for _, field := range fields {
			field.Sensitive = true // not in a table: the frames can be sent on any connection
			_ = encoder.WriteField(field)
		}
		_ = framer.WriteHeaders(http2.HeadersFrameParam{StreamID: id, BlockFragment: block.Bytes(), EndHeaders: !f.split, EndStream: f.end && f.data == nil})
		if f.split {
			for range 64 {
				_ = framer.WriteContinuation(id, false, nil)
			}
			break
		}
		if f.data != nil {
			_ = framer.WriteData(id, f.end, f.data)
		}
		if f.reset {
			_ = framer.WriteRSTStream(id, http2.ErrCodeCancel)
		}
	}
	return out.Bytes()
}

// flood runs the crowd's flood.
func (f crowd) flood() error {
	var kind *callFlood
	for i := range floods {
		if floods[i].name == f.Flood {
			kind = &floods[i]
		}
	}
	if kind == nil {
		return fmt.Errorf("no flood %q", f.Flood)
	}
	const ids = 1 << 16
	var batches [][]byte
	for first := uint32(1); first < ids; first += 2 * floodBatch {
		batches = append(batches, kind.calls(f.Program, f.Token, first, floodBatch))
	}
	ctx, cancel := context.WithTimeout(context.Background(), f.Time)
	defer cancel()
	var all sync.WaitGroup
	for n := range floodConns {
		all.Go(func() {
			for ctx.Err() == nil {
				if f.floodConn(ctx, n, kind, batches) != nil {
					wait.For(ctx, floodPause)
				}
			}
		})
	}
	all.Wait()
	return nil
}

// floodConn sends a flood on a connection until that is closed.
func (f crowd) floodConn(ctx context.Context, n int, kind *callFlood, batches [][]byte) error {
	c, err := (&net.Dialer{LocalAddr: &net.TCPAddr{IP: f.from(n)}}).DialContext(ctx, "tcp", f.Target)
	if err != nil {
		return err
	}
	defer c.Close()
	defer context.AfterFunc(ctx, func() { c.Close() })()
	if _, err := io.WriteString(c, http2.ClientPreface+"\x00\x00\x00\x04\x00\x00\x00\x00\x00"); err != nil {
		return err
	}
	gone := make(chan struct{})
	go func() {
		defer close(gone)
		_, _ = io.Copy(io.Discard, c)
		c.Close()
	}()
	if kind.reads {
		batches = batches[:10]
	}
	for _, b := range batches {
		if _, err := c.Write(b); err != nil {
			return err
		}
		if !kind.reset {
			wait.For(ctx, floodPause)
		}
	}
	<-gone
	return nil
}

// TestFloods floods the gRPC ports of both programs within a memory limit, with what made a service run out of it.
// The service lives on within three quarters of the limit, and answers others: callers with a token, over both ports, and
// health checks. Times are printed; no test fails for them.
func TestFloods(t *testing.T) {
	rig.Long(t, 2*time.Hour)
	group, err := rig.NewCgroup(columns[0].bytes)
	if err != nil {
		need.Missing(t, "run it as root on Linux, with a memory controller that can be written to", "no memory cgroup can be made: %v", err)
	}
	if err := group.Remove(t.Context()); err != nil {
		t.Fatal(err)
	}
	all := os.Getenv("FETCHD_LIMITS") == "all"
	_, _ = fmt.Fprintf(os.Stdout, "\n| flood | program | limit | resident at most | goroutines at most | calls answered, gRPC | p50, p99 | HTTP | p50, p99 | health | p50, p99 |\n|---|---|---|---|---|---|---|---|---|---|---|\n")
	for _, c := range columns {
		for i := range floods {
			for _, program := range floods[i].programs {
				if all || c == columns[0] && slices.Contains(floods[i].gate, program) {
					t.Run(fmt.Sprintf("%s/%s/%s", c.name, program, floods[i].name), func(t *testing.T) { floodRow(t, program, &floods[i], c, all) })
				}
			}
		}
	}
}

func floodRow(t *testing.T, program string, f *callFlood, limit column, all bool) {
	s := startDoor(t, doorOptions{program: program, host: "127.0.0.1", memory: limit.bytes})
	attack := crowd{Kind: flooding, Flood: f.name, Program: program, Token: s.evil, Target: s.ports["grpc"], Addresses: 60, Time: 8 * time.Second, Core: -1}
	if all {
		attack.Time = 20 * time.Second
	}
	ctx, stop := context.WithTimeout(t.Context(), attack.Time+2*time.Second)
	defer stop()
	var resident int64
	var goroutines float64
	var watching sync.WaitGroup
	watching.Go(func() {
		_ = wait.Until(ctx, 20*time.Millisecond, func() bool {
			if now, _, err := s.Resident(); err == nil {
				resident = max(resident, now)
			}
			return false
		})
	})
	watching.Go(func() {
		_ = wait.Until(ctx, 500*time.Millisecond, func() bool {
			if now, err := rig.Metrics(ctx, s.ports["http"]); err == nil {
				goroutines = max(goroutines, now["go_goroutines"])
			}
			return false
		})
	})
	ended := attack.start(t)
	asked := []*answers{
		askUntil(ctx, &watching, 1, func(ctx context.Context) error { return s.call(ctx, "grpc", 0) }),
		askUntil(ctx, &watching, 2, func(ctx context.Context) error { return s.call(ctx, "http", 0) }),
		askUntil(ctx, &watching, 3, func(ctx context.Context) error { return s.health(ctx, "grpc") }),
	}
	ended()
	watching.Wait()
	select {
	case <-s.Gone:
		t.Fatalf("the service has ended: %s %s", s.State, s.Failure)
	default:
	}
	if most := limit.bytes / 4 * 3; resident > most {
		t.Errorf("resident %s, want at most %s", mib(resident), mib(most))
	}
	line := fmt.Sprintf("| %s | %s | %s | %s | %.0f |", f.name, program, limit.name, mib(resident), goroutines)
	for i, a := range asked {
		if a.answered*100 < a.calls*99 || a.calls == 0 {
			t.Errorf("%s: %d of %d are answered, want 99 of 100; the last error: %v", []string{"calls over gRPC", "calls over HTTP", "health checks"}[i], a.answered, a.calls, a.last)
		}
		line += fmt.Sprintf(" %d/%d | %s, %s |", a.answered, a.calls, a.times.Percentile(50).Round(time.Millisecond), a.times.Percentile(99).Round(time.Millisecond))
	}
	_, _ = fmt.Fprintln(os.Stdout, line)
}

// askUntil makes calls, one after the other, until ctx ends. The answers may be read when running is over.
func askUntil(ctx context.Context, running *sync.WaitGroup, lane int, call func(context.Context) error) *answers {
	a := new(answers)
	running.Go(func() {
		for ctx.Err() == nil {
			began := time.Now()
			limited, cancel := context.WithTimeout(context.WithValue(context.WithoutCancel(ctx), laneKey{}, lane), answerTime)
			err := call(limited)
			cancel()
			a.calls++
			if err == nil {
				a.answered++
				a.times = append(a.times, time.Since(began))
			} else {
				a.last = err
			}
			wait.For(ctx, 20*time.Millisecond)
		}
	})
	return a
}
