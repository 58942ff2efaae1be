package rulebook

import "sync"

// strayPiece is how many robots.txt of redirect targets are deleted at once. At most twice as
// many are kept.
const strayPiece = 16

// strays are origins that redirects led to and whose robots.txt was saved. A redirecting
// host can name any number of hosts. It is safe for concurrent use.
type strays struct {
	mu      sync.Mutex
	origins []string // oldest first
}

// add adds an origin. It returns the origins to delete, if their hosts still have no URL.
func (s *strays) add(origin string) (old []string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.origins = append(s.origins, origin)
	if len(s.origins) < 2*strayPiece {
		return nil
	}
	old = s.origins[:strayPiece:strayPiece]
	s.origins = append([]string(nil), s.origins[strayPiece:]...)
	return old
}

// Stray records that the robots.txt of a redirect's target was saved, and deletes the oldest ones from the store. If
// that fails, a sweep of the store will delete them.
func (b *Book) Stray(origin string) error {
	old := b.strays.add(origin)
	if len(old) == 0 {
		return nil
	}
	ctx, cancel := b.finishing()
	defer cancel()
	_, err := b.Store.ForgetRobots(ctx, old)
	return err
}
