package bodies

import (
	"context"
	"errors"
	"strings"
	"testing"
	"testing/synctest"

	"fetchd/frontier"
)

// TestRoom writes bodies that do not fit together. Each row says what happens: "a+4" writes 4 bytes of body a, "a?6"
// waits for room for 6, "a!" checks that a has its room, "a-" drops it, "a~" starts it over. A step that is
// expected to fail ends with "x", and "a-x" cancels the wait of a.
func TestRoom(t *testing.T) {
	t.Parallel()
	for _, row := range []struct{ name, steps string }{
		{"they fit", "a+4 b+6 a- b-"},
		{"the second does not fit", "a+6 b+4 b+1x b- a+4 a-"},
		{"it waits", "a+6 b+5x b- b?10 a- b! b+10 b-"},
		{"one that is alone may exceed the limit", "a+6 a+60 b+1x a- b+1 b-"},
		{"one that exceeds the limit waits until it is alone", "a+1 b?60 a- b! b+60 b-"},
		{"one that waits is not overtaken by a new one", "a+6 b?5 c+1x a- b! c+1 b- c-"},
		{"one that has room grows before one that waits", "a+6 b?5 a+4 a- b! b-"},
		{"those that wait have their turns", "a+6 b?10 c?3 a- b! b- c! c-"},
		{"one that waits is cancelled", "a+6 b?5 c?4 b-x c! a- c-"},
		{"it starts over", "a+6 a~ b+5x a+10 a- b-"},
		{"one that has more than it uses", "a?6 a! a+1 b+4 b+1x b- a+5 a-"},
	} {
		t.Run(row.name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				s := &Store{room: room{limit: 10}}
				bodies, waits := make(map[byte]frontier.Body), make(map[byte]chan error)
				cancels := make(map[byte]context.CancelFunc)
				for _, name := range []byte("abc") {
					bodies[name] = &spooled{store: s, ctx: t.Context()}
				}
				for _, step := range strings.Fields(row.steps) {
					text, fails := strings.CutSuffix(step, "x")
					name, n := text[0], 0
					for _, digit := range text[2:] {
						n = 10*n + int(digit-'0')
					}
					b := bodies[name]
					var err error
					switch text[1] {
					case '+':
						_, err = b.Write(make([]byte, n))
						if _, ok := errors.AsType[*frontier.NoRoomError](err); err != nil && !ok {
							t.Fatalf("%s: %v, want another error", step, err)
						}
					case '~':
						err = b.Truncate(0)
					case '?':
						ctx, cancel := context.WithCancel(t.Context())
						waits[name], cancels[name] = make(chan error, 1), cancel
						go func() { waits[name] <- b.Reserve(ctx, int64(n)) }()
						synctest.Wait()
						if len(waits[name]) > 0 && n > int(s.room.limit) {
							t.Fatalf("%s has not waited", step)
						}
					case '!':
						synctest.Wait()
						select {
						case err = <-waits[name]:
						default:
							t.Fatalf("%s: it still waits", step)
						}
						cancels[name]()
					case '-':
						if fails {
							cancels[name]()
							err = <-waits[name]
						}
						b.Drop()
					}
					if (err != nil) != fails {
						t.Fatalf("%s: %v", step, err)
					}
				}
				if s.room.used != 0 || len(s.room.waits) != 0 {
					t.Errorf("%d bytes are used and %d bodies wait after the end", s.room.used, len(s.room.waits))
				}
			})
		})
	}
}
