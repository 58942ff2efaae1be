package door

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"testing"
	"testing/synctest"
	"time"

	"golang.org/x/net/http2"
)

// FuzzFrames checks that the heads of frames are found, however the bytes are divided.
func FuzzFrames(f *testing.F) {
	f.Add([]byte("\x00\x00\x04\x01\x05\x00\x00\x00\x01abcd\x00\x00\x04\x03\x00\x00\x00\x00\x01wxyz"), uint8(1))
	f.Add([]byte("\x00\x00\x00\x04\x00\x00\x00\x00\x00"), uint8(3))
	f.Fuzz(func(t *testing.T, data []byte, size uint8) {
		var want []string
		for rest := data; len(rest) >= headBytes; {
			n := int(rest[0])<<16 | int(rest[1])<<8 | int(rest[2])
			want = append(want, fmt.Sprintf("%x", rest[3:headBytes]))
			rest = rest[min(headBytes+n, len(rest)):]
		}
		var got []string
		var in frames
		for rest := data; len(rest) > 0; {
			n := min(int(size)+1, len(rest))
			for p, ok := in.next(rest[:n]); ok; p, ok = in.next(p) {
				got = append(got, fmt.Sprintf("%x", in.head[3:]))
			}
			rest = rest[n:]
		}
		if fmt.Sprint(got) != fmt.Sprint(want) {
			t.Errorf("heads %s in pieces of %d bytes, want %s", got, int(size)+1, want)
		}
	})
}

// debtPort runs f with a port whose connections are framed.
func debtPort(t *testing.T, f func(p *port, dropped map[Cause]int)) {
	t.Helper()
	dropped := make(map[Cause]int)
	synctest.Test(t, func(t *testing.T) {
		p := &port{T: t, ended: make(chan error, 1)}
		p.listener = Listen(nil, Limits{Total: 8, PerAddress: 8, Strangers: 8})
		p.listener.Dropped = func(_ string, cause Cause) { dropped[cause]++ }
		f(p, dropped)
	})
}

// framedPair returns a framed connection of an address, and its client.
func (p *port) framedPair(ip string) (*framed, net.Conn) {
	here, there := net.Pipe()
	p.listener.mu.Lock()
	a := p.listener.addresses[ip]
	if a == nil {
		a = &address{name: ip}
		p.listener.addresses[ip] = a
	}
	c := p.listener.enterLocked(end{there, &net.TCPAddr{IP: net.ParseIP(ip)}, nil}, a)
	p.listener.mu.Unlock()
	p.Cleanup(func() { _ = here.Close(); _ = c.Close() })
	return newFramed(c, c), here
}

// says sends frames, and returns the error of the reader, or nil if it has read all.
func (f *framed) says(client io.Writer, write func(*http2.Framer) error) error {
	var out bytes.Buffer
	if f.in.rest == prefaceBytes {
		out.WriteString(http2.ClientPreface)
	}
	if err := write(http2.NewFramer(&out, nil)); err != nil {
		return err
	}
	n := out.Len()
	go func() { _, _ = client.Write(out.Bytes()) }()
	for buffer := make([]byte, 1<<10); n > 0; {
		got, err := f.Read(buffer)
		if err != nil {
			return err
		}
		n -= got
	}
	return nil
}

// TestCancelledCalls checks which connections are closed for calls that they cancel.
func TestCancelledCalls(t *testing.T) {
	t.Parallel()
	cancels := func(n int) func(*http2.Framer) error {
		return func(w *http2.Framer) error {
			for i := range n {
				if err := w.WriteRSTStream(uint32(2*i+1), http2.ErrCodeCancel); err != nil { //nolint:gosec // a small number
					return err
				}
			}
			return nil
		}
	}
	ends := func(t *testing.T, f *framed, n int) {
		t.Helper()
		var out bytes.Buffer
		w := http2.NewFramer(&out, nil)
		for i := range n {
			id := uint32(2*i + 1) //nolint:gosec // a small number
			if err := errors.Join(w.WriteHeaders(http2.HeadersFrameParam{StreamID: id, EndHeaders: true, EndStream: true}), w.WriteRSTStream(id, http2.ErrCodeNo)); err != nil {
				t.Fatal(err)
			}
		}
		if _, err := f.Write(out.Bytes()); err != nil {
			t.Fatal(err)
		}
	}
	for _, row := range []struct {
		name   string
		run    func(t *testing.T, p *port, f *framed, client net.Conn) error
		closed bool
	}{
		{"a few", func(_ *testing.T, _ *port, f *framed, c net.Conn) error { return f.says(c, cancels(callerDebt)) }, false},
		{"many", func(_ *testing.T, _ *port, f *framed, c net.Conn) error { return f.says(c, cancels(callerDebt+200)) }, true},
		{"many, of which the service has ended as many", func(t *testing.T, _ *port, f *framed, c net.Conn) error {
			go func() { _, _ = io.Copy(io.Discard, c) }()
			ends(t, f, 2000)
			return f.says(c, cancels(2000+callerDebt))
		}, false},
		{"a reset after the end of a call pays once", func(t *testing.T, _ *port, f *framed, c net.Conn) error {
			go func() { _, _ = io.Copy(io.Discard, c) }()
			ends(t, f, 100)
			return f.says(c, cancels(100+callerDebt+200))
		}, true},
		{"many, after a second or more", func(_ *testing.T, _ *port, f *framed, c net.Conn) error {
			for range 1000 {
				ctx, cancel := context.WithCancel(ConnContext(context.Background(), f.door))
				call := new(Call)
				call.Tapped(ctx)
				call.Start()
				cancel()
				call.began = call.began.Add(-longCall)
				call.End()
			}
			return f.says(c, cancels(1000))
		}, false},
		{"many, over a long time", func(_ *testing.T, _ *port, f *framed, c net.Conn) error {
			for range 100 {
				if err := f.says(c, cancels(debtRate)); err != nil {
					return err
				}
				<-time.After(time.Second)
			}
			return nil
		}, false},
		{"on one connection after the other", func(_ *testing.T, p *port, f *framed, c net.Conn) error {
			err := f.says(c, cancels(callerDebt))
			for range 3 {
				if err != nil {
					return err
				}
				var other *framed
				other, c = p.framedPair(a)
				err = other.says(c, cancels(connDebt+1))
			}
			return err
		}, true},
		{"few on a connection of a caller that owes much", func(_ *testing.T, p *port, f *framed, c net.Conn) error {
			if err := f.says(c, cancels(callerDebt)); err != nil {
				return err
			}
			other, c := p.framedPair(a)
			return other.says(c, cancels(connDebt))
		}, false},
		{"from another address", func(_ *testing.T, p *port, f *framed, c net.Conn) error {
			if err := f.says(c, cancels(callerDebt)); err != nil {
				return err
			}
			other, c := p.framedPair(b)
			return other.says(c, cancels(100))
		}, false},
	} {
		t.Run(row.name, func(t *testing.T) {
			t.Parallel()
			debtPort(t, func(p *port, dropped map[Cause]int) {
				f, client := p.framedPair(a)
				err := row.run(p.T, p, f, client)
				if closed := errors.Is(err, errCancels); closed != row.closed || !closed && err != nil || dropped[CancelledCalls] > 0 != closed {
					p.Errorf("%v, dropped %v; want closed: %t", err, dropped, row.closed)
				}
			})
		})
	}
}

// TestCalm checks that GOAWAY with ENHANCE_YOUR_CALM is sent between two frames only.
func TestCalm(t *testing.T) {
	t.Parallel()
	for _, between := range []bool{true, false} {
		debtPort(t, func(p *port, _ map[Cause]int) {
			f, client := p.framedPair(a)
			f.last, f.out.have = 7, map[bool]int{true: 0, false: 3}[between]
			got := make(chan http2.Frame, 1)
			go func() {
				frame, _ := http2.NewFramer(nil, client).ReadFrame()
				got <- frame
			}()
			f.calm()
			_ = f.Close()
			frame := <-got
			away, ok := frame.(*http2.GoAwayFrame)
			if ok != between || ok && (away.ErrCode != http2.ErrCodeEnhanceYourCalm || away.LastStreamID != 7 || len(away.DebugData()) == 0) {
				p.Errorf("between two frames: %t; the client read %v", between, frame)
			}
		})
	}
}

// TestRefusals checks that a connection waits before it is read again if too many of its calls were refused, until
// they are forgotten, that it is then read in pieces, and that it does not wait after it was closed.
func TestRefusals(t *testing.T) {
	t.Parallel()
	debtPort(t, func(p *port, _ map[Cause]int) {
		f, client := p.framedPair(a)
		read := func(refused int, after time.Duration) time.Duration {
			for range refused {
				f.door.Refused()
			}
			<-time.After(after)
			began := time.Now()
			if err := f.says(client, func(w *http2.Framer) error { return w.WriteSettings() }); err != nil {
				p.Error(err)
			}
			return time.Since(began)
		}
		for _, row := range []struct {
			refused     int
			after, want time.Duration
		}{{refused: 0}, {refused: freeRefusals}, {refused: refusalRate, want: time.Second}, {refused: 0},
			{refused: 100 * refusalRate, want: maxRest}, {refused: 0, want: maxRest}, {refused: 0, after: 100 * time.Second},
			{refused: 100 * refusalRate, want: maxRest}} {
			if took := read(row.refused, row.after); took != row.want {
				p.Errorf("after %d refusals, %s ago, the connection is read after %s, want %s", row.refused, row.after, took, row.want)
			}
		}
		go func() { _, _ = client.Write(make([]byte, 2*restedBytes)) }()
		if n, err := f.Read(make([]byte, 2*restedBytes)); n != restedBytes || err != nil {
			p.Errorf("after many refusals %d bytes are read: %v, want %d", n, err, restedBytes)
		}
		time.AfterFunc(time.Millisecond, func() { _ = f.door.Close() })
		f.door.Refused()
		began := time.Now()
		if _, err := f.Read(make([]byte, 1)); err == nil || time.Since(began) != time.Millisecond {
			p.Errorf("a closed connection: %v after %s", err, time.Since(began))
		}
	})
}

// TestDebtsAreBounded checks that many addresses do not make the table grow, and that a large debt stays.
func TestDebtsAreBounded(t *testing.T) {
	t.Parallel()
	d, now := debts{rate: debtRate, of: make(map[string]debt)}, time.Now()
	d.add("large", 1_000_000, now)
	for i := range 2 * maxDebts {
		d.add(fmt.Sprint(i), 1, now)
	}
	if len(d.of) > maxDebts || d.of["large"].calls == 0 {
		t.Errorf("%d debts, the large one is %v; want at most %d, and that one", len(d.of), d.of["large"], maxDebts)
	}
}

// TestDrops checks that an address of which many connections were closed gets no new ones for a while.
func TestDrops(t *testing.T) {
	t.Parallel()
	onPort(t, Limits{Total: 100, PerAddress: 100, Strangers: 100}, func(p *port) {
		bad := p.in(a)
		for range freeDrops + dropRate {
			p.listener.dropped(bad.conn, CancelledCalls)
		}
		late := p.dial(a)
		p.want(false, late)
		p.want(true, bad, p.in(b))
		<-time.After(time.Second)
		p.in(a)
	})
}

// TestConnsOfCaller checks that a caller with a name has no more connections than one address may have.
func TestConnsOfCaller(t *testing.T) {
	t.Parallel()
	debtPort(t, func(p *port, dropped map[Cause]int) {
		p.listener.limits.PerAddress = 2
		first, _ := p.framedPair(a)
		second, _ := p.framedPair(b)
		third, _ := p.framedPair(c)
		for _, f := range []*framed{first, second, second, third} {
			f.door.Authenticated("crawler")
		}
		synctest.Wait()
		if len(p.listener.conns) != 2 || dropped[ConnsOfCaller] != 1 {
			p.Errorf("%d connections, dropped %v; want 2 and one", len(p.listener.conns), dropped)
		}
		if second.door.MayCall() != nil || third.door.MayCall() == nil {
			p.Errorf("calls: %v and %v, want an error for the connection that is closed", second.door.MayCall(), third.door.MayCall())
		}
		_ = first.Close()
		fourth, _ := p.framedPair(d)
		fourth.door.Authenticated("crawler")
		fourth.door.Authenticated("other") // the connection serves another caller now
		synctest.Wait()
		if len(p.listener.conns) != 2 || p.listener.callers["crawler"] != 1 || p.listener.callers["other"] != 1 {
			p.Errorf("connections of callers: %v, want one each", p.listener.callers)
		}
	})
}

// mostProbes is how many health calls there may be in these tests.
const mostProbes = 20

// fill enters up to n calls of an address, on one connection. To forget that is to take another one.
func (p *Probes) fill(from string, n int) (all []*Probe) {
	for range n {
		if call, why := p.Enter(nil, from, true); why == NoCrowd {
			all = append(all, call)
		}
	}
	return all
}

// TestProbes checks who may have a health call when there are too many.
func TestProbes(t *testing.T) {
	t.Parallel()
	for _, row := range []struct {
		name  string
		full  []string // who has as many as possible, one after the other
		from  string
		watch bool
		want  Crowd
		ended bool // the oldest call of the first
	}{
		{"another address", []string{a}, b, true, NoCrowd, true},
		{"a probe of another address", []string{a}, b, false, NoCrowd, true},
		{"the same address", []string{a}, a, true, OfAddress, false},
		{"a probe of the same address", []string{a}, a, false, NoCrowd, true},
	} {
		t.Run(row.name, func(t *testing.T) {
			t.Parallel()
			p := NewProbes(mostProbes, 1, true)
			var first *Probe
			for _, from := range row.full {
				p.conns = make(map[*Conn]int) // as if each had its own connection
				for len(p.calls) < mostProbes {
					p.conns[nil] = 0
					got := p.fill(from, 1)
					if first == nil {
						first = got[0]
					}
				}
			}
			p.conns[nil] = 0
			call, why := p.Enter(nil, row.from, row.watch)
			if why != row.want || (first.Ended().Err() != nil) != row.ended {
				t.Errorf("%v, the oldest call of the others ended: %t; want %v, %t", why, first.Ended().Err() != nil, row.want, row.ended)
			}
			if call != nil {
				call.Leave()
			}
		})
	}
}

// TestProbesThatDoNotReturn checks who gets the last places while ended calls have not returned.
func TestProbesThatDoNotReturn(t *testing.T) {
	t.Parallel()
	t.Run("calls that have not returned count", func(t *testing.T) {
		t.Parallel()
		p := NewProbes(mostProbes, 1, true)
		admitted := 0
		for i := range 10 * mostProbes {
			p.conns[nil] = 0
			if _, why := p.Enter(nil, fmt.Sprint(i), false); why == NoCrowd {
				admitted++
			}
		}
		if admitted != mostProbes+mostProbes/2 {
			t.Errorf("%d calls are admitted, none of which returns; want %d", admitted, mostProbes+mostProbes/2)
		}
	})
	t.Run("the only call of an address is left alone", func(t *testing.T) {
		t.Parallel()
		p := NewProbes(mostProbes, 1, true)
		for i := range mostProbes {
			p.conns[nil] = 0
			_ = p.fill(fmt.Sprint(i), 1)
		}
		for _, call := range p.calls {
			call.cancel() // but its handler has not returned
		}
		p.calls = nil
		only := p.fill(a, 1)
		for i := range mostProbes {
			p.conns[nil] = 0
			_, _ = p.Enter(nil, fmt.Sprint(i), false)
			_, _ = p.Enter(nil, fmt.Sprint(mostProbes+i), false)
		}
		if len(only) != 1 || only[0].Ended().Err() != nil {
			t.Errorf("%d calls admitted, or it was ended for calls of others", len(only))
		}
	})
	t.Run("the last places are for addresses without a call", func(t *testing.T) {
		t.Parallel()
		p := NewProbes(mostProbes, 1, true)
		for i := range 10 * mostProbes {
			p.conns[nil] = 0
			_, _ = p.Enter(nil, []string{a, b, c, d, "e", "f", "g", "h"}[i%8], false)
		}
		p.conns[nil] = 0
		if _, why := p.Enter(nil, "another", false); why != NoCrowd {
			t.Errorf("a call of another address is refused: %v", why)
		}
	})
	t.Run("nothing is left", func(t *testing.T) {
		t.Parallel()
		p := NewProbes(mostProbes, 1, true)
		for _, call := range p.fill(a, mostProbes) {
			call.Leave()
		}
		if p.live != 0 || len(p.calls) != 0 || len(p.of) != 0 || len(p.conns) != 0 {
			t.Errorf("%d, %d, %v, %v are left", p.live, len(p.calls), p.of, p.conns)
		}
	})
}

// TestCall checks which of the handler and the time limit gets a call, and that gRPC starts the handler of a
// call whose context has ended.
func TestCall(t *testing.T) {
	t.Parallel()
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	call := new(Call)
	call.Tapped(ended)
	if call.Err() != nil || call.Err() == nil {
		t.Error("Err answers another question than the first with nil")
	}
	if !call.Start() || call.GiveUp() || call.Start() {
		t.Error("a call that has started can be given up, or starts twice")
	}
	call = new(Call)
	call.Tapped(ended)
	if !call.GiveUp() || call.Start() || call.GiveUp() {
		t.Error("a call that was given up can start, or is given up twice")
	}
}
