package conns

import "testing"

// TestTurns checks which bytes count as an answer: those that were received after the
// request was first written.
func TestTurns(t *testing.T) {
	t.Parallel()
	for _, row := range []struct {
		name string
		do   func(*turns)
		want bool
	}{
		{"nothing", func(*turns) {}, false},
		{"the request", (*turns).write, false},
		{"the request and bytes", func(c *turns) { c.write(); c.read() }, true},
		{"the rest of the request after bytes", func(c *turns) { c.write(); c.read(); c.write() }, true},
		{"bytes before the request", func(c *turns) { c.read(); c.write() }, false},
		{"bytes before and after the request", func(c *turns) { c.read(); c.write(); c.read() }, true},
		{"bytes without a request", (*turns).read, false},
	} {
		var c turns
		c.write()
		c.read() // the exchange before
		c.begin()
		row.do(&c)
		if got := c.answered(); got != row.want {
			t.Errorf("%s: answered %t, want %t", row.name, got, row.want)
		}
	}
}
