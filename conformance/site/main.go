// Command site makes pages of the records that fetch-conformance writes: clients against rules, and guards against
// categories, each cell with its evidence. The same records give the same bytes.
//
//	go run ./conformance/site [-out FOLDER] [-spec FILE] [FOLDER]
//
// FOLDER has the records of clients, deciders and services, and its folder guard those of guards.
package main

import (
	"flag"
	"fmt"
	"os"
)

func main() {
	out := flag.String("out", "dist/conformance-site", "write the pages to `FOLDER`")
	spec := flag.String("spec", "docs/spec.md", "read the text of the rules from `FILE`")
	flag.Usage = func() {
		fmt.Fprintln(os.Stderr, "usage: site [-out FOLDER] [-spec FILE] [FOLDER]\n\nMakes pages of the records in FOLDER (conformance/results) and FOLDER/guard.")
		flag.PrintDefaults()
	}
	flag.Parse()
	from := "conformance/results"
	switch flag.NArg() {
	case 0:
	case 1:
		from = flag.Arg(0)
	default:
		flag.Usage()
		os.Exit(2)
	}
	if err := build(from, *spec, *out); err != nil {
		fmt.Fprintln(os.Stderr, "site:", err)
		os.Exit(1)
	}
	fmt.Println(*out + "/index.html")
}
