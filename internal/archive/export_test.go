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
