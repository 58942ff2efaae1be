package door

import (
	"math/rand/v2"
	"net"
	"slices"
	"testing"
	"time"
)

// raw is a connection that does nothing.
type raw struct {
	net.Conn
	from net.Addr
}

func (r raw) RemoteAddr() net.Addr { return r.from }

func (raw) Close() error { return nil }

func (raw) Read(p []byte) (int, error) { return len(p), nil }

// enter admits a connection from an address, if it can be admitted at once.
func enter(l *Listener, last byte) *Conn {
	from := &net.TCPAddr{IP: net.IPv4(192, 0, 2, last), Port: 1}
	c, old, _ := l.try(raw{from: from}, Address(from))
	if old != nil {
		old.hangUp()
	}
	return c
}

// TestTurns checks that addresses take turns, and that a turn ends with the next read or write.
func TestTurns(t *testing.T) {
	t.Parallel()
	l := Listen(nil, Limits{Total: 100, PerAddress: 100, Strangers: 100})
	l.turns.free = 1
	many := []*Conn{enter(l, 1), enter(l, 1), enter(l, 1), enter(l, 1), enter(l, 1)}
	caller, gone := enter(l, 2), enter(l, 3)
	if l.askTurn(many[0]) != nil {
		t.Fatal("the first handshake waits")
	}
	turns := make(map[*Conn]<-chan error)
	for _, c := range []*Conn{many[1], many[2], many[3], many[4], gone, caller} {
		if turns[c] = l.askTurn(c); turns[c] == nil {
			t.Fatal("two handshakes compute at the same time")
		}
	}
	_ = gone.Close()
	_ = many[3].Close()
	for _, c := range []*Conn{gone, many[3]} {
		if err := <-turns[c]; err == nil {
			t.Error("a closed connection gets a turn")
		}
	}
	_, _ = many[0].Read(make([]byte, 1))
	for i, c := range []*Conn{many[1], caller, many[2], many[4]} {
		select {
		case err := <-turns[c]:
			if err != nil {
				t.Fatal(err)
			}
		default:
			t.Fatalf("turn %d goes to another connection", i+1)
		}
		if i%2 == 0 {
			_, _ = c.Read(make([]byte, 1))
		} else {
			_ = c.Close()
		}
	}
	if l.turns.free != 1 || len(l.turns.queue) != 0 {
		t.Errorf("%d turns are free, %d addresses wait; want 1 and none", l.turns.free, len(l.turns.queue))
	}
}

// TestRandom checks the tables after random events.
func TestRandom(t *testing.T) {
	t.Parallel()
	l := Listen(nil, Limits{Total: 40, PerAddress: 12, Strangers: 20})
	l.turns.free = 2
	random := rand.New(rand.NewPCG(1, 2))
	var conns []*Conn
	for step := range 100_000 {
		if len(conns) == 0 || random.IntN(3) == 0 {
			if c := enter(l, byte(random.IntN(30))); c != nil {
				if random.IntN(2) == 0 {
					c.opened = c.opened.Add(-time.Minute)
				}
				conns = append(conns, c)
			}
		}
		conns = slices.DeleteFunc(conns, func(c *Conn) bool { return l.gone(c) })
		if len(conns) == 0 {
			continue
		}
		c := conns[random.IntN(len(conns))]
		switch random.IntN(7) {
		case 0:
			_ = c.Close()
		case 1:
			if random.IntN(4) == 0 {
				c.Authenticated("")
			}
		case 2:
			_, _ = c.Read(make([]byte, 1))
		case 3:
			c.Enter()
		case 4:
			if c.calls > 0 {
				c.Leave()
			}
		case 5:
			if c.granted == nil {
				l.askTurn(c)
			}
		case 6:
			c.endTurn()
		}
		if !l.isSound(t) {
			t.Fatalf("after step %d", step)
		}
	}
	l.DropAll()
	if len(l.conns)+len(l.addresses)+l.strangers+l.most+len(l.turns.queue) != 0 || l.turns.free != 2 {
		t.Errorf("%d connections, %d addresses, %d strangers, %d in the highest rank are left; %d turns are free", len(l.conns), len(l.addresses), l.strangers, l.most, l.turns.free)
	}
}

func (l *Listener) gone(c *Conn) bool {
	_, open := l.conns[c]
	return !open
}

// isSound reports whether the tables agree with the connections.
func (l *Listener) isSound(t *testing.T) bool {
	t.Helper()
	strangers, most, computing := 0, 0, 0
	counts, open := make(map[*address]int), make(map[*address]int)
	for c := range l.conns {
		open[c.address]++
		if c.stranger.Load() {
			strangers++
			counts[c.address]++
			most = max(most, counts[c.address])
		}
		if c.computing.Load() {
			computing++
		}
	}
	sound := strangers == l.strangers && strangers <= l.limits.Strangers && len(l.conns) <= l.limits.Total && most == l.most && computing+l.turns.free == 2 && len(open) == len(l.addresses)
	for _, a := range l.addresses {
		sound = sound && a.open == open[a] && a.open <= l.limits.PerAddress && a.count() == counts[a] && (a.at != nil) == (counts[a] > 0)
		if c := a.first(); c != nil {
			sound = sound && a.at == &l.ranks[a.count()][c.class]
		}
	}
	if !sound {
		t.Errorf("%d connections of %d addresses, %d strangers, %d in the highest rank", len(l.conns), len(l.addresses), l.strangers, l.most)
	}
	return sound
}
