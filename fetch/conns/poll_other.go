//go:build !linux

package conns

type poll struct{}

// hungUp reports false: only net/http notices here that the peer has closed the connection.
func (s *socket) hungUp(bool) bool { return false }
