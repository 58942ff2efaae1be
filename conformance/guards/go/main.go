// Command guards fetches a URL with a Go package that guards a client, and writes the body.
package main

import (
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"

	"code.dny.dev/ssrf"
	"github.com/doyensec/safeurl"
)

func main() {
	if len(os.Args) != 3 {
		fmt.Fprintln(os.Stderr, "usage: guards safeurl|safeurl-ipv6|ssrf URL")
		os.Exit(2)
	}
	if err := fetch(os.Args[1], os.Args[2]); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func fetch(name, url string) error {
	var resp *http.Response
	var err error
	switch name {
	case "safeurl", "safeurl-ipv6": // it has an option for IPv6, which is off
		resp, err = safeurl.Client(safeurl.GetConfigBuilder().EnableIPv6(name == "safeurl-ipv6").Build()).Get(url)
	case "ssrf":
		dialer := &net.Dialer{Control: ssrf.New().Safe}
		client := &http.Client{Transport: &http.Transport{DialContext: dialer.DialContext}}
		resp, err = client.Get(url)
	default:
		err = errors.New("no such package")
	}
	if err != nil {
		return err
	}
	defer func() { _ = resp.Body.Close() }() // it was only read
	_, err = io.Copy(os.Stdout, resp.Body)
	return err
}
