package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"text/tabwriter"

	"fetchd/cmd/frontier/progress"
	"fetchd/frontier/store"
	"fetchd/internal/cli"
)

// shardsCmd is "frontier shards".
type shardsCmd struct {
	List listShardsCmd `cmd:"" help:"Show what each database has."`
	Add  addShardCmd   `cmd:"" help:"Add an empty PostgreSQL database, and move its share of the hosts into it."`
	Move moveShardsCmd `cmd:"" help:"Move hosts from one database to another, or finish a move that was interrupted."`

	Repair repairShardsCmd `cmd:"" help:"Make a database that was restored from a backup fit the others: delete what has moved away since."`
}

// listShardsCmd is "frontier shards list".
type listShardsCmd struct{ database }

func (c *listShardsCmd) run(ctx context.Context, a *app) int {
	return c.with(ctx, a, readOnly, func(s *store.Store) error {
		all, moving, err := s.Shards(ctx)
		if err != nil {
			return err
		}
		t := tabwriter.NewWriter(a.Out, 0, 0, 2, ' ', 0)
		out := &cli.Printer{W: t}
		out.Printf("number\tdatabase\tslots\tURLs (about)\twaiting for others\n")
		for _, one := range all {
			if one.Err != nil {
				out.Printf("%d\t%s\t%d\tcannot be reached\t\n", one.Number, safe(one.Name), one.Slots)
				continue
			}
			out.Printf("%d\t%s\t%d\t%d\t%d\n", one.Number, safe(one.Name), one.Slots, one.URLs, one.Waiting)
		}
		for _, one := range all {
			if one.Stuck > 0 {
				out.Printf("Database %d has %s for others that they refuse. A crawl does not wait for them. The log of a worker has the cause.\n", one.Number, cli.Count(one.Stuck, "parcel"))
			}
		}
		if moving >= 0 {
			out.Printf("Slot %d moves. If no command moves it, finish it with \"frontier shards move\".\n", moving)
		}
		if err := out.End(); err != nil {
			return err
		}
		if err := t.Flush(); err != nil {
			return cli.OutputError(err)
		}
		return nil
	})
}

// addShardCmd is "frontier shards add".
type addShardCmd struct {
	database
	New string `arg:"" name:"dsn" placeholder:"DSN" help:"The empty database, as postgres://USER@HOST/NAME."`
}

func (c *addShardCmd) run(ctx context.Context, a *app) int {
	if !isPostgres(c.New) {
		return a.end(ctx, cli.UsageError("DSN", "give postgres://USER@HOST/NAME: a frontier in many databases is in PostgreSQL"))
	}
	// If the command was interrupted, the new database belongs to the frontier already.
	s, err := database{DB: append(slices.Clone(c.DB), c.New)}.open(ctx, existing, store.Config{})
	if errors.Is(err, store.ErrShards) {
		s, err = c.open(ctx, existing, store.Config{})
	}
	if err != nil {
		return a.end(ctx, err)
	}
	return a.end(ctx, moving(ctx, a, s, func(report func(store.Progress)) error { return s.AddDatabase(ctx, c.New, store.Config{}, report) }))
}

// moveShardsCmd is "frontier shards move".
type moveShardsCmd struct {
	database
	From  *int `placeholder:"NUMBER" help:"The database to move from, by its number in \"frontier shards list\"."`
	To    *int `placeholder:"NUMBER" help:"The database to move to."`
	Slots int  `placeholder:"N" help:"How many of the 1,024 slots to move. Each has the hosts of some domains."`
}

func (c *moveShardsCmd) run(ctx context.Context, a *app) int {
	some := c.From != nil || c.To != nil || c.Slots != 0
	if some && (c.From == nil || c.To == nil || c.Slots < 1 || *c.From == *c.To) {
		return a.end(ctx, cli.UsageError("move", "give --from, another number for --to, and --slots of 1 or more; or none of them, to finish a move"))
	}
	s, err := c.open(ctx, existing, store.Config{})
	if err != nil {
		return a.end(ctx, err)
	}
	var slots []int
	to := 0
	if some {
		slots, to = s.SlotsOf(*c.From), *c.To
		slots = slots[:min(len(slots), c.Slots)]
	}
	return a.end(ctx, moving(ctx, a, s, func(report func(store.Progress)) error { return s.MoveSlots(ctx, slots, to, report) }))
}

// repairShardsCmd is "frontier shards repair".
type repairShardsCmd struct{ database }

func (c *repairShardsCmd) run(ctx context.Context, a *app) int {
	s, err := c.open(ctx, existing, store.Config{Repair: true})
	if err == nil {
		err = s.Close()
	}
	if err != nil {
		return a.end(ctx, err)
	}
	out := &cli.Printer{W: a.Out}
	out.Printf("Each database has the hosts that the table of slots gives it.\n")
	return a.end(ctx, out.End())
}

// moving runs a move with a line that shows its progress, and closes s.
func moving(ctx context.Context, a *app, s *store.Store, f func(report func(store.Progress)) error) error {
	line := progress.NewLine(a.Err)
	var last store.Progress
	err := f(func(p store.Progress) {
		last = p
		text := fmt.Sprintf("%d of %s, %s", p.Slots, cli.Count(p.Of, "slot"), cli.Count(p.URLs, "URL"))
		if p.Leased > 0 {
			text += fmt.Sprintf("; slot %d waits for fetches of %s", p.Slot, cli.Count(p.Leased, "host"))
		}
		line.Show(int64(p.Slots), text)
	})
	line.Clear()
	done := fmt.Sprintf("moved %s with %s", cli.Count(last.Slots, "slot"), cli.Count(last.URLs, "URL"))
	return a.changed(ctx, errors.Join(err, s.Close()), last.Slots > 0, done, "Run the same command again to continue.", "")
}
