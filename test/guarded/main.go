// Command guarded fetches a URL through a fetchd inside it, which has no settings and so the default egress policy. It
// is for "fetch-conformance guard": the service inside fetchctl has the access of its user.
package main

import (
	"context"
	"fmt"
	"io"
	"os"

	"fetchd/client"
	"fetchd/server"
	"fetchd/server/embed"
)

func main() {
	if len(os.Args) != 2 {
		fmt.Fprintln(os.Stderr, "usage: guarded URL")
		os.Exit(2)
	}
	if err := fetch(context.Background(), os.Args[1], os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

// fetch fetches a URL and writes the body.
func fetch(ctx context.Context, url string, to io.Writer) error {
	conn, stop, err := embed.Start(server.Config{}, nil)
	if err != nil {
		return err
	}
	defer stop()
	resp, err := client.New(conn).Get(ctx, url)
	if err != nil {
		return err
	}
	defer func() { _ = resp.Body.Close() }() // it was only read
	_, err = io.Copy(to, resp.Body)
	return err
}
