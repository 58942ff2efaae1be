package cli_test

import (
	"testing"

	"fetchd/internal/cli"
)

func TestByteSize(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		in   string
		want cli.ByteSize
		bad  bool
	}{
		{in: "0"}, {in: "1000", want: 1000}, {in: "500kB", want: 500_000}, {in: "16MiB", want: 16 << 20},
		{in: "1.5K", want: 1536}, {in: "1 GB", want: 1e9},
		{in: "", bad: true}, {in: "MiB", bad: true}, {in: "-1", bad: true}, {in: "1X", bad: true}, {in: "9e99", bad: true},
		{in: "99999999999999TB", bad: true},
	} {
		var got cli.ByteSize
		if err := got.UnmarshalText([]byte(tt.in)); (err != nil) != tt.bad || got != tt.want {
			t.Errorf("UnmarshalText(%q) = %d, %v; want %d, error %t", tt.in, got, err, tt.want, tt.bad)
		}
	}
}
