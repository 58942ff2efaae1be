package main

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"log/slog"
	"net/url"
	"path/filepath"
	"strings"
	"time"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"fetchd/frontier"
	"fetchd/frontier/bodies"
	pb "fetchd/gen/fetchd/v1"
	"fetchd/internal/cli"
	"fetchd/stores"
	"fetchd/stores/archive"
)

const (
	// probeTime limits the check whether bodies can be stored, or fetches recorded.
	probeTime = 30 * time.Second
	closeTime = 10 * time.Second
	// uploadTime limits the wait for uploads of WARC files at the end. The next run uploads the rest.
	uploadTime = 5 * time.Minute
	// otherPlace is what to do if a place cannot be written.
	otherPlace = "give a directory or a store that you can write to"
	// recordStore is the name of the store in the fetchd inside, if --warc is a directory.
	recordStore = "warc"
)

// readStores opens the stores of --stores-file, or none. stop waits until nothing is left of bodies
// that were dropped.
func (c *runCmd) readStores() (_ *stores.Set, stop func(), err error) {
	if c.Stores == "" {
		return nil, func() {}, nil
	}
	set, err := stores.ReadFile(c.Stores, new(stores.Set))
	if err != nil {
		return nil, nil, cli.UsageError("--stores-file", fmt.Sprint(err))
	}
	return set, closing(set.Close), nil
}

func closing(closePlace func(context.Context) error) func() {
	return func() {
		ctx, cancel := context.WithTimeout(context.Background(), closeTime)
		defer cancel()
		_ = closePlace(ctx) // every body was stored completely before
	}
}

// openBodies opens the place for bodies. It stores the empty body there, so that an error is
// reported before anything is fetched. The caller calls stop.
func (c *runCmd) openBodies(ctx context.Context, set *stores.Set) (_ *bodies.Store, stop func(), err error) {
	place, stop, err := c.place(set)
	if err != nil {
		return nil, nil, err
	}
	if most := place.MaxObjectBytes(); most < c.MaxBody {
		stop()
		return nil, nil, cli.UsageError("--max-body-bytes", fmt.Sprintf("%d is more than the store accepts: give at most its limit, %d", c.MaxBody, most))
	}
	ctx, cancel := context.WithTimeout(ctx, probeTime)
	defer cancel()
	b := bodies.New(place)
	body := b.New(ctx)
	defer body.Drop()
	empty := sha256.Sum256(nil)
	if err := body.Commit(hex.EncodeToString(empty[:]), nil); err != nil {
		stop()
		return nil, nil, cannotWrite("--bodies", err)
	}
	return b, stop, nil
}

func cannotWrite(flag string, err error) error {
	return cli.OutputError(fmt.Errorf("%s: %w: %s", flag, err, otherPlace))
}

// place returns the place of --bodies. set is nil without --stores-file.
func (c *runCmd) place(set *stores.Set) (_ *stores.Store, stop func(), err error) {
	if set != nil {
		s, _ := set.Get(c.Bodies) // callers are those of a fetchd
		if s == nil {
			return nil, nil, c.noStore("--bodies", c.Bodies)
		}
		return s, func() {}, nil
	}
	dir, err := directory("--bodies", c.Bodies, "file")
	if err != nil {
		return nil, nil, err
	}
	s, err := stores.Open("bodies", stores.Config{URL: (&url.URL{Scheme: "file", Path: "/" + strings.TrimPrefix(filepath.ToSlash(dir), "/")}).String()})
	if err != nil {
		return nil, nil, cannotWrite("--bodies", err)
	}
	return s, closing(s.Close), nil
}

// openRecords opens the place of --warc and returns the name of its store in every service. stop
// makes open files whole, and waits for uploads until ctx ends. The services must have stopped.
func (c *runCmd) openRecords(ctx context.Context, set *stores.Set, logger *slog.Logger) (name string, stop func(), err error) {
	if len(c.Server) > 0 {
		return c.WARC, func() {}, nil
	}
	a, err := c.archive(set, logger)
	if err != nil {
		return "", nil, err
	}
	c.records = stores.Of(a)
	stop = func() {
		ctx, cancel := context.WithTimeout(ctx, uploadTime)
		defer cancel()
		if err := a.Close(ctx); err != nil {
			logger.WarnContext(ctx, "WARC files are not complete, or not uploaded; the next run continues", slog.Any("error", err))
		}
	}
	if err := a.Ready(); err != nil {
		stop()
		return "", nil, cannotWrite("--warc", err)
	}
	return a.Name(), stop, nil
}

func (c *runCmd) archive(set *stores.Set, logger *slog.Logger) (*archive.Archive, error) {
	if set != nil {
		a, _ := set.Archive(c.WARC) // callers are those of a fetchd
		if a == nil {
			return nil, c.noStore("--warc", c.WARC)
		}
		return a, nil
	}
	dir, err := directory("--warc", c.WARC, "warc+file")
	if err != nil {
		return nil, err
	}
	a, err := archive.Open(recordStore, archive.Config{Dir: dir, Software: agent(), Logger: logger})
	if err != nil {
		return nil, cannotWrite("--warc", err)
	}
	return a, nil
}

func (c *runCmd) noStore(flag, name string) error {
	kind := map[string]string{"--bodies": "bodies", "--warc": "WARC files"}[flag]
	return cli.UsageError(flag, fmt.Sprintf("%.80q is not a store for %s of %s: name one of that file, or remove --stores-file to give a directory", name, kind, c.Stores))
}

// directory returns the path that place is, or that is in its URL with the scheme.
func directory(flag, place, scheme string) (string, error) {
	u, err := url.Parse(place)
	if got, _, isURL := strings.Cut(place, "://"); isURL {
		switch {
		case !strings.HasSuffix(got, "file"):
			return "", cli.UsageError(flag, "a place with credentials must be in a file: give its name here, and the file with --stores-file")
		case err != nil || got != scheme || u.Host != "" && u.Host != "localhost" || !strings.HasPrefix(u.Path, "/") || u.RawQuery != "" || u.User != nil:
			return "", cannotWrite(flag, fmt.Errorf("the URL must be %s:///DIR, without a host and parameters", scheme))
		}
		return filepath.FromSlash(u.Path), nil
	}
	dir, err := filepath.Abs(place)
	if err != nil {
		return "", cannotWrite(flag, err)
	}
	return dir, nil
}

// checkRecords returns an error if a service has no store for records with that name. No service
// accepts its request, so no service fetches anything. A service that does not answer is not checked.
func checkRecords(ctx context.Context, services []frontier.Service, name string) error {
	ctx, cancel := context.WithTimeout(ctx, probeTime)
	defer cancel()
	for _, s := range services {
		_, err := s.Client.Do(ctx, &pb.FetchRequest{Record: &pb.RecordPolicy{Store: name, Earlier: new(pb.EarlierRecord)}})
		answer, _ := status.FromError(err)
		if answer.Code() != codes.InvalidArgument {
			continue
		}
		known := false
		for _, detail := range answer.Details() {
			bad, _ := detail.(*errdetails.BadRequest)
			for _, v := range bad.GetFieldViolations() {
				if v.GetField() == "record.store" {
					return cli.UsageError("--warc", fmt.Sprintf("%s: the name %s", s.Name, v.GetDescription()))
				}
				known = known || strings.HasPrefix(v.GetField(), "record.")
			}
		}
		if !known {
			return cli.UsageError("--warc", s.Name+": this fetchd cannot record fetches: use a newer one, or remove --server")
		}
	}
	return nil
}
