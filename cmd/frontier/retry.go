package main

import (
	"context"

	"fetchd/frontier/store"
)

// retryCmd is "frontier retry".
type retryCmd struct {
	database
	Class *string `placeholder:"CLASS" help:"Only what failed in this class, such as http_server_error. Without it, whatever failed."`
}

func (c *retryCmd) run(ctx context.Context, a *app) int {
	class := ""
	if c.Class != nil {
		class = *c.Class
		if err := checkClass(class); err != nil {
			return a.end(ctx, err)
		}
	}
	return c.with(ctx, a, existing, func(s store.Repository) error {
		n, err := s.RetryFailed(ctx, class)
		if err != nil {
			return err
		}
		out := &printer{w: a.out}
		if class == "" {
			out.printf("%s pending again.\n", isAre(n, "URL that had failed", "URLs that had failed"))
		} else {
			out.printf("%s pending again.\n", isAre(n, "URL that had failed with "+class, "URLs that had failed with "+class))
		}
		return out.end()
	})
}
