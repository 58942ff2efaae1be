package server

import "fetchd/internal/budget"

// Held returns the bytes that the server holds for its callers.
func (s *Server) Held() budget.Usage { return s.budget.Usage() }
