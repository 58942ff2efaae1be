package origin

// alphabet is the bytes of a seeded body: printable and valid in every
// charset, so that a body can be looked at.
const alphabet = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_"

// seededReader is the endless seeded body.
type seededReader struct{ seed uint64 }

func (r seededReader) ReadAt(p []byte, offset int64) (int, error) {
	fillSeeded(p, r.seed, offset)
	return len(p), nil
}

func fillSeeded(p []byte, seed uint64, offset int64) {
	// Mixed, for the bodies of neighbouring seeds would be shifts of each other.
	first, word := splitmix64(seed), uint64(0)
	for i := range p {
		at := uint64(offset) + uint64(i)
		if i == 0 || at%8 == 0 {
			word = splitmix64(first + at/8)
		}
		p[i] = alphabet[word>>(at%8*8)&63]
	}
}

// splitmix64 is one step of the generator of Steele, Lea and Flood from state z.
func splitmix64(z uint64) uint64 {
	z += 0x9e3779b97f4a7c15
	z = (z ^ z>>30) * 0xbf58476d1ce4e5b9
	z = (z ^ z>>27) * 0x94d049bb133111eb
	return z ^ z>>31
}

// zeros is endless zero bytes.
type zeros struct{}

func (zeros) ReadAt(p []byte, _ int64) (int, error) {
	clear(p)
	return len(p), nil
}
