package main

import (
	"testing"

	"fetchd/test/clitest"
)

func TestCompletion(t *testing.T) {
	t.Setenv("FETCHD_LOG_LEVEL", "no such level") // completion ignores settings
	clitest.Completion(t, "fetchd", func(args ...string) (int, string, string) {
		return command(t, args...)
	}, map[string][]string{
		"fetchd conf":                           {"config"},
		"fetchd --log-level w":                  {"warn"},
		"fetchd serve --log-format=j":           {"json"},
		"fetchd --non-idempotent-retries f":     {"forbid"},
		"fetchd --grpc-addr 127.0.0.1:8080 tok": {"token"},
		"fetchd --config scr":                   {"script"},
		"fetchd --no-such":                      nil,
		"fetchd completion f":                   {"fish"},
	})
}
