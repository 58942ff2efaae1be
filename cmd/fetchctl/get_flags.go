package main

import (
	"bytes"
	"fmt"
	"math"
	"strconv"
	"strings"
	"time"
)

// getCmd is the command "fetchctl get".
type getCmd struct {
	URL string `arg:"" help:"Absolute http or https URL."`

	Request string   `short:"X" group:"Request:" placeholder:"METHOD" help:"GET, HEAD, POST, PUT, PATCH, DELETE or OPTIONS. Default: GET, or POST with --data."`
	Header  []string `short:"H" sep:"none" group:"Request:" placeholder:"NAME: VALUE" help:"Request header. Repeatable."`
	Data    *string  `short:"d" group:"Request:" placeholder:"DATA|@FILE|@-" help:"Request body: the text itself, a file, or standard input, byte for byte, at most 1 MiB. Content-Type is not set."`
	Cookies bool     `group:"Request:" help:"Keep cookies across the redirects and attempts of this fetch. Default: cookies are dropped."`

	MaxRetries         *int32         `short:"r" group:"Retries:" placeholder:"N" help:"Attempts after the first, 0 to 10. Default: 2, with --profile download 3."`
	Profile            string         `enum:"standard,download" default:"standard" group:"Retries:" help:"Retry rules and waits: standard (short waits) or download (longer waits with jitter, retries 408, no time limit). Default: ${default}."`
	IdempotencyKey     string         `group:"Retries:" placeholder:"KEY" help:"Send this Idempotency-Key on every attempt. Default: none."`
	AllowNonIdempotent bool           `group:"Retries:" help:"Allow retries of POST and PATCH; requires --idempotency-key. Default: they are sent once."`
	Timeout            *time.Duration `group:"Retries:" placeholder:"DURATION" help:"Time limit for the whole fetch, including waits, such as 90s. Default: 1m; with --profile download the service's maximum."`

	MaxRedirects *int32 `group:"Redirects:" placeholder:"N" help:"Maximum number of redirects in one attempt, 0 to 20. Default: 5, with --profile download 20."`
	NoFollow     bool   `group:"Redirects:" xor:"follow" help:"Do not follow redirects: a redirect is then the result, with exit code 0."`

	MaxSize *byteSize `group:"Body:" placeholder:"SIZE" help:"Maximum size of the body, in bytes or with a unit: 500kB, 16MiB. Default: 16MiB, with --profile download the service's maximum."`
	SHA256  string    `name:"sha256" group:"Body:" placeholder:"HEX" help:"Fail unless the body has this SHA-256."`

	Store      string `group:"Store:" placeholder:"NAME" help:"Let the service write the body to this store. Standard output stays empty."`
	Key        string `group:"Store:" placeholder:"KEY" help:"Key of the object in the store, such as 2026/report.pdf. An object with that key is replaced. Default: named by its digest, which a store at S3 allows only with --sha256."`
	StoresFile string `name:"stores-file" group:"Store:" placeholder:"FILE" help:"Stores of the service inside fetchctl, as fetchd reads them. Not with --server, whose operator has configured the stores."`

	Output  string `short:"o" group:"Output:" placeholder:"FILE" help:"Write the body to FILE, completely or not at all. Default: standard output."`
	Include bool   `short:"i" group:"Output:" help:"Write the status and the headers before the body."`
	JSON    bool   `name:"json" group:"Output:" xor:"told,lines" help:"Print every event as a line of JSON instead of text."`
	Quiet   bool   `short:"q" group:"Output:" xor:"told" help:"Print nothing about the fetch. Usage and service errors are still printed."`
	Verbose bool   `short:"v" group:"Output:" help:"Print the policy, redirects, headers and timings as well."`

	HAR     string   `name:"har" group:"Record:" placeholder:"FILE" help:"Write every hop of every attempt to FILE as HTTP Archive 1.2, however the fetch ends."`
	HARWith []string `name:"har-with" enum:"body,secrets" group:"Record:" placeholder:"WHAT" help:"Include what --har leaves out: body, secrets (credentials and cookies), or both, separated by a comma."`
	WARC    *string  `name:"warc" group:"Record:" xor:"records" placeholder:"FILE" help:"Append every request and response of the fetch to a WARC file. It is compressed if its name ends in .gz. Not with --server."`
	Record  string   `group:"Record:" xor:"records" placeholder:"NAME" help:"Let the service record every request and response in this store for WARC files. With --server or --stores-file."`
	Trace   bool     `group:"Record:" xor:"lines" help:"Draw attempts, hops and waits to scale on standard error when the fetch has ended."`

	curlFlags
	insideFlags
	connection
}

// curlFlags are flags of curl that get has for those who know curl. More flags of get have the
// letters of curl: -X, -H, -d, -o, -i and -v.
type curlFlags struct {
	Head      bool    `short:"I" group:"Curl:" help:"Send HEAD, and write the status and the headers."`
	User      string  `short:"u" group:"Curl:" placeholder:"USER[:PASSWORD]" help:"Send this user and password with the Basic scheme. Without a password it is read from the terminal."`
	UserAgent *string `short:"A" group:"Curl:" placeholder:"TEXT" help:"User-Agent of every request."`

	RemoteName bool `short:"O" group:"Curl:" help:"Write the body to a file in the current directory, with the name that the origin gives or the last segment of the URL. An existing file is not replaced."`

	Silent    bool `short:"s" group:"Curl:" xor:"told" help:"The same as --quiet."`
	ShowError bool `short:"S" group:"Curl:" help:"With --silent or --quiet, print why a fetch failed."`

	Location   bool `short:"L" group:"Curl:" xor:"follow" help:"Follow redirects, which is the default."`
	Fail       bool `short:"f" group:"Curl:" help:"Fail if the status says so, which is the default."`
	Compressed bool `group:"Curl:" help:"Decode compressed bodies, which is the default."`

	Insecure   bool    `short:"k" hidden:""`
	ContinueAt *string `name:"continue-at" short:"C" hidden:""`
	MaxTime    *string `name:"max-time" short:"m" hidden:""`
	Retry      *string `hidden:""`
}

// toFile reports whether the body does not go to standard output.
func (c *getCmd) toFile() bool {
	return c.Output != "" && c.Output != "-" || c.Store != "" || c.RemoteName
}

// byteSize is a number of bytes, written with or without a unit.
type byteSize int64

// units are decimal and binary units.
var units = map[string]float64{"": 1, "B": 1, "KB": 1e3, "MB": 1e6, "GB": 1e9, "TB": 1e12,
	"K": 1 << 10, "M": 1 << 20, "G": 1 << 30, "T": 1 << 40, "KIB": 1 << 10, "MIB": 1 << 20, "GIB": 1 << 30, "TIB": 1 << 40}

// UnmarshalText implements encoding.TextUnmarshaler.
func (s *byteSize) UnmarshalText(text []byte) error {
	text = bytes.TrimSpace(text)
	end := bytes.IndexFunc(text, func(r rune) bool { return (r < '0' || r > '9') && r != '.' })
	if end < 0 {
		end = len(text)
	}
	unit, known := units[strings.ToUpper(string(bytes.TrimSpace(text[end:])))]
	n, err := strconv.ParseFloat(string(text[:end]), 64)
	if err != nil || !known || n*unit > math.MaxInt64/2 {
		return fmt.Errorf("%.20q is not a size: give bytes, or a number with kB, MB, GB, KiB, MiB or GiB", text)
	}
	*s = byteSize(n * unit)
	return nil
}
