package conformance_test

import (
	"net/netip"
	"regexp"
	"slices"
	"strings"
	"testing"

	"fetchd/conformance"
)

// TestGuardRows checks that the rows are whole, that each fault has rows, and that no permitted address is private.
func TestGuardRows(t *testing.T) {
	t.Parallel()
	rows, err := conformance.GuardRows()
	if err != nil {
		t.Fatal(err)
	}
	if len(rows) < 80 {
		t.Errorf("%d rows, want at least 80", len(rows))
	}
	names, faults := make(map[string]bool), make(map[string]int)
	category := regexp.MustCompile(`^guard/[0-9]-([a-z]+)\.json$`)
	for i := range rows {
		r := &rows[i]
		if names[r.Name] {
			t.Errorf("%s: there is another row with this name", r.Name)
		}
		names[r.Name] = true
		if found := category.FindStringSubmatch(r.File); found == nil || found[1] != r.Category {
			t.Errorf("%s: the category is %s, and the file %s", r.Name, r.Category, r.File)
		}
		if r.MayConnect != (r.Category == "allowed") || r.MayConnect != slices.Contains(r.Faults, "refuses") {
			t.Errorf("%s: may connect: %t, category %s, faults %q", r.Name, r.MayConnect, r.Category, r.Faults)
		}
		for _, fault := range r.Faults {
			faults[fault]++
		}
		for addr, may := range reached(t, r) {
			if public := addr.IsGlobalUnicast() && !addr.IsPrivate(); may && !public {
				t.Errorf("%s: a client may connect to %s, which is not public", r.Name, addr)
			}
		}
		if strings.ContainsAny(r.URL+r.Target, "{}") {
			t.Errorf("%s: a placeholder is left: %s", r.Name, r.URL)
		}
	}
	for _, fault := range []string{"names", "rebinding", "redirects", "mapped", "ranges", "numbers", "parser", "proxies", "refuses"} {
		if faults[fault] < 3 {
			t.Errorf("%d rows find the fault %s, want at least 3", faults[fault], fault)
		}
	}
}

// reached returns whether a client may connect to each address of a row.
func reached(t *testing.T, r *conformance.GuardRow) map[netip.Addr]bool {
	t.Helper()
	target := netip.MustParseAddr(r.Target)
	all := map[netip.Addr]bool{target: r.Permits(target)}
	if all[target] != r.MayConnect {
		t.Errorf("%s: the target is among the addresses that a client may connect to in any case", r.Name)
	}
	for _, pass := range r.Passes {
		addr := netip.MustParseAddr(pass)
		if all[addr] = r.Permits(addr); !all[addr] {
			t.Errorf("%s: a client may not connect to %s", r.Name, pass)
		}
	}
	return all
}
