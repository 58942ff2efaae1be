package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"net/netip"
	"net/url"
	"os"
	"reflect"
	"regexp"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/alecthomas/kong"
)

// decodeDuration is the mapper of flags that are durations.
func decodeDuration(ctx *kong.DecodeContext, target reflect.Value) error {
	token, err := ctx.Scan.PopValue("duration")
	if err != nil {
		return err
	}
	text := fmt.Sprint(token.Value) // a number if it is from a settings file
	d, err := ParseDuration(text)
	if err != nil {
		if _, err := strconv.ParseFloat(text, 64); err == nil {
			return fmt.Errorf("%.20q has no unit: did you mean %.20ss?", text, text)
		}
		return fmt.Errorf("%.20q is not a duration: give a number with a unit, such as 90s, 5m, 1h30m or 7d", text)
	}
	target.SetInt(int64(d))
	return nil
}

// longUnits matches the weeks and days of a duration, and the rest.
var longUnits = regexp.MustCompile(`^(?:(\d{1,4})w)?(?:(\d{1,4})d)?(.*)$`)

// ParseDuration parses a duration as [time.ParseDuration] does, and also one that starts with weeks and
// days: 2w, 7d, 1d12h. A day has 24 hours.
func ParseDuration(text string) (time.Duration, error) {
	const day = 24 * time.Hour
	var total time.Duration
	found := longUnits.FindStringSubmatch(text)
	for i, unit := range []time.Duration{7 * day, day} {
		n, _ := strconv.Atoi(found[i+1]) // empty, or digits
		total += time.Duration(n) * unit
	}
	rest := found[3]
	if rest == "" && rest != text {
		return total, nil
	}
	d, err := time.ParseDuration(rest)
	switch {
	case err != nil:
		return 0, fmt.Errorf("parse %.40q: %w", text, err)
	case rest != text && (rest[0] == '-' || rest[0] == '+' || d > math.MaxInt64-total):
		return 0, fmt.Errorf("%.40q is not a duration", text)
	}
	return total + d, nil
}

// SuggestURL returns the URL that a user probably means by text without a scheme, or "" if there
// is none.
func SuggestURL(text string) string {
	if strings.Contains(text, "://") || !utf8.ValidString(text) {
		return ""
	}
	rest := strings.TrimPrefix(text, "//")
	u, err := url.Parse("https://" + rest)
	if err != nil || u.User != nil {
		return ""
	}
	addr, err := netip.ParseAddr(u.Hostname())
	switch {
	case u.Hostname() == "localhost" || err == nil && !addr.IsGlobalUnicast(): // a server of this machine
		return "http://" + rest
	case err == nil || strings.Contains(strings.Trim(u.Hostname(), "."), "."):
		return "https://" + rest
	}
	return ""
}

// CheckScheme rejects text that is a URL without its scheme, and suggests the whole URL.
func CheckScheme(field, text string) error {
	if whole := SuggestURL(text); whole != "" {
		return UsageError(field, fmt.Sprintf("%.80q has no scheme: did you mean %s?", text, Escape(whole)))
	}
	return nil
}

// CheckUTF8 rejects values, by the name of their flag, that a protobuf message cannot hold.
func CheckUTF8(values map[string]string) error {
	for field, value := range values {
		if !utf8.ValidString(value) {
			return UsageError(field, "is not UTF-8: percent-encode it")
		}
	}
	return nil
}

// InputError returns a usage error about a file that cannot be read, unless the program was
// interrupted.
func InputError(field string, err error) error {
	if errors.Is(err, context.Canceled) {
		return err
	}
	return UsageError(field, fmt.Sprintf("%v", err))
}

// ReadInput reads the named file, or stdin for "-", up to limit + 1 bytes. It returns when ctx
// ends, even if a read of stdin still blocks.
func ReadInput(ctx context.Context, name string, stdin io.Reader, limit int64) ([]byte, error) {
	if name != "-" {
		f, err := os.Open(name)
		if err != nil {
			return nil, err
		}
		defer func() { _ = f.Close() }() // it was only read
		stdin = f
	}
	type result struct {
		data []byte
		err  error
	}
	read := make(chan result, 1)
	go func() {
		data, err := io.ReadAll(io.LimitReader(stdin, limit+1))
		read <- result{data, err}
	}()
	select {
	case r := <-read:
		return r.data, r.err
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}
