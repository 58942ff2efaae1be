package main

import (
	"context"
	"errors"
	"fmt"
	"io"

	"fetchd/internal/stores"
)

// clean removes unfinished uploads from all stores, and prints a line for each store. A store that
// fails does not stop it.
func (s *settings) clean(ctx context.Context, stdout io.Writer) error {
	if s.StoresFile == "" {
		return unusable(errors.New("--stores-file is empty: name the file of the service"))
	}
	found, err := s.readStores(new(stores.Set))
	if err != nil {
		return unusable(err)
	}
	var errs []error
	for store := range found.All() {
		n, err := store.Clean(ctx, s.Clean.OlderThan)
		if err != nil {
			errs = append(errs, err)
		}
		if _, err := fmt.Fprintf(stdout, "%s: %d unfinished uploads removed\n", store.Name(), n); err != nil {
			return err
		}
	}
	return errors.Join(errs...)
}
