package server

import "fetchd/internal/budget"

// Held is what the server holds for its callers, for tests.
func (s *Server) Held() budget.Usage { return s.budget.Usage() }
