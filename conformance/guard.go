package conformance

import (
	"embed"
	"fmt"
	"net/netip"
	"slices"
	"strings"
)

//go:embed guard/*.json
var guardFiles embed.FS

// GuardRow is a target that a client with an egress guard must not connect to, or must. README.md in this folder
// describes the format.
type GuardRow struct {
	// File is the file of the row, and About what that covers. Name is unique over all files. Category is what the row is
	// about.
	File     string `json:"-"`
	About    string `json:"-"`
	Name     string `json:"name"`
	Category string `json:"category"`
	// URL is what is asked for, and Env the environment of the client, such as a proxy.
	URL string            `json:"url"`
	Env map[string]string `json:"env"`
	// DNS has the answers of the name server by name. No other name exists.
	DNS map[string]GuardNames `json:"dns"`
	// Origin is what every address answers, by path. Any other path is a page.
	Origin map[string]GuardAnswer `json:"origin"`
	// Unreachable are addresses that no connection gets to.
	Unreachable []string `json:"unreachable"`
	// Target is the address that the URL leads to, and MayConnect whether a client may connect to it. If it may, the
	// page must arrive.
	Target     string `json:"target"`
	MayConnect bool   `json:"may_connect"`
	// Passes are the addresses that a client may connect to before the target.
	Passes []string `json:"passes"`
	// Faults are the faults of a guard that make the row fail.
	Faults []string `json:"faults"`
	// Why explains MayConnect, and Source is where that comes from.
	Why    string `json:"why"`
	Source string `json:"source"`
}

// GuardNames is what the name server answers for a name.
type GuardNames struct {
	// Alias has the names that the answer leads to, one after the other.
	Alias []string `json:"alias"`
	// Addresses has a list for each query of a type. The last list repeats.
	Addresses [][]string `json:"addresses"`
}

// GuardAnswer is what an origin answers.
type GuardAnswer struct {
	Status   int    `json:"status"`
	Location string `json:"location"`
}

// guardAddresses are the placeholders for public addresses.
var guardAddresses = strings.NewReplacer("{public}", "8.8.8.8", "{public2}", "1.1.1.1", "{public6}", "2606:4700:4700::1111")

// GuardRows returns all rows in the order of the files, with the placeholders replaced. It returns an error if a file is
// malformed.
func GuardRows() (all []GuardRow, err error) {
	err = load(guardFiles, "guard/*.json", func(name string, file *struct {
		About string     `json:"about"`
		Rows  []GuardRow `json:"rows"`
	}) error {
		for i := range file.Rows {
			r := &file.Rows[i]
			r.File, r.About = name, file.About
			for _, addr := range slices.Concat([]string{r.Target}, r.Passes, r.Unreachable) {
				if _, err := netip.ParseAddr(addr); err != nil {
					return fmt.Errorf("%s: %w", r.Name, err)
				}
			}
		}
		all = append(all, file.Rows...)
		return nil
	})
	return all, err
}

// Permits reports whether a client may connect to an address.
func (r *GuardRow) Permits(addr netip.Addr) bool {
	return r.MayConnect && addr == netip.MustParseAddr(r.Target) || slices.ContainsFunc(r.Passes, func(pass string) bool { return addr == netip.MustParseAddr(pass) })
}
