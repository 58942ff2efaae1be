package main

import (
	"context"
	"errors"
	"fmt"
	"io"

	"fetchd/internal/stores"
)

// clean removes unfinished uploads from all stores, makes WARC files of dead processes whole, and
// prints a line for each store. A store that fails does not stop it.
func (s *settings) clean(ctx context.Context, stdout io.Writer) error {
	if s.StoresFile == "" {
		return unusable(errors.New("--stores-file is empty: name the file of the service"))
	}
	found, err := s.readStores(new(stores.Set))
	if err != nil {
		return unusable(err)
	}
	var errs []error
	defer found.Drop()
	found.Clean(ctx, s.Clean.OlderThan, func(name string, uploads, files int, err error) {
		text := fmt.Sprintf("%s: %d unfinished uploads removed\n", name, uploads)
		if archive, _ := found.Archive(name); archive != nil {
			text = fmt.Sprintf("%s: %d unfinished uploads removed, %d files recovered\n", name, uploads, files)
		}
		_, printed := io.WriteString(stdout, text)
		errs = append(errs, err, printed)
	})
	return errors.Join(errs...)
}
