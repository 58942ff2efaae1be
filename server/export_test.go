package server

import "fetchd/internal/budget"

// Held returns the bytes that the server holds for its callers.
func (s *Server) Held() budget.Usage {
	held := s.service.Budget.Usage()
	held[budget.Idle] = 0
	return held
}
