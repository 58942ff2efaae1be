//go:build !linux

package guardrun

import (
	"context"
	"errors"

	"fetchd/conformance"
)

// ErrNoNetwork means that this system cannot provide the network.
var ErrNoNetwork = errors.New("guards are run in a network namespace, which only Linux has")

// Run returns [ErrNoNetwork].
func Run(context.Context, *Guard, []conformance.GuardRow) ([]Result, error) {
	return nil, ErrNoNetwork
}
