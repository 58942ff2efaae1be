package show

import (
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestTame(t *testing.T) {
	t.Parallel()
	got := tame([]string{"", "a=", "=a", "+1", "-1", "@a", "\ta", "\ra", "'a", "0", " =a", "a\nb", "\x1b[2J", "\u009b2J", "a\u202eb", "=\u2066", "\xff", "é☃, \\n"})
	want := []string{"", "a=", "'=a", "'+1", "'-1", "'@a", `\ta`, `\ra`, "'a", "0", " =a", `a\nb`, `\x1b[2J`, `\u009b2J`, `a\u202eb`, `'=\u2066`, `\xff`, "é☃, \\n"}
	if d := cmp.Diff(want, got); d != "" {
		t.Errorf("tame (-want +got):\n%s", d)
	}
}
