package worker

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"fetchd/frontier"
	"fetchd/frontier/bodies"
	"fetchd/internal/cli"
	"fetchd/internal/jsontext"
	"fetchd/stores"
	"fetchd/stores/archive"
	"fetchd/warc"
)

const (
	closeTime = 10 * time.Second
	// uploadTime limits the wait for uploads of WARC files at the end. The next run uploads the rest.
	uploadTime = 5 * time.Minute
	// otherPlace is what to do if a place cannot be written.
	otherPlace = "give a directory or a store that you can write to"
	// recordStore is the name of the store in the fetchd inside, if --warc is a directory.
	recordStore = "warc"
)

// Results are the places of what a worker has fetched. An empty one is not used.
type Results struct {
	Bodies     string       // a directory, or the name of a store
	WARC       string       // a directory, or the name of a store
	WARCInfo   []warc.Field // of the warcinfo records of the fetchd inside
	StoresFile string       // with the stores
	SpoolBytes int64        // of temporary files of bodies that wait for a bucket
	Outcomes   string       // a file, or - for Stdout
	Stdout     io.Writer    // standard output
}

// open opens the places, and sets them in c. records is where the fetchd inside records, or nil if it does
// not, or if there is none inside. The caller calls closeAll, even after an error.
func (r *Results) open(ctx context.Context, c *frontier.Config, inside bool) (records *stores.Set, closeAll func(), err error) {
	var opened []func()
	closeAll = func() {
		for _, stop := range slices.Backward(opened) {
			stop()
		}
	}
	if r.Outcomes != "" {
		lines, err := openLines(r.Outcomes, r.Stdout)
		if err != nil {
			return nil, closeAll, err
		}
		opened = append(opened, func() { _ = lines.close() }) // every line was written completely before
		c.Recorded = lines.write
	}
	var set *stores.Set
	if r.StoresFile != "" {
		if set, err = stores.ReadFile(r.StoresFile, new(stores.Set)); err != nil {
			return nil, closeAll, cli.UsageError("--stores-file", fmt.Sprint(err))
		}
		opened = append(opened, closing(set.Close)) // waits until nothing is left of bodies that were dropped
	}
	if r.Bodies != "" {
		b, most, stop, err := r.openBodies(ctx, set, c.MaxBodyBytes)
		if err != nil {
			return nil, closeAll, err
		}
		opened = append(opened, stop)
		c.Bodies = b
		if q := c.Requisites; q != nil { // a longer one would be fetched again and again
			q.MaxBodyBytes = min(q.MaxBodyBytes, most)
		}
	}
	switch {
	case r.WARC == "":
	case !inside:
		c.RecordStore = r.WARC
	default:
		a, stop, err := r.openRecords(ctx, set, c.Logger)
		if err != nil {
			return nil, closeAll, err
		}
		opened = append(opened, stop)
		records, c.RecordStore = stores.Of(a), a.Name()
	}
	return records, closeAll, nil
}

func closing(closePlace func(context.Context) error) func() {
	return func() {
		ctx, cancel := context.WithTimeout(context.Background(), closeTime)
		defer cancel()
		_ = closePlace(ctx) // every body was stored completely before
	}
}

// openBodies opens the place for bodies, and returns the length of the longest that it takes. It stores the empty body there, so that an error is
// reported before anything is fetched. The caller calls stop.
func (r *Results) openBodies(ctx context.Context, set *stores.Set, maxBody int64) (_ *bodies.Store, most int64, stop func(), err error) {
	place, stop, err := r.place(set)
	if err != nil {
		return nil, 0, nil, err
	}
	if most = place.MaxObjectBytes(); most < maxBody {
		stop()
		return nil, 0, nil, cli.UsageError("--max-body-bytes", fmt.Sprintf("%d is more than the store accepts: give at most its limit, %d", maxBody, most))
	}
	ctx, cancel := context.WithTimeout(ctx, probeTime)
	defer cancel()
	b := bodies.New(place, r.SpoolBytes)
	body := b.New(ctx)
	defer body.Drop()
	empty := sha256.Sum256(nil)
	if err := body.Commit(hex.EncodeToString(empty[:]), nil); err != nil {
		stop()
		return nil, 0, nil, cannotWrite("--bodies", err)
	}
	return b, most, stop, nil
}

func cannotWrite(flag string, err error) error {
	return cli.OutputError(fmt.Errorf("%s: %w: %s", flag, err, otherPlace))
}

// place returns the place of --bodies. set is nil without --stores-file.
func (r *Results) place(set *stores.Set) (_ *stores.Store, stop func(), err error) {
	if set != nil {
		s, _ := set.Get(r.Bodies) // callers are those of a fetchd
		if s == nil {
			return nil, nil, r.noStore("--bodies", r.Bodies)
		}
		return s, func() {}, nil
	}
	dir, err := directory("--bodies", r.Bodies, "file")
	if err != nil {
		return nil, nil, err
	}
	s, err := stores.Open("bodies", stores.Config{URL: (&url.URL{Scheme: "file", Path: "/" + strings.TrimPrefix(filepath.ToSlash(dir), "/")}).String()})
	if err != nil {
		return nil, nil, cannotWrite("--bodies", err)
	}
	return s, closing(s.Close), nil
}

// openRecords opens the place of --warc. stop makes open files whole, and waits for uploads until ctx ends.
// The services must have stopped.
func (r *Results) openRecords(ctx context.Context, set *stores.Set, logger *slog.Logger) (_ *archive.Archive, stop func(), err error) {
	a, err := r.archive(set, logger)
	if err != nil {
		return nil, nil, err
	}
	stop = func() {
		ctx, cancel := context.WithTimeout(ctx, uploadTime)
		defer cancel()
		if err := a.Close(ctx); err != nil {
			logger.WarnContext(ctx, "WARC files are not complete, or not uploaded; the next run continues", slog.Any("error", err))
		}
	}
	if err := errors.Join(a.Describe(r.WARCInfo), a.Ready()); err != nil {
		stop()
		return nil, nil, cannotWrite("--warc", err)
	}
	return a, stop, nil
}

func (r *Results) archive(set *stores.Set, logger *slog.Logger) (*archive.Archive, error) {
	if set != nil {
		a, _ := set.Archive(r.WARC) // callers are those of a fetchd
		if a == nil {
			return nil, r.noStore("--warc", r.WARC)
		}
		return a, nil
	}
	dir, err := directory("--warc", r.WARC, "warc+file")
	if err != nil {
		return nil, err
	}
	a, err := archive.Open(recordStore, archive.Config{Dir: dir, Software: Agent(), Logger: logger})
	if err != nil {
		return nil, cannotWrite("--warc", err)
	}
	return a, nil
}

func (r *Results) noStore(flag, name string) error {
	kind := map[string]string{"--bodies": "bodies", "--warc": "WARC files"}[flag]
	return cli.UsageError(flag, fmt.Sprintf("%.80q is not a store for %s of %s: name one of that file, or remove --stores-file to give a directory", name, kind, r.StoresFile))
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

// lines writes outcomes as lines of JSON. It writes complete lines only.
type lines struct {
	w     io.Writer
	close func() error
}

// openLines appends to a file, or writes to standard output for "-".
func openLines(name string, stdout io.Writer) (*lines, error) {
	if name == "-" {
		return &lines{stdout, func() error { return nil }}, nil
	}
	f, err := os.OpenFile(name, os.O_RDWR|os.O_APPEND|os.O_CREATE, 0o666)
	if err != nil {
		return nil, cli.OutputError(err)
	}
	if err := endLine(f); err != nil {
		return nil, cli.OutputError(errors.Join(err, f.Close()))
	}
	return &lines{f, f.Close}, nil
}

// endLine adds a line end that an earlier run could not write.
func endLine(f *os.File) error {
	info, err := f.Stat()
	if err != nil || !info.Mode().IsRegular() || info.Size() == 0 {
		return err
	}
	last := make([]byte, 1)
	if _, err := f.ReadAt(last, info.Size()-1); err != nil || last[0] == '\n' {
		return err
	}
	_, err = f.WriteString("\n")
	return err
}

func (l *lines) write(r frontier.Record) error {
	var b strings.Builder
	if err := jsontext.NewEncoder(&b).Encode(r); err != nil {
		return err
	}
	if _, err := io.WriteString(l.w, b.String()); err != nil {
		return cli.OutputError(err)
	}
	return nil
}
