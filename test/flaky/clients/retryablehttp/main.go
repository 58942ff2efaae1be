// Command retryablehttp fetches with go-retryablehttp and its defaults, except for the number of attempts and
// the time limit that all clients have: pkg.go.dev/github.com/hashicorp/go-retryablehttp.
package main

import (
	"errors"
	"io"
	"net/http"
	"time"

	"github.com/hashicorp/go-retryablehttp"
	"golang.org/x/sync/errgroup"

	"fetchd/test/flaky/clients/jobs"
)

func main() {
	client := retryablehttp.NewClient()
	client.RetryMax, client.Logger = 3, nil
	client.HTTPClient.Timeout = 5 * time.Second
	var group errgroup.Group
	group.SetLimit(32)
	for method, url := range jobs.All() {
		group.Go(func() error {
			body, err := fetch(client, method, url)
			jobs.Report(url, body, err)
			return nil
		})
	}
	_ = group.Wait()
}

func fetch(client *retryablehttp.Client, method, url string) ([]byte, error) {
	request, err := retryablehttp.NewRequest(method, url, nil)
	if err != nil {
		return nil, err
	}
	response, err := client.Do(request)
	if err != nil {
		return nil, err
	}
	defer response.Body.Close()
	if response.StatusCode >= http.StatusMultipleChoices {
		return nil, errors.New(response.Status)
	}
	return io.ReadAll(response.Body)
}
