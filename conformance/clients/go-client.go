//go:build ignore

// Command go-client fetches a URL with Go's net/http, or with go-retryablehttp and its defaults, and
// writes the body to standard output. "fetch-conformance client" judges it.
package main

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"runtime"
	"runtime/debug"
	"time"

	"github.com/hashicorp/go-retryablehttp"
)

const retryable = "github.com/hashicorp/go-retryablehttp"

func main() {
	if len(os.Args) != 3 {
		fmt.Fprintln(os.Stderr, "usage: go-client http|retryablehttp URL|--version")
		os.Exit(2)
	}
	if os.Args[2] == "--version" {
		fmt.Println(version(os.Args[1]))
		return
	}
	if err := fetch(os.Args[1], os.Args[2]); err != nil {
		fmt.Fprintln(os.Stderr, "go-client:", err)
		os.Exit(1)
	}
}

func version(kind string) string {
	if kind != "retryablehttp" {
		return "net/http of " + runtime.Version() + ", no retries of its own"
	}
	info, _ := debug.ReadBuildInfo() // nil without modules
	for _, m := range info.Deps {
		if m.Path == retryable {
			return "go-retryablehttp " + m.Version + ", defaults"
		}
	}
	return "go-retryablehttp, defaults"
}

func fetch(kind, url string) error {
	get, err := getter(kind)
	if err != nil {
		return err
	}
	resp, err := get(url)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	if resp.StatusCode >= http.StatusMultipleChoices {
		return errors.New(resp.Status)
	}
	_, err = io.Copy(os.Stdout, resp.Body)
	return err
}

// getter returns the client's Get.
func getter(kind string) (func(string) (*http.Response, error), error) {
	pem, err := os.ReadFile(os.Getenv("ORIGIN_CA"))
	if err != nil {
		return nil, err
	}
	pool := x509.NewCertPool()
	pool.AppendCertsFromPEM(pem)
	transport := &http.Transport{TLSClientConfig: &tls.Config{RootCAs: pool}, ForceAttemptHTTP2: true}
	client := &http.Client{Transport: transport, Timeout: 20 * time.Second}
	if kind != "retryablehttp" {
		return client.Get, nil
	}
	c := retryablehttp.NewClient()
	c.HTTPClient, c.Logger = client, nil
	return c.Get, nil
}
