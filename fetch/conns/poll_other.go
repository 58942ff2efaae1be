//go:build !unix

package conns

type kernel struct{}

// peek does not know: the connection has to be read to find out.
func (s *socket) peek() idleState { return cannotTell }

// hungUp reports false: only net/http notices here that the peer has closed the connection.
func (s *socket) hungUp() bool { return false }

// waiting returns nil.
func waiting([]*conn) []*conn { return nil }
