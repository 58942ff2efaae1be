package archive

import "time"

// OpenFast is Open with pauses of milliseconds.
func OpenFast(name string, c Config) (*Archive, error) {
	return open(name, c, times{scan: 20 * time.Millisecond, firstPause: time.Millisecond, longest: 8 * time.Millisecond,
		breakerPause: 30 * time.Millisecond, forgiven: time.Minute})
}

// Sizes of a capture.
const (
	SmallSize = smallSize
	LargeSize = largeSize
	MaxHead   = maxHead
)

// Break closes the files under the archive, so that every operation on them fails.
func (a *Archive) Break() {
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, f := range a.free {
		_ = f.file.Close()
	}
}

// Occupy takes the turns of all long exchanges that are encoded at the same time.
func Occupy(a *Archive) (release func()) {
	for range maxLong {
		a.long <- struct{}{}
		a.slots <- struct{}{}
	}
	return func() {
		for range maxLong {
			<-a.long
			<-a.slots
		}
	}
}
