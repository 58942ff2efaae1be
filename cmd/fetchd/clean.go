package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"fetchd/stores"
)

// uploadTime is how long clean waits for the upload of WARC files that a killed service left.
const uploadTime = time.Minute

// clean removes unfinished uploads from all stores, makes WARC files of dead processes whole and
// uploads them, and prints a line for each store. A store that fails does not stop it.
func (s *settings) clean(ctx context.Context, stdout io.Writer) error {
	if s.StoresFile == "" {
		return unusable(errors.New("--stores-file is empty: name the file of the service"))
	}
	found, err := s.readStores(new(stores.Set))
	if err != nil {
		return unusable(err)
	}
	var errs []error
	found.Clean(ctx, s.Clean.OlderThan, func(name string, uploads, files int, err error) {
		text := fmt.Sprintf("%s: %d unfinished uploads removed\n", name, uploads)
		if archive, _ := found.Archive(name); archive != nil {
			text = fmt.Sprintf("%s: %d unfinished uploads removed, %d files recovered\n", name, uploads, files)
		}
		_, printed := io.WriteString(stdout, text)
		errs = append(errs, err, printed)
	})
	limited, cancel := context.WithTimeout(ctx, uploadTime)
	defer cancel()
	errs = append(errs, found.Close(limited))
	return errors.Join(errs...)
}
