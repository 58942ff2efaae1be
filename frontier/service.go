package frontier

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"fetchd/client"
)

// Service is a fetchd, and its name in logs and errors.
type Service struct {
	Name   string
	Client *client.Client
}

// pingTimeout bounds the check whether a service answers.
const pingTimeout = 10 * time.Second

// pingAny pings every service and returns when one has answered. If none does, the error says
// why for each.
func pingAny(ctx context.Context, services []Service) error {
	ctx, cancel := context.WithTimeout(ctx, pingTimeout)
	defer cancel()
	errs := make([]error, len(services))
	var running sync.WaitGroup
	for i, s := range services {
		running.Go(func() {
			if err := s.Client.Ping(ctx); err != nil {
				errs[i] = fmt.Errorf("%s: %w", s.Name, err)
				return
			}
			cancel() // one is enough to start
		})
	}
	running.Wait()
	if slices.Contains(errs, nil) {
		return nil
	}
	return errors.Join(errs...)
}
