package get

import (
	"fmt"

	"fetchd/cmd/fetchctl/service"
	pb "fetchd/gen/fetchd/v1"
	"fetchd/internal/cli"
	"fetchd/stores"
)

// checkStore rejects flags that do not go with --store, or that need it.
func (c *Command) checkStore() error {
	switch {
	case c.StoresFile != "" && c.Server != "":
		return cli.UsageError("--stores-file", "is for the service inside fetchctl: leave it out with --server or FETCHD_SERVER")
	case c.Store == "" && c.Key != "":
		return cli.UsageError("--key", "needs --store NAME")
	case c.Store == "" && c.Record == "" && c.StoresFile != "":
		return cli.UsageError("--stores-file", "needs --store NAME or --record NAME")
	case c.Store == "":
		return nil
	case c.StoresFile == "" && c.Server == "":
		return cli.UsageError("--store", "needs a service with stores: give --server, or --stores-file FILE for the service inside fetchctl")
	case c.Output != "":
		return cli.UsageError("-o", "is given with --store, and the body goes to the store: leave out one of them")
	case c.Include:
		return cli.UsageError("--include", "needs a body on standard output, and --store writes none: use --verbose")
	}
	return nil
}

// stores opens the stores of the service service. The caller closes them with service.CloseStores.
func (c *Command) stores() (*stores.Set, error) {
	if c.WARC != nil && c.User != "" {
		return service.OpenWARC(*c.WARC, "Authorization")
	}
	if c.WARC != nil {
		return service.OpenWARC(*c.WARC)
	}
	if c.StoresFile == "" {
		return new(stores.Set), nil
	}
	bodies, err := stores.ReadFile(c.StoresFile, new(stores.Set))
	if err != nil {
		return nil, cli.UsageError("--stores-file", fmt.Sprint(err))
	}
	return bodies, nil
}

// checkRecords rejects flags that do not go with --warc and --record.
func (c *Command) checkRecords() error {
	if err := service.CheckWARC(c.WARC, c.Server, "with --server or FETCHD_SERVER, name a store of that service with --record"); err != nil {
		return err
	}
	switch {
	case c.WARC != nil && *c.WARC == c.Output:
		return cli.UsageError("--warc", "is the FILE of -o: give another")
	case c.WARC != nil && c.StoresFile != "":
		return cli.UsageError("--warc", "cannot be combined with --stores-file: put a store for records into that file, and name it with --record")
	case c.Record != "" && c.Server == "" && c.StoresFile == "":
		return cli.UsageError("--record", "needs a service with stores: give --server, or --stores-file FILE for the service inside fetchctl. --warc FILE needs neither")
	}
	return nil
}

// recordPolicy returns the policy of --warc and --record.
func (c *Command) recordPolicy() *pb.RecordPolicy {
	switch {
	case c.WARC != nil:
		return &pb.RecordPolicy{Store: service.WARCStore}
	case c.Record != "":
		return &pb.RecordPolicy{Store: c.Record}
	}
	return nil
}
