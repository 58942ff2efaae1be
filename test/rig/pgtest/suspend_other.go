//go:build !linux

package pgtest

import "errors"

// Suspend is for Linux only.
func (s *Server) Suspend() error { return errors.ErrUnsupported }

// Resume is for Linux only.
func (s *Server) Resume() error { return errors.ErrUnsupported }
