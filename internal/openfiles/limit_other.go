//go:build !unix

package openfiles

// Read returns [Unlimited].
func Read() Limit { return Unlimited }
